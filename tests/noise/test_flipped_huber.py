"""The flipped Huber: published values, every regime at its boundaries, misprints, bad input."""

import itertools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records
from tailed_laplace import (
    flipped_huber_boundaries,
    flipped_huber_cumulant,
    flipped_huber_log_delta,
)

import jaxdp as dp
from jaxdp._numeric.faddeeva import faddeeva
from jaxdp._numeric.mills import mills_slope

QUANTITIES = {
    "var": lambda n: n.variance(),
    "mae": lambda n: n.mean_absolute(),
    "fisher": lambda n: n.fisher_information(),
}


def noise_of(row):
    return dp.FlippedHuber(row["params"]["alpha"], row["params"]["gamma"])


def check(noise, shift, epsilon):
    """One value against the closed form; returns its regime."""
    alpha, gamma = float(noise.alpha), float(noise.gamma)
    truth, regime = flipped_huber_log_delta(alpha, gamma, shift, epsilon)
    value = float(noise.log_delta(shift, epsilon))
    if truth > -1e-300:
        assert truth <= value <= 0
    else:
        error = oracle.relative_error(value, truth)
        assert 0 <= error < 1e-12, (alpha, gamma, shift, epsilon, regime, error)
    return regime


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_reference_moments(quantity):
    for row in records("flipped_huber", quantity):
        value = float(QUANTITIES[quantity](noise_of(row)))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-13, row["id"]


def test_reference_normaliser():
    for row in records("flipped_huber", "omega"):
        noise = noise_of(row)
        a = mp.mpf(float(noise.alpha)) / mp.mpf(float(noise.gamma))
        truth = a * a / 2 - mp.log(expected(row)) - mp.log(mp.mpf(float(noise.gamma)))
        assert abs(oracle.relative_error(float(noise.log_density(0.0)), truth)) < 1e-14


def test_reference_survival_and_quantile():
    for row in records("flipped_huber", "ln_sf"):
        value = float(noise_of(row).log_survival(row["inputs"]["t"]))
        assert abs(oracle.relative_error(value, expected(row))) < 2e-13, row["id"]
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


def test_reference_log_delta():
    for row in records("flipped_huber", "ln_delta"):
        value = float(noise_of(row).log_delta(row["inputs"]["Delta"], row["inputs"]["eps"]))
        truth = expected(row)
        if truth > -1e-300:
            assert truth <= value <= 0
            continue
        assert -1e-19 <= oracle.relative_error(value, truth) < 1e-12, row["id"]


def test_reference_renyi():
    for row in records("flipped_huber", "rdp"):
        value = float(noise_of(row).renyi(row["inputs"]["Delta"], row["inputs"]["alpha_order"]))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-12, row["id"]


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


def test_every_regime_at_its_boundaries():
    """Exactly there and one ulp to either side, for both signs of epsilon."""
    seen = set()
    ratios = (1e-6, 1e-3, 0.1, 1.0, 3.0, 9.0, 40.0, 300.0)
    for a, factor in itertools.product(ratios, (1e-9, 0.3, 1.0, 1.7, 2.0, 2.6, 30.0)):
        gamma = 0.7
        noise = dp.FlippedHuber(a * gamma, gamma)
        shift = a * factor * gamma
        for boundary in flipped_huber_boundaries(a * gamma, gamma, shift):
            for sign in (-1, 0, 1):
                epsilon = float(np.nextafter(boundary, sign * np.inf)) if sign else boundary
                seen.add(check(noise, shift, epsilon))
            check(noise, shift, -boundary)
    assert seen == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("reach", "count"), [((-6, 1.5, -10, 1.5), 200), ((-1, 5, -2, 6), 200)])
