"""The batched first-order method against the linear program, and its certificates."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.optimal.exact import exact_delta
from jaxdp.optimal.saddle import backward, forward, level_of, project_rows


def check(table, epsilons, deltas):
    """Every delta is exact, and at most what was asked for."""
    pairs = zip(np.ravel(epsilons), np.ravel(deltas), table.noises, strict=True)
    for epsilon, delta, noise in pairs:
        steps = math.ceil(Fraction(1) / Fraction(float(noise.width)))
        exact = exact_delta(np.array(noise.weights), noise.atom_weight, steps, float(epsilon))
        assert exact <= Fraction(noise.certificate.deltas[0]) <= Fraction(float(delta))
        loss = float(noise.mean_absolute())
        assert loss == pytest.approx(noise.certificate.loss_upper, rel=1e-12)


@pytest.mark.long
def test_it_agrees_with_the_linear_program_to_its_bracket():
    epsilons, deltas = np.meshgrid([0.5, 1.0], [0.1, 0.2], indexing="ij")
    table = dp.optimal_noise_table(epsilons, deltas, resolution=8, support=4.0, gap=3.5e-3)
    check(table, epsilons, deltas)
    assert table.met.all()
    assert table.loss_lower.shape == (2, 2)
    for i in np.ndindex(2, 2):
        budget = dp.Budget(epsilons[i], deltas[i])
        best = dp.optimal_noise(budget, resolution=8, support=4.0).certificate
        assert table.loss_lower[i] <= best.loss_upper
        assert best.loss_lower <= table.loss_upper[i]
        assert table.loss_upper[i] - table.loss_lower[i] <= 3.6e-3
        # The two bounds of one program: neither can be better than the other's.
        assert table.loss_lower[i] <= best.loss_lower + 1e-8
        assert best.loss_upper <= table.loss_upper[i] + 1e-8


@pytest.mark.long
def test_several_grids_in_a_call_and_brackets_as_narrow_as_asked():
    """From a support of many sensitivities to an atom that is nearly all of delta."""
    epsilons, deltas = np.array([0.2, 1.0, 3.0, 5.0]), np.array([0.05, 0.2, 0.3, 0.25])
    table = dp.optimal_noise_table(epsilons, deltas)
    check(table, epsilons, deltas)
    assert table.met.all()
    assert len({float(noise.width) for noise in table.noises}) > 1
    assert table.noises[-1].atom > 0.24
    for i, (epsilon, delta) in enumerate(zip(epsilons, deltas, strict=True)):
        best = dp.optimal_noise(dp.Budget(epsilon, delta)).certificate
        assert table.loss_lower[i] <= best.loss_upper
        assert best.loss_lower <= table.loss_upper[i]
        gap = table.loss_upper[i] - table.loss_lower[i]
        assert gap <= 1.001e-3 * max(1.0, table.loss_upper[i])


def test_stopped_early_it_reports_a_wide_bracket_and_keeps_the_budget():
    # Of a shape that is compiled above.
    epsilons, deltas = np.meshgrid([0.5, 1.0], [0.1, 0.2], indexing="ij")
    table = dp.optimal_noise_table(epsilons, deltas, resolution=8, support=4.0, max_steps=64)
    check(table, epsilons, deltas)
    assert not table.met.any()
    assert np.all(table.steps == 64)
    for i in np.ndindex(2, 2):
        best = dp.optimal_noise(dp.Budget(epsilons[i], deltas[i])).certificate
        assert table.loss_lower[i] <= best.loss_upper
        assert best.loss_lower <= table.loss_upper[i]


def test_its_pieces():
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.random(13)), jnp.asarray(rng.random((4, 13)))
    growth = jnp.asarray(2.5)
    # The operator and its transpose, entries without a partner left out of both.
    inside = np.arange(11)[None, :] >= np.arange(1, 5)[:, None]
    y = y * np.concatenate([inside, np.ones((4, 2))], axis=1)
    rows = np.asarray(jax.jit(forward, static_argnums=2)(x, growth, 4))
    held = np.asarray(x)
    for k in range(1, 5):
        np.testing.assert_allclose(rows[k - 1, k:11], held[k:11] - 2.5 * held[: 11 - k], rtol=1e-14)
        assert rows[k - 1, 11] == pytest.approx(held[:k].sum() - 0.75 * held[11], rel=1e-13)
    assert np.all(rows[:, 12] == held[12])
    back = np.asarray(jax.jit(backward)(y, growth))
    assert np.sum(rows * np.asarray(y)) == pytest.approx(np.sum(held * back), rel=1e-12)

    unit = jnp.asarray(0.1 + rng.random((6, 30)))
    values = jnp.asarray(rng.normal(size=(6, 30))).at[0, 3].set(-jnp.inf)
    for start in (-50.0, 0.0, 50.0):
        level = level_of(values, unit, 1.0, jnp.full(6, start), 12)
        law = jnp.maximum(values - level[:, None] * unit, 0.0)
        np.testing.assert_allclose(jnp.sum(unit * law, axis=1), 1.0, rtol=1e-12)
    low, _ = project_rows(values, unit, 1.3, jnp.zeros(6), 12)
    np.testing.assert_allclose(
        jnp.sum(unit * (jnp.maximum(values, 0.0) - low), axis=1), 1.3, rtol=1e-12
    )
    assert np.all(np.asarray(project_rows(values, unit, 1e3, jnp.zeros(6), 12)[0]) == 0)


def test_bad_input():
    with pytest.raises(ValueError, match="support must be longer"):
        dp.optimal_noise_table(0.1, 0.001, support=2.0)
    with pytest.raises(ValueError, match="epsilon must lie in"):
        dp.optimal_noise_table(0.0, 0.1)
    with pytest.raises(ValueError, match="delta must lie in"):
        dp.optimal_noise_table(1.0, [0.1, 0.0])
    with pytest.raises(ValueError, match="loss must be even"):
        dp.optimal_noise_table(1.0, 0.1, "asymmetric")
