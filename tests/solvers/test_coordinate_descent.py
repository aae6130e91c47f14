"""DP coordinate descent: optima, the privacy identity, hazards as errors, published numbers."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers.coordinate_descent.run import draw

pytestmark = pytest.mark.heavy

BUDGET = dp.Budget(1.0, 1e-6)
SMOOTHNESS = np.array([0.5, 1.0, 4.0, 0.1, 30.0])


def make_plan(**kwargs):
    arguments = {
        "smoothness": SMOOTHNESS,
        "clip": 2.0,
        "records": 1000,
        "passes": 7,
        "relation": "replace_one",
        "key": jax.random.key(1),
    }
    return cd.plan(kwargs.pop("budget", BUDGET), **(arguments | kwargs))


def standardised(name):
    data = datasets.load(name)
    features = (data.features - data.features.mean(axis=0)) / data.features.std(axis=0)
    return features, data.targets


def optimum(problem, passes):
    plan = cd.noiseless_plan(dp.coordinate_smoothness(problem), passes=passes)
    return cd.run(problem, plan, jax.random.key(0))


def test_lasso_optimum_is_that_of_scikit_learn():
    from sklearn.linear_model import Lasso

    features, targets = standardised("diabetes")
    targets = targets - targets.mean()
    for strength in (1.0, 20.0):
        problem = dp.glm(features, targets, loss="squared", penalty=dp.L1(strength))
        theirs = Lasso(alpha=strength, fit_intercept=False, tol=1e-15, max_iter=100_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its tolerance is below its duality gap's rounding
            theirs.fit(features, targets)
        theta = optimum(problem, 3000)
        best = problem.objective(jnp.asarray(theirs.coef_))
        np.testing.assert_allclose(problem.objective(theta), best, rtol=1e-12)
        np.testing.assert_allclose(theta, theirs.coef_, atol=1e-8)


def test_logistic_optimum_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    features, targets = standardised("breast_cancer")
    problem = dp.glm(features, targets, loss="logistic", penalty=dp.L2(0.01))
    theirs = LogisticRegression(
        C=1 / (0.01 * len(targets)), fit_intercept=False, solver="newton-cholesky", tol=1e-12
    ).fit(features, targets)
    theta = optimum(problem, 4000)
    best = problem.objective(jnp.asarray(theirs.coef_[0]))
    np.testing.assert_allclose(problem.objective(theta), best, rtol=1e-12)
    np.testing.assert_allclose(theta, theirs.coef_[0], atol=1e-6)


real_data = pytest.mark.skipif(
    not (datasets.available("california_housing") and datasets.available("electricity")),
    reason="needs the California and Electricity data, see jaxdp.datasets",
)


def scikit_learn_coefficients(features, targets, loss, penalty):
    from sklearn.linear_model import Lasso, LogisticRegression

    strength = float(penalty.strength)
    if loss == "squared":
        model = Lasso(alpha=strength, fit_intercept=False, tol=1e-13, max_iter=200_000)
    else:
        is_l1 = isinstance(penalty, dp.L1)
        model = LogisticRegression(
            C=1 / (strength * len(targets)),
            l1_ratio=float(is_l1),
            fit_intercept=False,
            solver="liblinear" if is_l1 else "newton-cholesky",
            tol=1e-10 if is_l1 else 1e-12,
            max_iter=5000,
        )
    return jnp.asarray(model.fit(features, targets).coef_.ravel())


@real_data
@pytest.mark.parametrize(
    ("name", "scaling", "penalty", "passes", "published"),
    [
        ("california_housing", "standard", dp.L1(0.1), 300, 0.4193644937),
        ("california_housing", "standard", dp.L1(0.01), 3000, None),
        pytest.param(
            "california_housing", "raw", dp.L1(0.1), 20_000, 0.3668935216, marks=pytest.mark.long
        ),
        ("electricity", "standard", dp.L2(1 / 45312), 2000, 0.5101816652),
        pytest.param(
            "electricity", "raw", dp.L2(1 / 45312), 3000, 0.5568569454, marks=pytest.mark.long
        ),
        ("electricity", "raw", dp.L2(1e-3), 3000, 0.6274955758),
        ("electricity", "standard", dp.L1(1e-3), 2000, None),
        pytest.param("electricity", "raw", dp.L1(1e-3), 3000, 0.5889318323, marks=pytest.mark.long),
    ],
)
def test_optima_on_real_data(name, scaling, penalty, passes, published):
    data = datasets.load(name)
    features = data.features if scaling == "raw" else standardised(name)[0]
    squared = name == "california_housing"
    centred = squared and scaling == "standard"
    targets = data.targets - data.targets.mean() if centred else data.targets
    loss = "squared" if squared else "logistic"
    problem = dp.glm(features, targets, loss=loss, penalty=penalty)
    theirs = scikit_learn_coefficients(features, targets, loss, penalty)
    value = problem.objective(optimum(problem, passes))
    np.testing.assert_allclose(value, problem.objective(theirs), rtol=1e-12)
    if published is not None:
        np.testing.assert_allclose(value, published, atol=6e-11)


@pytest.mark.parametrize(
    "noise", [cd.NOISES[0], pytest.param(cd.NOISES[1], marks=pytest.mark.long)]
)
@pytest.mark.parametrize("order", cd.ORDERS)
@pytest.mark.parametrize("allocation", cd.ALLOCATIONS)
def test_every_plan_meets_its_budget_for_the_visits_it_makes(allocation, order, noise):
    plan = make_plan(allocation=allocation, order=order, noise=noise)
    visits = np.bincount(np.asarray(plan.sequence).ravel(), minlength=5)
    np.testing.assert_array_equal(plan.visits, visits)
    delta = float(plan.delta(1.0))
    assert delta <= 1e-6
    assert delta > 1e-6 * (1 - 1e-8)
    if noise == "gaussian":
        # The identity: sum over updates of sensitivity^2 / (2 scale^2) is the budget's rho.
        rho = sum(
            float(plan.sensitivities[j] ** 2 / (2 * plan.scales[j] ** 2))
            for j in np.asarray(plan.sequence).ravel()
        )
        np.testing.assert_allclose(rho, dp.largest_gdp(BUDGET).mu ** 2 / 2, rtol=1e-12)
        np.testing.assert_allclose(plan.rho, rho, rtol=1e-12)
        np.testing.assert_allclose(plan.shares.sum(), 1.0, rtol=1e-12)


def test_a_draw_calibrated_to_its_expectation_would_overspend():
    """Why the visits are counted: the same scales under another i.i.d. draw miss the budget."""
    plans = [
        make_plan(allocation="inid", order="iid", passes=10, key=jax.random.key(i))
        for i in range(30)
    ]
    nominal = make_plan(allocation="inid", order="cyclic", passes=10)
    ratios = np.asarray(nominal.ratios) ** 2 / 2
    realised = [float(np.sum(np.asarray(p.visits) * ratios)) for p in plans]
    assert max(realised) > 1.2 * float(nominal.rho)
    assert all(float(p.delta(1.0)) <= 1e-6 for p in plans)


def test_allocations():
    plans = {a: make_plan(allocation=a, penalty=dp.L2(0.5)) for a in cd.ALLOCATIONS}
    sensitivity = np.asarray(plans["spr"].sensitivities)

    def proportional(one, other):
        np.testing.assert_allclose(one / one[0], other / other[0], rtol=1e-12)

    proportional(np.asarray(plans["spr"].scales), sensitivity)
    proportional(np.asarray(plans["inid"].scales) ** 2, sensitivity)
    weights = 1 / (SMOOTHNESS + 0.5)
    proportional(np.asarray(plans["winid"].scales) ** 2, sensitivity / np.sqrt(weights))
    proportional(np.asarray(plans["iid"].scales), np.ones(5))
    # With C_j proportional to sqrt(M_j) and no l2 term, the weighted optimum is SPR itself.
    weighted = make_plan(allocation="winid", penalty=dp.L1(0.5))
    np.testing.assert_allclose(weighted.scales, plans["spr"].scales, rtol=1e-12)
    equal = [make_plan(allocation=a, smoothness=np.ones(4)).scales for a in cd.ALLOCATIONS]
    for scales in equal[1:]:
        np.testing.assert_allclose(scales, equal[0], rtol=1e-12)


def test_published_scales():
    """epsilon = 1, delta = 1/n^2, 400 updates, n = 20640: scale / sensitivity = 107.034."""
    budget = dp.Budget(1.0, 20640.0**-2)
    plan = make_plan(budget=budget, smoothness=np.ones(8), passes=50, records=20640)
    np.testing.assert_allclose(1 / plan.ratios, 107.034, atol=5e-4)
    np.testing.assert_allclose(plan.rho, 0.0174575, atol=5e-8)
    np.testing.assert_allclose(dp.largest_gdp(budget).mu, 0.18686, atol=5e-6)


def test_relations_and_thresholds():
    replaced, added = make_plan(), make_plan(relation="add_remove")
    # A little more than 2 C / n: the mean is rounded once.
    for made, factor in ((replaced, 2), (added, 1)):
        excess = made.sensitivities / (factor * made.clip / 1000) - 1
        assert np.all((excess > 0) & (excess < 1e-12))
    np.testing.assert_allclose(replaced.scales, 2 * added.scales, rtol=1e-14)
    np.testing.assert_allclose(np.sum(replaced.clip**2), 4.0, rtol=1e-14)
    explicit = make_plan(clip=np.arange(1.0, 6.0))
    np.testing.assert_array_equal(explicit.clip, np.arange(1.0, 6.0))


def test_orders():
    sequence = np.asarray(make_plan(order="permutation").sequence)
    assert sequence.shape == (7, 5)
    assert all(sorted(row) == list(range(5)) for row in sequence)
    assert len({tuple(row) for row in sequence}) > 1
    cyclic = np.asarray(make_plan(order="cyclic", key=None).sequence)
    np.testing.assert_array_equal(cyclic, np.tile(np.arange(5), (7, 1)))
    drawn = np.asarray(make_plan(order="iid", passes=200).sequence)
    counts = np.bincount(drawn.ravel(), minlength=5)
    assert np.all(abs(counts - 200) < 5 * np.sqrt(1000 * 0.2 * 0.8))


def test_one_key_for_plan_and_run_draws_no_bits_twice():
    """The sequence is public: it must say nothing of the noise of whoever passes one key twice."""
    key = jax.random.key(1)
    plan = make_plan(order="cyclic")
    unit = draw(plan, key)
    assert not np.any(np.isin(unit, plan.noise.sample(key, plan.sequence.shape)))
    rows = [jax.random.permutation(k, 5) for k in jax.random.split(key, 7)]
    assert np.any(np.asarray(make_plan(key=key).sequence) != np.asarray(rows))


def test_the_run_is_the_written_algorithm():
    """Against a plain NumPy loop with the same noise, for both losses, iterates and penalties."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(300, 5)) * np.sqrt(SMOOTHNESS)
    targets = features @ np.array([1.0, 0.0, -0.3, 2.0, 0.1]) + rng.normal(size=300)
    for loss, penalty, iterate, noise in (
        ("squared", dp.L1(0.1), "last", "gaussian"),
        ("squared", dp.L2(0.1), "average", "laplace"),
        ("logistic", dp.L1(0.01), "average", "gaussian"),
        ("logistic", dp.L2(0.01), "last", "laplace"),
    ):
        y = targets if loss == "squared" else (targets > 0).astype(float)
        problem = dp.glm(features, y, loss=loss, penalty=penalty)
        plan = make_plan(iterate=iterate, records=300, budget=dp.Budget(50.0, 0.1))
        object.__setattr__(
            plan, "noise", dp.Gaussian(1.0) if noise == "gaussian" else dp.Laplace(1.0)
        )
        key = jax.random.key(9)
        unit = np.asarray(draw(plan, key))
        design, offset = np.asarray(problem.design), np.asarray(problem.offset)
        theta = np.zeros(5)
        clip, scales, steps = (np.asarray(a) for a in (plan.clip, plan.scales, plan.steps))
        for row, noises in zip(np.asarray(plan.sequence), unit, strict=True):
            iterates = []
            for j, z in zip(row, noises, strict=True):
                state = theta @ design + offset
                slope = state if loss == "squared" else -1 / (1 + np.exp(state))
                partial = np.clip(design[j] * slope, -clip[j], clip[j])
                mean = np.mean(np.rint(partial * 2**30 / clip[j])) * clip[j] / 2**30
                point = theta[j] - steps[j] * (mean + scales[j] * z)
                theta[j] = float(penalty.proximal(penalty.strength, *jnp.array([point, steps[j]])))
                iterates.append(theta.copy())
            if iterate == "average":
                theta = np.mean(iterates, axis=0)
        np.testing.assert_allclose(cd.run(problem, plan, key), theta, rtol=1e-9, atol=1e-12)
        single = dp.glm(features, y, loss=loss, penalty=penalty, dtype=jnp.float32)
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
        problem = dp.glm(x, y, loss="squared", penalty=dp.L2(0.0))
        results.append(float(cd.run(problem, silent, jax.random.key(0))[0]))
    moved = abs(results[0] - results[1]) / float(plan.steps[0])
    assert moved <= float(plan.sensitivities[0]) * (1 + 1e-12)
    assert moved >= float(plan.sensitivities[0]) * (1 - 1e-9)


