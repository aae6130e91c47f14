"""Data-dependent answers: certified brackets, rational deltas, every pair of answers."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimal_checks import budget, check_mechanism, rows, slow_if

import jaxdp as dp
from jaxdp.optimal import range_bound
from jaxdp.optimal.measure import measure_of
from jaxdp.optimal.table import close_points, exact_table_delta, felt_sensitivity
from jaxdp.optimal.table_program import KernelProgram, table_bound

pytestmark = pytest.mark.float64

ROUNDING = "data dependent optimum, stochastic-rounding mechanism (lower cert, upper)"


@pytest.mark.parametrize("row", [slow_if(r["inputs"]["K"] > 16, r) for r in rows(ROUNDING, 32)])
def test_certified_brackets(row):
    made = dp.optimal.mechanism(budget(row), 2.0, (0.0, 4.0), resolution=row["inputs"]["K"])
    proof = check_mechanism(made)
    assert proof.deltas[0] <= row["inputs"]["delta"]
    assert proof.complete
    assert proof.loss_lower == pytest.approx(row["expected"][0], abs=2e-5)
    assert proof.loss_upper == pytest.approx(row["expected"][1], abs=2e-5)


UNEVEN = np.array([-1.0, -0.9, -0.7, -0.2, 0.5, 1.5, 2.2, 2.3, 3.1, 3.6, 4.0])


@pytest.mark.parametrize("nodes", [None, UNEVEN], ids=["even", "uneven"])
def test_every_pair_of_close_answers_is_private_and_the_loss_is_what_it_says(nodes):
    """Not only the nodes: 20,000 random pairs, and the loss between the nodes."""
    options = {"resolution": 10} if nodes is None else {"nodes": nodes}
    made = dp.optimal.mechanism(dp.Budget(1.0, 0.2), 1.3, (-1.0, 4.0), **options)
    proof = check_mechanism(made)
    rng = np.random.default_rng(1)
    first = np.append(rng.uniform(-1, 4, 20_000), np.asarray(made.nodes))
    move = 1.3 * np.clip(rng.uniform(-1.5, 1.5, first.size), -1, 1)
    second = np.clip(first + move, -1, 4)
    table, nodes = np.asarray(made.table), np.asarray(made.nodes)

    def law(value):
        below = np.clip(np.searchsorted(nodes, value, side="right") - 1, 0, nodes.size - 2)
        share = ((value - nodes[below]) / (nodes[below + 1] - nodes[below]))[:, None]
        return (1 - share) * table[below] + share * table[below + 1]

    gaps = np.maximum(law(first) - math.e * law(second), 0).sum(axis=1)
    assert gaps.max() <= proof.deltas[0] + 1e-14
    assert gaps.max() > 0.199
    v = np.linspace(-1, 4, 20_001)
    mean = float(jnp.mean(made.expected_loss((v[:-1] + v[1:]) / 2)))
    assert mean == pytest.approx(proof.loss_upper, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 5.0])
def test_pure_privacy_is_the_limit_of_small_deltas(epsilon):
    made = dp.optimal.mechanism(dp.Budget(epsilon, 0.0), 1.0, (0.0, 2.0), resolution=12)
    proof = check_mechanism(made)
    assert proof.deltas == (0.0,)
    near = dp.optimal.mechanism(dp.Budget(epsilon, 1e-7), 1.0, (0.0, 2.0), resolution=12)
    assert made.certificate.loss_upper == pytest.approx(near.certificate.loss_upper, abs=3e-7)
    # No closer two laws can be than by e^epsilon, from node to node of one sensitivity.
    table = np.asarray(made.table)
    ratios = table[6:] / table[:-6], table[:-6] / table[6:]
    assert max(r.max() for r in ratios) == pytest.approx(math.exp(epsilon), rel=1e-3)


def test_a_function_is_bounded_from_both_sides():
    """|x| as a function: its bracket holds that of |x|; and a loss that is nothing else."""
    one, wide = dp.Budget(1.0, 0.2), (0.0, 4.0)
    named = dp.optimal.mechanism(one, 2.0, wide, resolution=8).certificate
    own = check_mechanism(dp.optimal.mechanism(one, 2.0, wide, lambda x: x, resolution=8))
    assert own.loss_lower <= named.loss_lower < named.loss_upper <= own.loss_upper
    assert own.loss_upper - named.loss_upper < 2e-3
    root = dp.optimal.mechanism(one, 2.0, wide, np.sqrt, resolution=8)
    proof = check_mechanism(root)
    v = (np.arange(40_000) + 0.5) / 10_000
    mean = float(jnp.mean(root.expected_loss(v, np.sqrt)))
    assert proof.loss_lower < mean <= proof.loss_upper < 1.01 * mean


def test_a_stopped_solver_keeps_the_budget_and_says_so():
    """At once, and on its way: the bracket still holds the optimum, [.6454, .6527]."""
    for seconds in (1e-6, 0.3):
        made = dp.optimal.mechanism(
            dp.Budget(1.0, 0.2), 2.0, (0.0, 4.0), resolution=32, seconds=seconds
        )
        proof = check_mechanism(made)
        assert not proof.complete
        assert proof.deltas[0] <= 0.2
        assert proof.loss_lower <= 0.6527
        # Never worse than the best constant answer.
        assert 0.6454 <= proof.loss_upper <= 1.0 + 1e-12
    with pytest.raises(ValueError, match="no law that keeps the cap"):
        dp.optimal.mechanism(
            dp.Budget(1.0, 0.2), 2.0, (0.0, 4.0), resolution=32, cap=0.7, seconds=1e-6
        )


def test_long_ranges_are_bounded_block_by_block(monkeypatch):
    nodes = np.linspace(0.0, 12.0, 13)
    chances = np.ones(12) / 12
    args = (measure_of("l1"), nodes, chances, (1.0, 0.2), 2.0, math.inf)
    whole, done = range_bound.range_bound(*args)
    with monkeypatch.context() as short:
        short.setattr(range_bound, "_BLOCK", 2)
        blocks, _ = range_bound.range_bound(*args)
    assert done
    assert 0.5 < blocks < whole
    coarse = np.array([-30.0, -20.0, -12.0, *np.arange(-8.0, 9.0), 12.0, 20.0, 30.0])
    made = dp.optimal.mechanism(dp.Budget(1.0, 0.1), 2.0, (-30.0, 30.0), nodes=coarse)
    assert check_mechanism(made).loss_lower > 1.0


def test_weights_caps_and_asymmetric_losses():
    one = dp.Budget(1.0, 0.2)
    plain = dp.optimal.mechanism(one, 2.0, (0.0, 4.0), resolution=8)
    focus = dp.optimal.mechanism(
        one, 2.0, (0.0, 4.0), resolution=8, weights=np.array([9.0, 4, 1, 1, 1, 1, 1, 1])
    )
    capped = dp.optimal.mechanism(one, 2.0, (0.0, 4.0), resolution=8, cap=0.75)
    tilted = dp.optimal.mechanism(one, 2.0, (0.0, 4.0), "asymmetric", resolution=8)
    for made in (plain, focus, capped, tilted):
        check_mechanism(made)
    v = (np.arange(8000) + 0.5) / 2000
    losses = [np.asarray(m.expected_loss(v)).reshape(8, -1).mean(1) for m in (plain, focus, capped)]
    assert losses[1][0] < losses[0][0]
    assert losses[0].max() > 0.75 >= losses[2].max() - 1e-6
    assert capped.certificate.loss_upper > plain.certificate.loss_upper
    loss = float(jnp.mean(tilted.expected_loss(v, "asymmetric")))
    assert loss == pytest.approx(tilted.certificate.loss_upper, rel=1e-5)
    with pytest.raises(ValueError, match=r"cap must be at least 0\.\d+ for this budget"):
        dp.optimal.mechanism(one, 2.0, (0.0, 4.0), resolution=8, cap=0.1)


def test_releases_follow_the_table():
    made = dp.optimal.mechanism(dp.Budget(1.0, 0.2), 2.0, (0.0, 4.0), resolution=8)
    release = jax.jit(made.release)
    draws = np.asarray(release(jax.random.key(0), jnp.full(100_000, 1.3)))
    table = np.asarray(made.table)
    law = 0.4 * table[2] + 0.6 * table[3]
    counts = np.array([(draws == y).sum() for y in np.asarray(made.nodes)])
    assert counts.sum() == draws.size
    spread = np.sqrt(law * (1 - law) / draws.size) + 1e-6
    assert np.all(abs(counts / draws.size - law) < 6 * spread)
    assert jnp.isnan(release(jax.random.key(0), jnp.nan))
    outside = np.asarray(release(jax.random.key(1), jnp.array([-9.0, 50.0])))
    assert np.all((outside >= 0) & (outside <= 4))
    delta = np.asarray(jax.jit(made.delta)(jnp.array([0.0, 1.0, 3.0])))
    assert np.all(np.diff(delta) < 0)
    points = close_points(made.nodes, felt_sensitivity(made.nodes, 2.0))
    for epsilon, found in zip((0.0, 1.0, 3.0), delta, strict=True):
        exact = exact_table_delta(np.array(made.weights), points, epsilon)
        assert exact <= Fraction(float(found)) <= exact * Fraction(1 + 1e-12)
    # A share just below 1, and answers an ulp apart, are what the felt sensitivity is for.
    assert felt_sensitivity(made.nodes, 2.0) > 2.0
    assert exact_table_delta(np.array(made.weights), points, 1.0) <= made.certificate.deltas[0]


def test_any_multipliers_give_a_lower_bound():
    rng = np.random.default_rng(0)
    cost = abs(np.arange(7.0)[None, :] - np.arange(7.0)[:, None])
    program = KernelProgram(cost, 0.7, 0.1, True)
    pairs = np.array([(a, b) for a in range(7) for b in range(7) if 0 < abs(a - b) <= 3])
    table = program.solve(pairs, math.inf)
    value = float((cost * table.laws).sum())
    assert table_bound(cost, table.multipliers, 0.7, 0.1, True) == pytest.approx(value, abs=1e-8)
    for _ in range(50):
        other = {p: 2 * x * rng.random(7) for p, x in table.multipliers.items()}
        assert table_bound(cost, other, 0.7, 0.1, True) <= value + 1e-12


def test_bad_input():
    one = dp.Budget(1.0, 0.2)
    unit = (1.0, (0.0, 1.0))
    for arguments, options, said in (
        ((1.0, (1.0, 1.0)), {}, "query_range must be"),
        ((1.0, (2.0, 1.0)), {}, "query_range must be"),
        ((1.0, (0.0, math.inf)), {}, "query_range must be"),
        ((0.0, (0.0, 1.0)), {}, "sensitivity must lie in"),
        (unit, {"resolution": 1}, "resolution must be"),
        (unit, {"resolution": 4, "weights": np.ones(3)}, "weights must be 4"),
        (unit, {"loss": lambda x: np.minimum(x, 1.0)}, "stops growing"),
        (unit, {"nodes": [0.0, 0.6, 0.4, 1.0]}, "nodes must rise from 0 to 1"),
        (unit, {"nodes": [0.0, 0.4, 1.0], "resolution": 2}, "resolution must be None"),
        (unit, {"cap": math.nan}, "cap must lie in"),
        (unit, {"seconds": math.nan}, "seconds must lie in"),
    ):
        with pytest.raises(ValueError, match=said):
            dp.optimal.mechanism(one, *arguments, **options)
    with pytest.raises(ValueError, match="epsilon must lie in"):
        dp.optimal.mechanism(dp.Budget(0.0, 0.0), *unit)
