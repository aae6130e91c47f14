"""The flipped Huber and the offset Gaussian, which have a width beside a scale, by closed forms."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import closed_forms
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64


class Family(NamedTuple):
    noise: Callable[..., dp.own.Noise]
    width: str
    scale: str
    # log delta of (width, scale, shift, epsilon); epsilons between regimes.
    log_delta: Callable
    boundaries: Callable
    # log E exp(z L) and int_0^inf x^p g(x) dx up to a constant, in units of the scale.
    cumulant: Callable
    moment: Callable


def _huber_moment(alpha, power):
    n = power + 1
    tail = mp.exp(-(alpha**2) / 2) * 2 ** (n / 2 - 1) * mp.gammainc(n / 2, alpha**2 / 2)
    return tail + (mp.gammainc(n, 0, alpha**2) / alpha**n if alpha else 0)


def _offset_moment(h, power):
    """A parabolic cylinder function, by Tricomi's U."""
    n = power + 1
    return mp.gamma(n) * mp.mpf(2) ** (-n / 2) * mp.hyperu(n / 2, mp.mpf(1) / 2, h * h / 2)


FAMILIES = {
    "flipped_huber": Family(
        dp.FlippedHuber,
        "alpha",
        "gamma",
        lambda *at: closed_forms.flipped_huber_log_delta(*at)[0],
        closed_forms.flipped_huber_boundaries,
        closed_forms.flipped_huber_cumulant,
        _huber_moment,
    ),
    "offset_gaussian": Family(
        dp.OffsetGaussian,
        "offset",
        "scale",
        closed_forms.offset_gaussian_log_delta,
        closed_forms.offset_gaussian_boundaries,
        closed_forms.offset_gaussian_cumulant,
        _offset_moment,
    ),
}
both = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def check(family, width, scale, shift, epsilon):
    at = float(width), float(scale), float(shift), float(epsilon)
    value = float(family.noise(*at[:2]).log_delta(*at[2:]))
    oracle.check_upper_bound(value, family.log_delta(*at), at)


@both
def test_delta_at_the_boundaries_and_an_ulp_to_either_side(family):
    scale = 0.7
    widths, factors = (1e-6, 1e-3, 0.1, 1.0, 7.0, 40.0, 300.0), (1e-9, 0.3, 1.0, 2.0, 2.6, 30.0)
    for h, factor in itertools.product(widths, factors):
        width, shift = h * scale, h * factor * scale
        for boundary in family.boundaries(width, scale, shift):
            for epsilon in (np.nextafter(boundary, 0), boundary, np.nextafter(boundary, np.inf)):
                check(family, width, scale, shift, epsilon)
            check(family, width, scale, shift, -boundary)


@both
@pytest.mark.parametrize(("reach", "count"), [((-6, 1.5, -10, 1.5), 200), ((-1, 5, -2, 6), 150)])
def test_delta_over_wide_ranges(family, reach, count):
    rng = np.random.default_rng(6)
    scale = 10 ** rng.uniform(-3, 3, count)
    width = scale * 10 ** rng.uniform(reach[0], reach[1], count)
    shift = scale * 10 ** rng.uniform(reach[2], reach[3], count)
    size = 10 ** rng.uniform(-3, 2, count) * shift * (shift + width) / scale**2
    for at in zip(width, scale, shift, rng.choice([-1, 1], count) * size, strict=True):
        check(family, *at)


@both
def test_one_minus_delta_keeps_its_digits(family):
    """delta from 1/2 to 1 - 1e-300, in all regimes left of 0."""
    rng = np.random.default_rng(5)
    h = np.concatenate([10 ** rng.uniform(-3, 1, 60), rng.uniform(20, 50, 60)])
    shift = np.where(h < 15, rng.uniform(2, 73, 120), h * rng.uniform(0.3, 1.5, 120))
    shift = np.minimum(shift, 1300.0 / h)
    epsilon = rng.uniform(0, 0.3, 120) * h * shift * rng.choice([-1, 1], 120)
    for at in zip(h, shift, epsilon, strict=True):
        check(family, at[0], 1.0, *at[1:])


@both
def test_derivatives_on_both_sides_of_each_boundary(family):
    def log_delta(h, m, e):
        return family.noise(h, 1.0).log_delta(m, e)

    slopes = jax.jit(jax.grad(log_delta, (0, 1, 2)))
    for h, shift in ((1.5, 0.5), (0.2, 0.05), (2.0, 3.0), (1.0, 1.0), (0.5, 2.5), (6.0, 0.3)):
        for boundary, side in itertools.product(family.boundaries(h, 1.0, shift), (-1, 1)):
            point = [h, shift, boundary * (1 + side * 1e-6)]
            found = slopes(*point)
            for k in range(3):
                step = mp.mpf(10) ** -12 * point[k]
                ends = [
                    [mp.mpf(v) + s * step * (i == k) for i, v in enumerate(point)] for s in (1, -1)
                ]
                with mp.workdps(60):
                    up, down = (family.log_delta(x, mp.mpf(1), m, e) for x, m, e in ends)
                    truth = (up - down) / (2 * step)
                error = oracle.relative_error(float(found[k]), truth)
                assert abs(error) < 1e-8, (h, shift, boundary, side, k)


