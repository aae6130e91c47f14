"""Sampled releases of noise on a lattice, and of staircases, atom by atom."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._numeric.multinomial import ATOMS, Law, log_delta_of_atoms
from jaxdp.loss import reported
from jaxdp.loss.mixture import Mixture

COUNTS = dp.DiscreteGaussian(1.7)
STAIRS = dp.Staircase(0.8, 1.0, 0.3)


def staircase_masses(noise, shift):
    """Of pairs of levels without and with a shift: lengths of intervals between all edges."""
    e, s, split = (mp.mpf(float(x)) for x in (noise.epsilon, noise.sensitivity, noise.split))
    shift = mp.mpf(shift)

    def level(x):
        return mp.floor(abs(x) / s - split) + 1

    steps = [side * (k + split) * s for k in range(80) for side in (-1, 1)]
    edges = sorted({*steps, *(x + shift for x in steps)})
    top = (1 - mp.exp(-e)) / (2 * s * (split + mp.exp(-e) * (1 - split)))
    found = {}
    for a, b in pairwise(edges):
        here, there = level((a + b) / 2), level((a + b) / 2 - shift)
        gain = here - there
        found[gain] = found.get(gain, 0) + (b - a) * top * mp.exp(-e * here)
    return [(mass, gain * e) for gain, mass in found.items()]


def lattice_masses(noise, shift):
    """Every whole number that counts to 40 digits; equal losses are joined."""
    if isinstance(noise, dp.Staircase):
        return staircase_masses(noise, shift)
    scale = mp.mpf(float(noise.scale))
    if isinstance(noise, dp.DiscreteLaplace):
        cost, unit, reach = abs, 1 / scale, int(100 * scale) + 20
    else:
        cost, unit, reach = (lambda x: x * x), 1 / (2 * scale**2), int(15 * scale) + 8 * int(shift)
    found = {}
    for x in range(-reach, reach + int(shift) + 1):
        gain = cost(x) - cost(x - int(shift))
        found[gain] = found.get(gain, 0) + mp.exp(-unit * cost(x))
    whole = sum(found.values())
    return [(mass / whole, unit * gain) for gain, mass in found.items()]


def atoms_of(noise, shift, q, relation):
    """(mass, loss) of one sampled release, of the pair that the loss is of."""
    q = mp.mpf(q)
    law = []
    for mass, gain in lattice_masses(noise, shift):
        ratio = 1 + q * mp.expm1(gain)
        forward = (mass * ratio, mp.log(ratio))
        law.append(forward if relation == "remove" else (mass, -mp.log(ratio)))
    return law


def exact_log_delta(law, count, epsilon):
    """All totals, one release after the other."""
    totals = {(): mp.mpf(1)}
    for i in range(count):
        more = {}
        for key, mass in totals.items():
            for j, (each, _) in enumerate(law):
                counts = tuple(sorted((*key, j)))
                more[counts] = more.get(counts, 0) + mass * each
        totals = {k: v for k, v in more.items() if v > mp.mpf(10) ** -45 or i < 1}
    value = mp.mpf(0)
    for key, mass in totals.items():
        total = sum((law[j][1] for j in key), mp.mpf(0))
        if total > epsilon:
            value += mass * -mp.expm1(epsilon - total)
    return mp.log(value)


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(
    ("noise", "shift", "count"),
    [
        (dp.DiscreteLaplace(1.5), 1.0, 30),
        (dp.DiscreteLaplace(3.0), 3.0, 8),
        pytest.param(STAIRS, 0.7, 12, marks=pytest.mark.long),
        pytest.param(STAIRS, 1.4, 6, marks=pytest.mark.long),
        pytest.param(STAIRS, 2.0, 6, marks=pytest.mark.long),
        pytest.param(dp.DiscreteLaplace(0.3), 2.0, 10, marks=pytest.mark.long),
    ],
)
def test_few_atoms_are_exact(noise, shift, count, relation):
    q = 0.05
    loss = count * dp.privacy_loss(dp.Mechanism(noise, shift, q, relation))
    shares = np.array([-0.05, 0.0, 0.02, 0.1, 0.5, 0.95])
    epsilon = shares * float(loss.terms[0].noise.pure_epsilon(shift)[0]) * count
    with mp.workdps(40):
        law = atoms_of(noise, shift, q, relation)
        truth = [exact_log_delta(law, count, mp.mpf(float(e))) for e in epsilon]
    found, error = loss.log_delta(epsilon), loss.log_delta_error(epsilon)
    above = np.array([float(mp.mpf(float(f)) - t) for f, t in zip(found, truth, strict=True)])
    assert np.all(above >= 0)
    assert np.all(above <= np.asarray(error) + 1e-15)
    assert np.all(np.asarray(error) < 1e-10)


@pytest.mark.parametrize("count", [7.0, 1e4, 1e9])
def test_two_atoms_are_binomial(count):
    """Against the same sum, upwards from its first term, which is exact."""
    p, high, low = 0.3, 0.02, -0.0085
    mean, spread = count * (p * high + (1 - p) * low), np.sqrt(count * p * (1 - p)) * (high - low)
    epsilon = mean + 0.3 * spread
    tilt = (epsilon - mean) / spread**2
    law = Law(jnp.log(jnp.array([p, 1 - p, 0, 0, 0])), jnp.array([high, low, 0, 0, 0]))
    assert law.loss.shape == (ATOMS,)
    found = log_delta_of_atoms(law, jnp.asarray(count), jnp.asarray(epsilon), jnp.asarray(tilt))
    with mp.workdps(30):
        chance, n = mp.mpf(p), mp.mpf(count)
        least = int(mp.ceil((mp.mpf(epsilon) - n * mp.mpf(low)) / (mp.mpf(high) - mp.mpf(low))))
        first = mp.loggamma(n + 1) - mp.loggamma(least + 1) - mp.loggamma(n - least + 1)
        first += least * mp.log(chance) + (n - least) * mp.log(1 - chance)
        gap = float(least * mp.mpf(high) + (n - least) * mp.mpf(low) - mp.mpf(epsilon))
        odds = float(mp.log(chance / (1 - chance)))
    last = min(least + int(9 * np.sqrt(count)) + 5, int(count))
    j = np.arange(least, last + 1, dtype=float)
    steps = np.log((count - j[:-1]) / (j[:-1] + 1)) + odds
    log_mass = float(first) + np.concatenate([[0.0], np.cumsum(steps)])
    gaps = gap + (j - least) * (high - low)
    value = np.log(np.sum(np.exp(log_mass) * -np.expm1(-gaps)))
    # The sum of logarithms rounds.
    assert float(found.upper) == pytest.approx(value, abs=5e-9)
    assert 0 <= float(found.upper - found.lower) < 3e-9


@pytest.mark.parametrize(
    ("noise", "shift"),
    [
        (COUNTS, 1.0),
        (dp.DiscreteGaussian(0.6), 2.0),
        (dp.DiscreteLaplace(2.0), 5.0),
        pytest.param(STAIRS, 1.7, marks=pytest.mark.long),
    ],
)
def test_cumulants(noise, shift):
    q, z = 0.1, np.array([-1.8, -0.4, 0.7, 6.0, 0.7 + 3.0j, 2.0 + 200.0j])
    for relation in ("remove", "add"):
        mixture = Mixture(noise, q, float(relation == "add"))
        real, turned = mixture.cgf(shift, z[:4].real), mixture.cgf(shift, z[4:])
        with mp.workdps(30):
            law = atoms_of(noise, shift, q, relation)
            moments = [sum(m * mp.exp(complex(s) * each) for m, each in law) for s in z]
            exact = [mp.log(moment.real) for moment in moments[:4]]
            shares = [complex(m) for m in moments[4:]]
        excess = [float(mp.mpf(float(x)) - t) for x, t in zip(real, exact, strict=True)]
        assert np.all(np.array(excess) >= 0)
        assert np.all(np.array(excess) < 1e-13 * (1.0 + np.abs(np.asarray(real))))
        np.testing.assert_allclose(np.exp(turned), shares, rtol=1e-12, atol=1e-14)


def histogram(law, count, unit):
    """n-fold masses where every atom is split between its neighbours, so that its mean stays."""
    masses, losses = (np.array([float(x) for x in column]) for column in zip(*law, strict=True))
    size = 2**23
    place = losses / unit
    low = np.floor(place).astype(int)
    one = np.zeros(size)
    np.add.at(one, low % size, masses * (low + 1 - place))
    np.add.at(one, (low + 1) % size, masses * (place - low))
    total = np.fft.irfft(np.fft.rfft(one) ** count, size)
    at = np.fft.fftfreq(size, 1.0 / size) * unit
    return at, total


@pytest.mark.parametrize(
    ("noise", "shift", "q", "relation"),
    [
        pytest.param(COUNTS, 1.0, 0.1, "remove", marks=pytest.mark.heavy),
        pytest.param(COUNTS, 1.0, 0.1, "add", marks=pytest.mark.long),
        pytest.param(dp.DiscreteGaussian(30.0), 20.0, 0.3, "remove", marks=pytest.mark.long),
        pytest.param(dp.DiscreteLaplace(4.0), 4.0, 0.2, "remove", marks=pytest.mark.long),
    ],
)
def test_many_releases(noise, shift, q, relation):
    """Against a Fourier transform, which is off by 1e-7: by the second moments of what it moves."""
    count, unit = 400, 2e-5
    loss = count * dp.privacy_loss(dp.Mechanism(noise, shift, q, relation))
    epsilon = np.array([0.3, 1.0])
    with mp.workdps(20):
        at, mass = histogram(atoms_of(noise, shift, q, relation), count, unit)
    above = [np.maximum(at - e, 0.0) for e in epsilon]
    truth = np.log([np.sum(mass * -np.expm1(-x)) for x in above])
    found = reported._log_delta_on_lines(loss.terms, jnp.asarray(epsilon), False, True)
    assert np.all(np.asarray(found.upper) > truth - 1e-7)
    assert np.all(np.asarray(found.lower) < truth + 1e-7)
    assert np.all(np.asarray(found.upper - found.lower) < 1e-6)


@pytest.mark.parametrize(
    ("noise", "shift", "relation"),
    [
        (COUNTS, 2.0, "remove"),
        pytest.param(COUNTS, 1.0, "add", marks=pytest.mark.long),
        pytest.param(dp.DiscreteLaplace(2.0), 5.0, "remove", marks=pytest.mark.long),
        pytest.param(STAIRS, 1.4, "add", marks=pytest.mark.long),
    ],
)
def test_beside_a_gaussian(noise, shift, relation):
    """Two releases, over all pairs of whose atoms the Gaussian's closed form is averaged."""
    q, rest, epsilon = 0.1, dp.Gaussian(3.0), np.array([0.1, 0.6, 1.5])
    sampled = dp.privacy_loss(dp.Mechanism(noise, shift, q, relation))
    both = 2 * sampled + dp.privacy_loss(dp.Mechanism(rest, 1.0))
    with mp.workdps(20):
        law = np.array([[float(x) for x in atom] for atom in atoms_of(noise, shift, q, relation)])
    mass, loss = (np.add.outer(x, x).ravel() for x in (np.log(law[:, 0]), law[:, 1]))
    truth = [np.sum(np.exp(mass) * np.asarray(rest.delta(1.0, e - loss))) for e in epsilon]
    found, error = np.asarray(both.delta(epsilon)), np.asarray(both.log_delta_error(epsilon))
    assert np.all(found > np.array(truth) * (1 - 1e-12))
    assert np.all(error < 2e-10)
    assert np.all(found * np.exp(-error) < np.array(truth) * (1 + 1e-12))


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "shift", "number"),
    [
        (dp.DiscreteLaplace, 1.0, 60.0),
        (dp.DiscreteLaplace, 3.0, 60.0),
        # Of fewer the atoms are so far apart that delta is no smooth function.
        (dp.DiscreteGaussian, 1.0, 600.0),
    ],
)
def test_derivatives(family, shift, number):
    def log_delta(q, scale, count, epsilon):
        loss = dp.privacy_loss(dp.Mechanism(family(scale), shift, q, relation="remove"))
        return reported.log_delta((count * loss).terms, jnp.asarray(epsilon), False)

    at, steps = (0.1, 1.7, number, 0.3), (1e-5, 1e-4, 1.0, 1e-5)
    slopes = jax.grad(log_delta, (0, 1, 2, 3))(*at)
    for k, (slope, step) in enumerate(zip(slopes, steps, strict=True)):
        ends = [log_delta(*(x + s * step * (i == k) for i, x in enumerate(at))) for s in (1, -1)]
        expected = float(ends[0] - ends[1]) / (2 * step)
        assert float(slope) == pytest.approx(expected, rel=1e-3)


