"""Private second moments: sensitivities, accounting, the law of the noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp.solvers import covariance

BUDGET = dp.Budget(1.0, 1e-6)


def unit_rows(rng, records, dimension):
    rows = rng.normal(size=(records, dimension))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("relation", SOLVER_RELATIONS)
def test_no_pair_of_rows_costs_more_than_the_plan(relation):
    """Random and extreme neighbours, each entry's shift over its own scale."""
    dimension, records = 5, 40
    made = covariance.plan(
        BUDGET, dimension=dimension, records=records, relation=relation, row_bound=2.0
    )
    assert 1e-6 * (1 - 1e-6) < made.guarantee.delta(1.0) <= 1e-6
    rng = np.random.default_rng(3)
    rows = 2.0 * np.concatenate([np.eye(dimension), unit_rows(rng, 50, dimension)])
    outer = np.einsum("ij,ik->ijk", rows, rows) / records
    others = np.zeros((1, dimension, dimension)) if relation == "add_remove" else outer
    moved = np.abs(outer[:, None] - others[None])
    scales = np.full((dimension, dimension), float(made.scales[0]))
    np.fill_diagonal(scales, float(made.scales[1]))
    norm = np.linalg.norm((moved / scales)[..., *np.triu_indices(dimension)], axis=-1)
    np.testing.assert_allclose(norm.max(), float(made.ratio), rtol=1e-12)
    assert norm.max() <= float(made.ratio)
    # No row costs less, so that no scale is larger than it must be.
    np.testing.assert_allclose(made.scales[1], 2**0.5 * made.scales[0], rtol=1e-12)


def test_release_adds_the_noise_of_the_plan():
    rows = unit_rows(np.random.default_rng(0), 30, 3)
    made = covariance.plan(BUDGET, dimension=3, records=30, relation="replace_one")
    draws = jax.vmap(lambda k: covariance.release(rows, made, k))(
        jax.random.split(jax.random.key(5), 5_000)
    )
    np.testing.assert_array_equal(draws, jnp.swapaxes(draws, -1, -2))
    noise = np.asarray(draws) - rows.T @ rows / 30
    deviation = noise.std(axis=0)[np.triu_indices(3)]
    expected = np.array(
        [made.scales[int(i == j)] for i, j in zip(*np.triu_indices(3), strict=True)]
    )
    # 1 % standard error, 6 of them beyond 5 once in 3e5 runs.
    np.testing.assert_allclose(deviation, expected, rtol=0.05)


@pytest.mark.float64
def test_entries_are_on_a_lattice_unless_floating_point_is_asked_for():
    rows = unit_rows(np.random.default_rng(0), 30, 3)
    known = {"dimension": 3, "records": 30, "relation": "replace_one"}
    made = covariance.plan(BUDGET, **known)
    drawn = np.asarray(covariance.release(rows, made, jax.random.key(1)))
    steps = drawn * 2.0**37 / 2.0 ** np.floor(np.log2(float(made.scales[0])))
    np.testing.assert_array_equal(steps, np.round(steps))
    assert made.sampling_error < 1e-21
    research = covariance.plan(BUDGET, release="float", **known)
    assert research.sampling_error == 1
    np.testing.assert_allclose(research.scales, made.scales, rtol=1e-13)
    scales = np.where(np.eye(3), research.scales[1], research.scales[0])
    noise = scales * jax.random.normal(jax.random.key(1), (3, 3), dtype=jnp.float64)
    drawn = covariance.release(rows, research, jax.random.key(1))
    np.testing.assert_allclose(jnp.triu(drawn), jnp.triu(rows.T @ rows / 30 + noise), rtol=1e-12)
    np.testing.assert_array_equal(drawn, drawn.T)


@pytest.mark.float64
def test_long_rows_are_shortened(monkeypatch):
    rows = np.array([[3.0, 4.0], [0.3, -0.4]])
    made = covariance.plan(BUDGET, dimension=2, records=2, relation="add_remove")
    monkeypatch.setattr(covariance, "noisy", lambda moment, plan, key: moment)
    exact = covariance.release(rows, made, jax.random.key(0))
    np.testing.assert_allclose(
        exact, (np.outer([0.6, 0.8], [0.6, 0.8]) + np.outer(rows[1], rows[1])) / 2, rtol=1e-12
    )


def test_bad_input():
    def plan(**other):
        known = {"dimension": 3, "records": 10, "relation": "replace_one"}
        return covariance.plan(BUDGET, **(known | other))

    for bad in (
        {"relation": "both"},
        {"row_bound": -1.0},
        {"records": 0},
        {"dimension": -2},
        {"release": "exact"},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            plan(**bad)
    made, key = plan(), jax.random.key(0)
    for rows in (np.ones((9, 3)), np.ones((10, 2))):
        with pytest.raises(ValueError, match="features must be"):
            covariance.release(rows, made, key)
    for secret in (np.nan, 7.25e200, np.float32(np.inf)):
        with pytest.raises(ValueError, match="features must lie") as caught:
            covariance.release(np.full((10, 3), secret), made, key)
        assert "7.25" not in str(caught.value)
