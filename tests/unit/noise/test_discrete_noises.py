"""The discrete Gaussian and Laplace, at any scale, against sums over the lattice at 60 digits."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from oracle import ulps_around

import jaxdp as dp

pytestmark = pytest.mark.float64


def gaussian_tail(n: int, scale: float) -> mp.mpf:
    """sum over k >= n >= 0 of exp(-k^2 / (2 s^2)): term by term, or Euler-Maclaurin's series."""
    s = mp.mpf(scale)
    top = mp.exp(-(mp.mpf(n) ** 2) / (2 * s * s))
    if scale < 60 or n / s**2 > 0.3:
        total, i, term = mp.mpf(0), 0, mp.mpf(1)
        while term > mp.mpf(10) ** -45 * total:
            term = mp.exp(-i * (2 * mp.mpf(n) + i) / (2 * s * s))
            total, i = total + term, i + 1
        return top * total
    x = mp.mpf(n) / s
    total = s * mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2)) / top + mp.mpf(1) / 2
    before, value = mp.mpf(1), x
    for k in range(1, 40):
        if k % 2:
            total += mp.bernoulli(k + 1) / mp.factorial(k + 1) * s**-k * value
        before, value = value, x * value - k * before
    return top * total


@functools.cache
def gaussian_mass(scale: float) -> mp.mpf:
    return 2 * gaussian_tail(0, scale) - 1


def laplace_upper(n: int, scale: float) -> mp.mpf:
    q = mp.exp(-1 / mp.mpf(scale))
    return q**n / (1 + q)


def gaussian_generating(scale: float, shift: int, w: mp.mpf) -> mp.mpf:
    s, d = mp.mpf(scale), mp.mpf(shift)
    middle, reach = int(mp.nint(w * d)), int(16 * scale + 16)
    terms = (
        mp.exp(-(mp.mpf(k) ** 2) / (2 * s * s) + w * (2 * k + d) * d / (2 * s * s))
        for k in range(middle - reach, middle + reach + 1)
    )
    return mp.log(mp.fsum(terms) / gaussian_mass(scale))


def laplace_generating(scale: float, shift: int, w: mp.mpf) -> mp.mpf:
    """A sum over the lattice, whose tails are geometric."""
    b = mp.mpf(scale)
    q = mp.exp(-1 / b)
    middle = mp.fsum(q**j * mp.exp(w * (shift - 2 * j) / b) for j in range(1, shift))
    ends = (mp.exp(w * shift / b) + q**shift * mp.exp(-w * shift / b)) / (1 - q)
    return mp.log((1 - q) / (1 + q) * (ends + middle))


def gaussian_moment(scale: float, power: float) -> mp.mpf:
    s, p = mp.mpf(scale), mp.mpf(power)
    if scale < 12:
        terms = (k**p * mp.exp(-k * k / (2 * s * s)) for k in range(1, 250))
        return 2 * mp.fsum(terms) / gaussian_mass(scale)
    total = s ** (p + 1) * 2 ** ((p + 1) / 2) * mp.gamma((p + 1) / 2)
    for j in range(12):
        factor = (-1 / (2 * s * s)) ** j / mp.factorial(j)
        total += 2 * factor * mp.zeta(-p - 2 * j)
    return total / gaussian_mass(scale)


def laplace_moment(scale: float, power: float) -> mp.mpf:
    b, p = mp.mpf(scale), mp.mpf(power)
    q = mp.exp(-1 / b)
    direct = scale < 0.5
    series = mp.fsum(k**p * q**k for k in range(1, 120)) if direct else mp.polylog(-p, q)
    return mp.re(2 * mp.tanh(1 / (2 * b)) * series)


