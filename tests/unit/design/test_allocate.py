"""Allocations: the constraint is met exactly, the optimum is an optimum, the edges are handled."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import jaxdp as dp
from benchmarks.reproductions.profiles import sensitivity_profile

METHODS = ("inid", "spr", "iid")
SENSITIVITIES = np.array([0.5, 1.0, 2.0, 0.25, 30.0])
BUDGET = dp.Budget(1.0, 1e-6)
profiles = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8).map(np.array)


def spent(family, sensitivities, scales, counts=1.0):
    ratios = np.where(sensitivities == 0, 0, sensitivities / np.where(scales == 0, 1, scales))
    return np.sqrt(np.sum(counts * ratios**2)) if family == "gaussian" else np.sum(counts * ratios)


def level(family, budget):
    if family == "gaussian":
        return float(dp.largest_gdp(budget).mu)
    return float(budget.epsilon - 2 * np.log1p(-budget.delta))


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@given(method=st.sampled_from(METHODS), sensitivities=profiles, power=st.floats(0.5, 4))
def test_the_budget_is_met_and_never_exceeded(family, method, sensitivities, power):
    scales = np.asarray(dp.allocate(family, sensitivities, BUDGET, power=power, method=method))
    total, target = spent(family, sensitivities, scales), level(family, BUDGET)
    assert total <= target
    np.testing.assert_allclose(total, target, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_inid_is_the_optimum_of_its_weighted_error(family, power):
    """Against a numerical minimiser of the same problem, in logarithms of the scales."""
    weights, counts = np.array([1.0, 5.0, 0.1, 2.0, 7.0]), np.array([1.0, 2.0, 3.0, 1.0, 10.0])
    scales = dp.allocate(family, SENSITIVITIES, BUDGET, weights, power, counts=counts)
    np.testing.assert_allclose(
        spent(family, SENSITIVITIES, np.asarray(scales), counts), level(family, BUDGET), rtol=1e-13
    )

    def error(log_scales):
        shape = np.exp(log_scales)
        factor = spent(family, SENSITIVITIES, shape, counts) / level(family, BUDGET)
        return np.log(np.sum(counts * weights * (factor * shape) ** power))

    best = optimize.minimize(error, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(error(np.log(np.asarray(scales))), best.fun, rtol=0, atol=1e-8)
    found = best.x - best.x[0]
    np.testing.assert_allclose(np.log(scales / scales[0]), found, atol=1e-4)


def test_variance_is_proportional_to_sensitivity_over_root_weight():
    """Variance proportional to sensitivity / sqrt(weight)."""
    weights = np.array([1.0, 4.0, 9.0, 0.25, 1.0])
    scales = np.asarray(dp.allocate("gaussian", SENSITIVITIES, BUDGET, weights))
    ratio = scales**2 * np.sqrt(weights) / SENSITIVITIES
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-13)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_zero_sensitivities_get_no_noise(family):
    sensitivities = np.array([0.0, 2.0, 0.0, 0.5])
    for method in ("inid", "spr"):
        scales = np.asarray(dp.allocate(family, sensitivities, BUDGET, method=method))
        assert np.all((scales == 0) == (sensitivities == 0))
        rest = np.asarray(dp.allocate(family, sensitivities[[1, 3]], BUDGET, method=method))
        np.testing.assert_allclose(scales[[1, 3]], rest, rtol=1e-14)
    equal = np.asarray(dp.allocate(family, sensitivities, BUDGET, method="iid"))
    assert np.all(equal == equal[0])
    assert equal[0] > 0
    for method in METHODS:
        assert np.all(np.asarray(dp.allocate(family, np.zeros(3), BUDGET, method=method)) == 0)
    assert dp.allocation_error(family, np.zeros(3)) == 0


@pytest.mark.float64
def test_it_is_batched_and_differentiable():
    batch = dp.Budget(jnp.array([0.5, 1.0]), 1e-6)
    scales = dp.allocate("gaussian", SENSITIVITIES, batch)
    assert scales.shape == (2, 5)
    single = dp.allocate("gaussian", SENSITIVITIES, dp.Budget(1.0, 1e-6))
    np.testing.assert_allclose(scales[1], single, rtol=1e-14)
    mapped = jax.vmap(lambda e: dp.allocate("gaussian", SENSITIVITIES, dp.Budget(e, 1e-6)))
    np.testing.assert_allclose(mapped(batch.epsilon), scales, rtol=1e-14)

    def error(sensitivities):
        return dp.allocation_error("gaussian", dp.allocate("gaussian", sensitivities, BUDGET))

    gradient = jax.grad(error)(jnp.asarray(SENSITIVITIES))
    # The least error is (sum of sensitivities)^2 / mu^2.
    expected = 2 * SENSITIVITIES.sum() / level("gaussian", BUDGET) ** 2
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def test_extreme_sensitivities_do_not_overflow():
    sensitivities = np.array([1e-200, 1e200, 3e-290])
    for family in ("gaussian", "laplace"):
        scales = np.asarray(dp.allocate(family, sensitivities, BUDGET))
        assert np.all(scales > 0)
        assert np.all(np.isfinite(scales))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: dp.allocate("cauchy", SENSITIVITIES, BUDGET), "family"),
        (lambda: dp.allocate("gaussian", SENSITIVITIES, BUDGET, method="best"), "method"),
        (lambda: dp.allocate("gaussian", [-1.0, 1.0], BUDGET), "sensitivities"),
        (lambda: dp.allocate("gaussian", [np.nan, 1.0], BUDGET), "sensitivities"),
        (lambda: dp.allocate("gaussian", [np.inf, 1.0], BUDGET), "sensitivities"),
        (lambda: dp.allocate("gaussian", 1.0, BUDGET), "sensitivities"),
        (lambda: dp.allocate("gaussian", [1.0, 1.0], BUDGET, [1.0, 0.0]), "weights"),
        (lambda: dp.allocate("gaussian", [1.0], BUDGET, [1.0], method="iid"), "weights"),
        (lambda: dp.allocate("gaussian", [1.0], BUDGET, power=0.0), "power"),
        (lambda: dp.allocate("gaussian", [1.0], dp.PureDP(1.0)), "budget"),
        (lambda: dp.allocate("laplace", [1.0], dp.GDP(1.0)), "budget"),
        (lambda: dp.allocation_error("gaussian", [-1.0]), "scales"),
        (lambda: dp.allocate("discrete_laplace", [0.5], BUDGET), "sensitivities must be whole"),
        (lambda: dp.allocate("discrete_gaussian", [1.0], dp.GDP(1.0)), "budget"),
        (lambda: dp.allocate_exact(dp.Gaussian(1.0), 1.0, BUDGET), "shape"),
        (lambda: dp.allocate_exact((dp.Gaussian(1.0),), [1.0, 2.0], BUDGET), "noises must be one"),
        (lambda: dp.allocate_exact(dp.Gaussian(1.0), [1.0], ([1.0, 2.0], 1e-6)), "scalars"),
    ],
)
def test_bad_input(call, name):
    with pytest.raises(ValueError, match=name):
        call()


@pytest.mark.parametrize("budget", [(2.0, 0.0), dp.PureDP(2.0)])
def test_pure_discrete_laplaces_have_the_scales_of_laplaces(budget):
    sensitivities, counts = np.array([1, 5, 0]), np.array([3, 1, 1])
    scales = dp.allocate("discrete_laplace", sensitivities, budget, counts=counts)
    closed = dp.allocate("laplace", sensitivities, budget, counts=counts)
    np.testing.assert_array_equal(scales, closed)
    noise = dp.DiscreteLaplace(scales[:2])
    spent = np.sum(counts[:2] * noise.pure_epsilon(sensitivities[:2]))
    assert 2.0 * (1.0 - 1e-12) < spent <= 2.0
    error = dp.allocation_error("discrete_laplace", scales)
    np.testing.assert_allclose(error, np.sum(noise.variance()), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("family", ["discrete_gaussian", "discrete_laplace"])
def test_noise_on_integers_keeps_the_budget_under_exact_composition(family):
    sensitivities, counts = np.array([1, 5]), np.array([2, 1])
    found, closed = (
        dp.allocate(name, sensitivities, (1.0, 1e-6), counts=counts)
        for name in (family, family.removeprefix("discrete_"))
    )
    np.testing.assert_allclose(found[1] / found[0], closed[1] / closed[0], rtol=1e-12)
    noise = {"discrete_gaussian": dp.DiscreteGaussian, "discrete_laplace": dp.DiscreteLaplace}
    released = dp.Mechanism(noise[family](found), sensitivities)
    total = (counts * dp.privacy_loss(released)).sum()
    assert 0.9e-6 < total.delta(1.0) <= 1e-6


@pytest.mark.float64
def test_bad_traced_input_is_never_little_noise():
    def traced(sensitivities):
        return dp.allocate("gaussian", sensitivities, BUDGET)

    for bad in (jnp.array([-1.0, 1.0]), jnp.array([jnp.nan, 1.0]), jnp.array([jnp.inf, 1.0])):
        assert not np.any(np.asarray(jax.jit(traced)(bad)) < 1e300)
    infinite = dp.allocate("gaussian", [1.0, 0.0], dp.Budget(1.0, 0.0))
    assert infinite[0] == np.inf
    assert infinite[1] == 0


@pytest.mark.long
def test_exact_laplaces_use_all_of_delta():
    """The closed form leaves three quarters of delta: 2.5e-7 of 1e-6."""
    sensitivities, budget = jnp.array([1.0, 0.5, 0.25]), dp.Budget(1.0, 1e-6)
    closed = dp.allocate("laplace", sensitivities, budget)
    exact = dp.allocate_exact(dp.Laplace(1.0), sensitivities, budget)
    spent = []
    for scales in (closed, exact):
        total = dp.privacy_loss(dp.Mechanism(dp.Laplace(scales), sensitivities)).sum()
        spent.append(float(total.delta(1.0)))
    np.testing.assert_allclose(spent, [2.5e-7, 1e-6], rtol=2e-2)
    assert spent[1] <= 1e-6


@pytest.mark.long
def test_exact_laplaces_are_near_the_optimum():
    """By gradient the sum of variances of these twenty was 3081.41."""
    scales = dp.allocate_exact(dp.Laplace(1.0), np.arange(1.0, 21.0) / 20.0, BUDGET)
    assert 3081.4 < 2.0 * np.sum(np.asarray(scales) ** 2) < 3081.42 * (1 + 3e-3)


def test_exact_scales_of_gaussians_are_the_closed_form():
    sensitivities, weights = jnp.array([1.0, 3.0, 0.0, 4.0]), jnp.array([1.0, 9.0, 1.0, 0.3])
    scales = dp.allocate_exact(dp.Gaussian(1.0), sensitivities, BUDGET, weights)
    closed = dp.allocate("gaussian", sensitivities, BUDGET, weights)
    np.testing.assert_allclose(scales, closed, rtol=1e-9)


@pytest.mark.long
def test_exact_scales_of_mixed_families_meet_the_budget():
    noises = (dp.Gaussian(1.0), dp.Laplace(1.0), dp.Gaussian(1.0))
    sensitivities, weights = jnp.array([1.0, 0.3, 2.0]), jnp.array([1.0, 5.0, 1.0])
    scales = dp.allocate_exact(noises, sensitivities, BUDGET, weights)
    gaussians = dp.Mechanism(dp.Gaussian(scales[jnp.array([0, 2])]), jnp.array([1.0, 2.0]))
    laplace = dp.Mechanism(dp.Laplace(scales[1]), 0.3)
    total = dp.privacy_loss(gaussians).sum() + dp.privacy_loss(laplace)
    assert 0.99e-6 < total.delta(1.0) <= 1e-6 * (1 + 1e-6)


def test_a_bad_traced_sensitivity_gets_no_scale_of_zero(monkeypatch):
    """NaN, which makes noise of no scale, in all coordinates that share its unit."""
    module = importlib.import_module("jaxdp.design.allocate")
    monkeypatch.setattr(module, "calibrate", lambda *_, **__: jnp.ones(4))
    scales = jax.jit(lambda s: dp.allocate_exact(dp.Gaussian(1.0), s, BUDGET))
    assert np.isnan(scales(jnp.array([-1.0, 2.0]))).all()
    assert not np.isnan(scales(jnp.array([0.0, 2.0]))).any()
    assert dp.allocate_exact(dp.Gaussian(1.0), [], BUDGET).shape == (0,)


@pytest.mark.parametrize(
    ("name", "gaussian", "laplace"),
    [
        ("linear", 1.145, 0.546),
        ("quadratic", 2.442, 1.390),
        ("exponential", 9.658, 7.609),
        ("one_hot", 13.010, 13.010),
    ],
)
def test_published_gains_at_twenty_coordinates(name, gaussian, laplace):
    """In dB of squared error, i.n.i.d. over i.i.d."""
    profile = sensitivity_profile(name, 20)
    for family, level, published in (
        ("gaussian", dp.GDP(0.2), gaussian),
        ("laplace", dp.PureDP(0.5), laplace),
    ):
        iid, inid = (
            float(dp.allocation_error(family, dp.allocate(family, profile, level, method=m)))
            for m in ("iid", "inid")
        )
        assert 10 * np.log10(iid / inid) == pytest.approx(published, abs=6e-4)


@pytest.mark.parametrize(
    ("name", "last"), [("uniform", 8), ("linear", 9), ("quadratic", 10), ("exponential", None)]
)
@pytest.mark.long
def test_the_dimension_at_which_laplace_loses_to_gaussian(name, last):
    """epsilon = .5, delta = 1e-6, pure Laplace, both i.n.i.d.: it wins up to `last` coordinates."""
    budget, pure = dp.Budget(0.5, 1e-6), dp.PureDP(0.5)
    wins = []
    for count in range(1, 26):
        profile = sensitivity_profile(name, count)
        gaussian = dp.allocation_error("gaussian", dp.allocate("gaussian", profile, budget))
        laplace = dp.allocation_error("laplace", dp.allocate("laplace", profile, pure))
        wins.append(bool(laplace < gaussian))
    expected_wins = [count <= (last or 25) for count in range(1, 26)]
    assert wins == expected_wins
