"""The moments of the flipped Huber's loss: cumulants, divergences, its atom, zCDP."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from references import expected, records
from test_flipped_huber import noise_of

import jaxdp as dp


@pytest.mark.long
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


def test_the_loss_is_a_ratio_at_the_moved_point():
    """In print: log g(t) / (g(t) + d). The loss is log g(t) / g(t + d)."""
    noise, shift = dp.FlippedHuber(1.0, 1.0), 0.5
    log_density = noise.log_density(np.array([0.1, 0.6]))
    loss = float(log_density[0] - log_density[1])
    np.testing.assert_allclose(loss, 0.5, rtol=1e-15)  # on the plateau
    np.testing.assert_allclose(loss, noise.structure(shift).singularities.atoms[1], rtol=1e-15)
    misprint = float(log_density[0] - jnp.log(jnp.exp(log_density[0]) + shift))
    assert misprint < 0