def test_wide_ranges(reach, count):
    rng = np.random.default_rng(5)
    gamma = 10 ** rng.uniform(-3, 3, count)
    alpha = gamma * 10 ** rng.uniform(reach[0], reach[1], count)
    shift = gamma * 10 ** rng.uniform(reach[2], reach[3], count)
    log_ratio = rng.uniform(-3, 2, count)
    epsilon = rng.choice([-1, 1], count) * 10**log_ratio * shift * (shift + alpha) / gamma**2
    for *pair, m, e in zip(alpha, gamma, shift, epsilon, strict=True):
        check(dp.FlippedHuber(*pair), float(m), float(e))


def test_one_minus_delta_keeps_its_digits():
    """delta from 1/2 to 1 - 1e-300, in the three regimes left of 0."""
    rng = np.random.default_rng(5)
    a = np.concatenate([10 ** rng.uniform(-3, 1, 60), rng.uniform(20, 50, 60)])
    shift = np.where(a < 15, rng.uniform(2, 73, 120), a * rng.uniform(0.3, 1.5, 120))
    epsilon = rng.uniform(0, 0.3, 120) * a * shift * rng.choice([-1, 1], 120)
    regimes = [
        check(dp.FlippedHuber(float(x), 1.0), float(m), float(e))
        for x, m, e in zip(a, shift, epsilon, strict=True)
    ]
    assert {1, 2, 3} <= set(regimes)


def test_derivatives_on_both_sides_of_each_boundary():
    """d log delta / d epsilon; it jumps at the plateau, where the loss has an atom."""
    slope = jax.jit(jax.grad(lambda a, m, e: dp.FlippedHuber(a, 1.0).log_delta(m, e), 2))
    for a, shift in ((1.5, 0.5), (0.2, 0.05), (2.0, 3.0), (1.0, 1.0), (0.5, 2.5), (6.0, 0.3)):
        for boundary in flipped_huber_boundaries(a, 1.0, shift):
            for side in (-1, 1):
                point = boundary * (1 + side * 1e-7)

                def truth(e, a=a, shift=shift):
                    return flipped_huber_log_delta(a, 1.0, shift, e)[0]

                step = mp.mpf(boundary) * mp.mpf(10) ** -12
                with mp.workdps(60):
                    expected_slope = (truth(point + step) - truth(point - step)) / (2 * step)
                error = oracle.relative_error(float(slope(a, shift, point)), expected_slope)
                assert abs(error) < 1e-9, (a, shift, boundary, side)
    below, above = (float(slope(1.5, 0.5, 0.75 + s)) for s in (-1e-12, 1e-12))
    assert below < 1.5 * above < 0


@pytest.mark.long
def test_derivatives_in_alpha():
    def log_delta(a, e):
        return dp.FlippedHuber(a, 1.0).log_delta(1.0, e)

    slope = jax.jit(jax.grad(log_delta))
    curvature = jax.jit(jax.grad(slope))
    h = 1e-5
    for a, epsilon in ((2.0, 0.3), (2.0, 2.2), (0.7, 0.4), (0.7, 1.1), (0.3, 0.1), (0.3, 2.0)):
        up, down = log_delta(a + h, epsilon), log_delta(a - h, epsilon)
        np.testing.assert_allclose(slope(a, epsilon), (up - down) / (2 * h), rtol=1e-8)
        numeric = (slope(a + h, epsilon) - slope(a - h, epsilon)) / (2 * h)
        np.testing.assert_allclose(curvature(a, epsilon), numeric, rtol=1e-8)
    assert slope(0.0, 1.0) == 0
    assert np.isfinite(curvature(0.0, 1.0))


