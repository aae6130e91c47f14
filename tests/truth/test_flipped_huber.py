"""The flipped Huber: law, delta in every regime, moments of the loss; misprints."""

import jax
import mpmath as mp
import numpy as np
import oracle
import pytest
from closed_forms import flipped_huber_log_delta
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64


def noise_of(row):
    return dp.FlippedHuber(row["params"]["alpha"], row["params"]["gamma"])


def test_reference_normaliser():
    for row in records("flipped_huber", "omega"):
        noise = noise_of(row)
        a = mp.mpf(float(noise.alpha)) / mp.mpf(float(noise.gamma))
        truth = a * a / 2 - mp.log(expected(row)) - mp.log(mp.mpf(float(noise.gamma)))
        assert abs(oracle.relative_error(float(noise.log_density(0.0)), truth)) < 1e-14


def test_reference_quantile():
    for row in records("flipped_huber", "isf"):
        p = float(row["inputs"]["p"])
        if p == 0:  # 1e-1000 is no double
            continue
        value = -float(noise_of(row).quantile(p))
        # The decimal rates are not doubles: near 1/2 that moves the result.
        tolerance = 1e-12 if p == 0.5001 else 1e-13
        assert abs(oracle.relative_error(value, expected(row))) < tolerance, row["id"]
    for row in records("flipped_huber", "ln_tradeoff"):
        noise, inputs = noise_of(row), row["inputs"]
        threshold = -noise.quantile(float(inputs["alpha_err"])) - inputs["Delta"]
        value = float(noise.log_survival(-threshold))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-10, row["id"]


def test_fisher_information_times_variance():
    """From 1, the Gaussian's, to 2, the Laplace's."""
    noise = dp.FlippedHuber(np.logspace(-4, 4, 50), 1.0)
    product = np.asarray(noise.variance() * noise.fisher_information())
    assert np.all(np.diff(product) > -1e-14)
    np.testing.assert_allclose(product[[0, -1]], [1, 2], rtol=1e-7)
    one = dp.FlippedHuber(1.0, 1.0)
    assert abs(one.variance() * one.fisher_information() - 1.2526) < 5e-5


def check(noise, shift, epsilon):
    """One value against the closed form."""
    alpha, gamma = float(noise.alpha), float(noise.gamma)
    truth, regime = flipped_huber_log_delta(alpha, gamma, shift, epsilon)
    value = float(noise.log_delta(shift, epsilon))
    oracle.check_upper_bound(value, truth, (alpha, gamma, shift, epsilon, regime))


def test_the_design_on_the_plateau():
    """alpha shift = gamma^2 epsilon: the best variance for the budget, and the budget is met.

    An ulp past it delta is larger by a part in 1e7: half of the mass lies on the plateau.
    """
    roots = {
        (row["inputs"]["eps"], row["inputs"]["delta"]): expected(row)
        for row in records("flipped_huber", "plateau_a")
    }
    for (epsilon, delta), root in roots.items():
        a = float(root)
        noise = dp.FlippedHuber(a * a / epsilon * (1 - 1e-15), a / epsilon)
        log_delta = float(noise.log_delta(1.0, epsilon))
        assert abs(log_delta / np.log(float(delta)) - 1) < 1e-12
        for ulps in (-4, -1, 0, 1, 4):
            check(
                dp.FlippedHuber(a * a / epsilon * (1 + ulps * 2.0**-52), a / epsilon), 1.0, epsilon
            )
    for row in records("flipped_huber", "plateau_var"):
        key = row["inputs"]["eps"], row["inputs"]["delta"]
        if key in roots:
            a = float(roots[key])
            value = float(dp.FlippedHuber(a * a / key[0], a / key[0]).variance())
            assert abs(oracle.relative_error(value, expected(row))) < 1e-13
    found = records("flipped_huber", "plateau_ln_delta")
    assert all(
        abs(expected(row) / mp.log(mp.mpf(row["inputs"]["delta"])) - 1) < 1e-15 for row in found
    )


@pytest.mark.long
def test_a_centre_of_no_width_has_derivatives():
    slope = jax.grad(lambda a: dp.FlippedHuber(a, 1.0).log_delta(1.0, 1.0))
    assert slope(0.0) == 0
    assert np.isfinite(jax.grad(slope)(0.0))


