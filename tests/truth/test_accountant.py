"""Compositions of Laplaces, responses and ranges against sums over atoms and averages."""

import itertools

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from composition_checks import check, loss_of
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp

pytestmark = pytest.mark.float64

# Atoms, and e^(-u / 2) in between.


def integrated(k, x):
    """sum over j of x^(2 j + k + 1) / (4^j (2 j + k + 1)!)."""
    term = total = x ** (k + 1) / mp.factorial(k + 1) if x > 0 else mp.mpf(0)
    power = k + 1
    while term > total * mp.mpf(10) ** -40:
        term *= x * x / (4 * (power + 1) * (power + 2))
        total, power = total + term, power + 2
    return total


def edges(kind, size):
    """Largest loss, mass of its atom and density next to it, of one release."""
    h = mp.mpf(size)
    if kind == "laplace":
        return h, mp.mpf(1) / 2, mp.mpf(1) / 4
    if kind == "response":
        return h, 1 / (1 + mp.exp(-h)), mp.mpf(0)
    return h, mp.mpf(0), 1 / (2 * (1 - mp.exp(-h)))


def delta_of(releases, epsilon):
    """Every atom's share, every power of 1 / s. releases: (count, *edges)."""
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


HEIGHTS = st.floats(0.01, 3.0)


@pytest.mark.long
@settings(deadline=None, max_examples=4)
@given(
    st.tuples(HEIGHTS, HEIGHTS, HEIGHTS, HEIGHTS),
    st.tuples(*(st.integers(0, 3),) * 4).filter(any),
    st.floats(-0.5, 0.97),
)
def test_random_compositions_of_laplaces_responses_and_ranges(heights, counts, share):
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
        truth = float(mp.log(delta_of(releases, mp.mpf(epsilon))))
    # Ranges alone may be told less of by their divergences, which state no lower bound.
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert error == np.inf or truth - 1e-13 * (1 + abs(truth)) <= value <= truth + error + 1e-13
    assert value <= truth + 1e-3


def averaged_laplaces(first, second, epsilon):
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


@pytest.mark.long
def test_two_laplaces():
    """In between, at an atom, right above it, below 0, and near the largest loss."""
    scale = float(np.sqrt(2.0) / 1.1)
    loss = loss_of(dp.Laplace(2.0)) + loss_of(dp.Laplace(scale))
    points = [-0.4, 0.0, 0.3, 1 / scale - 0.5, 1 / scale - 0.5 + 1e-13, 0.9, 1.2]
    with mp.workdps(30):
        truth = [averaged_laplaces(mp.mpf(0.5), 1 / mp.mpf(scale), mp.mpf(e)) for e in points]
    check(loss, jnp.array(points), truth, 1e-4)


@pytest.mark.long
def test_millions_of_atoms():
    """Of 24 responses of different sizes, 2^24."""
    sizes = np.sqrt(np.arange(2.0, 26.0)) / 20
    low, high = (
        np.array(list(itertools.product(*([-x, x] for x in half)))).sum(-1)
        for half in (sizes[:12], sizes[12:])
    )
    losses = low[:, None] + high
    loss = dp.privacy_loss(dp.PureDP(jnp.asarray(sizes))).sum()
    # p of a release is e^(x / 2) / (2 cosh(x / 2)), and e^(-x / 2) instead of it below.
    log_mass = 0.5 * losses - np.log(2 * np.cosh(0.5 * sizes)).sum()
    epsilon = np.array([-0.7, 0.0, 0.5, 1.5, 4.0])
    above = [np.maximum(-np.expm1(e - losses), 0.0) for e in epsilon]
    check(loss, epsilon, [np.log(np.sum(np.exp(log_mass) * x)) for x in above], 1e-3)
