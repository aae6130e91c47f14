"""Data-dependent answers: certified brackets, rational deltas, every pair of answers."""

import json
import math
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.optimal.kernel import KernelProgram, Multipliers, table_bound
from jaxdp.optimal.points import close_points, exact_table_delta, felt_sensitivity
from jaxdp.optimal.published import published_mechanism

ROWS = json.loads((Path(__file__).parent / "reference" / "optimal_noise.json").read_text())
ROUNDING = "data dependent optimum, stochastic-rounding mechanism (lower cert, upper)"
THREE = (
    "noise-space P'(L,beta), monotone: (three shifts, aligned shift only, true delta of the latter)"
)


def rows(quantity, largest):
    found = [r for r in ROWS if r["quantity"] == quantity and r["inputs"]["K"] <= largest]
    assert found, quantity
    return found


def budget(row):
    return dp.Budget(row["inputs"]["eps"], row["inputs"]["delta"])


def check(made):
    """The exact delta over all close answers keeps the budget."""
    weights = np.array(made.weights)
    proof = made.certificate
    points = close_points(made.nodes, felt_sensitivity(made.nodes, proof.sensitivity))
    exact = exact_table_delta(weights, points, proof.epsilons[0])
    assert np.all(weights.sum(axis=1) == 2**40)
    assert exact <= Fraction(proof.deltas[0])
    assert exact <= Fraction(float(made.delta(proof.epsilons[0])))
    assert proof.loss_lower <= proof.loss_upper
    return proof