def gaussian_wide(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """(scale, shift, epsilon)."""
    scale = np.exp(rng.uniform(np.log(0.05), np.log(1e8), count))
    narrow = np.exp(rng.uniform(np.log(0.05), np.log(200), count))
    scale = np.where(rng.random(count) < 0.5, narrow, scale)
    wide = np.round(scale * np.exp(rng.uniform(-8, 2, count)))
    shift = np.maximum(1, np.where(rng.random(count) < 0.5, wide, np.arange(count) % 5))
    u = scale * np.exp(rng.uniform(-5, 3, count))
    u = np.where(rng.random(count) < 0.3, -rng.random(count) * shift / 2, u)
    epsilon = np.maximum((2 * u + shift) * shift / (2 * scale**2), 0)
    epsilon *= rng.choice([1, 1, 1, -1], count)
    kept = abs(epsilon) < 1e4
    return scale[kept], shift[kept], epsilon[kept]


def laplace_wide(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    scale = 10 ** rng.uniform(-2, 9, count)
    shift = np.maximum(1, np.round(scale * 10 ** rng.uniform(-3, 2.5, count)))
    near = shift / scale * (1 + rng.normal(size=count) * 10 ** rng.uniform(-17, 0, count))
    epsilon = np.where(rng.random(count) < 0.6, near, 10 ** rng.uniform(-6, 2, count))
    return scale, shift, epsilon * rng.choice([1, -1], count)


class Family(NamedTuple):
    noise: Callable
    upper: Callable  # P[T >= n] of (n, scale), n >= 0
    generating: Callable  # log E[exp(w L)] of (scale, shift, w)
    moment: Callable  # E|T|^p of (scale, p)
    wide: Callable
    scales: tuple[float, ...]
    kinks: Callable  # losses where delta has kinks, of (scale, shift)
    threshold: Callable  # the least k whose loss is above epsilon, if there is one
    digits: Callable  # that log delta needs, of (scale, shift, epsilon)

    def log_delta(self, scale: float, shift: float, epsilon: float) -> mp.mpf:
        with mp.workdps(self.digits(scale, shift, epsilon)):
            d, e = int(shift), abs(mp.mpf(epsilon))
            m = self.threshold(mp.mpf(scale), d, e)
            delta, complement = mp.mpf(0), mp.mpf(1)
            if m is not None:
                near = self.upper(abs(m) + (m <= 0), scale)
                far = mp.exp(e) * self.upper(m + d, scale)
                upper, lower = (near, 1 - near) if m > 0 else (1 - near, near)
                delta, complement = upper - far, lower + far
            if epsilon < 0:
                delta, complement = 1 - mp.exp(-e) * complement, mp.exp(-e) * complement
            if complement < 0.5:
                return mp.log1p(-complement)
            return mp.log(delta) if delta else -mp.inf


FAMILIES = {
    "gaussian": Family(
        noise=dp.DiscreteGaussian,
        upper=lambda n, scale: gaussian_tail(n, scale) / gaussian_mass(scale),
        generating=gaussian_generating,
        moment=gaussian_moment,
        wide=gaussian_wide,
        # At 10 the sums end and the series begin, as at k / scale^2 = 0.4.
        scales=(0.06, 0.3, 0.8, 1.0, 7.5, *ulps_around(10.0), 23.0, 1e3, 1e7),
        kinks=lambda scale, shift: [
            (2 * k + shift) * shift / (2 * scale**2)
            for k in (-1, 0, 1, int(scale), int(0.4 * scale**2))
        ],
        threshold=lambda s, d, e: int(mp.floor(e * s * s / d - mp.mpf(d) / 2)) + 1,
        digits=lambda *_: 60,
    ),
    "laplace": Family(
        noise=dp.DiscreteLaplace,
        upper=laplace_upper,
        generating=laplace_generating,
        moment=laplace_moment,
        wide=laplace_wide,
        scales=(0.01, 0.3, 1.0, 7.3, 1e4, 1e9),
        kinks=lambda scale, shift: [
            (shift - 2 * k) / scale for k in range(int(min(shift, 8)) // 2 + 1)
        ],
        threshold=lambda s, d, e: int(mp.floor((e * s - d) / 2)) + 1 if e * s < d else None,
        digits=lambda b, n, e: 60 + int(min(n / b + abs(e), 6000) / 2),
    ),
}
EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
SLOW_GAUSSIAN = pytest.mark.parametrize(
    "family",
    [
        pytest.param(f, marks=pytest.mark.long if k == "gaussian" else ())
        for k, f in FAMILIES.items()
    ],
    ids=FAMILIES,
)


def check(family, scale, shift, epsilon):
    value = np.asarray(family.noise(scale).log_delta(shift, epsilon))
    for s, d, e, v in zip(scale, shift, epsilon, value, strict=True):
        truth = family.log_delta(float(s), float(d), float(e))
        oracle.check_upper_bound(float(v), truth, (s, d, e))


@SLOW_GAUSSIAN
def test_delta_around_every_kink(family):
    points = []
    for scale in family.scales:
        for shift in (1.0, 2.0, 5.0, 8.0, float(round(scale) + 1), float(round(3 * scale) + 1)):
            for kink in family.kinks(scale, shift):
                if 0 <= kink < 600:
                    points += [(scale, shift, e) for e in ulps_around(kink)]
                    points += [(scale, shift, -e) for e in ulps_around(kink)]
    rows = np.array(points)[np.random.default_rng(17).permutation(len(points))[:450]]
    check(family, *rows.T)


@SLOW_GAUSSIAN
def test_delta_over_wide_ranges(family):
    check(family, *family.wide(np.random.default_rng(21), 500))


@SLOW_GAUSSIAN
def test_epsilon_derivative_on_both_sides_of_each_kink(family):
    slope = jax.jit(jax.grad(lambda s, d, e: family.noise(s).log_delta(d, e), argnums=2))
    for scale, shift in ((0.5, 1.0), (1.3, 3.0), (30.0, 4.0)):
        for kink in family.kinks(scale, shift):
            for at in (kink - 1e-7, kink + 1e-7, -kink - 1e-7, -kink + 1e-7):
                if family.log_delta(scale, shift, at) == -mp.inf:
                    assert slope(scale, shift, at) == 0
                    continue
                exact = functools.partial(family.log_delta, scale, shift)
                truth = mp.diff(exact, at, h=mp.mpf(10) ** -20)
                found = slope(scale, shift, at)
                np.testing.assert_allclose(found, float(truth), rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize(
    ("name", "scales", "limit"),
    [
        ("gaussian", (0.1, 0.3, *ulps_around(0.8), 1.0, 3.0, 9.0), 2e-14),
        ("laplace", (0.01, 0.3, 1.0, 9.0, 1e3, 1e7), 1e-13),
    ],
)
def test_divergences(name, scales, limit):
    rng, family = np.random.default_rng(3), FAMILIES[name]
    for _ in range(60):
        scale, shift = float(rng.choice(scales)), int(rng.integers(1, 9))
        order = 1.0 + 10 ** rng.uniform(-6, 3)
        value = float(family.noise(scale).renyi(float(shift), order))
        with mp.workdps(80):
            excess = mp.mpf(order) - 1
            truth = family.generating(scale, shift, excess) / excess
        assert abs(oracle.relative_error(value, truth)) < limit, (scale, shift, order)


@EVERY
def test_moments(family):
    for scale in (0.05, 0.3, 0.8, 0.999, 1.0, *ulps_around(10.0), 11.0, 1e3, 1e8):
        noise = family.noise(scale)
        for power in (0.3, 1.0, 2.0, 3.5, 6.0):
            truth = family.moment(scale, power)
            value = float(noise.absolute_moment(power))
            assert abs(oracle.relative_error(value, truth)) < 5e-14, (scale, power)
    assert family.noise(2.0).absolute_moment(0.0) == 1
    assert family.noise(2.0).absolute_moment(-0.5) == jnp.inf


def test_variance_derivatives_of_the_laplace():
    for scale in (0.3, 1.01, 40.0):
        truth = mp.diff(lambda b: 1 / (2 * mp.sinh(1 / (2 * b)) ** 2), scale)
        slope = jax.grad(lambda b: dp.DiscreteLaplace(b).variance())(scale)
        np.testing.assert_allclose(float(slope), float(truth), rtol=1e-12)


@EVERY
def test_tails(family):
    for scale in (0.06, 0.5, 7.5, *ulps_around(10.0), 300.0, 1e7):
        noise = family.noise(scale)
        for ratio in (0.0, 0.3, 4.0, 38.0, 1e3):
            n = round(ratio * scale)
            for x in (float(n), n + 0.5, -float(n)):
                least = int(np.floor(x)) + 1
                if least > 0:
                    truth = mp.log(family.upper(least, scale))
                else:
                    truth = mp.log1p(-family.upper(1 - least, scale))
                if truth <= -1e-290:
                    value = float(noise.log_survival(x))
                    assert abs(oracle.relative_error(value, truth)) < 1e-13, (scale, x)


@EVERY
def test_quantile_is_the_least_whole_number(family):
    rng = np.random.default_rng(9)
    for scale in (0.06, 0.3, 1.7, 1e3, 1e7):
        u = [*10 ** rng.uniform(-300, -0.31, 20), *rng.uniform(size=20)]
        u = np.array([*u, 1e-300, 0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), 1 - 1e-12])
        for chance, k in zip(u, np.asarray(family.noise(scale).quantile(u)), strict=True):

            def below(k, scale=scale):
                side = family.upper(k + 1 if k >= 0 else -k, scale)
                return 1 - side if k >= 0 else side

            slack = mp.mpf(1e-14) * (1 - mp.log(min(chance, 1 - chance)))
            assert below(int(k)) >= chance * (1 - slack)
            assert below(int(k) - 1) < chance * (1 + slack)


def test_zcdp_of_a_laplace_is_the_kullback_leibler_divergence():
    for scale in (0.01, 0.3, 1.0, 7.5, 1e3, 1e9):
        for shift in (1, 2, 7, 1000):
            x = 1 / mp.mpf(scale)
            truth = shift * x - (1 - mp.exp(-shift * x)) * x / mp.sinh(x)
            rho = float(dp.DiscreteLaplace(scale).zcdp(float(shift))[1])
            assert 0 <= oracle.relative_error(rho, truth) < 1e-13


def test_limits():
    for scale in (1e-200, 1e-3, 1.0, 1e120, 1e308):
        noise = dp.DiscreteGaussian(scale)
        assert noise.log_delta(1.0, 0.0) > -np.inf
        assert noise.log_delta(1.0, 1e280) > -np.inf
        assert noise.log_delta(1.0, 1e-3) <= 0
        assert noise.log_delta(1e200, 1.0) <= 0
    assert dp.DiscreteGaussian(1e-200).delta(1.0, 1e6) == 1
    far = np.array([1.0, 0.5, 40.0, 1e6]), np.ones(4), np.array([3e3, 1e4, 20.0, 3e-4])
    check(FAMILIES["gaussian"], *far)
    assert dp.DiscreteGaussian(2.0).sub_gaussian_proxy() >= 4
    assert dp.DiscreteLaplace(1e308).log_delta(1.0, 0.0) > -np.inf
    assert dp.DiscreteLaplace(jnp.inf).pure_epsilon(3.0) == 0
    for family in FAMILIES.values():
        assert family.noise(jnp.inf).zcdp(3.0)[1] == 0
        assert family.noise(jnp.inf).renyi(3.0, 3.0) == 0
    assert dp.DiscreteLaplace(1.0).pure_epsilon(3.0) >= 3
    assert dp.DiscreteLaplace(1.0).delta(3.0, 3.0) == 0
    assert dp.DiscreteLaplace(1.0).delta(3.0, np.nextafter(3.0, 0)) > 0
