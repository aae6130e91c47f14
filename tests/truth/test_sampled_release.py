"""One sampled release, its record added, removed or replaced: both sides of delta."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64


def exact_replaced(q, ratio, epsilon):
    """log delta of the Gaussian mixtures: the threshold solves a quadratic equation in e^(cx)."""
    q, c, growth = mp.mpf(q), mp.mpf(ratio), mp.exp(mp.mpf(epsilon))
    hit, spare = q * mp.exp(-c * c / 2), (1 - q) * (1 - growth)
    t = mp.log((-spare + mp.sqrt(spare**2 + 4 * hit * hit * growth)) / (2 * hit)) / c

    def tail(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    positive = (1 - q) * tail(t) + q * tail(t - c)
    return mp.log(positive - growth * ((1 - q) * tail(t) + q * tail(t + c)))


@pytest.mark.parametrize(("q", "scale"), [(0.01, 1.0), (0.3, 0.5), (0.999, 0.2), (1e-4, 2.0)])
def test_replaced_gaussian_against_its_closed_form(q, scale):
    epsilon = np.array([0.0, 1e-3, 0.5, 3.0, 20.0, 100.0])
    release = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "replace_one")
    values = np.asarray(release.log_delta(epsilon))
    with mp.workdps(120):
        for value, e in zip(values, epsilon, strict=True):
            truth = exact_replaced(q, 1 / mp.mpf(scale), e)
            assert 0 <= mp.mpf(float(value)) - truth < 1e-13 / q + 1e-11 * abs(truth)
        backward = np.exp(np.asarray(release.log_delta(-epsilon[2:4])))
    forward = 1 - np.exp(-epsilon[2:4]) * (1 - np.exp(values[2:4]))
    np.testing.assert_allclose(backward, forward, rtol=1e-14)


@pytest.mark.parametrize("noise", [dp.Gaussian(0.8), dp.FlippedHuber(0.7, 0.6), dp.Laplace(0.5)])
def test_no_pair_of_contributions_tells_more(noise):
    """The densities of a thousand pairs of contributions up to the sensitivity, integrated."""
    rng = np.random.default_rng(5)
    x = np.linspace(-14.0, 14.0, 28001)
    density = np.exp(np.asarray(noise.log_density(x)))
    q, contributions = 0.2, rng.uniform(-1.0, 1.0, (25, 2))
    epsilon = np.array([-0.4, 0.0, 0.1, 0.5])
    worst = dp.Mechanism(noise, 1.0, q, "replace_one").delta(epsilon)
    for a, b in contributions:
        p, r = (
            (1 - q) * density + q * np.exp(np.asarray(noise.log_density(x - m))) for m in (a, b)
        )
        for e, bound in zip(epsilon, np.asarray(worst), strict=True):
            told = np.trapezoid(np.maximum(p - np.exp(e) * r, 0.0), x)
            assert told <= bound * (1 + 1e-6) + 1e-9


def loss_of(q, noise_multiplier):
    return dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise_multiplier), 1.0, q, "replace_one"))


def line_sum(q, multiplier, steps, epsilon):
    """delta of a composition, by Poisson's sum along Re z = 1 with many points."""
    c, theta = 1.0 / multiplier, 1.0
    x = np.linspace(-14.0 - 2.0 * c, 14.0 + 8.0 * c, 2_001)
    ahead, behind = (
        np.logaddexp(np.log1p(-q), np.log(q) + s * c * x - 0.5 * c * c) for s in (1, -1)
    )
    law = np.exp((1.0 + theta) * ahead - theta * behind - 0.5 * x * x)
    height = 2.0 * np.pi / 40.0 * np.arange(2_000)
    turned = np.exp(1j * height[:, None] * (ahead - behind)) @ law
    z = theta + 1j * height
    moment = (turned * (x[1] - x[0]) / np.sqrt(2 * np.pi)) ** steps
    summand = np.real(moment * np.exp(-z * epsilon) / (z * (z + 1.0)))
    return (2.0 * summand.sum() - summand[0]) / 40.0


