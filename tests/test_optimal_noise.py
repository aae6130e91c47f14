"""Optimised noise against certified values, rational deltas and the published claims."""

import json
import math
from fractions import Fraction
from pathlib import Path

import highspy
import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.optimal.dual import dual_bound
from jaxdp.optimal.exact import exact_delta
from jaxdp.optimal.program import Block, Program, Shape

ROWS = json.loads((Path(__file__).parent / "reference" / "optimal_noise.json").read_text())


def rows(quantity):
    found = [r for r in ROWS if r["quantity"] == quantity]
    assert found, quantity
    return found


def budget(row):
    return dp.Budget(row["inputs"]["eps"], row["inputs"]["delta"])


def check(noise, *, tight=1e-6):
    """The exact deltas keep the budgets, and the loss lies in its bracket."""
    made = noise.certificate
    steps = math.ceil(Fraction(made.sensitivity) / Fraction(float(noise.width)))
    for epsilon, delta in zip(made.epsilons, made.deltas, strict=True):
        exact = exact_delta(np.array(noise.weights), noise.atom_weight, steps, epsilon)
        assert exact <= Fraction(delta)
        assert float(noise.delta(made.sensitivity, epsilon)) <= delta * (1 + 1e-12) + 1e-14
    assert made.loss_lower <= made.loss_upper
    return made


CELLS = "certified bracket l1; truncated Laplace loss; paper suboptimality % (UB table, LB table)"
SOME = [r for r in rows(CELLS) if r["inputs"]["m"] * r["inputs"]["H"] > 300][::5]


@pytest.mark.parametrize("row", SOME, ids=lambda r: f"{r['inputs']['eps']}-{r['inputs']['delta']}")
def test_cells_of_the_suboptimality_table(row):
    """The certified bracket at the default resolution and support, and the published cell."""
    noise = dp.optimal_noise(budget(row))
    made = check(noise)
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
    made = check(dp.optimal_noise(budget(row), "l2", resolution=row["inputs"]["m"]))
    assert made.loss_lower == pytest.approx(row["expected"]["lower"], rel=2e-5, abs=2e-5)
    assert made.loss_upper == pytest.approx(row["expected"]["upper"], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("row", rows("certified bracket"), ids=lambda r: str(r["inputs"]["m"]))
def test_finer_grids_close_the_bracket(row):
    made = check(dp.optimal_noise(budget(row), resolution=row["inputs"]["m"]))
    assert made.loss_lower == pytest.approx(row["expected"][0], abs=3e-7)
    assert made.loss_upper == pytest.approx(row["expected"][1], abs=3e-7)


EDGE = [(r, False) for r in rows("upper bound, edge grid")]
EDGE += [(r, True) for r in rows("upper bound, edge grid, monotone")]


@pytest.mark.parametrize(("row", "monotone"), EDGE)
def test_the_appendices_grid_with_and_without_monotone(row, monotone):
    """(3, .3): 0.1705 on +-1.1, and that "monotone cannot beat 0.1830" is false from +-1.16 on."""
    noise = dp.optimal_noise(
        budget(row),
        resolution=50,
        support=row["inputs"]["support"],
        centred=False,
        max_atom=0.0,
        monotone=monotone,
    )
    made = check(noise)
    assert made.loss_upper == pytest.approx(row["expected"], abs=2e-6)
    assert noise.atom == 0
    if monotone:
        falling = np.diff(np.array(noise.weights)[len(noise.weights) // 2 :])
        assert np.all(falling <= 1)
        assert (made.loss_upper < 0.1830) == (row["inputs"]["support"] > 1.1)


@pytest.mark.parametrize("row", rows("optimal upper bound (edge grid, no atom)"))
def test_the_appendices_figures(row):
    inputs = row["inputs"]
    loss = {"|x|": "l1", "x^2": "l2"}.get(inputs["loss"], "asymmetric")
    noise = dp.optimal_noise(
        budget(row),
        loss,
        sensitivity=float(inputs["sens"]),
        resolution=round(inputs["sens"] / inputs["beta"]),
        support=float(inputs["support"]),
        centred=False,
        max_atom=0.0,
        monotone=inputs.get("monotone", False),
        symmetric=loss != "asymmetric",
    )
    assert check(noise).loss_upper == pytest.approx(row["expected"], abs=2e-6)


@pytest.mark.parametrize("row", rows("edge-grid LP (monotone, unconstrained)")[::2])
def test_figure_3_shows_the_monotone_optimum(row):
    """The published data-independent curves; without the constraint the loss is lower."""
    inputs = row["inputs"]
    made = [
        check(
            dp.optimal_noise(
                budget(row),
                sensitivity=2.0,
                resolution=round(2 / inputs["beta"]),
                support=float(inputs["support"]),
                centred=False,
                max_atom=0.0,
                monotone=monotone,
            )
        ).loss_upper
        for monotone in (True, False)
    ]
    np.testing.assert_allclose(made, row["expected"], atol=2e-5)


def test_monotone_is_worse_and_both_are_certified():
    free = check(dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=30))
    falling = check(dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=30, monotone=True))
    assert free.loss_upper < falling.loss_lower


def test_published_suboptimality_rests_on_a_truncated_support():
    """At (2, .5) the published midpoint is .2130: here is a noise that loses less."""
    made = check(dp.optimal_noise(dp.Budget(2.0, 0.5)))
    assert made.loss_upper < 0.2005


def test_the_other_published_gaussian_is_not_private_enough():
    """Figure 3 left: sigma = .5782 at sensitivity 2 does not keep (5, .25)."""
    assert float(dp.Gaussian(0.5782).delta(2.0, 5.0)) > 0.49
    assert float(dp.Gaussian(0.7093).delta(2.0, 5.0)) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "tied"), [(1.0, 0.2, 0.539), (1.0, 0.05, 0.653), (2.0, 0.05, 0.377)]
)
def test_tied_cells_give_no_lower_bound(epsilon, delta, tied):
    """Corollary 1: equal densities in coarse cells cost `tied`, more than a feasible law."""

    def cost(x):
        return np.clip((x - 0.5) / 0.05, 0.0, 1.0) + np.maximum(x - 3.0, 0.0)

    noise = dp.optimal_noise(dp.Budget(epsilon, delta), cost, resolution=20, support=6.0)
    assert check(noise).loss_upper < 0.8 * tied


