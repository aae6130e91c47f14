"""Losses on one lattice, against convolutions of their atoms, to full relative accuracy."""

import math

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp

pytestmark = pytest.mark.float64

LANES = 24


class Atoms:
    """Masses at unit (low + 0, 1, 2, ...)."""

    def __init__(self, masses, unit, low):
        self.masses, self.unit, self.low = np.asarray(masses), unit, low

    def times(self, count):
        # Of numbers that are not negative: no digit is lost, however small a mass.
        total, factor, left = np.ones(1), self.masses, count
        while left:
            total = np.convolve(total, factor) if left & 1 else total
            factor, left = (np.convolve(factor, factor) if left > 1 else factor), left >> 1
        return Atoms(total, self.unit, self.low * count)

    def and_then(self, other):
        return Atoms(np.convolve(self.masses, other.masses), self.unit, self.low + other.low)

    def finer(self, parts):
        masses = np.zeros((len(self.masses) - 1) * parts + 1)
        masses[::parts] = self.masses
        return Atoms(masses, self.unit / parts, self.low * parts)

    def losses(self):
        return self.unit * (self.low + np.arange(len(self.masses)))

    def log_delta(self, epsilon):
        return np.log(np.sum(self.masses * -np.expm1(np.minimum(epsilon - self.losses(), 0.0))))


def of_pure(epsilon):
    up = 1 / (1 + math.exp(-epsilon))
    return Atoms([up * math.exp(-epsilon), 0.0, up], epsilon, -1)


def of_staircase(epsilon, split):
    """At the sensitivity."""
    above = float(dp.Staircase(epsilon, 1.0, split).delta(1.0, 0.0)) / -math.expm1(-epsilon)
    below = above * math.exp(-epsilon)
    return Atoms([below, 1 - above - below, above], epsilon, -1)


def of_lattice_noise(log_density, reach, shift):
    """`log_density` in units of what the loss is a whole multiple of."""
    x = np.arange(-reach, reach + shift + 1)
    steps = log_density(x) - log_density(x - shift)
    masses = np.zeros(int(np.ptp(steps)) + 1)
    return steps, masses, x


def of_discrete_laplace(scale, shift):
    steps, masses, x = of_lattice_noise(lambda x: -abs(x), int(40 * scale) + 5, shift)
    share = -math.expm1(-1 / scale) / (1 + math.exp(-1 / scale))
    np.add.at(masses, steps - steps.min(), share * np.exp(-abs(x) / scale))
    return Atoms(masses, 1 / scale, steps.min())


def of_discrete_gaussian(scale, shift):
    steps, masses, x = of_lattice_noise(lambda x: -x * x, int(36 * scale) + 5, shift)
    weight = np.exp(-x * x / (2 * scale**2))
    np.add.at(masses, steps - steps.min(), weight / np.sum(weight))
    return Atoms(masses, 1 / (2 * scale**2), steps.min())


def random_epsilons(totals, rng):
    """Anywhere, at atoms, right below one, negative."""
    for i, total in enumerate(totals):
        losses = total.losses()
        top = losses[total.masses > 1e-270].max()
        mean = np.sum(total.masses * losses)
        inside = losses[(losses > -mean) & (losses < top)]
        kinds = (
            mean + (top - mean) * rng.uniform() ** 2,
            rng.choice(inside),
            rng.choice(inside) * (1 - 1e-13),
            -mean * rng.uniform(),
        )
        yield kinds[i % 4]


def check(loss, totals, seed):
    epsilon = np.array(list(random_epsilons(totals, np.random.default_rng(seed))))

    def truth(epsilon):
        return np.array([total.log_delta(e) for total, e in zip(totals, epsilon, strict=True)])

    values = np.asarray(loss.log_delta(epsilon))
    assert np.all(values >= truth(epsilon) - 1e-12), (epsilon, values)
    # Right below an atom its position, which is rounded, matters.
    error = np.asarray(loss.log_delta_error(epsilon))
    above = values - truth(epsilon - 1e-14 * abs(epsilon))
    assert np.all(above <= error + 1e-9), (epsilon, above, error)
    # Wide brackets of a few lanes: near the largest loss, and of many responses apart.
    assert np.median(error) < 1e-7, error


def log_uniform(rng, low, high):
    return np.exp(rng.uniform(math.log(low), math.log(high), LANES))


