"""Noises against closed forms of many digits, over their whole ranges; published misprints.

Shapes are alpha / gamma of the flipped Huber, offset / scale of the offset Gaussian and the power
of the Subbotin. Scales are powers of 2, so that lengths in units of the scale are exact.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64


def digits(*values):
    return 120 + sum(int(6 * abs(mp.log10(abs(mp.mpf(v))))) for v in values if v)


def log_delta_beyond(u, step, epsilon, survival):
    """By the probability that noise exceeds t: the loss is above |epsilon| beyond u."""
    size = abs(epsilon)
    far = mp.exp(size) * survival(u + step)
    delta, complement = survival(u) - far, survival(-u) + far
    if epsilon < 0:
        delta, complement = 1 - mp.exp(-size) * complement, mp.exp(-size) * complement
    return mp.log1p(-complement) if complement < 0.5 else mp.log(delta)


def huber_survival(a, t):
    if t < 0:
        return 1 - huber_survival(a, -t)
    outer = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2)
    mass = 2 * outer * mp.ncdf(-a) + (-2 * mp.expm1(-a * a) / a if a else 0)
    if t >= a:
        return outer * mp.ncdf(-t) / mass
    return (outer * mp.ncdf(-a) + (mp.exp(-a * t) - mp.exp(-a * a)) / a) / mass


def huber_log_delta(shape, step, epsilon):
    """By the five published regimes."""
    with mp.workdps(digits(shape, step, 1 + abs(epsilon))):
        a, d, e = mp.mpf(shape), mp.mpf(step), mp.mpf(epsilon)
        size = abs(e)
        if size >= (d + 2 * a) * d / 2 or (d >= 2 * a and size < (d - 2 * a) * d / 2):
            x = size / d
        elif size < min((2 * a - d) * a, a * d):
            x = size / (2 * a)
        elif d >= a and size < (d * d + a * a) / 2:
            x = mp.sqrt(2 * (size + a * d)) - a - d / 2
        else:
            x = mp.sqrt(2 * (size - a * d)) + a - d / 2
        return log_delta_beyond(x - d / 2, d, e, lambda t: huber_survival(a, t))


def huber_boundaries(shape, step):
    a, d = mp.mpf(shape), mp.mpf(step)
    values = [(d + 2 * a) * d / 2]
    values += [(d * d + a * a) / 2] if d >= a else [a * d]
    values += [abs(2 * a - d) * min(a, d / 2)] if d >= a else []
    return [float(v) for v in values]


def huber_moment(a, power):
    n = power + 1
    tail = mp.exp(-(a**2) / 2) * 2 ** (n / 2 - 1) * mp.gammainc(n / 2, a**2 / 2)
    return tail + (mp.gammainc(n, 0, a**2) / a**n if a else 0)


def offset_survival(h, t):
    return 1 - offset_survival(h, -t) if t < 0 else mp.ncdf(-t - h) / (2 * mp.ncdf(-h))


def offset_log_delta(shape, step, epsilon):
    with mp.workdps(digits(shape, step, 1 + abs(epsilon))):
        h, d, e = mp.mpf(shape), mp.mpf(step), mp.mpf(epsilon)
        is_near = abs(e) < d * (d + 2 * h) / 2
        x = abs(e) / (d + 2 * h) if is_near else abs(e) / d - h
        return log_delta_beyond(x - d / 2, d, e, lambda t: offset_survival(h, t))


def offset_boundaries(shape, step):
    return [float(mp.mpf(step) * (mp.mpf(step) / 2 + mp.mpf(shape)))]


def offset_moment(h, power):
    """A parabolic cylinder function, by Tricomi's U."""
    n = power + 1
    return mp.gamma(n) * mp.mpf(2) ** (-n / 2) * mp.hyperu(n / 2, mp.mpf(1) / 2, h * h / 2)


def subbotin_survival(p, t):
    if t < 0:
        return 1 - subbotin_survival(p, -t)
    x = t**p / p
    if x > 1:
        return mp.gammainc(1 / p, x, regularized=True) / 2
    return (1 - mp.gammainc(1 / p, 0, x, regularized=True)) / 2


