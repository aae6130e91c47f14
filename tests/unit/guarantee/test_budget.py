"""A pair (epsilon, delta) stands for a `Budget` wherever one is taken."""

import ast
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxdp as dp
from benchmarks.reproductions import proximal_descent
from jaxdp.guarantee.base import as_budget
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
    "proximal_descent.plan": lambda b: proximal_descent.plan(
        b, coordinates=3, records=9, key=jax.random.key(0), passes=1
    ).scales,
    "coordinate_descent.plan": lambda b: dp.solvers.coordinate_descent.plan(
        b, smoothness=np.ones(2), clip=1.0, records=9, passes=1, order="cyclic",
        relation="replace_one",
    ).scales,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_pair_is_a_budget(name):
    pair, budget = CALLS[name](PAIR), CALLS[name](dp.Budget(*PAIR))
    jax.tree.map(np.testing.assert_array_equal, pair, budget)


def test_no_public_function_takes_a_budget_alone():
    """Wherever a parameter is annotated with `Budget`, it is `BudgetLike`."""
    root, found = Path(dp.__file__).parent, set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                hints = [a.annotation for a in (*node.args.args, *node.args.kwonlyargs)]
                names = [n for hint in hints if hint is not None for n in ast.walk(hint)]
                if any(isinstance(n, ast.Name) and n.id == "Budget" for n in names):
                    found.add(node.name)
    inner = {"largest_laplace_ratio", "least_factor", "defaults", "left_for_exact", "solved"}
    assert found == inner


@pytest.mark.parametrize("bad", [(1.0,), (1.0, 1e-6, 2.0), 1.0, "12", dp.GDP(1.0), None])
def test_nothing_else_is(bad):
    with pytest.raises(ValueError, match=r"budget must be a Budget or a pair"):
        as_budget(bad)


def test_a_pair_is_checked():
    for bad, name in (((-1.0, 0.1), "epsilon"), ((1.0, 1.5), "delta"), ((1.0, np.nan), "delta")):
        with pytest.raises(ValueError, match=name):
            dp.fit_noise("gaussian", bad, 1.0)
    many = dp.largest_gdp(([1.0, 2.0], 1e-6))
    assert many.mu.shape == (2,)
    traced = jax.jit(lambda e: dp.largest_gdp((e, 1e-6)).mu)
    assert traced(1.0) == many.mu[0]
    assert not traced(-1.0) > 0
