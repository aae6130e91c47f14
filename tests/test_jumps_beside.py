"""Rare large losses of sampled Gaussians beside releases of other kinds."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.loss.jump_parts import applies

# Sampling probability, scale, epsilon.
CASES = (
    (1e-5, 0.4, 4.0),
    (6.9e-5, 0.8, 2.0),
    (2.8e-3, 1.5, 1.0),
    (1e-7, 0.5, 3.0),
    (3e-6, 1.5, 0.4),
    (1e-2, 0.7, 9.0),
    (1e-2, 0.3, 1.0),
    (2e-4, 2.0, 6.0),
)
# More than any of epsilon: of one Laplace, and of two responses.
RATIO, RESPONSE = 0.37, 0.19


def sampled(count):
    """The cases' composition, and their epsilons."""
    q, scale, epsilon = (jnp.asarray(x) for x in zip(*CASES, strict=True))
    release = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove")
    return count * dp.privacy_loss(release), epsilon


def once(q, scale, epsilon):
    """delta of one sampled release."""
    c = 1 / mp.mpf(scale)
    if epsilon <= mp.log(1 - q):
        return 1 - mp.exp(epsilon)
    x = mp.log((mp.exp(epsilon) - 1 + q) / q) / c + c / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x) - mp.exp(epsilon) * mp.ncdf(-x)


def beside_responses(q, scale, epsilon):
    """log delta with two responses: an average over their four outcomes."""
    p = 1 / (1 + mp.exp(-mp.mpf(RESPONSE)))
    shares = (p * p, 2 * RESPONSE), (2 * p * (1 - p), 0), ((1 - p) ** 2, -2 * RESPONSE)
    return mp.log(mp.fsum(m * once(q, scale, epsilon - r) for m, r in shares))


def beside_laplace(q, scale, epsilon):
    """log delta with one Laplace, whose loss is +-r or RATIO - 2 u, of density e^-u / 2 in u."""
    ends = (once(q, scale, epsilon - RATIO) + mp.exp(-RATIO) * once(q, scale, epsilon + RATIO)) / 2

    def weighed(u):
        return mp.exp(-u) / 2 * once(q, scale, epsilon - RATIO + 2 * u)

    return mp.log(ends + mp.quad(weighed, mp.linspace(0, mp.mpf(RATIO), 65)))


@pytest.mark.parametrize(
    ("exact", "other"),
    [
        (beside_responses, 2 * dp.privacy_loss(dp.PureDP(RESPONSE))),
        pytest.param(
            beside_laplace,
            dp.privacy_loss(dp.Mechanism(dp.Laplace(1 / RATIO), 1.0)),
            marks=pytest.mark.long,
        ),
    ],
)
def test_one_sampled_release(exact, other):
    loss, epsilon = sampled(1)
    found = np.asarray((loss + other).log_delta(epsilon))
    with mp.workdps(30):
        truth = np.array([float(exact(*(mp.mpf(x) for x in case))) for case in CASES])
    over = found - truth
    assert np.min(over) > -1e-12 * np.max(np.abs(truth))
    assert np.max(over) < 1e-9
    assert np.max(truth) > -6
    assert np.min(truth) < -400


def average(loss, epsilon, outcomes):
    """log delta beside a release of few outcomes: (probability, loss) each."""
    shares = [np.log(p) + np.asarray(loss.log_delta(epsilon - r)) for p, r in outcomes]
    return np.logaddexp.reduce(shares, axis=0)


@pytest.mark.long
@pytest.mark.parametrize("relation", ["remove", "add_remove"])
def test_many_sampled_releases(relation):
    random = np.random.default_rng(3)
    q, scale, count, epsilon = (
        jnp.asarray(np.exp(random.uniform(*np.log(ends), 40)))
        for ends in ((1e-6, 1e-2), (0.4, 1.5), (2, 5e3), (0.6, 9.0))
    )
    count = jnp.round(count)
    loss = count * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, relation))
    p = 1 / (1 + np.exp(-RESPONSE))
    truth = average(loss, epsilon, [(p, RESPONSE), (1 - p, -RESPONSE)])
    once = dp.privacy_loss(dp.PureDP(RESPONSE))
    over = np.asarray((loss + once).log_delta(epsilon)) - truth
    # Both are upper bounds: either may be the nearer one.
    assert np.max(np.abs(over)) < 2e-7
    assert np.median(np.abs(over)) < 1e-10
    leaky = dp.privacy_loss(dp.ApproxDP(RESPONSE, 1e-9))
    over = np.asarray((loss + leaky).log_delta(epsilon)) - np.logaddexp(
        np.log(1e-9), np.log1p(-1e-9) + truth
    )
    assert np.max(np.abs(over)) < 2e-7


@pytest.mark.long
def test_slopes_and_traces():
    def log_delta(q, scale, width, epsilon):
        rare = 1e3 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove"))
        return (rare + dp.privacy_loss(dp.Mechanism(dp.Laplace(width), 1.0))).log_delta(epsilon)

    at = (1e-4, 1.0, 4.0, 1.5)
    value, slopes = jax.value_and_grad(log_delta, argnums=(0, 1, 2, 3))(*at)
    assert float(value) == pytest.approx(float(log_delta(*at)), abs=1e-8)
    for place, slope in enumerate(slopes):
        up, down = (
            log_delta(*(x * (1 + sign * 1e-5 * (i == place)) for i, x in enumerate(at)))
            for sign in (1, -1)
        )
        assert float(slope) == pytest.approx(float(up - down) / (2e-5 * at[place]), rel=1e-6)


@pytest.mark.long
def test_what_has_real_cumulants_only_stays_on_the_grid():
    """Between two sampled Gaussians alone and those with as much taken off epsilon."""
    other = dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(1.0), 1.0, 0.01, "remove"))
    two = 2 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, "remove"))
    assert not applies((two + other).terms)
    largest = np.log1p(0.01 * np.expm1(1.0))
    least, most = two.log_delta(jnp.array([0.5, 0.5 - largest]))
    assert float(least) < float((two + other).log_delta(0.5)) < float(most)