def subbotin_threshold(p, step, epsilon):
    """The t where the loss is epsilon: bisection, then Newton."""
    if epsilon <= 0:
        return -step / 2 if epsilon == 0 else -step - subbotin_threshold(p, step, -epsilon)

    def gap(x):
        return (abs(x + step / 2) ** p - abs(x - step / 2) ** p) / p - epsilon

    low, high = step * mp.mpf(10) ** -30 * min(epsilon, 1), step
    while gap(high) < 0:
        high *= 16
    for _ in range(50):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    for _ in range(7):
        v, u = low + step / 2, low - step / 2
        low -= gap(low) / (v ** (p - 1) - mp.sign(u) * abs(u) ** (p - 1))
    return low - step / 2


def subbotin_log_delta(power, step, epsilon):
    with mp.workdps(70):
        p, d, e = mp.mpf(power), mp.mpf(step), mp.mpf(epsilon)
        u = subbotin_threshold(p, d, abs(e))
        return log_delta_beyond(u, d, e, lambda t: subbotin_survival(p, t))


def subbotin_loss(u, step, power):
    return (np.abs(u + step) ** power - np.abs(u) ** power) / power


def subbotin_boundaries(power, step):
    """u = 0; A = 1 on both sides of 0; A + epsilon = 1.5; delta = 1/2; the far tail."""
    edge, reach = power ** (1 / power), (1.5 * power) ** (1 / power)
    places = (0.0, edge, -edge, reach - step, -0.5 * step, 3.0)
    return [float(subbotin_loss(u, step, power)) for u in places if u >= -0.5 * step]


class Family(NamedTuple):
    noise: Callable  # of a shape and a scale
    shapes: tuple[float, ...]
    # Of a shape and, in units of the scale, shift and epsilon; t; a power, up to a constant.
    log_delta: Callable
    boundaries: Callable
    survival: Callable
    moment: Callable
    # (shape, shift) at whose boundaries delta is evaluated, and differentiated.
    steps: list[tuple[float, float]]
    smooth: tuple[tuple[float, float], ...]
    # What constructors refuse.
    bad: tuple[float, ...]


WIDTHS = (0.0, 1e-7, 1e-3, 0.3, 0.8, 1.2, 2.0, 5.5, 7.0, 30.0, 200.0, 1e4)
POWERS = (1.0, 1.01, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 20.0)
STEPS = [
    (h, h * factor)
    for h in (1e-6, 1e-3, 0.1, 1.0, 7.0, 40.0, 300.0)
    for factor in (1e-9, 0.3, 1.0, 2.0, 2.6, 30.0)
]
SMOOTH = ((1.5, 0.5), (0.2, 0.05), (2.0, 3.0), (1.0, 1.0), (0.5, 2.5), (6.0, 0.3))
BAD = (-1.0, np.nan, np.inf, -np.inf)
FAMILIES = {
    "flipped_huber": Family(
        lambda shape, scale: dp.FlippedHuber(shape * scale, scale),
        WIDTHS,
        huber_log_delta,
        huber_boundaries,
        huber_survival,
        huber_moment,
        STEPS,
        SMOOTH,
        BAD,
    ),
    "offset_gaussian": Family(
        lambda shape, scale: dp.OffsetGaussian(shape * scale, scale),
        WIDTHS,
        offset_log_delta,
        offset_boundaries,
        offset_survival,
        offset_moment,
        STEPS,
        SMOOTH,
        BAD,
    ),
    "subbotin": Family(
        lambda shape, scale: dp.Subbotin(scale, shape),
        POWERS,
        subbotin_log_delta,
        subbotin_boundaries,
        subbotin_survival,
        lambda p, power: p ** ((power + 1) / p) * mp.gamma((power + 1) / p),
        list(itertools.product(POWERS[1:], (1e-3, 0.4, 1.0, 2.5))),
        ((1.5, 1.0), (3.0, 0.3), (8.0, 4.0), (2.5, 2.0)),
        (0.0, 0.999, 1e5, *BAD),
    ),
}
every = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
HUBER, OFFSET, SUBBOTIN = FAMILIES.values()


def check(family, shape, scale, step, epsilon, limit=1e-12):
    """log delta at each of the points."""
    values = np.asarray(family.noise(shape, scale).log_delta(step * scale, epsilon))
    for *at, value in zip(shape, step, epsilon, values, strict=True):
        truth = family.log_delta(*map(float, at))
        oracle.check_upper_bound(float(value), truth, at, limit)


