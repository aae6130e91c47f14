"""DP coordinate descent: the algorithm as written, what a record moves, batches, warm starts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_descent import KEY, SMOOTHNESS, draw, make_plan, plan, problem, standardised

import jaxdp as dp
from jaxdp.solvers import L1, L2, Problem, bounded_smoothness, coordinate_smoothness, glm
from jaxdp.solvers import coordinate_descent as cd

pytestmark = pytest.mark.float64


def test_the_run_is_the_written_algorithm():
    """Against a plain NumPy loop with the same noise, for both losses and penalties."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(300, 5)) * np.sqrt(SMOOTHNESS)
    targets = features @ np.array([1.0, 0.0, -0.3, 2.0, 0.1]) + rng.normal(size=300)
    for loss, penalty, noise in (
        ("squared", L1(0.1), dp.Gaussian(1.0)),
        ("squared", L2(0.1), dp.Laplace(1.0)),
        ("logistic", L1(0.01), dp.Gaussian(1.0)),
        ("logistic", L2(0.01), dp.Laplace(1.0)),
    ):
        y = targets if loss == "squared" else (targets > 0).astype(float)
        problem = glm(features, y, loss=loss, penalty=penalty)
        plan = make_plan(records=300, budget=dp.Budget(20.0, 0.1))
        object.__setattr__(plan, "noise", noise)
        key = jax.random.key(9)
        # The rounding to the lattice is below the tolerance.
        drawn = np.asarray(draw(plan, key).noise)
        design, offset = np.asarray(problem.design), np.asarray(problem.offset)
        theta = np.zeros(5)
        clip, steps = np.asarray(plan.clip), np.asarray(plan.steps)
        for row, noises in zip(np.asarray(plan.sequence), drawn, strict=True):
            for j, z in zip(row, noises, strict=True):
                state = theta @ design + offset
                slope = state if loss == "squared" else -1 / (1 + np.exp(state))
                partial = np.clip(design[j] * slope, -clip[j], clip[j])
                mean = np.mean(np.rint(partial * 2**30 / clip[j])) * clip[j] / 2**30
                point = theta[j] - steps[j] * (mean + z)
                theta[j] = float(penalty.proximal(penalty.strength, *jnp.array([point, steps[j]])))
        np.testing.assert_allclose(cd.run(problem, plan, key), theta, rtol=1e-9, atol=1e-12)
        single = glm(features, y, loss=loss, penalty=penalty, dtype=jnp.float32)
        np.testing.assert_allclose(cd.run(single, plan, key), theta, rtol=2e-4, atol=2e-5)


def test_it_batches_over_keys_and_hyper_parameters():
    features, targets = standardised("diabetes")
    problem = glm(features, targets / 100, loss="squared", penalty=L1(0.1))
    curvature = coordinate_smoothness(problem).as_public()

    def chain(step, clip, epsilon, key):
        order, noise = jax.random.split(key)
        known = {"records": len(targets), "passes": 3, "clip": clip, "step": step, "key": order}
        plan = make_plan(budget=dp.Budget(epsilon, 1e-5), smoothness=curvature, **known)
        return cd.run(problem, plan, noise), plan.rho

    keys = jax.random.split(jax.random.key(0), 3)
    step, clip, epsilon = jnp.array([0.1, 0.5, 1.0]), jnp.array([1.0, 2.0, 3.0]), jnp.ones(3)
    theta, rho = jax.vmap(chain)(step, clip, epsilon, keys)
    assert theta.shape == (3, 10)
    for i in range(3):
        one, one_rho = chain(step[i], clip[i], epsilon[i], keys[i])
        np.testing.assert_allclose(theta[i], one, rtol=1e-9)
        np.testing.assert_allclose(rho[i], one_rho, rtol=1e-12)


@pytest.mark.parametrize(
    ("records", "coordinates", "message"),
    [(1000, 2, "coordinates"), (10, 5, "plan is for 1000 records")],
)
def test_a_plan_for_another_problem_is_refused(records, coordinates, message):
    """Its noise is for a mean over its own number of records."""
    ones = np.ones((records, coordinates)), np.ones(records)
    with pytest.raises(ValueError, match=message):
        cd.run(glm(*ones, loss="squared", penalty=L1(0.1)), make_plan(), KEY)


def test_a_warm_start_goes_on_where_a_run_ended():
    whole = plan(order="cyclic", passes=4)
    half = plan(order="cyclic", passes=2)
    object.__setattr__(half, "scales", 0.0 * half.scales)
    object.__setattr__(whole, "scales", 0.0 * whole.scales)
    first = cd.run(problem(), half, KEY)
    np.testing.assert_allclose(
        cd.run(problem(), half, KEY, start=first), cd.run(problem(), whole, KEY), rtol=1e-9
    )
    with pytest.raises(ValueError, match="start must have shape"):
        cd.run(problem(), half, KEY, start=np.ones(2))
    with pytest.raises(ValueError, match="start must lie"):
        cd.run(problem(), half, KEY, start=np.array([0.0, np.nan, 0.0]))


