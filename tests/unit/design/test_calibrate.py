"""Calibration: never unsafe, tight, batched, differentiable; infinite where nothing passes."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from differences import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.accountant.contour import engine as contour

FAMILIES = {"gaussian": dp.Gaussian, "laplace": dp.Laplace}
BUDGET = dp.Budget(1.0, 1e-6)
BUDGETS = st.tuples(st.floats(1e-3, 12), st.floats(-100, -0.1).map(lambda d: 10.0**d))


def gaussian(scale):
    return dp.Mechanism(dp.Gaussian(scale), 1.0)


def laplace(scale, shift=1.0):
    return dp.Mechanism(dp.Laplace(scale), shift)


def true_log_delta(family, scale, shift, epsilon):
    if family == "gaussian":
        # shift / scale with the digits that a double lacks
        with mp.workdps(60):
            mu = mp.mpf(shift) / mp.mpf(scale)
            a = mp.mpf(epsilon) / mu - mu / 2
        with mp.workdps(200):
            tail = mp.erfc(a / mp.sqrt(2)) / 2
            other = mp.erfc((a + mu) / mp.sqrt(2)) / 2
            return mp.log(tail - mp.exp(mp.mpf(epsilon)) * other)
    return oracle.laplace_log_delta(scale, shift, epsilon)


@pytest.mark.parametrize("family", ["gaussian", pytest.param("laplace", marks=pytest.mark.long)])
@settings(max_examples=15)
@given(budget=BUDGETS, log_shift=st.floats(-6, 6))
def test_the_true_delta_never_exceeds_the_target(family, budget, log_shift):
    epsilon, delta = budget
    shift = float(10.0**log_shift)
    build = FAMILIES[family]
    fitted = float(dp.fit_noise(family, dp.Budget(epsilon, delta), shift).scale)
    found = float(dp.calibrate(lambda s: dp.Mechanism(build(s), shift), dp.Budget(epsilon, delta)))
    for scale in (fitted, found):
        assert true_log_delta(family, scale, shift, epsilon) <= mp.log(mp.mpf(delta))
        assert float(build(scale).delta(shift, epsilon)) <= delta
        smaller = true_log_delta(family, scale * (1 - 1e-11), shift, epsilon)
        assert smaller > mp.log(mp.mpf(delta))
    np.testing.assert_allclose(fitted, found, rtol=1e-12)


@pytest.mark.float64
def test_many_budgets_at_once():
    rng = np.random.default_rng(3)
    epsilon = jnp.asarray(rng.uniform(0.01, 10, 10_000))
    delta = jnp.asarray(10 ** rng.uniform(-300, -1, 10_000))

    @jax.jit
    def scales(epsilon, delta):
        return dp.calibrate(gaussian, dp.Budget(epsilon, delta), lower=1e-3, upper=1e6)

    found = scales(epsilon, delta)
    assert np.all(np.isfinite(found))
    assert np.all(dp.Gaussian(found).delta(1.0, epsilon) <= delta)
    mapped = jax.vmap(scales)(epsilon[:100], delta[:100])
    np.testing.assert_allclose(mapped, found[:100], rtol=1e-14)


def test_nothing_feasible_gives_infinite_noise():
    assert dp.calibrate(gaussian, dp.Budget(1.0, 0.0)) == np.inf
    assert dp.calibrate(gaussian, dp.Budget(1.0, 1e-5), upper=2.0) == np.inf
    bad = jnp.array([jnp.nan, -1.0, 2.0])
    found = jax.vmap(lambda d: dp.calibrate(gaussian, dp.Budget(1.0, d)))(bad)
    assert np.all(found == np.inf)
    found = jax.vmap(lambda e: dp.calibrate(gaussian, dp.Budget(e, 1e-5)))(bad[:2])
    assert np.all(found == np.inf)
    found = jax.vmap(
        lambda s: dp.calibrate(lambda x: dp.Mechanism(dp.Gaussian(x), s), dp.Budget(1.0, 0.1))
    )(bad[:2])
    assert np.all(found == np.inf)


def test_the_bracket():
    assert dp.calibrate(laplace, dp.Budget(1.0, 0.0), lower=5.0) == 5.0
    with pytest.raises(ValueError, match="lower"):
        dp.calibrate(laplace, dp.Budget(1.0, 0.1), lower=2.0, upper=1.0)
    with pytest.raises(ValueError, match="lower must lie in"):
        dp.calibrate(laplace, dp.Budget(1.0, 0.1), lower=0.0)
    for bad in (object(), [1.0, "a"], np.array([1.0 + 1.0j])):
        with pytest.raises((TypeError, ValueError), match="lower"):
            dp.calibrate(laplace, dp.Budget(1.0, 0.1), lower=bad)


@pytest.mark.long
@pytest.mark.float64
@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives_by_the_implicit_function_theorem(family):
    def scale(epsilon, delta, shift):
        def build(s):
            return dp.Mechanism(FAMILIES[family](s), shift)

        return dp.calibrate(build, dp.Budget(epsilon, delta))

    point = (1.2, 0.02, 3.0)
    forward = jax.jacfwd(scale, (0, 1, 2))(*point)
    np.testing.assert_allclose(check_gradient(scale, point), forward, rtol=1e-12)


def test_fit_gaussian_after_many_releases_is_one_gaussian():
    budget = dp.Budget(0.5, 1e-9)
    one = dp.fit_noise("gaussian", budget, 1.0).scale
    many = dp.fit_noise("gaussian", budget, jnp.array([1.0, 2.0]), count=jnp.array([9, 16])).scale
    np.testing.assert_allclose(many, one * np.array([3.0, 8.0]), rtol=1e-14)


def test_a_noise_alone_is_no_release():
    with pytest.raises(TypeError, match=r"the result of build must be .* got Gaussian: dp\.Mech"):
        dp.calibrate(dp.Gaussian, BUDGET)


def sampled(q):
    return dp.Mechanism(dp.Gaussian(2.0), 1.0, q, "add_remove")


@pytest.mark.parametrize("count", [None, pytest.param(1000, marks=pytest.mark.long)])
def test_without_a_bracket_it_stays_inside_of_what_the_parameter_may_be(count):
    def build(q):
        return sampled(q) if count is None else count * dp.privacy_loss(sampled(q))

    found = dp.calibrate(build, BUDGET, largest=True)
    known = dp.calibrate(build, BUDGET, largest=True, upper=1.0)
    assert known * (1 - 1e-9) <= found <= known * (1 + 1e-9)
    assert dp.calibrate(build, (500.0, 1e-5), largest=True) == 1.0
    with pytest.raises(ValueError, match=r"sampling_prob must lie in .* got 3.0"):
        dp.calibrate(build, BUDGET, largest=True, upper=3.0)


def test_the_ends_of_what_a_parameter_may_be_are_reached():
    """A power is 1 to 10,000; a lower end may be the one that is missing."""
    for largest, power in ((False, 1.0), (True, 1e4)):
        found = dp.calibrate(
            lambda p: dp.Mechanism(dp.Subbotin(10.0, p), 1.0), (5.0, 0.5), largest=largest
        )
        assert found == pytest.approx(power, rel=1e-12)


@pytest.mark.parametrize("count", [None, 10])
def test_the_least_whole_number_is_safe(count):
    def build(scale):
        one = dp.Mechanism(dp.Gaussian(scale), np.array([1.0, 2.0, 0.01]))
        return one if count is None else count * dp.privacy_loss(one)

    found = dp.calibrate(build, (1.0, 1e-5), whole=True)
    np.testing.assert_array_equal(found, np.ceil(dp.calibrate(build, (1.0, 1e-5))))
    assert found[2] == 1.0
    assert dp.calibrate(build, (1.0, 1e-5), whole=True, upper=2.5)[1] == np.inf
    # Exactly at a whole number, and below the lower end.
    scale = dp.calibrate(lambda s: laplace(s, 3.0), (1.0, 0.0), whole=True)
    assert scale == 3.0
    scale = dp.calibrate(lambda s: laplace(s, 3.0), (1.0, 0.0), whole=True, lower=7.5)
    assert scale == 8.0


def test_the_largest_whole_number_is_safe():
    """Of GDP(mu) n fit where n mu^2 is at most that of the budget; just below n + 1, too."""
    single = np.array([0.01, 0.02, 3.0, 1e-5])
    found = dp.calibrate(lambda n: n * dp.GDP(single), BUDGET, largest=True, whole=True)
    most = (dp.largest_gdp(BUDGET).mu / single) ** 2
    np.testing.assert_array_equal(found, np.floor(most))
    assert np.all((found * dp.GDP(single)).delta(BUDGET.epsilon) <= BUDGET.delta)
    above = (found + 1.0) * dp.GDP(single)
    assert np.all(above.delta(BUDGET.epsilon) > BUDGET.delta)
    assert found[2] == 0


def test_a_whole_number_at_the_end_of_the_bracket():
    for end in (3.0, 1000.0, 999.5):
        found = dp.calibrate(
            lambda n: n * dp.PureDP(1e-9), BUDGET, upper=end, largest=True, whole=True
        )
        assert found == np.floor(end)
    traced = jax.jit(
        lambda mu: dp.calibrate(lambda n: n * dp.GDP(mu), BUDGET, largest=True, whole=True)
    )
    assert traced(0.01) == np.floor((dp.largest_gdp(BUDGET).mu / 0.01) ** 2)
    assert traced(np.nan) == 0
    assert jax.grad(traced)(0.01) == 0


def test_a_batch_of_budgets_is_searched_from_its_neighbours(monkeypatch):
    lanes, evaluated = [], contour._stage

    def counted(question, stage, with_slopes, batch, *rest):
        lanes.append(batch.value.size)
        return evaluated(question, stage, with_slopes, batch, *rest)

    monkeypatch.setattr(contour, "_stage", counted)
    epsilon = np.geomspace(0.5, 4.0, 24)[::-1].reshape(2, 12)

    def least(epsilon):
        def build(scale):
            mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0, 0.01, "remove")
            return 100 * dp.privacy_loss(mechanism)

        return np.asarray(dp.calibrate(build, (epsilon, 1e-6)))

    together = least(epsilon)
    assert sum(lanes) < 7 * epsilon.size
    for index in [(0, 0), (0, 5), (1, 11)]:
        alone = least(epsilon[index])
        assert abs(together[index] / alone - 1.0) < 8e-10