@every
def test_delta_at_the_boundaries_and_an_ulp_to_either_side(family):
    points = []
    for shape, step in family.steps:
        for boundary in family.boundaries(shape, step):
            around = [*oracle.ulps_around(boundary), -boundary]
            points += [(shape, 0.5, step, epsilon) for epsilon in around]
    points = np.random.default_rng(5).permutation(points)[:400]
    check(family, *points.T)


def widths(rng, count, low, high):
    """Shapes and shifts between powers of 10, and epsilons around the largest of a piece."""
    shape, step = 10 ** rng.uniform(low, high, (count, 2)).T
    size = 10 ** rng.uniform(-3, 2, count) * step * (step + shape)
    return shape, step, rng.choice([-1, 1], count) * size


def almost_certain(rng, count):
    """delta from 1/2 to 1 - 1e-300, in all regimes left of 0."""
    half = count // 2
    shape = np.concatenate([10 ** rng.uniform(-3, 1, half), rng.uniform(20, 50, half)])
    step = np.where(shape < 15, rng.uniform(2, 73, count), shape * rng.uniform(0.3, 1.5, count))
    step = np.minimum(step, 1300.0 / shape)
    return shape, step, rng.uniform(0, 0.3, count) * shape * step * rng.choice([-1, 1], count)


def powers(rng, count):
    power = 1 + np.exp(rng.uniform(np.log(0.02), np.log(19.0), count))
    power = np.where(rng.random(count) < 0.3, rng.choice(POWERS[2:], count), power)
    step = np.exp(rng.uniform(np.log(1e-8), np.log(100.0), count))
    u = np.exp(rng.uniform(-8, 4, count))
    u = np.where(rng.random(count) < 0.3, -np.minimum(u, step * 0.499), u)
    epsilon = subbotin_loss(u, step, power)
    epsilon = np.where(epsilon > 0, epsilon, 0.1) * rng.choice([1, 1, 1, -1], count)
    kept = ((0.5 * step) ** power / power < 300) & (abs(epsilon) < 1e200)
    return power[kept], step[kept], epsilon[kept]


def large_shifts(rng, count):
    """delta depends on the last places of shift and epsilon there: the bound stays above."""
    power = 1 + np.exp(rng.uniform(np.log(0.01), np.log(3.0), count))
    step = np.exp(rng.uniform(np.log(100.0), np.log(1e4), count))
    return power, step, subbotin_loss(rng.uniform(-0.6, 3.0, count), step, power)


def near_and_far(rng, count):
    """Narrow centres, down to shifts of 1e-10 scales."""
    return widths(rng, count, (-6, -10), (1.5, 1.5))


def wide(rng, count):
    return widths(rng, count, (-1, -2), (5, 6))


BOTH = [(family, at) for family in (HUBER, OFFSET) for at in (near_and_far, wide, almost_certain)]
RANGES = [(*each, 150, 1e-12) for each in BOTH]
RANGES += [(SUBBOTIN, powers, 250, 1e-12), (SUBBOTIN, large_shifts, 60, 1e-10)]


@pytest.mark.parametrize(("family", "points", "count", "limit"), RANGES)
def test_delta_over_wide_ranges(family, points, count, limit):
    rng = np.random.default_rng(6)
    shape, step, epsilon = points(rng, count)
    scale = 2.0 ** rng.integers(-10, 11, shape.size)
    check(family, shape, scale, step, epsilon, limit)


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=pytest.mark.long if k == "subbotin" else ()) for k in FAMILIES]
)
def test_derivatives_on_both_sides_of_each_boundary(name):
    """In the shape, the shift and epsilon."""
    family = FAMILIES[name]

    def log_delta(shape, step, epsilon):
        return family.noise(shape, 1.0).log_delta(step, epsilon)

    slopes = jax.jit(jax.grad(log_delta, (0, 1, 2)))
    for shape, step in family.smooth:
        for boundary, side in itertools.product(family.boundaries(shape, step), (-1, 1)):
            at = [shape, step, boundary * (1 + side * 1e-6)]
            found = slopes(*at)
            for k in range(3):
                if at[k] == 0:
                    continue
                with mp.workdps(60):
                    move = mp.mpf(10) ** -15 * at[k]
                    up, down = (
                        family.log_delta(
                            *(mp.mpf(v) + s * move * (i == k) for i, v in enumerate(at))
                        )
                        for s in (1, -1)
                    )
                    truth = float((up - down) / (2 * move))
                relative, absolute = (1e-8, 0.0) if name != "subbotin" else (1e-11, 1e-13)
                np.testing.assert_allclose(found[k], truth, relative, absolute, err_msg=f"{at}")


