"""The regularised exponential mechanism: its privacy curve, its temperature, its sampler."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp.solvers import L1, L2, exponential_mechanism, glm

BUDGET = dp.Budget(1.0, 1e-6)
KEY = jax.random.key(0)


def make_plan(budget=BUDGET, **other):
    known = {"dimension": 2, "records": 200, "radius": 5.0, "relation": "replace_one"}
    return exponential_mechanism.plan(budget, **(known | other))


def regression(records, dimension, seed=0, strength=0.0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(records, dimension))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    slopes = 3.0 * rng.normal(size=dimension)
    labels = rng.random(records) < 1.0 / (1.0 + np.exp(-features @ slopes))
    return glm(features, labels, loss="logistic", penalty=L2(strength))


def density(signed, plan, grid):
    """Of theta in one dimension, on `grid`: signed = label * feature of each record."""
    loss = np.logaddexp(0.0, -grid[:, None] * signed[None]).mean(axis=1)
    curvature = float(plan.strength + plan.regularisation)
    exponent = -float(plan.temperature) * (loss + 0.5 * curvature * grid**2)
    weights = np.exp(exponent - exponent.max())
    return weights / weights.sum()


@pytest.mark.parametrize("relation", SOLVER_RELATIONS)
def test_neighbouring_densities_are_no_easier_to_tell_than_the_gaussians(relation):
    """One dimension, quadrature; the constant is nearly reached where the slopes are 1."""
    grid = np.linspace(-40.0, 40.0, 80_001)
    largest = 0.0
    for epsilon in (0.5, 2.0, 6.0):
        made = make_plan(dp.Budget(epsilon, 1e-3), dimension=1, records=8, relation=relation)
        for rest in (np.ones(7), -np.ones(7), np.linspace(-1, 1, 7)):
            # With n fixed in the mean, a record that is not there has a loss of 0, as at feature 0.
            other = -1.0 if relation == "replace_one" else 0.0
            pair = [density(np.append(rest, last), made, grid) for last in (1.0, other)]
            for p, q in (pair, pair[::-1]):
                for e in (0.0, 0.5, 1.0, 3.0):
                    exact = np.maximum(p - np.exp(e) * q, 0.0).sum()
                    allowed = float(made.exact.delta(e))
                    assert exact <= allowed * (1 + 1e-6) + 1e-12
                    largest = max(largest, exact / allowed)
    assert largest > 0.1


def test_the_plan_is_the_least_bound_that_keeps_the_budget():
    for relation, factor in (("replace_one", 2.0), ("add_remove", 1.0)):
        made = make_plan(relation=relation, row_bound=2.0)
        k, m = float(made.temperature), float(made.regularisation)
        mu = factor * 2.0 * np.sqrt(k) / (200 * np.sqrt(m))
        np.testing.assert_allclose(mu, float(made.exact.mu), rtol=1e-12)
        np.testing.assert_allclose(made.excess_risk, 2 / k + m * 12.5, rtol=1e-12)
        for other in (0.99 * m, 1.01 * m):  # the same mu, k / m being the same
            assert 2 / (k * other / m) + other * 12.5 > made.excess_risk
        assert 0.99e-6 < made.guarantee.delta(1.0) <= 1e-6
        assert made.exact.delta(1.0) < made.guarantee.delta(1.0)


def test_a_penalty_takes_the_place_of_the_regularisation():
    weak, strong = (make_plan(penalty=L2(s)) for s in (1e-4, 1.0))
    free = make_plan()
    total = weak.strength + weak.regularisation
    np.testing.assert_allclose(total, free.regularisation, rtol=1e-12)
    assert weak.excess_risk < free.excess_risk
    assert strong.regularisation == 0.0
    np.testing.assert_allclose(strong.excess_risk, 2 / strong.temperature, rtol=1e-12)


@pytest.mark.long
def test_the_chain_draws_from_the_density():
    """Kolmogorov-Smirnov over 1,000 chains in one dimension: 1 false alarm in 1e6 runs."""
    made = make_plan(
        dp.Budget(4.0, 1e-3), dimension=1, records=6, radius=2.0, relation="add_remove"
    )
    features = np.array([[1.0], [0.5], [-0.2], [0.9], [1.7], [-1.0]])
    labels = np.array([1, 1, 0, 0, 1, 1])
    problem = glm(features, labels, loss="logistic", penalty=L2(0.0))
    keys = jax.random.split(KEY, 1000)
    drawn = np.sort(
        np.ravel(jax.jit(jax.vmap(lambda k: exponential_mechanism.sample(problem, made, k)))(keys))
    )
    grid = np.linspace(-60.0, 60.0, 120_001)
    # The row of norm 1.7 is shortened to 1.
    signed = np.clip(features[:, 0], -1, 1) * np.where(labels == 1, 1.0, -1.0)
    law = np.cumsum(density(signed, made, grid))
    distance = np.abs(np.interp(drawn, grid, law) - (np.arange(1000) + 0.5) / 1000).max()
    assert distance < 2.7 / np.sqrt(1000)


def test_the_chain_is_as_long_as_its_distance_asks(monkeypatch):
    made = make_plan()
    monkeypatch.setattr(exponential_mechanism, "_SHARE", 1e-6)
    tighter = make_plan()
    np.testing.assert_allclose(tighter.total_variation, made.total_variation * 1e-3, rtol=1e-12)
    rate = float(jnp.log1p(made.temperature * made.regularisation * made.step))
    np.testing.assert_allclose(int(tighter.steps - made.steps), np.log(1e3) / rate, rtol=0.02)
    added = (1.0 + np.e) * float(made.total_variation)
    np.testing.assert_allclose(
        made.guarantee.delta(1.0), float(made.exact.delta(1.0)) + added, rtol=1e-12
    )


def test_bad_input():
    for bad in (
        {"relation": "both"},
        {"dimension": 0},
        {"records": 0},
        {"radius": 0.0},
        {"row_bound": -1.0},
        {"penalty": L2(jnp.ones(2))},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make_plan(**bad)
    with pytest.raises(ValueError, match="budget"):
        make_plan(dp.Budget(1.0, 0.0))
    made, problem = make_plan(), regression(200, 2)
    squared = glm(np.ones((200, 2)), np.ones(200), loss="squared", penalty=L2(0.0))
    for wrong, name in (
        (squared, "logistic"),
        (regression(199, 2), "plan is for"),
        (regression(200, 2, strength=0.1), "penalty"),
        (dataclasses.replace(problem, penalty=L1(0.0)), "penalty"),
    ):
        with pytest.raises(ValueError, match=name):
            exponential_mechanism.sample(wrong, made, KEY)
