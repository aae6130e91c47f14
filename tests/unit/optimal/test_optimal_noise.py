"""Optimised noise against certified values, rational deltas and the published claims."""

import importlib
import math

import jax
import numpy as np
import pytest
from optimal_checks import budget, check_noise, rows, slow_if
from scipy import stats

import jaxdp as dp
from jaxdp.optimal import ErrorMeasure
from jaxdp.optimal.certify import dual_bound
from jaxdp.optimal.program import Block, Program, Shape

CELLS = "certified bracket l1; truncated Laplace loss; paper suboptimality % (UB table, LB table)"
SOME = [r for r in rows(CELLS) if r["inputs"]["m"] * r["inputs"]["H"] > 300][::9]


@pytest.mark.parametrize("row", SOME, ids=lambda r: f"{r['inputs']['eps']}-{r['inputs']['delta']}")
def test_cells_of_the_suboptimality_table(row):
    """The certified bracket at the default resolution and support, and the published cell."""
    noise = dp.optimal.noise(budget(row))
    made = check_noise(noise)
    expected = row["expected"]
    assert made.complete
    assert made.loss_lower == pytest.approx(expected["lower"], abs=2e-6)
    assert made.loss_upper == pytest.approx(expected["upper"], abs=2e-6)
    assert made.loss_upper - made.loss_lower <= 1e-3 * max(1.0, made.loss_upper)
    assert float(noise.mean_absolute()) == pytest.approx(made.loss_upper, rel=1e-12)
    # The bracket of another program would still hold the truth.
    assert made.loss_lower <= expected["tlap"]


SQUARES = "certified bracket l2; truncated Laplace loss; paper suboptimality % (UB table, LB table)"