def test_compositions_by_another_sum():
    for q, multiplier, steps in ((0.01, 1.0, 1000), (0.1, 2.0, 100), (0.3, 1.0, 10)):
        truth = np.log(line_sum(q, multiplier, steps, 0.5))
        value = float((steps * loss_of(q, multiplier)).log_delta(0.5))
        assert truth - 1e-11 <= value <= truth + 1e-8


def test_always_hit_it_is_a_gaussian_at_twice_the_sensitivity():
    loss = 3 * loss_of(jnp.array([1.0, 0.5]), 2.0)
    whole = 3 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 2.0))
    np.testing.assert_allclose(loss.log_delta(1.0)[0], whole.log_delta(1.0), atol=1e-9)
    assert loss.log_delta(1.0)[1] < loss.log_delta(1.0)[0]


def test_epsilon_ends_on_the_safe_side():
    loss, delta = 1000 * loss_of(0.01, 1.0), jnp.array([1e-5, 1e-10, 1e-100])
    epsilon = loss.epsilon(delta)
    reported = loss.log_delta(epsilon)
    assert np.all((reported <= np.log(delta)) & (reported > np.log(delta) - 1e-7))


@pytest.mark.long
def test_hits_that_are_told_apart():
    """Narrow noise: |phi| comes back up in between."""
    for q, multiplier, steps, epsilon in (
        (1e-3, 0.05, 1000, 10.0),
        (0.01, 0.02, 50, 3.0),
        (0.01, 0.1, 200, 30.0),
        (0.05, 0.06, 40, 300.0),
    ):
        loss = steps * loss_of(q, multiplier)
        lower, upper = (float(jnp.log(x)) for x in loss.bounds(epsilon))
        assert lower - 1e-9 <= loss.log_delta(epsilon) <= upper + 1e-9


RATES = [0.3, 1e-3, 1e-4, 1e-6, 1e-8, 1e-9, 1e-12]
# Of the sampling probability: where the loss of an added record ends is about 1.
SHARES = [0.0, 0.1, 0.5, 0.99, 0.999999]


def removed(q, c, epsilon):
    x = mp.log((mp.expm1(epsilon) + q) / q) / c + c / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x) - mp.exp(epsilon) * mp.ncdf(-x)


def added(q, c, epsilon):
    x = mp.log((mp.exp(-epsilon) - 1 + q) / q) / c + c / 2
    return mp.ncdf(x) - mp.exp(epsilon) * ((1 - q) * mp.ncdf(x) + q * mp.ncdf(x - c))


def replaced(q, c, epsilon):
    def mixed(x, side):
        return 1 - q + q * mp.exp(side * c * x - c * c / 2)

    low, high = mp.mpf(0), 60 / c + c
    x = high
    for _ in range(160):
        x = (low + high) / 2
        below = mp.log(mixed(x, 1) / mixed(x, -1)) < epsilon
        low, high = (x, high) if below else (low, x)
    here, away = ((1 - q) * mp.ncdf(-x) + q * mp.ncdf(side * c - x) for side in (1, -1))
    return here - mp.exp(epsilon) * away


@pytest.mark.parametrize(
    ("relation", "exact"),
    [("remove", removed), ("add", added), ("replace_one", replaced)],
)
@pytest.mark.parametrize("scale", [1.3, 1e5])
def test_truth_lies_between(relation, exact, scale):
    q, share = (x.ravel() for x in np.meshgrid(RATES, SHARES))
    # The smallest losses are those of wide noise.
    epsilon = share * (q if relation == "add" and scale < 2 else q / scale)
    loss = dp.privacy_loss(
        dp.Mechanism(dp.Gaussian(scale), 1.0, sampling_prob=q, relation=relation)
    )
    upper, error = np.asarray(loss.log_delta(epsilon)), np.asarray(loss.log_delta_error(epsilon))
    with mp.workdps(60):
        truth = [
            mp.log(exact(mp.mpf(a), 1 / mp.mpf(scale), mp.mpf(b)))
            for a, b in zip(q, epsilon, strict=True)
        ]
        above = np.array([float(u - t) for u, t in zip(map(float, upper), truth, strict=True)])
    assert np.all(above >= -1e-14)
    assert np.all(above <= error)
    assert np.max(error[share < 0.9]) < 2e-10
