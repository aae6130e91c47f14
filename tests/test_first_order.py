"""The batched first-order method against the linear program, and its certificates."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.optimal.exact import exact_delta
from jaxdp.optimal.halpern import backward, cut, forward, onto_simplex


def check(table, epsilons, deltas, steps):
    """Every delta is exact, and at most what was asked for."""
    pairs = zip(np.ravel(epsilons), np.ravel(deltas), table.noises, strict=True)
    for epsilon, delta, noise in pairs:
        exact = exact_delta(np.array(noise.weights), 0, steps, float(epsilon))
        assert exact <= Fraction(noise.certificate.deltas[0]) <= Fraction(float(delta))
        loss = float(noise.mean_absolute())
        assert loss == pytest.approx(noise.certificate.loss_upper, rel=1e-12)


def test_it_agrees_with_the_linear_program_to_its_bracket():
    epsilons, deltas = np.meshgrid([0.5, 1.0], [0.1, 0.2], indexing="ij")
    table = dp.optimal_noise_table(epsilons, deltas, resolution=8, support=4.0, gap=6e-3)
    check(table, epsilons, deltas, 8)
    assert table.met.all()
    assert table.loss_lower.shape == (2, 2)
    for i in np.ndindex(2, 2):
        budget = dp.Budget(epsilons[i], deltas[i])
        best = dp.optimal_noise(budget, resolution=8, support=4.0, max_atom=0.0).certificate
        assert table.loss_lower[i] <= best.loss_upper
        assert best.loss_lower <= table.loss_upper[i]
        assert table.loss_upper[i] - table.loss_lower[i] <= 6.1e-3
        # The two bounds of one program: neither can be better than the other's.
        assert table.loss_lower[i] <= best.loss_lower + 1e-8
        assert best.loss_upper <= table.loss_upper[i] + 1e-8


def test_stopped_early_it_reports_a_wide_bracket_and_keeps_the_budget():
    table = dp.optimal_noise_table(1.0, [0.1, 0.2], resolution=8, support=4.0, max_steps=64)
    check(table, [1.0, 1.0], [0.1, 0.2], 8)
    assert not table.met.any()
    for i, delta in enumerate((0.1, 0.2)):
        best = dp.optimal_noise(dp.Budget(1.0, delta)).certificate
        assert table.loss_lower[i] <= best.loss_upper
        assert best.loss_lower <= table.loss_upper[i]


def test_its_pieces():
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.random(12)), jnp.asarray(rng.random((4, 12)))
    growth = jnp.asarray(2.5)
    # The operator and its transpose, entries without a partner left out of both.
    inside = np.arange(11)[None, :] >= np.arange(1, 5)[:, None]
    y = y * np.concatenate([inside, np.ones((4, 1))], axis=1)
    left = float(jnp.sum(forward(x, growth, 4) * y))
    assert left == pytest.approx(float(jnp.sum(x * backward(y, growth))), rel=1e-12)
    v = jnp.asarray(rng.normal(size=50))
    p = onto_simplex(v)
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-14)
    shift = (v - p)[p > 0]
    np.testing.assert_allclose(shift, shift[0], atol=1e-14)
    rows = jnp.asarray(rng.normal(size=(6, 30)))
    lower = cut(rows, jnp.asarray(1.3))
    above = jnp.sum(jnp.maximum(rows, 0.0) - lower, axis=1)
    np.testing.assert_allclose(above, 1.3, rtol=1e-12)
    assert np.all(np.asarray(cut(rows, jnp.asarray(1e3))) == 0)


def test_bad_input():
    with pytest.raises(ValueError, match="support must be longer"):
        dp.optimal_noise_table(0.1, 0.001, support=2.0)
    with pytest.raises(ValueError, match="epsilon must lie in"):
        dp.optimal_noise_table(0.0, 0.1)
    with pytest.raises(ValueError, match="delta must lie in"):
        dp.optimal_noise_table(1.0, [0.1, 0.0])
    with pytest.raises(ValueError, match="loss must be even"):
        dp.optimal_noise_table(1.0, 0.1, "asymmetric")
