"""DP coordinate descent: the algorithm as written, what a record moves, published numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_descent import SMOOTHNESS, draw, make_plan, real_data, standardised

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import L1, L2, coordinate_smoothness, glm
from jaxdp.solvers import coordinate_descent as cd

pytestmark = pytest.mark.float64


def test_the_run_is_the_written_algorithm():
    """Against a plain NumPy loop with the same noise, for both losses, iterates and penalties."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(300, 5)) * np.sqrt(SMOOTHNESS)
    targets = features @ np.array([1.0, 0.0, -0.3, 2.0, 0.1]) + rng.normal(size=300)
    for loss, penalty, iterate, noise in (
        ("squared", L1(0.1), "last", "gaussian"),
        ("squared", L2(0.1), "average", "laplace"),
        ("logistic", L1(0.01), "average", "gaussian"),
        ("logistic", L2(0.01), "last", "laplace"),
    ):
        y = targets if loss == "squared" else (targets > 0).astype(float)
        problem = glm(features, y, loss=loss, penalty=penalty)
        plan = make_plan(iterate=iterate, records=300, budget=dp.Budget(20.0, 0.1))
        object.__setattr__(
            plan, "noise", dp.Gaussian(1.0) if noise == "gaussian" else dp.Laplace(1.0)
        )
        key = jax.random.key(9)
        # The rounding to the lattice is below the tolerance.
        drawn = np.asarray(draw(plan, key).noise)
        design, offset = np.asarray(problem.design), np.asarray(problem.offset)
        theta = np.zeros(5)
        clip, steps = np.asarray(plan.clip), np.asarray(plan.steps)
        for row, noises in zip(np.asarray(plan.sequence), drawn, strict=True):
            iterates = []
            for j, z in zip(row, noises, strict=True):
                state = theta @ design + offset
                slope = state if loss == "squared" else -1 / (1 + np.exp(state))
                partial = np.clip(design[j] * slope, -clip[j], clip[j])
                mean = np.mean(np.rint(partial * 2**30 / clip[j])) * clip[j] / 2**30
                point = theta[j] - steps[j] * (mean + z)
                theta[j] = float(penalty.proximal(penalty.strength, *jnp.array([point, steps[j]])))
                iterates.append(theta.copy())
            if iterate == "average":
                theta = np.mean(iterates, axis=0)
        np.testing.assert_allclose(cd.run(problem, plan, key), theta, rtol=1e-9, atol=1e-12)
        if iterate == "average":
            continue
        single = glm(features, y, loss=loss, penalty=penalty, dtype=jnp.float32)
        np.testing.assert_allclose(cd.run(single, plan, key), theta, rtol=2e-4, atol=2e-5)


def test_one_record_moves_the_released_gradient_by_at_most_the_sensitivity():
    """One update from 0 with noise removed, on neighbours that are as different as can be."""
    plan = make_plan(order="cyclic", passes=1, records=300)
    silent = jax.tree.map(lambda x: x, plan)
    object.__setattr__(silent, "scales", jnp.zeros(5))
    rng = np.random.default_rng(3)
    features, targets = rng.normal(size=(300, 5)), rng.normal(size=300)
    results = []
    for extreme in (1e6, -1e6):
        x, y = features.copy(), targets.copy()
        x[0], y[0] = extreme, 1e6
        problem = glm(x, y, loss="squared", penalty=L2(0.0))
        results.append(float(cd.run(problem, silent, jax.random.key(0))[0]))
    moved = abs(results[0] - results[1]) / float(plan.steps[0])
    assert moved <= float(plan.sensitivities[0]) * (1 + 1e-12)
    assert moved >= float(plan.sensitivities[0]) * (1 - 1e-9)


def test_it_batches_over_keys_and_hyper_parameters():
    features, targets = standardised("diabetes")
    problem = glm(features, targets / 100, loss="squared", penalty=L1(0.1))
    curvature = coordinate_smoothness(problem).as_public()

    def chain(step, clip, epsilon, key):
        order, noise = jax.random.split(key)
        plan = cd.plan(
            dp.Budget(epsilon, 1e-5),
            smoothness=curvature,
            clip=clip,
            records=len(targets),
            passes=3,
            relation="replace_one",
            step=step,
            key=order,
        )
        return cd.run(problem, plan, noise), plan.rho

    keys = jax.random.split(jax.random.key(0), 3)
    step, clip, epsilon = jnp.array([0.1, 0.5, 1.0]), jnp.array([1.0, 2.0, 3.0]), jnp.ones(3)
    theta, rho = jax.vmap(chain)(step, clip, epsilon, keys)
    assert theta.shape == (3, 10)
    for i in range(3):
        one, one_rho = chain(step[i], clip[i], epsilon[i], keys[i])
        np.testing.assert_allclose(theta[i], one, rtol=1e-9)
        np.testing.assert_allclose(rho[i], one_rho, rtol=1e-12)