def test_it_batches_over_keys_and_hyper_parameters():
    features, targets = standardised("diabetes")
    problem = dp.glm(features, targets / 100, loss="squared", penalty=dp.L1(0.1))
    curvature = dp.coordinate_smoothness(problem).as_public()

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
    looped, _ = jax.lax.map(lambda a: chain(*a), (step, clip, epsilon, keys))
    np.testing.assert_allclose(looped, theta, rtol=1e-9)


def test_the_trace_must_be_asked_for_and_says_what_it_is():
    features, targets = standardised("diabetes")
    problem = dp.glm(features, targets, loss="squared", penalty=dp.L1(0.1))
    plan = make_plan(
        smoothness=dp.coordinate_smoothness(problem).as_public(), records=len(targets), clip=50.0
    )
    theta = cd.run(problem, plan, jax.random.key(0))
    assert isinstance(theta, jax.Array)
    traced, trace = cd.run(problem, plan, jax.random.key(0), trace=True)
    np.testing.assert_array_equal(theta, traced)
    assert type(trace).__name__ == "NotPrivateTrace"
    assert "NOT PRIVATE" in (type(trace).__doc__ or "")
    np.testing.assert_allclose(trace.objective[-1], problem.objective(theta), rtol=1e-12)
    assert trace.objective.shape == (7,)