def counts(rng, most):
    return np.round(log_uniform(rng, 2.0, most)).astype(int)


def test_staircases():
    rng = np.random.default_rng(1)
    unit, split, count = (
        log_uniform(rng, 0.01, 3.0),
        rng.uniform(0.05, 0.95, LANES),
        counts(rng, 800),
    )
    loss = count * dp.privacy_loss(dp.Mechanism(dp.Staircase(unit, 1.0, split), 1.0))
    check(loss, [of_staircase(*x[:2]).times(x[2]) for x in zip(unit, split, count, strict=True)], 2)


def test_discrete_laplaces():
    rng = np.random.default_rng(3)
    scale, shift, count = log_uniform(rng, 0.3, 20.0), rng.integers(1, 7, LANES), counts(rng, 200)
    loss = count * dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(scale), shift))
    each = zip(scale, shift, count, strict=True)
    check(loss, [of_discrete_laplace(*x[:2]).times(x[2]) for x in each], 4)


@pytest.mark.long
def test_discrete_gaussians_of_two_sensitivities():
    rng = np.random.default_rng(5)
    scale, shift, count = log_uniform(rng, 0.4, 5.0), rng.integers(1, 4, LANES), counts(rng, 20)
    one = dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(scale), shift))
    other = dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(scale), 2.0))
    totals = [
        of_discrete_gaussian(s, int(m)).times(n).and_then(of_discrete_gaussian(s, 2).times(3))
        for s, m, n in zip(scale, shift, count, strict=True)
    ]
    check(count * one + 3 * other, totals, 6)


def test_responses_with_a_common_unit():
    """Epsilons of 0.19 and 0.23, say: both are in phase again at the half of 2 pi / 0.02."""
    rng = np.random.default_rng(7)
    unit, parts = log_uniform(rng, 1e-3, 0.3), rng.integers(1, 60, (2, LANES))
    count = np.stack([counts(rng, 200), counts(rng, 200)])
    losses = [n * dp.privacy_loss(dp.PureDP(unit * k)) for n, k in zip(count, parts, strict=True)]
    totals = []
    for i in range(LANES):
        first, second = (
            of_pure(unit[i] * k[i]).times(n[i]).finer(int(k[i]))
            for n, k in zip(count, parts, strict=True)
        )
        first.unit = second.unit = unit[i]
        totals.append(first.and_then(second))
    check(losses[0] + losses[1], totals, 8)


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "count", "at", "width"),
    [
        (1e-3, 10**6, 3.0, 1e-4),
        (3e-5, 10**9, 2.0, 10.0),
        (2.0, 5000, 9000.0, 1e-7),
        (1e-6, 10**6, 1e-4, 1e-4),
    ],
)
def test_as_many_responses_as_there_may_be(epsilon, count, at, width):
    """The binomial sum with 40 digits."""
    with mp.workdps(60):
        up, first = 1 / (1 + mp.exp(-mp.mpf(epsilon))), int((at / epsilon + count) / 2) + 1
        log_mass = mp.loggamma(count + 1) - mp.loggamma(first + 1) - mp.loggamma(count - first + 1)
        log_mass += first * mp.log(up) + (count - first) * mp.log(1 - up)
        mass, total = mp.exp(log_mass), mp.mpf(0)
        for j in range(first, count + 1):
            total += mass * (1 - mp.exp(at - (2 * j - count) * mp.mpf(epsilon)))
            mass *= up / (1 - up) * (count - j) / (j + 1)
            if mass < mp.mpf(10) ** -30 * total:
                break
        truth = mp.log(total)
    error = float((count * dp.privacy_loss(dp.PureDP(epsilon))).log_delta(at)) - truth
    assert -1e-12 < error < width


def test_wide_discrete_gaussians_are_nearly_gaussian():
    """Of 1e5 releases at scale 1000 a period has millions of points: few of them are summed."""
    scale, count = 1000.0, 1e5
    loss = count * dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(scale), 1.0))
    smooth = dp.GDP(np.sqrt(count) / scale)
    epsilon = jnp.array([0.1, 1.0, 3.0])
    excess = loss.log_delta(epsilon) - smooth.log_delta(epsilon)
    assert bool(jnp.all((excess > -1e-6) & (excess <= loss.log_delta_error(epsilon) + 1e-6)))
    assert bool(jnp.all(excess < 0.1))


