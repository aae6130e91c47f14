"""Greedy coordinate descent: what a record moves, what is selected, what it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent import greedy
from jaxdp.solvers.coordinate_descent.host import Records

pytestmark = pytest.mark.float64

CLIP = jnp.asarray([0.5, 1.0, 2.0])
KNOWN = {"clip": CLIP, "passes": 1, "updates": 4, "order": "greedy"}


def problem(features, targets):
    return dp.solvers.glm(features, targets, loss="squared", penalty=dp.solvers.L1(0.0))


def made(**more):
    known = {"smoothness": np.ones(3), "records": 50, "relation": "replace_one"}
    return cd.plan((1.0, 1e-6), **KNOWN | known | more)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_a_record_moves_scores_and_gradients_by_their_sensitivity(relation):
    """200 pairs of neighbours: the worst change over the sensitivity is 1, and never above."""
    # Thresholds and sensitivities are those of every order.
    rng, plan, worst = np.random.default_rng(0), made(relation=relation, order="cyclic"), 0.0
    shift = (2.0 if relation == "replace_one" else 1.0) * 2.0**30
    for _ in range(200):
        x, y = 3 * rng.standard_normal((50, 3)), 3 * rng.standard_normal(50)
        other_x, other_y = x.copy(), y.copy()
        size = 10.0 ** rng.uniform(-1, 6)
        other_x[0] = size * rng.standard_normal(3)
        other_y[0] = size * rng.standard_normal()
        if relation == "add_remove":
            other_x[0], other_y[0] = 0.0, 0.0
        theta = rng.standard_normal(3)
        both = [
            Records(each, np.asarray(plan.clip))
            for each in (problem(x, y), problem(other_x, other_y))
        ]
        one, two = (each.whole_sums(each.state(theta), 2.0**30) for each in both)
        assert (one == np.rint(one)).all()
        moved = np.abs(one - two).max()
        assert np.abs(np.abs(one) - np.abs(two)).max() <= moved <= shift
        gradient = np.abs(one - two) * np.asarray(plan.clip) / (50 * 2.0**30)
        assert (gradient <= np.asarray(plan.sensitivities)).all()
        worst = max(worst, moved / shift)
    assert worst == 1.0


def test_the_selection_is_the_exponential_mechanism():
    scores = jnp.asarray([0.0, 1.0, 2.5, 3.0, -60.0])
    words = jax.random.bits(jax.random.key(0), (20_000, 3), jnp.uint64)
    found = jax.vmap(lambda each: greedy.selected(scores, jnp.asarray(2.0), 3, each))(words)
    share = np.bincount(np.asarray(found), minlength=5) / len(words)
    law = np.exp(np.asarray(scores)) / np.exp(np.asarray(scores)).sum()
    np.testing.assert_allclose(share, law, atol=4 * np.sqrt(0.25 / len(words)))


def test_a_plan_costs_its_budget_and_no_more():
    spent = dp.GDP(0.05)
    plan = made(spent=spent)
    assert 1e-6 * (1 - 1e-6) < float(plan.guarantee.delta(1.0)) <= 1e-6
    parts = 4 * dp.privacy_loss(dp.ExponentialMechanism(plan.selection_epsilon - 1e-11))
    ratio = float(plan.sensitivities[0] / plan.scales[0])
    np.testing.assert_allclose(plan.sensitivities / plan.scales, ratio, rtol=1e-12)
    parts = parts + dp.privacy_loss(dp.GDP(2.0 * ratio)) + dp.privacy_loss(spent)
    stated = float(plan.guarantee.exact.log_delta(1.0))
    assert stated == pytest.approx(float(parts.log_delta(1.0)), rel=1e-3)
    # Two levels of a tree, one uniform each, and a number with noise.
    assert float(plan.sampling_error) == pytest.approx(
        4 * 2 * 2.0**-61 + lattice.sampling_error(4, "lattice")
    )
    with pytest.raises(ValueError, match="trace"):
        cd.run(problem(np.zeros((50, 3)), np.zeros(50)), plan, jax.random.key(0), trace=True)
    with pytest.raises(ValueError, match="plan is for 50 records"):
        cd.run(problem(np.zeros((9, 3)), np.zeros(9)), plan, jax.random.key(0))


@pytest.mark.parametrize(
    "more",
    [
        {"noise": "laplace"},
        {"step": lambda index: 1.0 / (1 + index)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_greedy_descent_does_not_take_is_named(more):
    with pytest.raises(ValueError, match="'greedy' takes Gaussian noise"):
        made(**more)