def test_a_budget_that_no_noise_meets():
    with pytest.raises(ValueError, match="budget must be one that Gaussian noise can meet"):
        make_plan(budget=dp.Budget(1.0, 0.0))
    traced = jax.jit(lambda delta: make_plan(budget=dp.Budget(1.0, delta)).scales)(0.0)
    assert np.all(np.isinf(traced))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"smoothness": dp.Smoothness(SMOOTHNESS, "records")}, "computed from the records"),
        ({"smoothness": dp.Smoothness(SMOOTHNESS, "released")}, "spent must be what"),
        ({"smoothness": [1.0, -1.0]}, "smoothness"),
        ({"smoothness": 1.0}, "smoothness"),
        ({"clip": 0.0}, "clip"),
        ({"records": None}, "records"),
        ({"updates": 6}, "updates"),
        ({"accounting": "rdp"}, "accounting"),
        ({"clip": np.ones(3)}, "clip"),
        ({"clip": np.inf}, "clip"),
        ({"records": 0}, "records"),
        ({"passes": 0}, "passes"),
        ({"relation": "swap"}, "relation"),
        ({"order": "random"}, "order"),
        ({"order": "iid", "key": None}, "key must be given"),
        ({"allocation": "best"}, "allocation"),
        ({"noise": "cauchy"}, "noise"),
        ({"iterate": "best"}, "iterate"),
        ({"step": 0.0}, "step"),
        ({"step": np.nan}, "step"),
    ],
)
def test_hazards_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_plan(**arguments)