def test_the_slope_jumps_where_the_loss_has_an_atom():
    """On the plateau of the flipped Huber; the offset Gaussian has none."""
    found = {}
    for name, edge in (("flipped_huber", 0.75), ("offset_gaussian", 0.875)):
        slope = jax.grad(FAMILIES[name].noise(1.5, 1.0).log_delta, 1)
        found[name] = [float(slope(0.5, edge + side)) for side in (-1e-12, 1e-12)]
    below, above = found["flipped_huber"]
    assert below < 1.5 * above < 0
    np.testing.assert_allclose(*found["offset_gaussian"], rtol=1e-10)


@both
def test_quantile_inverts_survival(family):
    rng = np.random.default_rng(5)
    u = np.concatenate([10 ** rng.uniform(-300, -0.31, 200), [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for h in (0.0, 1e-7, 0.3, 2.0, 5.5, 30.0, 1e4):
        noise = family.noise(h * 3.0, 3.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)
    noise, near = family.noise(2.0, 1.0), 0.5 - 1e-12
    density = float(jnp.exp(noise.log_density(0.0)))
    np.testing.assert_allclose(noise.quantile(near), -(0.5 - near) / density, rtol=1e-11)


@both
@pytest.mark.parametrize("power", [-0.9, 0.0, 0.5, 3.0, 20.0, 90.0])
def test_moments_at_any_power(family, power):
    for h in (0.0, 1e-3, 0.8, 1.2, 7.0, 200.0):
        x = mp.mpf(h)
        truth = family.moment(x, mp.mpf(power)) / family.moment(x, mp.mpf(0))
        value = float(family.noise(h, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, truth)) < 2e-13, (h, power)


@both
@pytest.mark.parametrize("h", [0.1, 1.0, 3.0])
def test_divergences_at_small_shifts_and_orders(family, h):
    """Full relative accuracy where M - 1 cancels to any depth."""
    for shift, z in itertools.product((1e-7, 1e-2, 1.5), (2.0**-20, 0.3, 8.0)):
        excess = mp.mpf(1.0 + z) - 1
        digits = int(200 + ((2 * z + 1) * h) ** 2 * 0.3)
        truth = family.cumulant(h, shift, excess, digits).real / excess
        value = float(family.noise(h, 1.0).renyi(shift, 1.0 + z))
        assert abs(oracle.relative_error(value, truth)) < 1e-13, (h, shift, z)


HIGH = {
    "flipped_huber": [
        *((0.1, 0.1, 1e4, 900), (2.0, 0.5, 60.0, 600), (0.1, 1e-3, 1e4, 300)),
        *((0.0, 1.0, 5.0, 120), (6.0, 1e-7, 2.0**-20, 700), (6.0, 1.5, 8.0, 700)),
    ],
    "offset_gaussian": [(0.3, 0.2, 1e4, 400), (20.0, 0.5, 300.0, 400)],
}


@pytest.mark.parametrize(("name", "at"), [(name, at) for name in HIGH for at in HIGH[name]])
def test_divergences_of_high_orders(name, at):
    (h, shift, z, digits), family = at, FAMILIES[name]
    truth = family.cumulant(h, shift, z, digits).real / z
    value = float(family.noise(h, 1.0).renyi(shift, 1.0 + z))
    assert abs(oracle.relative_error(value, truth)) < 1e-13


@both
def test_bad_input(family):
    traced = jax.jit(lambda width: family.noise(width, 1.0).delta(1.0, 1.0))
    for bad in (-1.0, np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=rf"{family.width} must lie in \[0, "):
            family.noise(bad, 1.0)
        assert np.isnan(traced(bad))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=rf"{family.scale} must lie in \(0, inf\]"):
            family.noise(1.0, bad)
    unknown = jax.tree.map(lambda _: jnp.array(jnp.nan), family.noise(1.0, 1.0))
    for value in (
        *unknown.zcdp(1.0),
        *unknown.structure(1.0).singularities.atoms,
        unknown.pure_epsilon(1.0),
        unknown.sub_gaussian_proxy(),
        unknown.renyi(1.0, 2.0),
        unknown.variance(),
        unknown.quantile(0.3),
        unknown.log_survival(0.3),
        unknown.fisher_information(),
    ):
        assert np.isnan(value)
    assert np.isnan(family.noise(1e200, 1.0).delta(1.0, 1.0))
    assert family.noise(1.0, 1.0).renyi(np.inf, 2.0) == np.inf


def test_zcdp_of_the_offset_gaussian_is_tight():
    for h, shift in ((1.0, 0.5), (0.01, 1.0), (3.0, 0.1), (30.0, 0.01), (1.0, 40.0)):
        noise = dp.OffsetGaussian(h, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 6, 600)
        excess = np.asarray(noise.renyi(shift, order)) - rho * order
        assert xi >= excess.max()
        assert xi <= h * shift * (1 + 1e-14)
        assert xi <= excess.max() * 1.01
        assert 0 <= rho * 2 / shift**2 - 1 < 1e-14
