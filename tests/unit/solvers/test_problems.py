"""Losses, penalties, proximal operators, smoothness: against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from jaxdp.solvers import L1, L2, ElasticNet, bounded_smoothness, coordinate_smoothness, glm
from jaxdp.solvers.problems import Smoothness

RNG = np.random.default_rng(11)
FEATURES = RNG.normal(size=(60, 4)) * np.array([0.1, 1.0, 3.0, 10.0])
TARGETS = RNG.normal(size=60)
LABELS = (RNG.random(60) < 0.4).astype(float)


def problem(loss, penalty=None, **kwargs):
    targets = TARGETS if loss == "squared" else LABELS
    return glm(FEATURES, targets, loss=loss, penalty=penalty or L1(0.3), **kwargs)


@pytest.mark.float64
def test_objectives_are_their_definitions():
    theta = jnp.array([0.3, -2.0, 0.0, 0.05])
    squared = 0.5 * np.mean((FEATURES @ theta - TARGETS) ** 2)
    margin = (2 * LABELS - 1) * (FEATURES @ np.asarray(theta))
    logistic = np.mean(np.log1p(np.exp(-margin)))
    for loss, value in (("squared", squared), ("logistic", logistic)):
        np.testing.assert_allclose(
            problem(loss, L1(0.3)).objective(theta), value + 0.3 * 2.35, rtol=1e-14
        )
        np.testing.assert_allclose(
            problem(loss, L2(0.3)).objective(theta),
            value + 0.15 * float(theta @ theta),
            rtol=1e-14,
        )


@pytest.mark.float64
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_slope_and_smoothness_are_derivatives(loss):
    none = problem(loss, L2(0.0))
    theta = jnp.array([0.3, -0.2, 0.1, 0.05])
    gradient = none.design @ none.slope(none.state(theta)) / 60
    np.testing.assert_allclose(jax.grad(none.objective)(theta), gradient, rtol=1e-12)
    curvature = coordinate_smoothness(none).values
    hessian = jax.hessian(none.objective)(jnp.zeros(4)).diagonal()
    # The logistic loss is steepest at 0, where its curvature is the bound.
    np.testing.assert_allclose(curvature, hessian, rtol=1e-12)


@pytest.mark.float64
@pytest.mark.parametrize("penalty", [L1(0.7), L2(0.7), ElasticNet(0.5, 0.25)])
def test_proximal_operators_minimise_what_they_say(penalty):
    for point in (-3.0, -0.2, 0.0, 0.1, 0.69, 2.5):
        for step in (0.1, 1.0, 3.0):
            found = penalty.proximal(penalty.strength, jnp.asarray(point), jnp.asarray(step))

            def cost(u, point=point, step=step):
                return float(penalty.value(jnp.array([u]))) + (u - point) ** 2 / (2 * step)

            best = optimize.minimize_scalar(cost, bounds=(-4, 4), method="bounded")
            assert cost(float(found)) <= best.fun + 1e-12


def test_labels_map_to_signs():
    text = glm(FEATURES, np.where(LABELS == 1, "up", "down"), loss="logistic", penalty=L2(1.0))
    np.testing.assert_array_equal(text.design, problem("logistic").design)


def test_single_precision_is_for_data_only():
    single = problem("squared", dtype=jnp.float32)
    assert single.design.dtype == jnp.float32
    assert single.objective(jnp.zeros(4)).dtype == jnp.float64


def test_smoothness_says_where_it_comes_from():
    assert coordinate_smoothness(problem("squared")).origin == "records"
    assert coordinate_smoothness(problem("squared")).as_public().origin == "public"
    bounded = bounded_smoothness("logistic", [1.0, 2.0])
    np.testing.assert_allclose(bounded.values, [0.25, 1.0])
    assert bounded.origin == "public"


BAD = [
    ({"targets": TARGETS[:5]}, "shape"),
    ({"features": FEATURES[:, 0]}, "shape"),
    ({"features": FEATURES * np.nan}, "finite"),
    ({"targets": TARGETS * np.inf}, "finite"),
    ({"loss": "logistic"}, "two labels"),
    ({"loss": "hinge"}, "loss must be"),
    ({"penalty": L1([1.0] * 3)}, "strength"),
    ({"dtype": jnp.float16}, "dtype"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_problems(changed, message):
    known = {"features": FEATURES, "targets": TARGETS, "loss": "squared", "penalty": L1(0.1)}
    with pytest.raises(ValueError, match=message):
        glm(**known | changed)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: L1(-1.0), "strength"),
        (lambda: Smoothness([0.0, 1.0], "public"), "smoothness"),
        (lambda: Smoothness([1.0], "guess"), "origin"),
        (lambda: bounded_smoothness("squared", [-1.0]), "feature_bounds"),
    ],
)
def test_bad_parts_of_problems(call, message):
    with pytest.raises(ValueError, match=message):
        call()