def test_the_slope_jumps_where_the_loss_has_an_atom():
    """On the plateau of the flipped Huber, where the centre is wider than the shift."""
    (below, above), smooth = (
        [float(jax.grad(noise.log_delta, 1)(0.5, edge + side)) for side in (-1e-12, 1e-12)]
        for noise, edge in ((dp.FlippedHuber(1.5, 1.0), 0.75), (dp.OffsetGaussian(1.5, 1.0), 0.875))
    )
    assert below < 1.5 * above < 0
    np.testing.assert_allclose(*smooth, rtol=1e-10)
    noise = dp.FlippedHuber(1.5, 1.0)
    assert noise.structure(0.5).singularities == dp.own.Kinks((-0.75, 0.75))
    assert np.isnan(noise.structure(1.5).singularities.atoms).all()
    assert noise.structure(0.0).singularities.atoms[1] == 0


@every
def test_tails_and_their_inverse(family):
    u = 10 ** np.random.default_rng(5).uniform(-300, -0.31, 200)
    u = np.concatenate([u, [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for shape in family.shapes:
        noise = family.noise(shape, 4.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)
        edge = shape ** (1 / shape) if family is SUBBOTIN else shape
        around = oracle.ulps_around(-edge)
        for t in (-6.0, -1.4, *around, -1e-8, 0.0, 1e-300, 0.7, edge, 8.0, 60.0):
            truth = mp.log(family.survival(mp.mpf(shape), mp.mpf(t)))
            if truth < -1e-40:
                error = oracle.relative_error(float(noise.log_survival(4.0 * t)), truth)
                assert abs(error) < 5e-14, (shape, t)
    noise, near = family.noise(2.0, 1.0), 0.5 - 1e-12
    density = float(np.exp(noise.log_density(0.0)))
    np.testing.assert_allclose(noise.quantile(near), -(0.5 - near) / density, rtol=1e-11)


@every
def test_moments_at_any_power(family):
    for shape, power in itertools.product(family.shapes, (-0.9, 0.0, 0.5, 3.0, 20.0, 90.0)):
        x = mp.mpf(shape)
        truth = family.moment(x, mp.mpf(power)) / family.moment(x, mp.mpf(0))
        value = float(family.noise(shape, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, truth)) < 2e-13, (shape, power)


def test_divergences_of_large_powers_are_upper_bounds():
    for row in records("subbotin", "rdp_large_power"):
        noise, inputs = dp.Subbotin(1.0, row["params"]["p"]), row["inputs"]
        value = float(noise.renyi(inputs["Delta"], inputs["alpha_order"]))
        assert 0 <= oracle.relative_error(value, expected(row)) < 4e-10, row["id"]


@every
def test_bad_input(family):
    traced = jax.jit(lambda shape: family.noise(shape, 1.0).delta(1.0, 1.0))
    for bad in family.bad:
        with pytest.raises(ValueError, match=r"(alpha|offset|power) must lie in \["):
            family.noise(bad, 1.0)
        assert np.isnan(traced(bad))
        unknown = jax.tree.map(lambda _, bad=bad: jnp.array(bad), family.noise(1.0, 1.0))
        assert np.isnan(unknown.renyi(0.0, 2.0))
    unknown = jax.tree.map(lambda _: jnp.array(jnp.nan), family.noise(1.0, 1.0))
    for value in (
        sum(unknown.zcdp(1.0)),
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
    assert family.noise(1.0, 1.0).renyi(np.inf, 2.0) == np.inf
    assert family is SUBBOTIN or np.isnan(family.noise(1e200, 1.0).delta(1.0, 1.0))


# alpha or offset, scale and shift.
TIGHT = [(OFFSET, h, 1.0, shift) for h, shift in ((1.0, 0.5), (0.01, 1.0), (3.0, 0.1))]
TIGHT += [(OFFSET, 30.0, 1.0, 0.01), (OFFSET, 1.0, 1.0, 40.0)]
TIGHT += [(HUBER, 1.0, 1.0, 0.5), (HUBER, 1.0, 1.0, 1.5), (HUBER, 3.0, 1.0, 0.5)]
TIGHT += [(HUBER, 11.0, 3.3125, 1.0), (HUBER, 0.1, 1.0, 1.0)]


def test_zcdp_is_tight_and_published_xi_is_loose():
    """The published xi of the flipped Huber is valid but 1.5 to 94 times too large."""
    looseness = []
    for family, width, scale, shift in TIGHT:
        noise = (dp.FlippedHuber if family is HUBER else dp.OffsetGaussian)(width, scale)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 6, 600)
        excess = np.max(np.asarray(noise.renyi(shift, order)) - rho * order)
        assert excess <= xi <= 1.003 * excess + 5e-6, (width, scale, shift)
        assert 0 <= rho * 2 * (scale / shift) ** 2 - 1 < 1e-14
        if family is HUBER:
            published = (width**2 - max(width - shift, 0) ** 2) / (2 * scale**2)
            looseness.append(published / xi)
        else:
            assert xi <= width * shift * (1 + 1e-14)
    assert 1.5 < min(looseness) < 1.6
    assert 80 < max(looseness) < 95


def test_zcdp_at_the_edges():
    """Where the search is left to the published bound, and next to that."""
    for a, shift in ((1e-7, 1.0), (0.9e-6, 1.0), (1.1e-6, 1.0), (1.0, 1e-13), (1.0, 2e-12)):
        noise = dp.FlippedHuber(a, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 13, 200)
        assert np.all(np.asarray(noise.renyi(shift, order)) <= (xi + rho * order) * (1 + 1e-12))
        published = (a**2 - max(a - shift, 0) ** 2) / 2
        assert 0 <= xi <= published * (1 + 1e-12) or shift < 1e-11
    for shift in (0.0, 1e-200):
        xi, rho = (float(v) for v in dp.FlippedHuber(1.0, 1.0).zcdp(shift))
        assert 0 <= xi < 1e-199
        assert (rho > 0) == (shift > 0)


@pytest.mark.long
def test_zcdp_of_a_subbotin_is_close_to_the_least():
    for power, shift in itertools.product((1.05, 1.5, 1.9, 1.99), (1e-4, 0.5, 20.0)):
        noise, order = dp.Subbotin(1.0, power), 1 + np.logspace(-6, 6, 60)
        least = np.max(np.asarray(noise.renyi(shift, order)) / order)
        xi, rho = noise.zcdp(shift)
        assert xi == 0
        assert least <= rho <= least * (1.005 if power > 1.9 else 1.000002)


def test_fisher_information_times_variance():
    """From 1, the Gaussian's, to 2, the Laplace's."""
    noise = dp.FlippedHuber(np.logspace(-4, 4, 50), 1.0)
    product = np.asarray(noise.variance() * noise.fisher_information())
    assert np.all(np.diff(product) > -1e-14)
    np.testing.assert_allclose(product[[0, -1]], [1, 2], rtol=1e-7)


def test_the_design_on_the_plateau():
    """alpha shift = gamma^2 epsilon: the best variance for the budget, and the budget is met.

    An ulp past it delta is larger by a part in 1e7: half of the mass lies on the plateau.
    """
    variances = {
        tuple(r["inputs"].values())[:2]: r for r in records("flipped_huber", "plateau_var")
    }
    for row in records("flipped_huber", "plateau_a"):
        epsilon, delta = row["inputs"]["eps"], row["inputs"]["delta"]
        a = float(expected(row))
        inside = dp.FlippedHuber(a * a / epsilon * (1 - 1e-15), a / epsilon)
        assert abs(inside.log_delta(1.0, epsilon) / np.log(float(delta)) - 1) < 1e-12
        for ulps in (-4, -1, 0, 1, 4):
            noise = dp.FlippedHuber(a * a / epsilon * (1 + ulps * 2.0**-52), a / epsilon)
            with mp.workdps(200):
                scale = mp.mpf(float(noise.gamma))
                truth = huber_log_delta(mp.mpf(float(noise.alpha)) / scale, 1 / scale, epsilon)
            oracle.check_upper_bound(float(noise.log_delta(1.0, epsilon)), truth, row["id"])
        if (epsilon, delta) in variances:
            value = float(dp.FlippedHuber(a * a / epsilon, a / epsilon).variance())
            truth = expected(variances[epsilon, delta])
            assert abs(oracle.relative_error(value, truth)) < 1e-13
    for row in records("flipped_huber", "plateau_ln_delta"):
        assert abs(expected(row) / mp.log(mp.mpf(row["inputs"]["delta"])) - 1) < 1e-15


def test_the_printed_fourth_regime_loses_every_digit():
    """delta = 1/2 - c (1 - exp(-a u)) - ..., as printed: nothing is left of it here."""
    a, shift, epsilon = 40.0, 0.025, 1.0001

    def printed(a, shift, epsilon):
        kappa = 2 * (1 - mp.exp(-a * a)) / a
        kappa += mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * mp.erfc(a / mp.sqrt(2))
        u = a - shift + mp.sqrt(2 * (epsilon - a * shift))
        weight = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) / kappa
        tail = weight * mp.erfc((u + shift) / mp.sqrt(2)) / 2
        return mp.mpf(1) / 2 - (1 - mp.exp(-a * u)) / (a * kappa) - mp.exp(epsilon) * tail

    for places in (16, 122):
        with mp.workdps(places):
            assert printed(*(mp.mpf(v) for v in (a, shift, epsilon))) <= 0
    check(HUBER, *np.array([[a, 1.0, shift, epsilon]]).T)


def test_the_printed_normaliser_overflows():
    """omega = kappa exp(alpha^2 / 2 gamma^2) is beyond every double for alpha > 37.7 gamma."""
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(38.0**2 / 2))
    check(HUBER, *np.array([[38.0, 1.0, 1.0, 38.0], [38.0, 1.0, 0.01, 3.0]]).T)
    noise = dp.FlippedHuber(38.0, 1.0)
    assert np.isfinite(noise.log_density(100.0))
    np.testing.assert_allclose(noise.variance(), 2 / 38.0**2, rtol=1e-13)


@pytest.mark.long
def test_a_centre_of_no_width_has_derivatives():
    slope = jax.grad(lambda a: dp.FlippedHuber(a, 1.0).log_delta(1.0, 1.0))
    assert slope(0.0) == 0
    assert np.isfinite(jax.grad(slope)(0.0))


def test_divergence_is_differentiable():
    noise = dp.FlippedHuber(1.2, 0.9)
    derivative = jax.jit(jax.grad(noise.renyi, 1))
    for order, h in ((1.01, 1e-5), (5.0, 1e-4)):
        numeric = (noise.renyi(0.7, order + h) - noise.renyi(0.7, order - h)) / (2 * h)
        np.testing.assert_allclose(derivative(0.7, order), numeric, rtol=1e-7)


def test_a_subbotin_of_power_one_is_the_laplace():
    """Bit for bit around its largest loss, in derivatives as well, and in what it guarantees."""
    one, laplace = dp.Subbotin(2.0, 1.0), dp.Laplace(2.0)
    for shift in (1e-6, 0.7, 5.0):
        epsilon = np.array([*oracle.ulps_around(shift), 0.0, 0.3 * shift, -shift, -0.2, 9.0])
        found, known = (x.log_delta(2.0 * shift, epsilon) for x in (one, laplace))
        np.testing.assert_array_equal(found, known)
    gradients = [jax.grad(x.log_delta, (0, 1)) for x in (one, laplace)]
    for point in ((1.0, 0.1), (3.0, -0.4), (1.0, -2.0)):
        np.testing.assert_allclose(*(x(*point) for x in gradients), rtol=1e-13)
    np.testing.assert_allclose(one.zcdp(1.0), laplace.zcdp(1.0))
    assert one.pure_epsilon(1.0) >= 0.5
    assert one.structure(1.0) == laplace.structure(1.0)


def test_guarantees_of_special_powers():
    assert dp.Subbotin(1.0, 3.0).zcdp(1.0)[1] == np.inf
    assert dp.Subbotin(1.0, 3.0).zcdp(0.0)[1] == 0
    np.testing.assert_allclose(dp.Subbotin(2.0, 2.0).zcdp(1.0)[1], 0.125, rtol=1e-15)
    assert dp.Subbotin(2.0, 1.5).pure_epsilon(1.0) == np.inf
    assert dp.Subbotin(2.0, 1.5).sub_gaussian_proxy() == np.inf
    t = np.linspace(0.01, 30, 40)
    for power in (2.0, 3.0, 8.0):
        noise = dp.Subbotin(1.0, power)
        x, w = np.polynomial.legendre.leggauss(200)
        x = 60 ** (1 / power) * power * x
        mgf = np.exp(noise.log_density(x)) @ (w[:, None] * np.exp(x[:, None] * t)) * np.ptp(x) / 2
        assert np.all(np.log(mgf) <= noise.sub_gaussian_proxy() * t**2 / 2 * (1 + 1e-3))


def test_powers_next_to_one():
    """Beyond shift / scale thresholds overflow: a value, near the Laplace's and above it."""
    scale, shift = 1.0, np.array([1.0, 1e-3])[:, None]
    at = np.array([0.0, 0.4, 1 - 1e-15, 1.0, 1 + 1e-15, 1.5, 300.0, 1e8])
    for excess in (2.0**-52, 1e-13, 1e-9, 9e-9, 2.1e-8, 1e-5):
        noise, laplace = dp.Subbotin(scale, 1.0 + excess), dp.Laplace(scale)
        for sign in (1.0, -1.0):
            epsilon = sign * at * shift
            found, known = (np.asarray(n.log_delta(shift, epsilon)) for n in (noise, laplace))
            # The profile itself moves with the power.
            assert np.all(found >= known * (1 + 1e-7 + excess) - 1e-13)
            inside = (at < 0.9) | (sign < 0)
            np.testing.assert_allclose(found[:, inside], known[:, inside], rtol=1e-6 + excess)
            assert sign < 0 or np.all(found[:, at >= 1] < -13.0)
        assert np.all(np.isfinite(noise.renyi(1.0, np.array([1.0, 1.5, 100.0]))))
    assert noise.log_delta(1.0, np.inf) == -np.inf
    # Where the loss exceeds shift / scale at e^5 scales: the tail of e^-148.
    slight = dp.Subbotin(1.0, 1.0 + 2.0**-52).log_delta(1.0, 1.0 + 3e-15)
    assert -1.2e6 < slight < -1e4


def test_limits_of_the_subbotin():
    for power in (1.5, 4.0, 1e4):
        noise = dp.Subbotin(1.0, power)
        assert noise.log_delta(1.0, 1e290) > -np.inf
        assert noise.log_delta(1e-300, 0.0) < -600
        assert noise.log_delta(1e300, 1.0) == 0
        assert noise.renyi(0.0, 3.0) == 0


def test_draws_of_every_power():
    noise = dp.Subbotin(3.0, np.array([1.0, 1.2, 2.0, 5.0, 20.0]))
    draws = np.asarray(noise.sample(jax.random.key(0), (40_000, 5)))
    for moment in (1.0, 2.0):
        ratio = np.mean(abs(draws) ** moment, axis=0) / noise.absolute_moment(moment)
        np.testing.assert_allclose(ratio, 1, atol=0.06)


@pytest.mark.long
def test_quantile_derivatives_of_the_subbotin():
    for u in (1e-9, 0.3, 0.8):
        in_power = jax.grad(lambda p, u=u: dp.Subbotin(1.0, p).quantile(u))(1.7)
        up, down = (float(dp.Subbotin(1.0, 1.7 + h).quantile(u)) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(in_power, (up - down) / 2e-5, rtol=1e-8)
        noise = dp.Subbotin(1.0, 1.7)
        density = np.exp(noise.log_density(noise.quantile(u)))
        np.testing.assert_allclose(jax.grad(noise.quantile)(u), 1 / density, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 10])
def test_a_power_next_to_one_composes_as_the_laplace(count):
    near, laplace = (
        count * dp.privacy_loss(dp.Mechanism(noise, 0.7))
        for noise in (dp.Subbotin(1.0, 1.0 + 1e-9), dp.Laplace(1.0))
    )
    for ask in (lambda x: x.epsilon(1e-6), lambda x: x.log_delta(0.3), lambda x: x.log_delta(9.0)):
        assert ask(near) == pytest.approx(float(ask(laplace)), rel=1e-4) or ask(laplace) == -np.inf
    assert near.log_delta(9.0) < -20