@pytest.mark.parametrize("row", rows(ROUNDING, 16), ids=lambda r: f"{r['inputs']['K']}")
def test_certified_brackets(row):
    made = dp.optimal_mechanism(budget(row), 2.0, (0.0, 4.0), resolution=row["inputs"]["K"])
    proof = check(made)
    assert proof.deltas[0] <= row["inputs"]["delta"]
    assert proof.complete
    assert proof.loss_lower == pytest.approx(row["expected"][0], abs=2e-5)
    assert proof.loss_upper == pytest.approx(row["expected"][1], abs=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("row", [r for r in rows(ROUNDING, 32) if r["inputs"]["K"] == 32])
def test_finer_brackets(row):
    proof = check(dp.optimal_mechanism(budget(row), 2.0, (0.0, 4.0), resolution=32))
    assert [proof.loss_lower, proof.loss_upper] == pytest.approx(row["expected"], abs=2e-5)


def test_every_pair_of_close_answers_is_private_and_the_loss_is_what_it_says():
    """Not only the nodes: 20,000 random pairs, and the loss between the nodes."""
    made = dp.optimal_mechanism(dp.Budget(1.0, 0.2), 1.3, (-1.0, 4.0), resolution=10)
    proof = check(made)
    rng = np.random.default_rng(1)
    first = rng.uniform(-1, 4, 20_000)
    second = np.clip(first + rng.uniform(-1.3, 1.3, first.size), -1, 4)
    table, nodes = np.asarray(made.table), np.asarray(made.nodes)

    def law(value):
        place = (value - nodes[0]) / (nodes[1] - nodes[0])
        below = np.minimum(np.floor(place), 9).astype(int)
        share = (place - below)[:, None]
        return (1 - share) * table[below] + share * table[below + 1]

    gaps = np.maximum(law(first) - math.e * law(second), 0).sum(axis=1)
    assert gaps.max() <= 0.2 + 1e-12
    assert gaps.max() > 0.1
    v = np.linspace(-1, 4, 20_001)
    mean = float(jnp.mean(made.expected_loss((v[:-1] + v[1:]) / 2)))
    assert mean == pytest.approx(proof.loss_upper, rel=1e-6)


def test_no_answer_beats_constant_answers_by_much_at_small_epsilon():
    """Answering 2 loses 1 with perfect privacy; the published curves lie above that."""
    proof = check(dp.optimal_mechanism(dp.Budget(0.2, 0.05), 2.0, (0.0, 4.0), resolution=16))
    published = [
        r["expected"][0]
        for r in ROWS
        if r["quantity"] == "Fig 3 data dependent (upper, lower, seconds)"
        and r["inputs"]["eps"] == 0.2
    ]
    assert published
    assert proof.loss_upper < 0.95 < 1.0 < min(published)


@pytest.mark.parametrize("row", rows(THREE, 8), ids=lambda r: str(r["inputs"]["K"]))
def test_the_published_formulation_needs_all_three_shifts(row):
    """The values of figure 3 (middle, right) are those of one shift, and not private."""
    inputs = row["inputs"]
    three, aligned = (
        published_mechanism(
            budget(row),
            2.0,
            (0.0, 4.0),
            resolution=inputs["K"],
            support=float(inputs["support"]),
            monotone=True,
            shifts=shifts,
        )
        for shifts in ("three", "aligned")
    )
    assert three.loss == pytest.approx(row["expected"][0], abs=2e-4)
    assert aligned.loss == pytest.approx(row["expected"][1], abs=2e-4)
    assert three.delta <= inputs["delta"]
    assert aligned.delta > 2 * inputs["delta"]
    better = dp.optimal_mechanism(budget(row), 2.0, (0.0, 4.0), resolution=inputs["K"])
    assert better.certificate.loss_upper < three.loss


def test_weights_caps_and_asymmetric_losses():
    one = dp.Budget(1.0, 0.2)
    plain = dp.optimal_mechanism(one, 2.0, (0.0, 4.0), resolution=8)
    focus = dp.optimal_mechanism(
        one, 2.0, (0.0, 4.0), resolution=8, weights=np.array([9.0, 4, 1, 1, 1, 1, 1, 1])
    )
    capped = dp.optimal_mechanism(one, 2.0, (0.0, 4.0), resolution=8, cap=0.75)
    tilted = dp.optimal_mechanism(one, 2.0, (0.0, 4.0), "asymmetric", resolution=8)
    for made in (plain, focus, capped, tilted):
        check(made)
    v = (np.arange(8000) + 0.5) / 2000
    losses = [np.asarray(m.expected_loss(v)).reshape(8, -1).mean(1) for m in (plain, focus, capped)]
    assert losses[1][0] < losses[0][0]
    assert losses[0].max() > 0.75 >= losses[2].max() - 1e-6
    assert capped.certificate.loss_upper > plain.certificate.loss_upper
    loss = float(jnp.mean(tilted.expected_loss(v, "asymmetric")))
    assert loss == pytest.approx(tilted.certificate.loss_upper, rel=1e-5)
    with pytest.raises(ValueError, match="cap must be larger"):
        dp.optimal_mechanism(one, 2.0, (0.0, 4.0), resolution=8, cap=0.1)


def test_releases_follow_the_table():
    made = dp.optimal_mechanism(dp.Budget(1.0, 0.2), 2.0, (0.0, 4.0), resolution=8)
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


def test_any_multipliers_give_a_lower_bound():
    rng = np.random.default_rng(0)
    cost = abs(np.arange(7.0)[None, :] - np.arange(7.0)[:, None])
    program = KernelProgram(cost, 0.7, 0.1, True)
    pairs = np.array([(a, b, 0) for a in range(7) for b in range(7) if 0 < abs(a - b) <= 3])
    table = program.solve(pairs, math.inf)
    value = float((cost * table.laws).sum())
    assert table_bound(cost, table.multipliers, 0.7, 0.1, True) == pytest.approx(value, abs=1e-8)
    for _ in range(50):
        other = tuple(Multipliers(p, 2 * x * rng.random(7)) for p, x in table.multipliers)
        assert table_bound(cost, other, 0.7, 0.1, True) <= value + 1e-12


def test_bad_input():
    one = dp.Budget(1.0, 0.2)
    for low, high in ((1.0, 1.0), (2.0, 1.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="query_range must be"):
            dp.optimal_mechanism(one, 1.0, (low, high))
    with pytest.raises(ValueError, match="resolution must be"):
        dp.optimal_mechanism(one, 1.0, (0.0, 1.0), resolution=1)
    with pytest.raises(ValueError, match="weights must be 4"):
        dp.optimal_mechanism(one, 1.0, (0.0, 1.0), resolution=4, weights=np.ones(3))
    with pytest.raises(ValueError, match="not a function"):
        dp.optimal_mechanism(one, 1.0, (0.0, 1.0), lambda x: x)
    with pytest.raises(ValueError, match="sensitivity must lie in"):
        dp.optimal_mechanism(one, 0.0, (0.0, 1.0))
    with pytest.raises(ValueError, match="delta must lie in"):
        dp.optimal_mechanism(dp.Budget(1.0, 0.0), 1.0, (0.0, 1.0))
    with pytest.raises(ValueError, match="multiples of"):
        published_mechanism(one, 0.7, (0.0, 4.0), resolution=8, support=4.0)
