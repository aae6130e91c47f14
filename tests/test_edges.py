"""Laplaces, responses and bounded ranges of different sizes: full accuracy, at atoms as well."""

import itertools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp._numeric.edge_profile import above


def loss_of(noise, shift=1.0):
    return dp.privacy_loss(dp.Mechanism(noise, shift))


def integrated(k, x):
    """G_k of `edge_profile`: a series of positive terms."""
    if x <= 0:
        return mp.mpf(0)
    return mp.nsum(
        lambda j: x ** (2 * j + k + 1) / (mp.mpf(4) ** j * mp.factorial(2 * j + k + 1)), [0, mp.inf]
    )


@pytest.mark.parametrize("x", [1e-9, 0.3, 3.999, 4.0, 7.0, 60.0])
def test_edge_profiles(x):
    with mp.workdps(80):
        u = mp.mpf(x) / 2
        for k in range(5):
            truth = mp.exp(-u) * integrated(k, 2 * u)
            np.testing.assert_allclose(float(above(jnp.asarray(x), 4)[k]), float(truth), rtol=1e-14)


def edges(kind, size):
    """Height, p and a of `LossEdges`, from the definitions."""
    h = mp.mpf(size)
    if kind == "laplace":
        return h, mp.mpf(1) / 2, mp.mpf(1) / 4
    if kind == "response":
        return h, 1 / (1 + mp.exp(-h)), mp.mpf(0)
    return h, mp.mpf(0), 1 / (2 * (1 - mp.exp(-h)))


def delta_of(releases, epsilon):
    """Every atom's share, every power of 1 / s. releases: (count, height, p, a)."""
    highest = mp.fsum(n * h for n, h, *_ in releases)
    total = mp.mpf(0)
    for downs in itertools.product(*(range(n + 1) for n, *_ in releases)):
        steps = zip(downs, releases, strict=True)
        x = highest - 2 * mp.fsum(d * h for d, (_, h, *_) in steps) - epsilon
        if x <= 0:
            continue
        powers = [mp.mpf(1)]
        for d, (n, _, p, a) in zip(downs, releases, strict=True):
            powers = [c * mp.binomial(n, d) for c in powers]
            for sign in [-1] * d + [1] * (n - d):
                pairs = zip([*powers, mp.mpf(0)], [mp.mpf(0), *powers], strict=True)
                powers = [p * c + sign * a * before for c, before in pairs]
        total += mp.fsum(c * integrated(k, x) for k, c in enumerate(powers) if c)
    return total * mp.exp((epsilon - highest) / 2)


def check(loss, epsilon, truth):
    """Above the truth, near it, and the stated error tells how near."""
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    slack = 1e-14 * (1 + abs(truth))
    assert truth - slack <= value <= truth + 1.5e-10
    assert value - error <= truth + slack
    assert error < 3e-10


HEIGHTS = st.floats(0.01, 3.0)


@settings(deadline=None, max_examples=12)
@given(
    st.tuples(HEIGHTS, HEIGHTS, HEIGHTS, HEIGHTS),
    st.tuples(*(st.integers(0, 3),) * 4),
    st.floats(-0.5, 0.97),
)
def test_random_compositions(heights, counts, share):
    kinds = ("laplace", "laplace", "response", "range")
    scales = jnp.array([1.0 / heights[0], 1.0 / heights[1]])
    laplaces = (jnp.array(counts[:2], dtype=float) * loss_of(dp.Laplace(scales))).sum()
    loss = laplaces + counts[2] * dp.privacy_loss(dp.PureDP(heights[2]))
    loss = loss + counts[3] * dp.privacy_loss(dp.ExponentialMechanism(heights[3]))
    epsilon = share * float(np.dot(counts, heights))
    with mp.workdps(60):
        exact = (1 / mp.mpf(float(scales[0])), 1 / mp.mpf(float(scales[1])), *heights[2:])
        releases = [
            (n, *edges(*of)) for n, of in zip(counts, zip(kinds, exact, strict=True), strict=True)
        ]
        truth = float(mp.log(delta_of(releases, mp.mpf(epsilon)))) if any(counts) else -np.inf
    if any(counts):
        check(loss, epsilon, truth)


def averaged(first, second, epsilon):
    """log delta of two Laplaces: an average over the loss of one of them."""

    def delta(e):
        if e <= -second:
            return 1 - mp.exp(e)
        return mp.mpf(0) if e >= second else 1 - mp.exp((e - second) / 2)

    ends = delta(epsilon - first) + mp.exp(-first) * delta(epsilon + first)
    # The loss is first - 2 u, of density e^-u / 2.
    kinks = [(first - epsilon + s * second) / 2 for s in (-1, 1)]
    points = sorted({mp.mpf(0), first, *(u for u in kinks if 0 < u < first)})
    between = mp.quad(lambda u: mp.exp(-u) * delta(epsilon - first + 2 * u), points)
    return float(mp.log((ends + between) / 2))


