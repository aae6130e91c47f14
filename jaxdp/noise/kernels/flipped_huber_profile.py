"""log delta of the flipped Huber: one expression in five regimes, every term positive.

In units of gamma, a = alpha / gamma, D = shift / gamma, E = |epsilon|: the density is
g(t) = exp(-rho(t)) / kappa, rho(t) = a |t| up to a and (t^2 + a^2) / 2 beyond, and the loss
exceeds E beyond u, with v = u + D; see `monotone_loss`, and `place_of` for u. H is
the Mills ratio R beyond a and R(a) + S(a) (1 - exp(-a (a - t))) / a below, S = -R'.

The distances of u and v from 0 and a are roots of quadratics, each formed as a quotient whose
numerator vanishes on a boundary of the regime; the numerators carry 32 digits.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric import double_double as dd
from jaxdp._numeric.elementary import decay_means, normal_integral_over_density
from jaxdp._numeric.mills import mills_pair, mills_slope
from jaxdp.noise.kernels.monotone_loss import (
    TINY,
    Crossing,
    Point,
    log_delta_at,
    slopes_at,
)


class Place(NamedTuple):
    """Point where the loss passes E; fields that a regime does not use are placeholders."""

    below: Bools  # u < 0
    outside: Bools  # |u| > a: regimes 1 and 5
    both_inside: Bools  # |u|, v <= a: regime 2
    near: Reals  # |u|
    near_gap: Reals  # a - |u| inside, else 0
    far_gap: Reals  # a - v inside, else 0
    far_decay: Reals  # a (a - v) inside, else 0
    exponent: Reals  # rho(u)
    lower: Reals  # the interval [lower, lower + width] of the Mills ratio
    width: Reals


class _Numerators(NamedTuple):
    """Differences that vanish on a boundary of a regime, from 32 digits."""

    shift_ratio: dd.Double  # D
    product: Reals  # a D
    to_tail: Reals  # > 0: u < a
    from_plateau: Reals  # E - a D
    from_zero: Reals  # beyond a < D: u > 0
    from_edge: Reals  # v > a
    to_edge: Reals  # 2 a^2 - a D + E
    from_left: Reals  # u > -a, where D > 2 a
    from_normal: dd.Double  # E - D^2 / 2


def _numerators(at: Point) -> _Numerators:
    size = xp.abs(at.epsilon)
    ratio, step = dd.quotient(at.alpha, at.gamma, at.a), dd.quotient(at.shift, at.gamma, at.d)
    p = dd.product(ratio, step)
    half_d = dd.scaled(dd.product(step, step), 0.5)
    full_a = dd.product(ratio, ratio)
    minus_p, minus_d = dd.scaled(p, -1.0), dd.scaled(half_d, -1.0)
    half_a, minus_2a = dd.scaled(full_a, -0.5), dd.scaled(full_a, -2.0)
    return _Numerators(
        shift_ratio=step,
        product=p.high,
        to_tail=dd.total(half_d, p, -size),
        from_plateau=dd.total(minus_p, size),
        from_zero=dd.total(minus_d, half_a, size),
        from_edge=dd.total(minus_2a, p, size),
        to_edge=dd.total(dd.scaled(full_a, 2.0), minus_p, size),
        from_left=dd.total(minus_d, p, size),
        from_normal=dd.total_pair(minus_d, size),
    )


def _regimes(at: Point, n: _Numerators) -> tuple[Bools, Bools, Bools, Bools, Bools]:
    """One of 1 (u > a), 2, 3 (u < 0, v > a), 4 (u > 0, v > a; or NaN) and 5 (u < -a) is True."""
    tail = n.to_tail <= 0
    left = (at.d > 2.0 * at.a) & (n.from_left < 0)
    both = (at.d < 2.0 * at.a) & (n.from_plateau < 0) & (n.from_edge < 0)
    inner = ~tail & ~left & ~both
    falling = inner & (at.shift > at.alpha) & (n.from_zero < 0)
    return tail, both, falling, inner & ~falling, left


def _rising_root(at: Point, n: _Numerators, rising: Bools) -> tuple[Reals, Reals, Reals]:
    """|u|, a - |u| and v - a of regime 4."""
    open_plateau = rising & (n.from_plateau > 0)
    root = xp.sqrt(2.0 * xp.where(open_plateau, n.from_plateau, 1.0))
    root = xp.where(open_plateau, root, xp.where(n.from_plateau > 0, 1.0, 0.0 * n.from_plateau))
    wide = rising & (at.shift > at.alpha)
    # Rounded once, with the derivative of d - a.
    reach = at.d - at.a
    reach = reach + lax.stop_gradient((at.shift - at.alpha) / at.gamma - reach)
    beyond = xp.where(wide, root + reach, 1.0)
    near = xp.where(wide, 2.0 * n.from_zero / beyond, root - reach)
    gap = 2.0 * xp.maximum(n.to_tail, 0.0) / xp.where(rising, at.d + root, 1.0)
    # |u| may come out an ulp below 0 at u = 0.
    return xp.maximum(near, 0.0), gap, root


def _falling_root(at: Point, n: _Numerators, falling: Bools) -> tuple[Reals, Reals, Reals]:
    """The same of regime 3."""
    root = xp.sqrt(2.0 * xp.where(falling, xp.abs(at.epsilon) + n.product, 1.0))
    near = -2.0 * n.from_zero / xp.where(falling, at.a + at.d + root, 1.0)
    gap = 2.0 * xp.maximum(n.from_left, 0.0) / xp.where(falling, root + at.d, 1.0)
    return near, gap, 2.0 * xp.maximum(n.from_edge, 0.0) / xp.where(falling, root + 2 * at.a, 1.0)


def place_of(at: Point) -> Place:
    """The place where the loss passes |epsilon|."""
    n = _numerators(at)
    tail, both, falling, rising, left = _regimes(at, n)
    normal, size = tail | left, xp.abs(at.epsilon)
    near_rising, gap_rising, width_rising = _rising_root(at, n, rising)
    near_falling, gap_falling, width_falling = _falling_root(at, n, falling)

    a_both = xp.where(both, at.a, 1.0)
    exponent_both = -0.5 * xp.where(both, n.from_plateau, 0.0)
    near_both, gap_both = exponent_both / a_both, 0.5 * n.to_edge / a_both
    far_decay = xp.where(both, -0.5 * n.from_edge, 0.0)

    signed, rounding = dd.divide(n.from_normal, n.shift_ratio, normal)
    near_normal = xp.abs(signed)
    square = 0.5 * (near_normal * near_normal + at.a * at.a) + signed * rounding
    normal_width = xp.where(tail, at.d, 2.0 * size / xp.where(normal, at.d, 1.0))

    def pick(outer: Reals, two: Reals, three: Reals, four: Reals) -> Reals:
        inside = xp.where(both, two, xp.where(falling, three, four))
        return xp.where(normal, outer, inside)

    zero = xp.zeros_like(at.a)
    near = pick(near_normal, near_both, near_falling, near_rising)
    return Place(
        below=left | both | falling,
        outside=normal,
        both_inside=both,
        near=near,
        near_gap=pick(zero, gap_both, gap_falling, gap_rising),
        far_gap=xp.where(both, far_decay / a_both, 0.0),
        far_decay=far_decay,
        exponent=pick(square, exponent_both, at.a * near_falling, at.a * near_rising),
        lower=xp.where(normal, near, at.a),
        width=pick(normal_width, zero, width_falling, width_rising),
    )


# Below this |u| the complement 1 - delta may exceed 1/2: a normal law has 1/2 within 0.6745.
_REACH = 0.7


class _Terms(NamedTuple):
    crossing: Crossing
    place: Place
    slope: Reals  # S(a)
    mean: Reals  # kappa E(a - |T|)_+ / (2 a^2)
    near_mean: Reals  # (a - |u|)^-2 int_|u|^a (a - t) g(t) / g(u) dt


def _normal_integral(t: Reals) -> Reals:
    """int_0^t exp(-x^2 / 2) dx for t <= 0.7. Relative error: 4 ulp."""
    return normal_integral_over_density(t) * xp.exp(-0.5 * t * t)


def _terms(at: Point) -> _Terms:
    place = place_of(at)
    a, size = at.a, xp.abs(at.epsilon)
    pair = mills_pair(place.lower, place.width)
    ratio, slope = mills_slope(a)
    square = a * a
    first, second = decay_means(square)
    decay = xp.exp(-square)
    kappa = 2.0 * (a * first + decay * ratio)
    near_first, near_second = decay_means(a * place.near_gap)
    near_ratio = ratio + slope * place.near_gap * near_first
    far_first, _ = decay_means(place.far_decay)
    between, _ = decay_means(size)
    a_both = xp.where(place.both_inside, a, 1.0)
    excess_inside = xp.where(
        place.both_inside,
        xp.exp(-place.far_decay) * between * (size / a_both),
        place.near_gap * near_first,
    )
    excess = xp.where(place.outside, 0.0, slope * excess_inside) + pair.difference
    excess = xp.maximum(excess, TINY)
    mean_first, _ = decay_means(a * xp.where(place.outside, 0.0, place.near))
    small_a, small_near = xp.minimum(a, _REACH), xp.minimum(place.near, _REACH)
    ring = _normal_integral(small_near) - _normal_integral(small_a)
    inside = 2.0 * xp.where(
        place.outside,
        a * first + xp.exp(-0.5 * square) * ring,
        place.near * mean_first,
    )
    far_inside = ratio + slope * place.far_gap * far_first
    crossing = Crossing(
        below=place.below,
        exponent=place.exponent,
        kappa=kappa,
        inside=xp.where(place.below, inside, 0.0),
        excess=excess,
        near_ratio=xp.where(place.outside, pair.lower, near_ratio),
        far_ratio=xp.where(place.both_inside, far_inside, pair.upper),
    )
    return _Terms(crossing, place, slope, second, near_second)


@custom_jvp
def log_delta(at: Point) -> Reals:
    """`FlippedHuber.log_delta` for arrays of one shape."""
    return log_delta_at(_terms(at.cut()).crossing, at.epsilon, at.d == 0)


@log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`; d delta / d a = g(u) X, from d log g / d a = E min(|T|, a) - min(|t|, a)."""
    (at,), (tangent,) = primals, tangents
    out, t = log_delta(at), _terms(at.cut())
    place, crossing = t.place, t.crossing
    by_shift, by_epsilon = slopes_at(crossing, at.epsilon, out)
    at_zero = 2.0 * at.a * at.a * t.mean / crossing.kappa
    near = place.near_gap**2 * t.near_mean
    far = place.far_gap**2 * decay_means(place.far_decay)[1]
    ratios = crossing.near_ratio + crossing.far_ratio
    by_a = xp.where(place.below, at_zero * ratios - near - far, near - at_zero * crossing.excess)
    by_a = xp.where(place.both_inside, _slope_inside(t, at.a, xp.abs(at.epsilon)), by_a)
    slopes = by_shift * (by_a * tangent.a + tangent.d)
    return out, slopes + by_epsilon * tangent.epsilon


def _slope_inside(t: _Terms, a: Reals, size: Reals) -> Reals:
    """X of regime 2, where its terms cancel as D -> 0: a sum over |u| and v, no large terms."""
    place = t.place
    a_both = xp.where(place.both_inside, a, 1.0)
    near = xp.where(place.both_inside, place.near, 0.0)
    weight = 1.0 + 2.0 * a_both**3 * t.mean * t.slope / t.crossing.kappa
    value = xp.zeros_like(a)
    for end, decay in ((near, a * place.near_gap), (near + size / a_both, place.far_decay)):
        inner = xp.where(place.both_inside, a * end, 0.0)
        value = value + end * (1.0 - weight * xp.exp(-decay) * decay_means(inner)[0])
    return value / a_both