def test_thinned_atoms_are_not_mistaken_for_all():
    """Two far parts of the law: every second atom of one of them is in phase where t L' = pi."""
    scale, shift, q = 40.0, 700.0, 0.1
    height = np.pi * np.array([0.02, 1.0, 2.0]) * scale**2 / shift
    turned = Mixture(dp.DiscreteGaussian(scale), q, 0.0).cgf(shift, -0.02 + 1j * height)
    x = np.arange(-700, 1400.0)
    log_mass = -0.5 * (x / scale) ** 2
    ratio = np.log1p(q * np.expm1(shift * (x - 0.5 * shift) / scale**2))
    truth = [np.sum(np.exp(log_mass + (0.98 + 1j * t) * ratio)) for t in height]
    truth /= np.sum(np.exp(log_mass))
    np.testing.assert_allclose(np.exp(turned[0]), truth[0], rtol=1e-12)
    assert bool(jnp.all(jnp.isnan(turned[1:])))


@pytest.mark.parametrize(
    ("noise", "shift"),
    [(dp.DiscreteLaplace(40.0), 90.0), (dp.DiscreteGaussian(0.3), 1.0), (STAIRS, 3.5)],
)
def test_what_is_beyond_the_atoms_is_still_bounded(noise, shift):
    """More atoms than are looked at: the cumulant is a bound, and delta the grid's."""
    mixture = Mixture(noise, 0.1, 0.0)
    whole = noise.cgf(shift, 2.0)
    bound = mixture.cgf(shift, 2.0)
    assert float(jnp.log1p(0.1 * jnp.expm1(whole))) <= float(bound) * (1 + 1e-12) < jnp.inf
    assert bool(jnp.isnan(mixture.cgf(shift, 2.0 + 3.0j)))


@pytest.mark.long
@pytest.mark.parametrize("family", [dp.DiscreteLaplace, dp.DiscreteGaussian])
def test_bad_traced_values_claim_nothing(family):
    @jax.jit
    def log_delta(q, scale, count, shift):
        loss = dp.privacy_loss(dp.Mechanism(family(scale), shift, q, relation="remove"))
        return (count * loss).log_delta(0.2)

    good = (0.1, 1.5, 20.0, 1.0)
    assert -4.0 < float(log_delta(*good)) < -2.0
    bad = (jnp.nan, -0.5, 1.5), (jnp.nan, -1.0, 0.0), (jnp.nan, -1.0, 2.5), (jnp.nan, -1.0, 0.5)
    for place, values in enumerate(bad):
        for value in values:
            assert bool(jnp.isnan(log_delta(*good[:place], value, *good[place + 1 :])))