def test_two_laplaces_by_another_road():
    """In between, at an atom, right above it, below 0, and right below the largest loss."""
    scale = float(np.sqrt(2.0) / 1.1)
    loss = loss_of(dp.Laplace(2.0)) + loss_of(dp.Laplace(scale))
    for epsilon in (-0.4, 0.0, 0.3, 1 / scale - 0.5, 1 / scale - 0.5 + 1e-13, 0.9, 1.2, 1.27):
        with mp.workdps(30):
            truth = averaged(mp.mpf(0.5), 1 / mp.mpf(scale), mp.mpf(epsilon))
        check(loss, epsilon, truth)


@pytest.mark.long
def test_equal_releases_count_together():
    """Forty coordinates of five scales: 5,103 atoms, not 2^40."""
    scales = np.repeat([3.0, 4.0, 5.5, 7.0, 9.1], [8, 6, 8, 8, 10])
    one_by_one = loss_of(dp.Laplace(jnp.asarray(scales))).sum()
    kinds, counts = np.unique(scales, return_counts=True)
    together = (jnp.asarray(counts) * loss_of(dp.Laplace(jnp.asarray(kinds)))).sum()
    epsilon = jnp.array([-0.3, 0.5, 2.0, 6.0])
    np.testing.assert_allclose(
        one_by_one.log_delta(epsilon), together.log_delta(epsilon), rtol=0, atol=2e-10
    )
    assert bool(jnp.all(one_by_one.log_delta_error(epsilon) < 3e-10))


def test_a_day_of_queries():
    """Hundreds of two kinds: 10,251 atoms."""
    loss = 100 * loss_of(dp.Laplace(20.0)) + 100 * loss_of(dp.Laplace(13.0))
    lower, upper = loss.bounds(2.0)
    assert lower <= loss.delta(2.0) <= upper
    assert loss.log_delta_error(2.0) < 3e-10


def test_millions_of_atoms():
    """Of 24 responses of different sizes 2^24, of Laplaces of these sizes as many and more."""
    sizes = np.sqrt(np.arange(2.0, 26.0)) / 20
    low, high = (
        np.array(list(itertools.product(*([-x, x] for x in half)))).sum(-1)
        for half in (sizes[:12], sizes[12:])
    )
    losses = low[:, None] + high
    loss = dp.privacy_loss(dp.PureDP(jnp.asarray(sizes))).sum()
    # p of a release is e^(x / 2) / (2 cosh(x / 2)), and e^(-x / 2) instead of it below.
    log_mass = 0.5 * losses - np.log(2 * np.cosh(0.5 * sizes)).sum()
    for epsilon in (-0.7, 0.0, 0.5, 1.5, 4.0):
        truth = np.log(np.sum(np.exp(log_mass) * np.maximum(-np.expm1(epsilon - losses), 0.0)))
        check(loss, epsilon, truth)


@pytest.mark.long
def test_too_many_atoms_to_list():
    """Of forty Laplaces of different scales so few atoms are ever in phase that it settles."""
    scales = jnp.sqrt(jnp.arange(20.0, 60.0))
    loss = loss_of(dp.Laplace(scales)).sum()
    few = loss_of(dp.Laplace(scales[:20])).sum()
    for epsilon in (0.5, 1.5):
        assert few.log_delta(epsilon) < loss.log_delta(epsilon)
        assert loss.log_delta_error(epsilon) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("truncated", [False, True])
def test_gradients_of_every_parameter(truncated):
    def log_delta(parameters):
        scales, epsilon, bound = parameters
        noise = dp.TruncatedLaplace(scales, bound) if truncated else dp.Laplace(scales)
        return loss_of(noise).sum().log_delta(epsilon)

    at = (jnp.array([2.0, 2.0, 3.0, 5.0]), jnp.asarray(0.71), jnp.asarray(12.0))
    slopes = jax.grad(log_delta)(at)
    for k in range(4):
        step = jnp.zeros(4).at[k].set(1e-5)
        up, down = (log_delta((at[0] + s * step, *at[1:])) for s in (1, -1))
        np.testing.assert_allclose(slopes[0][k], (up - down) / 2e-5, rtol=1e-6)
    for k in (1, 2):
        up, down = (log_delta((*at[:k], at[k] + s * 1e-5, *at[k + 1 :])) for s in (1, -1))
        np.testing.assert_allclose(slopes[k], (up - down) / 2e-5, rtol=1e-6, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("count", "r"), [(4, 0.31), (200, 0.03)])
def test_the_derivative_in_the_count(count, r):
    """That of exp(n K), summed along the line; the oracle sums 1e6 points."""
    epsilon, period = 0.3, 15.0
    z = 3.0 + 2j * np.pi * np.arange(1_000_000) / period
    # Continuous in z: the sum's real part is positive.
    cumulant = z * r + np.log((z + 1 + z * np.exp(-(2 * z + 1) * r)) / (2 * z + 1))
    summand = np.exp(count * cumulant - z * epsilon) / (z * (z + 1))
    value, slope = (
        (2 * x.sum() - x[0]) / period for x in (np.real(summand), np.real(cumulant * summand))
    )
    found = jax.grad(lambda n: (n * loss_of(dp.Laplace(1 / r))).log_delta(epsilon))(float(count))
    np.testing.assert_allclose(found, slope / value, rtol=4e-3)