@pytest.mark.parametrize("row", rows(SQUARES)[30::13], ids=lambda r: str(r["inputs"]["delta"]))
def test_squares(row):
    made = check_noise(dp.optimal.noise(budget(row), "l2", resolution=row["inputs"]["m"]))
    assert made.loss_lower == pytest.approx(row["expected"]["lower"], rel=2e-5, abs=2e-5)
    assert made.loss_upper == pytest.approx(row["expected"]["upper"], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize(
    "row", [slow_if(r["inputs"]["m"] > 100, r) for r in rows("certified bracket")]
)
def test_finer_grids_close_the_bracket(row):
    made = check_noise(dp.optimal.noise(budget(row), resolution=row["inputs"]["m"]))
    assert made.loss_lower == pytest.approx(row["expected"][0], abs=3e-7)
    assert made.loss_upper == pytest.approx(row["expected"][1], abs=3e-7)


def test_several_budgets_at_once_and_a_cap_on_the_atom():
    one = dp.optimal.noise(dp.Budget(3.0, 0.3), resolution=20)
    both = dp.optimal.noise(dp.Budget(3.0, 0.3), resolution=20, also=[dp.Budget(1.0, 0.4)])
    capped = dp.optimal.noise(dp.Budget(3.0, 0.3), resolution=20, max_atom=0.1)
    for noise in (one, both, capped):
        check_noise(noise)
    assert float(one.delta(1.0, 1.0)) > 0.4 >= both.certificate.deltas[1]
    assert both.certificate.loss_lower > one.certificate.loss_upper
    assert one.atom > 0.2
    assert capped.atom <= 0.1
    assert capped.certificate.loss_upper > one.certificate.loss_upper


def test_other_losses():
    budget = dp.Budget(1.0, 0.2)
    tilted, mirrored = (
        check_noise(dp.optimal.noise(budget, ErrorMeasure(*w), resolution=12, symmetric=False))
        for w in ((0.7, 0.3), (0.3, 0.7))
    )
    assert tilted.loss_upper == pytest.approx(mirrored.loss_upper, rel=1e-6)
    mixed, own = (
        check_noise(dp.optimal.noise(budget, loss, resolution=12))
        for loss in (ErrorMeasure(0.5, 0.5, 0.5), lambda x: 0.5 * x + 0.5 * x * x)
    )
    assert own.loss_lower <= mixed.loss_lower <= mixed.loss_upper <= own.loss_upper
    assert own.loss_upper - own.loss_lower < 0.02


@pytest.fixture(scope="module")
def noise():
    return dp.optimal.noise(dp.Budget(1.0, 0.1), resolution=10)


def test_it_scales_with_the_sensitivity(noise):
    unit = noise.certificate
    wide = dp.optimal.noise(dp.Budget(1.0, 0.1), resolution=10, sensitivity=7.0).certificate
    square = dp.optimal.noise(dp.Budget(1.0, 0.1), "l2", resolution=10, sensitivity=7.0)
    check_noise(square)
    assert wide.loss_upper == pytest.approx(7 * unit.loss_upper, rel=1e-8)
    assert wide.loss_lower == pytest.approx(7 * unit.loss_lower, rel=1e-8)
    assert float(square.variance()) == pytest.approx(square.certificate.loss_upper, rel=1e-9)


def test_draws_have_the_certified_chances(noise):
    """Under jit: a whole number below 2^40 picks the cell. False alarms: 1e-6."""
    draws = jax.jit(lambda key: noise.sample(key, (200_000,)))(jax.random.key(3))
    cells = np.floor(np.asarray(draws) / float(noise.width) + 0.5 * len(noise.weights))
    counts = np.bincount(cells[draws != 0].astype(int), minlength=len(noise.weights))
    counts = np.append(counts, np.sum(np.asarray(draws) == 0))
    chances = np.append(noise.weights, noise.atom_weight) / noise.total
    seen = chances > 0
    assert counts[~seen].sum() == 0
    assert stats.chisquare(counts[seen], chances[seen] * draws.size).pvalue > 1e-6


def test_a_stopped_solver_keeps_the_budget_and_says_so(monkeypatch):
    # The proof on a coarse grid takes milliseconds, and ends on a busy machine, too.
    monkeypatch.setattr(importlib.import_module("jaxdp.optimal.noise"), "_COARSE", 60.0)
    made = dp.optimal.noise(dp.Budget(3.0, 0.3), resolution=50, seconds=0.02)
    full = dp.optimal.noise(dp.Budget(3.0, 0.3), resolution=20)
    stopped = check_noise(made)
    assert not stopped.complete
    assert 0.9 * full.certificate.loss_lower <= stopped.loss_lower <= full.certificate.loss_upper
    assert stopped.loss_upper >= full.certificate.loss_lower


def test_a_budget_below_the_tolerances_of_the_solver():
    made = check_noise(dp.optimal.noise(dp.Budget(0.5, 1e-9)))
    assert made.deltas[0] <= 1e-9
    assert made.loss_upper < 1.01 * 2.0


def test_any_multipliers_give_a_lower_bound():
    """Not only those of the solver; and the ones it finds are worth what it says."""
    shape = Shape(41, 10, ((1.0, 0.2),), True, False)
    nodes = np.arange(-21, 22) / 10
    cost, beyond = abs(nodes)[1:-1], abs(nodes)[[0, -1]]
    program = Program(shape)
    solution = program.solve(cost, 0.0, beyond, math.inf)
    best = dual_bound(shape, cost, beyond, solution.blocks, solution.slopes)
    value = program.model.getInfo().objective_function_value
    assert best == pytest.approx(value, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(50):
        blocks = tuple(
            Block(b.shift, b.budget, b.inner * rng.random(41) * 2, b.outer * rng.random() * 2)
            for b in solution.blocks
        )
        assert dual_bound(shape, cost, beyond, blocks, np.zeros(0)) <= value + 1e-12
    none = dual_bound(shape, cost, beyond, (), np.zeros(0))
    assert -1e-12 < none <= 0


def _overflowing(x):
    with np.errstate(over="ignore"):
        return np.expm1(x * x * x * x)


def test_bad_input():
    one = dp.Budget(1.0, 0.1)
    for epsilon, delta, name in ((0.0, 0.1, "epsilon"), (1.0, 0.0, "delta"), (1.0, 1.0, "delta")):
        with pytest.raises(ValueError, match=f"{name} must lie in"):
            dp.optimal.noise(dp.Budget(epsilon, delta))
    with pytest.raises(ValueError, match=r"use 3 sensitivities or more"):
        dp.optimal.noise(one, support=0.7)
    dp.optimal.noise(one, support=3.0)
    for loss, said in (
        ("l3", "loss must be one of"),
        ("asymmetric", "symmetric must be False"),
        (ErrorMeasure(0.0, 1.0), "unbounded on both sides"),
        (lambda x: x / (1 + x), "stops growing"),
        (math.sqrt, "takes a NumPy array"),
        (lambda x: x * np.cos(x) ** 2, "never falls"),
    ):
        with pytest.raises(ValueError, match=said):
            dp.optimal.noise(one, loss)
    with pytest.raises(ValueError, match="finite as far as the noise goes"):
        dp.optimal.noise(dp.Budget(0.001, 0.1), _overflowing)
    wrong = {"resolution": 0, "max_atom": 2.0, "sensitivity": -1.0, "seconds": math.nan}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            dp.optimal.noise(one, **{name: value})
    with pytest.raises(ValueError, match="delta must lie in"):
        dp.optimal.noise(one, also=[dp.Budget(2.0, 0.0)])
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda d: dp.optimal.noise(dp.Budget(1.0, d)).width)(0.1)