def test_the_trace_must_be_asked_for_and_says_what_it_is():
    features, targets = standardised("diabetes")
    problem = glm(features, targets, loss="squared", penalty=L1(0.1))
    plan = make_plan(
        smoothness=coordinate_smoothness(problem).as_public(),
        records=len(targets),
        clip=50.0,
    )
    theta = cd.run(problem, plan, jax.random.key(0))
    assert isinstance(theta, np.ndarray)
    traced, trace = cd.run(problem, plan, jax.random.key(0), trace=True)
    np.testing.assert_array_equal(theta, traced)
    assert type(trace).__name__ == "NotPrivateTrace"
    assert "NOT PRIVATE" in (type(trace).__doc__ or "")
    np.testing.assert_allclose(trace.objective[-1], problem.objective(theta), rtol=1e-12)
    assert trace.objective.shape == (7,)


def test_a_plan_for_other_coordinates_is_refused():
    problem = glm(np.ones((3, 2)), np.ones(3), loss="squared", penalty=L1(0.1))
    with pytest.raises(ValueError, match="coordinates"):
        cd.run(problem, make_plan(), jax.random.key(0))


def test_a_plan_for_other_records_is_refused():
    """Its noise is for a mean over its own number of records."""
    problem = glm(np.ones((10, 5)), np.ones(10), loss="squared", penalty=L1(0.1))
    with pytest.raises(ValueError, match="plan is for 1000 records"):
        cd.run(problem, make_plan(), jax.random.key(0))


@real_data
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "scaling", "optimum_value", "allocation", "step", "clip", "published", "error"),
    [
        ("california_housing", "raw", 0.3668935216, "inid", 0.215, 1.78, 0.1531, 0.0082),
        ("california_housing", "standard", 0.4193644937, "spr", 0.1, 3.16, 5.1e-4, 7e-5),
        ("electricity", "raw", 0.5568569454, "inid", 1.0, 2.57, 0.0114, 0.0017),
        ("california_housing", "raw", 0.3668935216, "spr", 0.464, 1.78, 0.0249, 0.0020),
        ("electricity", "raw", 0.5568569454, "spr", 1.0, 2.57, 0.00425, 0.00028),
        ("electricity", "standard", 0.5101816652, "spr", 1.0, 2.57, 0.0016, 0.0002),
    ],
)
def test_published_errors(name, scaling, optimum_value, allocation, step, clip, published, error):
    """Relative error after 50 passes, 20 fresh seeds, within 3 combined standard errors.

    LASSO 0.1 on California (targets centred where standardised), l2 1/n on Electricity.
    """
    data = datasets.load(name)
    records = len(data.targets)
    features = data.features if scaling == "raw" else standardised(name)[0]
    squared = name == "california_housing"
    centred = squared and scaling == "standard"
    problem = glm(
        features,
        data.targets - data.targets.mean() if centred else data.targets,
        loss="squared" if squared else "logistic",
        penalty=L1(0.1) if squared else L2(1 / records),
        dtype=jnp.float32,
    )
    curvature = coordinate_smoothness(problem).as_public()
    threshold = clip * float(jnp.sqrt(curvature.values.sum()))

    def relative_error(key):
        order, noise = jax.random.split(key)
        plan = cd.plan(
            dp.Budget(1.0, float(records) ** -2),
            smoothness=curvature,
            clip=threshold,
            records=records,
            passes=50,
            relation="replace_one",
            step=step,
            allocation=allocation,
            key=order,
        )
        return problem.objective(cd.run(problem, plan, noise)) / optimum_value - 1

    keys = jax.random.split(jax.random.key(20), 20)
    errors = np.asarray(jax.jit(lambda k: jax.lax.map(relative_error, k))(keys))
    own = errors.std(ddof=1) / np.sqrt(20)
    assert abs(errors.mean() - published) < 3 * np.hypot(own, error)