def test_a_schedule_multiplies_the_steps_and_costs_nothing():
    schedule = optax.exponential_decay(0.5, transition_steps=1, decay_rate=0.5)
    made = plan(step=schedule)
    np.testing.assert_allclose(made.pace, 0.5 ** np.arange(1, 7))
    np.testing.assert_allclose(made.rho, plan().rho, rtol=1e-12)
    slow = cd.run(problem(), plan(step=lambda k: jnp.where(k == 0, 0.5, 1e-300)), KEY)
    one = plan(passes=6)
    object.__setattr__(one, "sequence", one.sequence[:1])
    object.__setattr__(one, "pace", one.pace[:1])
    np.testing.assert_array_equal(draw(one, KEY).noise, draw(plan(), KEY).noise[:1])
    np.testing.assert_allclose(slow, cd.run(problem(), one, KEY), rtol=1e-12)


def test_an_intercept_is_fitted_and_not_penalised():
    data = problem(intercept=True)
    assert data.penalty.strength.tolist() == [0.01, 0.01, 0.01, 0.0]
    smoothness = bounded_smoothness("squared", np.ones(3), intercept=True)
    assert smoothness.values.tolist() == [1.0, 1.0, 1.0, 1.0]
    theta = np.asarray(cd.run(data, cd.noiseless_plan(smoothness, passes=300), KEY))
    assert float(theta[3]) == pytest.approx(0.5, abs=0.03)
    logistic = glm(
        np.ones((4, 1)),
        np.array([0, 1, 1, 0]),
        loss="logistic",
        penalty=L2(1.0),
        intercept=True,
    )
    np.testing.assert_array_equal(logistic.design[1], [-1.0, 1.0, 1.0, -1.0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_one_record_moves_the_sum_by_two_thresholds_exactly(dtype):
    """In float32 as well, with 2^14 large cancelling records: the sum is of whole numbers."""
    records = 2**14 + 3
    rng = np.random.default_rng(1)
    features = rng.uniform(0.3, 1.0, size=(records, 1)) * rng.choice([-1, 1], size=(records, 1))
    targets = rng.normal(size=records) * 3
    made = make_plan(smoothness=np.ones(1), clip=1.7, records=records, passes=1, order="cyclic")
    object.__setattr__(made, "scales", jnp.zeros(1))
    moved = []
    for extreme in (1e30, -1e30):
        x, y = features.copy(), targets.copy()
        x[5], y[5] = 1.0, extreme
        data = glm(x, y, loss="squared", penalty=L2(0.0), dtype=dtype)
        moved.append(float(cd.run(data, made, KEY)[0]))
    gap = abs(moved[0] - moved[1])
    assert gap <= float(made.sensitivities[0])
    assert gap >= float(made.sensitivities[0]) * (1 - 1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_what_an_update_releases_is_on_a_lattice_whatever_the_records(dtype):
    """One update from 0: theta over the step is the noisy mean, a whole number of lattice steps."""
    made = plan(order="cyclic", passes=1, step=1.0)
    lattice = float(draw(made, KEY).step[0, 0])
    assert lattice <= 2.0**-37 * float(made.scales[0])
    odd = []
    for seed, key in enumerate(jax.random.split(KEY, 40)):
        data = problem(dtype, seed=seed % 2)
        data = Problem(data.design, data.offset, L2(0.0), data.loss)
        released = float(cd.run(data, made, key)[0]) / lattice
        assert released == round(released)
        odd.append(round(released) % 2)
    assert 8 < sum(odd) < 32


def test_floating_point_noise_is_asked_for_by_name():
    assert plan(release="float").sampling_error == 1
    assert plan().sampling_error < 18 * 2.0**-73
    np.testing.assert_allclose(plan(release="float").scales, plan().scales, rtol=1e-13)
    with pytest.raises(ValueError, match="release must be one of lattice, float"):
        plan(release="exact")


def test_what_overflows_is_clipped_too():
    features, targets = np.ones((300, 3)), np.ones(300)
    features[0], targets[1] = 1e308, 1e308
    data = glm(features, targets, loss="squared", penalty=L2(0.0))
    assert np.isfinite(cd.run(data, plan(), KEY)).all()


def test_too_many_records_for_an_exact_sum_are_refused():
    many = jax.ShapeDtypeStruct((3, 2**23 + 1), jnp.float64)
    data = problem()
    object.__setattr__(data, "design", many)
    object.__setattr__(data, "offset", jax.ShapeDtypeStruct((2**23 + 1,), jnp.float64))
    with pytest.raises(ValueError, match="at most 2\\^23"):
        cd.run(data, plan(records=2**23 + 1), KEY)
