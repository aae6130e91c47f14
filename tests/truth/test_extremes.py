"""Full relative accuracy over the whole range, and never on the wrong side."""

import jax
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.noise.gaussian import log_delta_of_ratio

pytestmark = pytest.mark.float64

log_ratio = st.floats(-8, 3)
epsilons = st.one_of(st.floats(-1000, 1000), st.floats(-12, 3).map(lambda e: 10.0**e), st.just(0.0))


def test_gaussian_over_its_whole_range():
    """mu in [1e-8, 1e3], epsilon in [-1000, 1000], a quarter of them about a = 0."""
    rng, points = np.random.default_rng(5), 3000
    mu = 10 ** rng.uniform(-8, 3, points)
    epsilon = rng.choice([-1, 1], points) * 10 ** rng.uniform(-12, 3, points)
    quarter = points // 4
    spread = rng.normal(size=quarter) * 10 ** rng.uniform(-14, 0, quarter)
    epsilon[:quarter] = np.minimum(np.abs(mu[:quarter] ** 2 / 2 * (1 + spread)), 1000)
    epsilon[-points // 30 :] = 0
    values = np.asarray(jax.jit(log_delta_of_ratio)(mu, epsilon))
    worst = 0.0
    for m, e, value in zip(mu, epsilon, values, strict=True):
        if abs(e / m - m / 2) > 3000:
            continue  # mpmath's erfc leaves its range: see the test beyond doubles
        truth = oracle.gaussian_log_delta(float(m), float(e))
        if abs(truth) < 1e-300:  # where doubles end
            assert truth <= mp.mpf(float(value)) <= 0
            continue
        error = oracle.relative_error(float(value), truth)
        assert error >= 0, (m, e)
        worst = max(worst, error)
    assert worst < 1e-12


def test_gaussian_far_beyond_doubles():
    """a up to 1e11: log delta = -5e21, from the asymptotic series of the Mills ratio."""
    for mu, epsilon in ((1e-8, 1.0), (1e-8, 1000.0), (1e-6, 20.0), (1e-3, 1000.0), (0.01, 500.0)):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        a = e / m - m / 2

        def ratio(t):
            return sum((-1) ** k * mp.fac2(2 * k - 1) / t ** (2 * k + 1) for k in range(12))

        truth = -a * a / 2 - mp.log(2 * mp.pi) / 2 + mp.log(ratio(a) - ratio(a + m))
        error = oracle.relative_error(float(dp.Gaussian(1.0).log_delta(mu, epsilon)), truth)
        assert 0 <= error < 1e-13


def test_laplace_over_its_whole_range():
    rng = np.random.default_rng(6)
    scale = 10 ** rng.uniform(-3, 3, 3000)
    ratio = 10 ** rng.uniform(-8, 3, 3000)
    shift = ratio * scale
    epsilon = ratio * (1 + rng.normal(size=3000) * 10 ** rng.uniform(-17, 0.5, 3000))
    epsilon[::3] *= -1
    epsilon[::7] = 0
    values = np.asarray(dp.Laplace(scale).log_delta(shift, epsilon))
    for s, m, e, value in zip(scale, shift, epsilon, values, strict=True):
        truth = oracle.laplace_log_delta(float(s), float(m), float(e))
        if abs(truth) < 1e-300:
            assert value == 0
            continue
        assert 0 <= oracle.relative_error(float(value), truth) < 1e-12, (s, m, e)


@given(log_ratio, epsilons, epsilons)
def test_delta_falls_in_epsilon(log_mu, one, two):
    low, high = sorted((one, two))
    for family in (dp.Gaussian, dp.Laplace):
        noise, shift = family(1.0), 10.0**log_mu
        assert noise.log_delta(shift, high) <= noise.log_delta(shift, low) * (1 - 2e-12)


@given(epsilons, log_ratio, log_ratio)
def test_delta_grows_in_shift_and_falls_in_scale(epsilon, one, two):
    low, high = sorted((10.0**one, 10.0**two))
    for family in (dp.Gaussian, dp.Laplace):
        assert family(1.0).log_delta(low, epsilon) <= family(1.0).log_delta(high, epsilon) * (
            1 - 2e-12
        )
        assert family(high).log_delta(1.0, epsilon) <= family(low).log_delta(1.0, epsilon) * (
            1 - 2e-12
        )


@given(log_ratio, st.floats(0, 500))
def test_negative_epsilon_is_the_mirror(log_mu, epsilon):
    """1 - delta(-e) = e^-e (1 - delta(e)), in logarithms."""
    for family in (dp.Gaussian, dp.Laplace):
        forward = float(family(1.0).log_delta(10.0**log_mu, epsilon))
        backward = float(family(1.0).log_delta(10.0**log_mu, -epsilon))
        complement = np.exp(-epsilon) * -np.expm1(forward)
        if complement < 0.5:
            np.testing.assert_allclose(backward, np.log1p(-complement), rtol=1e-9, atol=1e-300)


def test_delta_is_never_zero_where_the_loss_is_unbounded():
    delta = dp.Gaussian(1.0).delta(1.0, np.array([1e2, 1e4, 1e150, 1e308]))
    assert np.all(delta > 0)
    assert np.all(dp.Gaussian(1.0).log_delta(1.0, np.array([1e150, 1e308])) > -np.inf)


@pytest.mark.parametrize("family", [dp.FlippedHuber, dp.OffsetGaussian])
def test_huge_epsilons_of_tiny_shifts_are_numbers(family):
    """epsilon over the shift in units of the scale, whose square leaves doubles."""
    rng = np.random.default_rng(4)
    first, scale, shift = (10 ** rng.uniform(*ends, 2000) for ends in ((-2, 2), *[(-70, 70)] * 2))
    epsilon = 10 ** rng.uniform(0, 308, 2000) * rng.choice([-1.0, 1.0], 2000)
    value = np.asarray(family(first, scale).log_delta(shift, epsilon))
    assert np.all((value > -np.inf) & (value <= 0))
    assert np.all(value[epsilon < -1e3] == 0)


def test_a_staircase_that_is_not_moved_loses_nothing_at_any_order():
    noise = dp.Staircase(56.7, 1.0, 0.5)
    assert noise.renyi(0.0, np.array([2.0, 46.6, 1e6])).tolist() == [0.0, 0.0, 0.0]


HUGE = {
    "pure": dp.PureDP,
    "approximate": lambda e: dp.ApproxDP(e, 1e-7),
    "response": lambda e: dp.RandomisedResponse(e, 4),
    "exponential": dp.ExponentialMechanism,
    "laplace": lambda e: dp.Mechanism(dp.Laplace(1.0 / e), 1.0),
    "staircase": lambda e: dp.Mechanism(dp.Staircase(e, 1.0, 0.5), 1.0),
    "gaussian": lambda e: dp.Mechanism(dp.Gaussian(1.0 / e), 1.0),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", HUGE)
def test_losses_beyond_doubles_fail_closed(kind):
    """Two releases never cost less than one, however large their losses are."""
    epsilon = np.array([340.0, 360.0, 700.0, 3e3, 1e5])
    one = dp.privacy_loss(HUGE[kind](epsilon))
    two = 2 * one
    assert np.all(two.delta(1.0) >= one.delta(1.0) * (1.0 - 1e-9))
    assert np.all(two.epsilon(1e-5) >= one.epsilon(1e-5) * (1.0 - 1e-9))
    # Halfway between the largest losses of one and of two of them.
    assert np.all(two.delta(1.5 * epsilon) > 0.5)


@pytest.mark.long
@pytest.mark.parametrize("count", [1e13, 1e15, 2.0**53, 1e17])
def test_huge_counts_of_sampled_gaussians(count):
    """In the limit a Gaussian: what rounding hides is refused, and never too good."""
    loss = count * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1e4), 1.0, 1e-3, "remove"))
    truth = float(dp.Gaussian(1e7 / np.sqrt(count)).log_delta(1.0, 1.0))
    value, error = float(loss.log_delta(1.0)), float(loss.log_delta_error(1.0))
    assert 1.003 * truth <= value <= 0.0
    assert value - error <= 0.997 * truth
    lower, upper = loss.bounds(1.0)
    assert lower <= np.exp(0.997 * truth)
    assert upper >= np.exp(1.003 * truth)