@pytest.mark.long
def test_no_centre_is_the_gaussian():
    ours, normal = dp.FlippedHuber(0.0, 1.3), dp.Gaussian(1.3)
    epsilon = np.array([-3.0, -0.1, 0.0, 0.2, 1.0, 40.0])
    np.testing.assert_allclose(ours.log_delta(0.8, epsilon), normal.log_delta(0.8, epsilon), 1e-14)
    np.testing.assert_allclose(ours.absolute_moment(3.5), normal.absolute_moment(3.5), 1e-13)
    np.testing.assert_allclose(ours.fisher_information(), normal.fisher_information(), 1e-14)
    u = np.array([1e-200, 0.3, 0.5, 0.9])
    np.testing.assert_allclose(ours.quantile(u), normal.quantile(u), rtol=1e-13)
    for z in (0.1 + 0.0j, 3.0 + 0.0j, 1e3 + 0.0j, -0.3 + 0.4j, 2.0 + 5.0j):
        gap = complex(ours.cgf(0.8, z)) - complex(normal.cgf(0.8, z))
        assert abs(np.exp(gap) - 1) < 1e-12 * max(1, abs(z) ** 2)
    assert ours.zcdp(0.8)[0] < 1e-12


def test_wide_centre_is_the_laplace():
    """alpha, gamma -> inf at a fixed gamma^2 / alpha."""
    ours, laplace = dp.FlippedHuber(1.3e8, 1.3e4), dp.Laplace(1.3)
    epsilon = np.array([-3.0, 0.0, 0.2, 0.5])
    np.testing.assert_allclose(ours.log_delta(0.8, epsilon), laplace.log_delta(0.8, epsilon), 1e-7)
    np.testing.assert_allclose(ours.variance(), laplace.variance(), rtol=1e-13)
    np.testing.assert_allclose(ours.quantile(0.01), laplace.quantile(0.01), rtol=1e-13)
    np.testing.assert_allclose(ours.cgf(0.8, 3.0 + 2.0j), laplace.cgf(0.8, 3.0 + 2.0j), rtol=1e-7)
    assert ours.log_delta(0.8, 0.8 / 1.3 + 1e-6) < -1e7


def test_fisher_information_times_variance():
    """From 1, the Gaussian's, to 2, the Laplace's."""
    noise = dp.FlippedHuber(np.logspace(-4, 4, 50), 1.0)
    product = np.asarray(noise.variance() * noise.fisher_information())
    assert np.all(np.diff(product) > -1e-14)
    np.testing.assert_allclose(product[[0, -1]], [1, 2], rtol=1e-7)
    one = dp.FlippedHuber(1.0, 1.0)
    assert abs(one.variance() * one.fisher_information() - 1.2526) < 5e-5