def test_no_common_unit_is_still_a_bound():
    """Their ratio is no fraction: 40 and 60 responses."""
    a, b = 0.1, 0.1 * math.sqrt(1.7)
    loss = 40 * dp.privacy_loss(dp.PureDP(a)) + 60 * dp.privacy_loss(dp.PureDP(b))
    first, second = (
        (
            e * (2.0 * np.arange(n + 1) - n),
            stats.binom.pmf(np.arange(n + 1), n, 1 / (1 + np.exp(-e))),
        )
        for e, n in ((a, 40), (b, 60))
    )
    losses, masses = np.add.outer(first[0], second[0]), np.multiply.outer(first[1], second[1])
    for epsilon in (0.5, 3.0, 6.0):
        truth = np.log(np.sum(masses * -np.expm1(np.minimum(epsilon - losses, 0.0))))
        error = float(loss.log_delta(epsilon)) - truth
        assert -1e-11 < error < 2e-3, (epsilon, error)


def different(scales):
    return dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(np.asarray(scales)), 1.0)).sum()


def test_five_lattices_without_a_common_unit():
    scales = np.array([0.6, 0.65, 0.7, 0.75, 0.8])
    losses, masses = np.zeros(1), np.ones(1)
    k = np.arange(-6.0, 8.0)
    for scale in scales:
        mass = np.exp(-0.5 * (k / scale) ** 2)
        loss = (0.5 - k) / scale**2
        losses = np.add.outer(losses, loss).ravel()
        masses = np.multiply.outer(masses, mass / mass.sum()).ravel()
    loss, epsilon = different(scales), np.array([0.0, 6.0])
    found = np.array([loss.log_delta(x) for x in epsilon])
    error = np.array([loss.log_delta_error(x) for x in epsilon])
    truth = np.log([np.sum(masses * -np.expm1(np.minimum(x - losses, 0.0))) for x in epsilon])
    assert np.all(found > truth - 1e-12)
    assert np.all(found - error < truth + 1e-12)
    assert np.all(error < 1e-5)


def test_many_lattices_without_a_common_unit():
    loss = different(3.0 + 0.37 * np.arange(12))
    assert loss.log_delta_error(2.0) < 4e-6
    commensurable = different(np.array([1.0, 2.0, 4.0, 1.0, 2.0, 4.0]))
    assert commensurable.log_delta_error(2.0) < 1e-8


def test_discrete_laplaces_of_many_scales_are_a_grid():
    scales = np.exp(np.linspace(-1.0, 1.0, 60)) * 15.0
    loss = dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(scales), 1)).sum()
    assert loss.log_delta_error(2.2) < 5e-6


def test_lattices_beside_a_sampled_one_are_found_on_their_own():
    """Grids of different units, and a kind that has none, against all atoms of the product."""
    scales, bounds, q = np.array([1.3, 2.1]), np.array([0.31, 0.47, 0.73]), 0.3
    loss = different(scales) + dp.privacy_loss(dp.PureDP(bounds)).sum(-1)
    loss = loss + dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(4.3), 1, q, "remove"))
    k = np.arange(-16.0, 18.0)
    kinds = [((0.5 - k) / s**2, np.exp(-0.5 * (k / s) ** 2)) for s in scales]
    both = np.array([-1.0, 1.0])
    kinds += [(b * both, np.exp(0.5 * b * both)) for b in bounds]
    ratio = 1.0 + q * np.expm1(both / 4.3)
    kinds.append((np.log(ratio), ratio / (1.0 + np.exp(both / 4.3))))
    losses, masses = np.zeros(1), np.ones(1)
    for loss_of_one, mass in kinds:
        losses = np.add.outer(losses, loss_of_one).ravel()
        masses = np.multiply.outer(masses, mass / mass.sum()).ravel()
    epsilon = np.array([0.2, 1.0, 2.0])
    truth = np.array([np.sum(masses * np.maximum(-np.expm1(e - losses), 0.0)) for e in epsilon])
    lower, upper = loss.bounds(epsilon)
    assert np.all((lower < truth * (1 + 1e-11)) & (upper > truth * (1 - 1e-11)))
    assert np.all(upper / lower < 1 + 1e-6)