def test_the_relation_is_required():
    with pytest.raises(TypeError, match="relation"):
        cd.plan(  # pyright: ignore[reportCallIssue]
            BUDGET, smoothness=SMOOTHNESS, clip=1.0, records=10, passes=1
        )


def test_long_steps_warn():
    with pytest.warns(UserWarning, match="step > 1"):
        make_plan(step=2.15)


def test_a_plan_for_other_coordinates_is_refused():
    problem = dp.glm(np.ones((3, 2)), np.ones(3), loss="squared", penalty=dp.L1(0.1))
    with pytest.raises(ValueError, match="coordinates"):
        cd.run(problem, make_plan(), jax.random.key(0))


def test_a_plan_for_other_records_is_refused():
    """Its noise is for a mean over its own number of records."""
    problem = dp.glm(np.ones((10, 5)), np.ones(10), loss="squared", penalty=dp.L1(0.1))
    with pytest.raises(ValueError, match="plan is for 1000 records"):
        cd.run(problem, make_plan(), jax.random.key(0))


def test_bad_traced_hyper_parameters_are_never_private():
    def delta(clip, step):
        return make_plan(clip=clip, step=step).delta(1.0)

    def scales(epsilon):
        return make_plan(budget=dp.Budget(epsilon, 1e-6)).scales

    assert not jax.jit(delta)(-1.0, 1.0) <= 1
    assert np.all(np.isinf(jax.jit(scales)(jnp.nan)))


@real_data
@pytest.mark.parametrize(
    ("name", "scaling", "optimum_value", "allocation", "step", "clip", "published", "error"),
    [
        ("california_housing", "raw", 0.3668935216, "spr", 0.464, 1.78, 0.0249, 0.0020),
        ("california_housing", "raw", 0.3668935216, "inid", 0.215, 1.78, 0.1531, 0.0082),
        ("california_housing", "standard", 0.4193644937, "spr", 0.1, 3.16, 0.00051, 0.00007),
        ("electricity", "raw", 0.5568569454, "spr", 1.0, 2.57, 0.00425, 0.00028),
        ("electricity", "raw", 0.5568569454, "inid", 1.0, 2.57, 0.0114, 0.0017),
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
    problem = dp.glm(
        features,
        data.targets - data.targets.mean() if centred else data.targets,
        loss="squared" if squared else "logistic",
        penalty=dp.L1(0.1) if squared else dp.L2(1 / records),
        dtype=jnp.float32,
    )
    curvature = dp.coordinate_smoothness(problem).as_public()
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