def test_quantile_inverts_survival():
    rng = np.random.default_rng(5)
    u = np.concatenate([10 ** rng.uniform(-300, -0.31, 200), [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for a in (1e-7, 0.3, 2.0, 5.5, 30.0, 1e4):
        noise = dp.FlippedHuber(a * 3.0, 3.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)


@pytest.mark.parametrize("power", [-0.9, 0.0, 0.5, 3.0, 20.0])
def test_moments_at_any_power(power):
    for a in (0.0, 1e-3, 0.8, 1.2, 7.0, 200.0):
        alpha = mp.mpf(a)
        n = mp.mpf(power) + 1
        kappa = 2 * mp.sqrt(2 * mp.pi) * mp.exp(-(alpha**2) / 2) * mp.erfc(alpha / mp.sqrt(2)) / 2
        tail = mp.exp(-(alpha**2) / 2) * 2 ** (n / 2 - 1) * mp.gammainc(n / 2, alpha**2 / 2)
        centre = mp.mpf(0)
        if a:
            kappa += -2 * mp.expm1(-alpha * alpha) / alpha
            centre = mp.gammainc(n, 0, alpha**2) / alpha**n
        value = float(dp.FlippedHuber(a, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, 2 * (centre + tail) / kappa)) < 2e-13, (a, power)


def test_cgf_at_small_shifts_and_orders():
    """Full relative accuracy where M - 1 cancels to any depth."""
    for a, shift, z in itertools.product((0.1, 1.0, 6.0), (1e-7, 1e-2, 1.5), (1e-6, 0.3, 8.0)):
        truth = flipped_huber_cumulant(a, shift, mp.mpf(z), 700)
        value = float(dp.FlippedHuber(a, 1.0).cgf(shift, z))
        assert abs(oracle.relative_error(value, truth.real)) < 1e-13, (a, shift, z)


@pytest.mark.parametrize(
    ("a", "shift", "z", "digits"),
    [
        (0.1, 0.1, 1e4, 900),
        (2.0, 0.5, 60.0, 600),
        (0.1, 1e-3, 1e4, 300),
        (0.1, 0.05, 0.5 + 1e4j, 400),
        (3.0, 0.01, 20.0 + 100.0j, 600),
        (0.9, 2.5, -0.3 + 25.0j, 400),
        (0.04, 2.0, -0.2 - 12.0j, 300),
        (1.0, 1.5, 0.05 + 0.01j, 300),
        (0.05, 3.7, -0.04 + 0.07j, 300),
        (0.0, 1.0, 2.0 + 5.0j, 120),
        (1.0, 1.0, -2.3 + 4.0j, 120),
        (1.0, 2.0, 1.0 + 1.0j, 120),
    ],
)
def test_cgf_far_out(a, shift, z, digits):
    truth = flipped_huber_cumulant(a, shift, z, digits)
    noise = dp.FlippedHuber(a, 1.0)
    scale = float(noise.cgf(shift, np.real(z)))
    assert np.isfinite(scale)
    value = complex(noise.cgf(shift, z))
    if np.iscomplexobj(np.asarray(z)):
        gap = mp.exp(mp.mpc(value) - scale) - mp.exp(truth - scale)
        assert abs(gap) < 1e-13 * max(1, abs(z) * 1e-2)
    else:
        assert abs(oracle.relative_error(value.real, truth.real)) < 1e-13


@pytest.mark.long
def test_cgf_is_symmetric_and_differentiable():
    noise = dp.FlippedHuber(1.2, 0.9)
    for z in (0.2 + 3.0j, -0.4 + 0.1j, 5.0 + 0.0j):
        value = complex(noise.cgf(0.7, z))
        np.testing.assert_allclose(value, complex(noise.cgf(0.7, -1 - z)), rtol=1e-13)
        np.testing.assert_allclose(value, np.conj(complex(noise.cgf(0.7, np.conj(z)))), rtol=1e-13)
    derivative = jax.jit(lambda m, z: jax.jvp(lambda z: noise.cgf(m, z), (z,), (1.0,))[1])
    for z, h in ((0.01, 1e-5), (4.0, 1e-4)):
        slope = float(derivative(0.7, z))
        numeric = (noise.cgf(0.7, z + h) - noise.cgf(0.7, z - h)) / (2 * h)
        np.testing.assert_allclose(slope, numeric, rtol=1e-7)


def test_loss_atom_is_the_plateau():
    """It is the jump of delta's slope in exp(epsilon)."""
    noise, shift = dp.FlippedHuber(1.5, 1.0), 0.5
    r, log_mass = (float(v) for v in noise.loss_atom(shift))
    assert r == 0.75
    with mp.workdps(110):

        def delta(e):
            return mp.exp(flipped_huber_log_delta(1.5, 1.0, shift, e)[0])

        h = mp.mpf(10) ** -40
        middle = delta(mp.mpf(r))
        jump = (delta(r + h) - middle) / h - (middle - delta(r - h)) / h
    assert abs(oracle.relative_error(float(np.exp(log_mass)), jump)) < 1e-13
    assert np.isneginf(noise.loss_atom(1.5)[1])


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


def test_the_loss_is_a_ratio_at_the_moved_point():
    """In print: log g(t) / (g(t) + d). The loss is log g(t) / g(t + d)."""
    noise, shift = dp.FlippedHuber(1.0, 1.0), 0.5
    log_density = noise.log_density(np.array([0.1, 0.6]))
    loss = float(log_density[0] - log_density[1])
    np.testing.assert_allclose(loss, 0.5, rtol=1e-15)  # on the plateau
    np.testing.assert_allclose(loss, noise.loss_atom(shift)[0], rtol=1e-15)
    misprint = float(log_density[0] - jnp.log(jnp.exp(log_density[0]) + shift))
    assert misprint < 0


def test_huber_density_as_printed_is_not_continuous():
    """Huber's tail is exp(-alpha (|t| - alpha / 2)); ours flips it, and is continuous."""
    alpha = 1.3
    inside = np.exp(-(alpha**2) / 2)
    np.testing.assert_allclose(inside, np.exp(-alpha * (alpha - alpha / 2)), rtol=1e-15)
    noise = dp.FlippedHuber(alpha, 0.8)
    left, right = np.asarray(noise.log_density(np.array([alpha, np.nextafter(alpha, 2)])))
    np.testing.assert_allclose(left, right, rtol=1e-15)


def test_bad_input():
    traced = jax.jit(lambda alpha: dp.FlippedHuber(alpha, 1.0).delta(1.0, 1.0))
    for bad in (-1.0, np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"alpha must lie in \[0, "):
            dp.FlippedHuber(bad, 1.0)
        assert np.isnan(traced(bad))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"gamma must lie in \[2.22507e-308, inf\]"):
            dp.FlippedHuber(1.0, bad)
    leaves = jax.tree.map(
        lambda _: jnp.array(jnp.nan, dtype=jnp.float64), dp.FlippedHuber(1.0, 1.0)
    )
    for value in (
        *leaves.zcdp(1.0),
        *leaves.loss_atom(1.0),
        leaves.pure_epsilon(1.0),
        leaves.sub_gaussian_proxy(),
        leaves.cgf(1.0, 2.0),
        leaves.variance(),
        leaves.quantile(0.3),
        leaves.log_survival(0.3),
        leaves.fisher_information(),
    ):
        assert np.isnan(value)
    assert np.isnan(dp.FlippedHuber(1e200, 1.0).delta(1.0, 1.0))
    for z, limit in ((0.0, 0.0), (2.0, np.inf), (-0.5, -np.inf)):
        assert dp.FlippedHuber(1.0, 1.0).cgf(np.inf, z) == limit


def test_faddeeva_function():
    rng = np.random.default_rng(5)
    z = np.concatenate(
        [
            rng.uniform(-7, 7, 60) + 1j * rng.uniform(0, 7, 60),
            rng.uniform(-8, 8, 60) + 1j * 10 ** rng.uniform(-20, 0, 60),
            rng.uniform(-8, 8, 40) + 0j,
            10 ** rng.uniform(-9, 12, 40) * np.exp(1j * rng.uniform(0, np.pi, 40)),
        ]
    )
    values = np.asarray(jax.jit(faddeeva)(z))
    with mp.workdps(40):
        for point, value in zip(z, values, strict=True):
            exact = mp.mpc(point)
            if abs(point) > 300:
                terms = (mp.fac2(2 * k - 1) / (2 * exact**2) ** k for k in range(12))
                truth = 1j / (mp.sqrt(mp.pi) * exact) * mp.fsum(terms)
            else:
                truth = mp.exp(-(exact**2)) * mp.erfc(-1j * exact)
            assert abs(value / truth - 1) < 2e-15, point


def test_mills_slope():
    rng = np.random.default_rng(5)
    t = 10 ** rng.uniform(-12, 6, 200)
    ratio, slope = (np.asarray(v) for v in jax.jit(mills_slope)(t))
    with mp.workdps(60):
        for point, r, s in zip(t, ratio, slope, strict=True):
            x = mp.mpf(float(point))
            truth = mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))
            assert abs(mp.mpf(float(r)) / truth - 1) < 8e-15
            assert abs(mp.mpf(float(s)) / (1 - x * truth) - 1) < 8e-15
