"""A pair stands for a `Budget` wherever one is taken; what draws are off by is paid for."""

import ast
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.guarantee.base import as_budget
from jaxdp.guarantee.drawn import Drawn, left_for_exact
from jaxdp.solvers import covariance

PAIR = (1.0, 1e-6)
CALLS = {
    "calibrate": lambda b: dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), b),
    "allocate": lambda b: dp.allocate("laplace", [1.0, 2.0], b),
    "fit_noise": lambda b: dp.fit_noise("gaussian", b, 1.0),
    "compare": lambda b: next(iter(dp.compare(b, 1.0, families=("gaussian",)))).variance,
    "largest_gdp": dp.largest_gdp,
    "Filter.within": lambda b: dp.Filter.within(b, order=24.0).budget,
    "covariance.plan": lambda b: covariance.plan(
        b, dimension=2, records=9, relation="replace_one"
    ).scales,
    "coordinate_descent.plan": lambda b: dp.solvers.coordinate_descent.plan(
        b, smoothness=np.ones(2), clip=1.0, records=9, passes=1, order="cyclic",
        relation="replace_one",
    ).scales,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_function_takes_a_pair_or_a_guarantee_as_a_budget(name):
    budget = CALLS[name](dp.Budget(*PAIR))
    for same in (PAIR, dp.ApproxDP(*PAIR)):
        jax.tree.map(np.testing.assert_array_equal, CALLS[name](same), budget)


def test_no_public_function_takes_a_budget_alone():
    """Wherever a parameter is annotated with `Budget`, it is `BudgetLike`."""
    root, found = Path(dp.__file__).parent, set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                hints = [a.annotation for a in (*node.args.args, *node.args.kwonlyargs)]
                names = [n for hint in hints if hint is not None for n in ast.walk(hint)]
                if any(isinstance(n, ast.Name) and n.id == "Budget" for n in names):
                    found.add(f"{path.stem}.{node.name}")
    inner = {
        *("plan.least_factor", "allocate.least", "allocate.level_of", "queries.least"),
        *("calibrate.least_of_composition", "conversions.largest_laplace_ratio"),
        *("defaults.defaults", "defaults.greedy_defaults", "drawn.left_for_exact"),
        *("greedy.planned", "measured.measure", "measured.narrowed", "moments.release"),
        *("queries.expected_factor", "queries.needs_no_noise", "risk.solved"),
    }
    assert found == inner


@pytest.mark.parametrize(
    "bad",
    [
        *((1.0,), (1.0, 1e-6, 2.0), 1.0, "12", None, dp.Gaussian(1.0), dp.PureDP),
        *(dp.GDP(1.0), dp.ZCDP(0.0, 0.1), dp.PureDP(np.inf), Drawn(dp.GDP(1.0))),
        dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0)),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_nothing_else_is(bad):
    with pytest.raises(ValueError, match=r"budget must be a Budget or a pair"):
        as_budget(bad)


LAPLACE = dp.Mechanism(dp.Laplace(1.0), 1.0)
STATED = {
    "PureDP": (dp.PureDP(1.0), (1.0, 0.0)),
    "ApproxDP": (dp.ApproxDP(*PAIR), PAIR),
    "Mechanism": (LAPLACE, (1.0, 0.0)),
    "PrivacyLoss": (2 * dp.privacy_loss(LAPLACE), (2.0, 0.0)),
    "Drawn": (Drawn(dp.PureDP(1.0), 1e-9), (1.0, (1.0 + np.e) * 1e-9)),
}


@pytest.mark.parametrize("name", STATED)
def test_a_guarantee_with_one_epsilon_is_a_budget(name):
    guarantee, pair = STATED[name]
    found = as_budget(guarantee)
    np.testing.assert_allclose([found.epsilon, found.delta], pair, rtol=1e-12)
    assert found.epsilon >= pair[0]


def test_a_traced_guarantee_without_an_epsilon_is_no_budget():
    traced = jax.jit(lambda mu: as_budget(dp.GDP(mu)).epsilon)
    assert np.isnan(traced(1.0))
    one_way = dp.Mechanism(dp.Laplace(1.0), 1.0, 0.5, "add")
    with pytest.raises(ValueError, match="both directions"):
        as_budget(one_way)


@pytest.mark.float64
def test_a_pair_is_checked():
    for bad, name in (((-1.0, 0.1), "epsilon"), ((1.0, 1.5), "delta"), ((1.0, np.nan), "delta")):
        with pytest.raises(ValueError, match=name):
            dp.fit_noise("gaussian", bad, 1.0)
    many = dp.largest_gdp(([1.0, 2.0], 1e-6))
    assert many.mu.shape == (2,)
    traced = jax.jit(lambda e: dp.largest_gdp((e, 1e-6)).mu)
    assert traced(1.0) == many.mu[0]
    assert not traced(-1.0) > 0