def test_the_printed_fourth_regime_loses_every_digit():
    """delta = 1/2 - c (1 - exp(-a u)) - ..., as printed: nothing is left of it here."""
    a, shift, epsilon = 40.0, 0.025, 1.0001

    def printed(a, shift, epsilon):
        kappa = 2 * (1 - mp.exp(-a * a)) / a
        kappa += mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * mp.erfc(a / mp.sqrt(2))
        u = a - shift + mp.sqrt(2 * (epsilon - a * shift))
        weight = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) / kappa
        tail = weight * mp.erfc((u + shift) / mp.sqrt(2)) / 2
        return mp.mpf(1) / 2 - (1 - mp.exp(-a * u)) / (a * kappa) - mp.exp(epsilon) * tail

    arguments = [mp.mpf(v) for v in (a, shift, epsilon)]
    with mp.workdps(16):
        assert printed(*arguments) <= 0
    with mp.workdps(122):
        assert printed(*arguments) < 0
    noise = dp.FlippedHuber(a, 1.0)
    assert flipped_huber_log_delta(a, 1.0, shift, epsilon)[1] == 4
    check(noise, shift, epsilon)


def test_the_printed_normaliser_overflows():
    """omega = kappa exp(alpha^2 / 2 gamma^2) is beyond every double for alpha > 37.7 gamma."""
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(38.0**2 / 2))
    noise = dp.FlippedHuber(38.0, 1.0)
    check(noise, 1.0, 38.0)
    check(noise, 0.01, 3.0)
    assert np.isfinite(noise.log_density(100.0))
    np.testing.assert_allclose(noise.variance(), 2 / 38.0**2, rtol=1e-13)


def test_divergence_is_differentiable():
    noise = dp.FlippedHuber(1.2, 0.9)
    derivative = jax.jit(jax.grad(noise.renyi, 1))
    for order, h in ((1.01, 1e-5), (5.0, 1e-4)):
        numeric = (noise.renyi(0.7, order + h) - noise.renyi(0.7, order - h)) / (2 * h)
        np.testing.assert_allclose(derivative(0.7, order), numeric, rtol=1e-7)


def test_the_atom_is_the_plateau():
    """Where the centre is wider than the shift."""
    noise = dp.FlippedHuber(1.5, 1.0)
    assert noise.structure(0.5).singularities == dp.own.Kinks((-0.75, 0.75))
    assert np.isnan(noise.structure(1.5).singularities.atoms).all()
    assert noise.structure(0.0).singularities.atoms[1] == 0


def test_zcdp_is_tight_and_published_xi_is_loose():
    """The published xi is valid but 1.5 to 94 times too large."""
    cases = {(1.0, 1.0, 0.5): 0.0503, (1.0, 1.0, 1.5): 0.1115, (3.0, 1.0, 0.5): 0.876}
    cases |= {(11.0, 3.3125, 1.0): 0.634, (0.1, 1.0, 1.0): 5.3e-5}
    looseness = []
    for (alpha, gamma, shift), tight in cases.items():
        noise = dp.FlippedHuber(alpha, gamma)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 5, 400)
        excess = np.asarray(noise.renyi(shift, order)) - rho * order
        assert xi >= excess.max()
        assert 0 <= rho * 2 * (gamma / shift) ** 2 - 1 < 1e-14
        assert abs(xi - tight) < (2e-3 * tight + 6e-5 if alpha > 0.1 else 5e-6)
        published = (alpha**2 - max(alpha - shift, 0) ** 2) / (2 * gamma**2)
        looseness.append(published / xi)
    assert 1.5 < min(looseness) < 1.6
    assert 80 < max(looseness) < 95
    (row,) = records("flipped_huber", "xi_tight")
    xi = float(noise_of(row).zcdp(row["inputs"]["Delta"])[0])
    assert 0 <= oracle.relative_error(xi, expected(row)) < 1e-4


def test_zcdp_at_the_edges():
    """Where the search is left to the published bound, and next to that."""
    for a, shift in ((1e-7, 1.0), (0.9e-6, 1.0), (1.1e-6, 1.0), (1.0, 1e-13), (1.0, 2e-12)):
        noise = dp.FlippedHuber(a, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 13, 200)
        assert np.all(np.asarray(noise.renyi(shift, order)) <= (xi + rho * order) * (1 + 1e-12))
        published = (a**2 - max(a - shift, 0) ** 2) / 2
        assert 0 <= xi <= published * (1 + 1e-12) or shift < 1e-11
    for shift in (0.0, 1e-200):
        xi, rho = (float(v) for v in dp.FlippedHuber(1.0, 1.0).zcdp(shift))
        assert 0 <= xi < 1e-199
        assert (rho > 0) == (shift > 0)
