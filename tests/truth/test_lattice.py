"""Losses on one lattice, against convolutions of their atoms, to full relative accuracy."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

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


def test_wide_discrete_gaussians_are_nearly_gaussian():
    """Of 1e5 releases at scale 1000 a period has millions of points: few of them are summed."""
    scale, count = 1000.0, 1e5
    loss = count * dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(scale), 1.0))
    smooth = dp.GDP(np.sqrt(count) / scale)
    epsilon = jnp.array([0.1, 1.0, 3.0])
    excess = loss.log_delta(epsilon) - smooth.log_delta(epsilon)
    assert bool(jnp.all((excess > -1e-6) & (excess <= loss.log_delta_error(epsilon) + 1e-6)))
    assert bool(jnp.all(excess < 0.1))


def different(scales):
    return dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(np.asarray(scales)), 1.0)).sum()


def test_many_lattices_without_a_common_unit():
    loss = different(3.0 + 0.37 * np.arange(12))
    assert loss.log_delta_error(2.0) < 4e-6
    commensurable = different(np.array([1.0, 2.0, 4.0, 1.0, 2.0, 4.0]))
    assert commensurable.log_delta_error(2.0) < 1e-8


def test_discrete_laplaces_of_many_scales_are_a_grid():
    scales = np.exp(np.linspace(-1.0, 1.0, 60)) * 15.0
    loss = dp.privacy_loss(dp.Mechanism(dp.DiscreteLaplace(scales), 1)).sum()
    assert loss.log_delta_error(2.2) < 5e-6