ERROR = 1e-8


def test_draws_of_losses_that_are_infinite_above_half_of_delta():
    exact = dp.ApproxDP(1.0, 0.04)
    for delta in (0.0400001, 0.05, 0.079):
        found = Drawn(exact, 1e-22).epsilon(delta)
        assert exact.epsilon(delta) <= found <= 1.0
        assert Drawn(exact, 1e-22).delta(found) <= delta
    assert Drawn(exact, 1e-22).epsilon(0.04) == np.inf
    assert Drawn(exact, 0.01).epsilon(0.05) == np.inf


def test_delta_has_the_draws_error_and_epsilon_inverts_it():
    exact = dp.GDP(0.5)
    drawn = Drawn(exact, ERROR)
    for epsilon in (-1.0, 0.0, 1.0, 3.0):
        expected = float(exact.delta(epsilon)) + (1.0 + np.exp(epsilon)) * ERROR
        np.testing.assert_allclose(drawn.delta(epsilon), expected, rtol=1e-12)
        assert drawn.delta(epsilon) >= expected
    for delta in (1e-2, 1e-4, 1e-6):
        found = float(drawn.epsilon(delta))
        assert drawn.delta(found) <= delta < drawn.delta(found * (1.0 - 1e-3))
    assert drawn.epsilon(1e-8) == np.inf
    assert drawn.delta(40.0) == 1.0
    assert Drawn(exact, 7.0).delta(0.0) == 1.0
    slopes = [jax.grad(source.log_delta)(1.0) for source in (Drawn(exact), exact)]
    np.testing.assert_allclose(*slopes)
    with pytest.raises(ValueError, match="sampling_error must"):
        Drawn(exact, -1.0)


def test_pure_and_concentrated_guarantees_become_approximate():
    pure = Drawn(dp.PureDP(1.0), ERROR)
    np.testing.assert_allclose(pure.delta(1.0), (1.0 + np.e) * ERROR, rtol=1e-12)
    assert pure.epsilon(0.0) == np.inf
    assert Drawn(dp.PureDP(1.0)).epsilon(0.0) == 1.0
    assert Drawn(dp.ZCDP(0.0, 0.1), ERROR).delta(30.0) == 1.0


def test_exact_parts_compose_and_errors_add():
    one, other = Drawn(dp.GDP(0.3), 1e-9), Drawn(dp.GDP(0.4), 2e-9)
    both = one + other
    np.testing.assert_allclose([both.exact.mu, both.sampling_error], [0.5, 3e-9], rtol=1e-12)
    many = 4 * one
    np.testing.assert_allclose([many.exact.mu, many.sampling_error], [0.6, 4e-9], rtol=1e-12)
    np.testing.assert_allclose(sum([one, other]).log_delta(1.0), both.log_delta(1.0))
    for exact in (dp.GDP(0.4) + one, one + dp.GDP(0.4)):
        np.testing.assert_allclose([exact.exact.mu, exact.sampling_error], [0.5, 1e-9], rtol=1e-12)
    loss = dp.privacy_loss(dp.GDP(0.4)) + one
    assert isinstance(loss.exact, dp.PrivacyLoss)
    np.testing.assert_allclose(loss.sampling_error, 1e-9)
    # What attacks are bounded by follows from delta.
    assert dp.risk.advantage(one) > dp.risk.advantage(one.exact)


@pytest.mark.float64
def test_a_budget_pays_for_the_draws_once():
    budget = dp.Budget(np.array([0.5, 2.0]), 1e-5)
    left = left_for_exact(budget, ERROR)
    paid = np.asarray(left.delta) + (1.0 + np.exp(np.asarray(budget.epsilon))) * ERROR
    np.testing.assert_allclose(paid, 1e-5, rtol=1e-12)
    assert (paid <= 1e-5).all()
    for kept in (dp.Budget(1.0, 0.0), dp.Budget(np.inf, 0.5)):
        assert left_for_exact(kept, ERROR).delta == kept.delta
    assert left_for_exact(dp.Budget(1.0, 1e-6), 1.0).delta == 1e-6
    with pytest.raises(ValueError, match=r"delta of at least 2 \(1 \+ e\^epsilon\) 1.0e-08"):
        left_for_exact(dp.Budget(10.0, 1e-5), ERROR)
    traced = jax.jit(lambda epsilon: left_for_exact(dp.Budget(epsilon, 1e-5), ERROR).delta)
    assert np.isnan(traced(10.0))
