"""No answer exceeds the bound of all Renyi orders, nor rises with epsilon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import inverse

pytestmark = pytest.mark.float64

# Excess of an answer over a bound that it may have: the stated error of most engines.
CLOSE = 1e-6
EXCESSES = np.exp(np.linspace(-12.0, 10.0, 160))  # orders, less 1
ENTROPY = np.log1p(EXCESSES) + EXCESSES * np.log1p(1.0 / EXCESSES)


NOISES = {
    "gaussian": dp.Gaussian(3.0),
    "laplace": dp.Laplace(3.0),
    "flipped_huber": dp.FlippedHuber(2.0, 1.5),
    "offset_gaussian": dp.OffsetGaussian(1.28, 1.10),
    "subbotin": dp.Subbotin(3.0, 2.0),
    "staircase": dp.Staircase(0.5, 1.0, 0.3),
    "truncated_laplace": dp.TruncatedLaplace(3.0, 40.0),
    "discrete_laplace": dp.DiscreteLaplace(16.04),
    "discrete_gaussian": dp.DiscreteGaussian(20.0),
    "wide_discrete_gaussian": dp.DiscreteGaussian(40.0),
}
QUICK = ("laplace", "staircase", "discrete_laplace", "discrete_gaussian")


NAMES = [pytest.param(k, marks=() if k in QUICK else pytest.mark.long) for k in NOISES]


def released(noise, shift=1.0, **sampling):
    return dp.privacy_loss(dp.Mechanism(noise, shift, **sampling))


def renyi_log_delta(loss, epsilon):
    """The least bound over the orders, from `PrivacyLoss.renyi` alone."""
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    values = (cumulant - ENTROPY)[:, None] - EXCESSES[:, None] * epsilon
    return np.minimum(np.min(np.where(np.isnan(values), np.inf, values), axis=0), 0.0)


def renyi_epsilon(loss, delta):
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    values = (cumulant - ENTROPY - np.log(delta)) / EXCESSES
    return np.maximum(np.min(np.where(np.isnan(values), np.inf, values)), 0.0)


def epsilons_of(loss, count, least=-1e4):
    """From 0 to where log delta is about `least`, or to a loss that few releases have."""
    cumulant = EXCESSES * np.asarray(loss.renyi(1.0 + EXCESSES))
    largest = np.nanmin((cumulant - least) / EXCESSES)
    largest = largest if np.isfinite(largest) else 10.0
    return np.append(0.0, largest * np.geomspace(1e-3, 1.0, count - 1))


def check(loss, epsilon):
    values, bounds = np.asarray(loss.log_delta(epsilon)), renyi_log_delta(loss, epsilon)
    assert np.all(values <= bounds + CLOSE * (1.0 + 1e-3 * np.abs(bounds))), (values - bounds).max()
    with np.errstate(invalid="ignore"):  # of two log deltas of -inf
        assert not np.any(np.diff(values) > 0), values


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("counts", "epsilons"),
    [((1.0, 3.0, 1e4), 5), pytest.param((2.0, 10.0), 30, marks=pytest.mark.long)],
)
def test_no_answer_exceeds_the_renyi_bound(name, counts, epsilons):
    for count in counts:
        loss = count * released(NOISES[name])
        check(loss, epsilons_of(loss, epsilons))


def composed(name, kind, count):
    if kind == "sampled":
        return count * released(NOISES[name], sampling=dp.sampling.Poisson(0.1), relation="remove")
    beside = {"a Gaussian": dp.Gaussian(3.0), "a Laplace": dp.Laplace(3.0)}
    loss = count * released(NOISES[name])
    return loss if kind == "alone" else loss + released(beside[kind])


BESIDE = ("alone", "a Gaussian", "a Laplace", "sampled")


@pytest.mark.long
@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("name", NOISES)
def test_epsilon_is_at_most_that_of_the_best_order(name, kind):
    # Each noise meets every count, and each kind as well.
    count = (1.0, 100.0, 1e4, 1e5)[(list(NOISES).index(name) + BESIDE.index(kind)) % 4]
    loss = composed(name, kind, count)
    epsilon = float(loss.epsilon(1e-6))
    assert epsilon <= renyi_epsilon(loss, 1e-6) * (1.0 + CLOSE)
    if epsilon == np.inf:  # infinite losses are more probable than delta
        assert float(loss.log_delta(np.inf)) > np.log(1e-6)
        return
    check(loss, epsilon * np.array([0.5, 1.0, 2.0]))
    # docs/accuracy.md: log_delta of an epsilon exceeds its target by 6e-7 at most, and by 4e-6
    # near the largest loss.
    assert float(loss.log_delta(epsilon)) <= np.log(1e-6) + 4e-6


@pytest.mark.long
def test_calibration_where_no_grid_resolves_delta():
    def counts(number):
        return dp.calibrate(lambda s: number * released(dp.DiscreteGaussian(s)), (2.0, 1e-6))

    scale = float(counts(2.0))
    assert abs(scale - 3.15233) < 1e-4
    assert float(counts(10.0)) > scale


def test_two_discrete_gaussians_far_out():
    loss = 2.0 * released(dp.DiscreteGaussian(20.0))
    values = np.asarray(loss.log_delta(jnp.array([1.0, 2.0, 3.0, 4.0])))
    # Truth by a convolution of 60 digits: -910 and -1610 at the last ones.
    assert np.all(np.abs(values - [-108.4, -409.34, -910.0, -1610.0]) < 5.0)
    # An epsilon alone has no neighbours in a batch.
    assert float(loss.log_delta(3.0)) <= renyi_log_delta(loss, np.array([3.0]))[0] + CLOSE


def test_many_discrete_laplaces_far_out():
    loss = 31845.0 * released(dp.DiscreteLaplace(16.04), 2.0)
    assert -53.8 < float(loss.log_delta(458.83)) < -50.9


def test_an_epsilon_where_no_grid_resolves_delta():
    loss = 2.0 * released(dp.DiscreteGaussian(20.0))
    assert float(loss.epsilon(1e-300)) <= renyi_epsilon(loss, 1e-300) + CLOSE


def test_equal_epsilons_keep_their_own_slopes():
    def lowered(upper):
        return inverse.falling(upper, jnp.array([1.0, 1.0, 2.0]), (0,))

    np.testing.assert_array_equal(lowered(jnp.array([-2.0, -2.0, -1.0])), [-2.0, -2.0, -2.0])
    slopes = jax.jacobian(lowered)(jnp.array([-2.0, -2.0, -3.0]))
    np.testing.assert_array_equal(slopes, np.eye(3))