def test_several_budgets_at_once_and_a_cap_on_the_atom():
    one = dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=20)
    both = dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=20, also=[dp.Budget(1.0, 0.4)])
    capped = dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=20, max_atom=0.1)
    for noise in (one, both, capped):
        check(noise)
    assert float(one.delta(1.0, 1.0)) > 0.4 >= both.certificate.deltas[1]
    assert both.certificate.loss_lower > one.certificate.loss_upper
    assert one.atom > 0.2
    assert capped.atom <= 0.1
    assert capped.certificate.loss_upper > one.certificate.loss_upper


def test_other_losses():
    tilted = check(
        dp.optimal_noise(dp.Budget(1.0, 0.2), dp.pinball(0.3), resolution=12, symmetric=False)
    )
    mirrored = check(
        dp.optimal_noise(dp.Budget(1.0, 0.2), dp.pinball(0.7), resolution=12, symmetric=False)
    )
    assert tilted.loss_upper == pytest.approx(mirrored.loss_upper, rel=1e-6)
    mixed = check(dp.optimal_noise(dp.Budget(1.0, 0.2), {"l1": 0.5, "l2": 0.5}, resolution=12))
    own = check(
        dp.optimal_noise(dp.Budget(1.0, 0.2), lambda x: 0.5 * x + 0.5 * x * x, resolution=12)
    )
    assert own.loss_lower <= mixed.loss_lower <= mixed.loss_upper <= own.loss_upper
    assert own.loss_upper - own.loss_lower < 0.02


def test_it_scales_with_the_sensitivity():
    unit = dp.optimal_noise(dp.Budget(1.0, 0.1), resolution=10).certificate
    wide = dp.optimal_noise(dp.Budget(1.0, 0.1), resolution=10, sensitivity=7.0).certificate
    square = dp.optimal_noise(dp.Budget(1.0, 0.1), "l2", resolution=10, sensitivity=7.0)
    check(square)
    assert wide.loss_upper == pytest.approx(7 * unit.loss_upper, rel=1e-8)
    assert wide.loss_lower == pytest.approx(7 * unit.loss_lower, rel=1e-8)
    assert float(square.variance()) == pytest.approx(square.certificate.loss_upper, rel=1e-9)


def test_it_is_a_noise_like_any_other():
    noise = dp.optimal_noise(dp.Budget(1.0, 0.1), resolution=10)
    mechanism = dp.Mechanism(noise, 1.0)
    assert float(mechanism.delta(1.0)) <= 0.1
    assert float(mechanism.epsilon(0.1)) <= 1.0
    draws = jax.jit(lambda key: noise.sample(key, (50_000,)))(jax.random.key(3))
    mean = float(abs(draws).mean())
    assert mean == pytest.approx(float(noise.mean_absolute()), abs=0.02)
    twice = float((2 * dp.privacy_loss(mechanism)).delta(2.0))
    assert 0.1 < twice <= 0.2


def test_a_stopped_solver_keeps_the_budget_and_says_so():
    made = dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=50, seconds=0.02)
    full = dp.optimal_noise(dp.Budget(3.0, 0.3), resolution=20)
    stopped = check(made)
    assert not stopped.complete
    assert stopped.loss_lower <= full.certificate.loss_upper
    assert stopped.loss_upper >= full.certificate.loss_lower


def test_a_budget_below_the_tolerances_of_the_solver():
    made = check(dp.optimal_noise(dp.Budget(0.5, 1e-9)))
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


def test_bad_input():
    one = dp.Budget(1.0, 0.1)
    for epsilon, delta, name in ((0.0, 0.1, "epsilon"), (1.0, 0.0, "delta"), (1.0, 1.0, "delta")):
        with pytest.raises(ValueError, match=f"{name} must lie in"):
            dp.optimal_noise(dp.Budget(epsilon, delta))
    with pytest.raises(ValueError, match=r"a support of 3 sensitivities or more is enough"):
        dp.optimal_noise(one, support=0.7)
    dp.optimal_noise(one, support=3.0)
    with pytest.raises(ValueError, match="loss must be one of"):
        dp.optimal_noise(one, "l3")
    with pytest.raises(ValueError, match="unbounded on both sides"):
        dp.optimal_noise(one, dp.ErrorMeasure(0.0, 1.0))
    with pytest.raises(ValueError, match="stops growing"):
        dp.optimal_noise(one, lambda x: x / (1 + x))
    with pytest.raises(ValueError, match="never falls"):
        dp.optimal_noise(one, lambda x: x * np.cos(x) ** 2)
    with pytest.raises(ValueError, match="quantile must lie in"):
        dp.pinball(1.0)
    with pytest.raises(ValueError, match="symmetric must be False"):
        dp.optimal_noise(one, "asymmetric")
    for name, value in (("resolution", 0), ("max_atom", 2.0), ("sensitivity", -1.0)):
        with pytest.raises(ValueError, match=f"{name} must"):
            dp.optimal_noise(one, **{name: value})
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda d: dp.optimal_noise(dp.Budget(1.0, d)).width)(0.1)
    assert highspy.Highs().version()
