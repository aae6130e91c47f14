"""log delta of the flipped Huber: one expression in five regimes, every term positive.

In units of gamma, a = alpha / gamma, D = shift / gamma, E = |epsilon|: the density is
g(t) = exp(-rho(t)) / kappa, rho(t) = a |t| up to a and (t^2 + a^2) / 2 beyond, and the loss
exceeds E beyond u, with v = u + D; see `monotone_loss`, and `flipped_huber_regimes` for u. H is
the Mills ratio R beyond a and R(a) + S(a) (1 - exp(-a (a - t))) / a below, S = -R'.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import custom_jvp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.mills import mills_pair, mills_slope
from jaxdp._numeric.series import decay_means, normal_integral_over_density
from jaxdp.noise.kernels.flipped_huber_regimes import Place, Point, place_of
from jaxdp.noise.kernels.monotone_loss import (
    LARGEST_EPSILON,
    LARGEST_RATIO,
    LARGEST_SHIFT,
    TINY,
    Crossing,
    log_delta_at,
    slopes_at,
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


def _reduced(at: Point) -> _Terms:
    """`_terms` of arguments cut to where squares are finite; NaN for a ratio beyond 1e150."""
    none = at.d == 0
    d = xp.where(none, 1.0, xp.minimum(at.d, LARGEST_SHIFT))
    largest = xp.minimum(LARGEST_EPSILON, LARGEST_SHIFT * d)
    cut = Point(
        alpha=at.alpha,
        gamma=at.gamma,
        shift=xp.where(none, at.gamma, xp.where(at.d > LARGEST_SHIFT, xp.inf, at.shift)),
        a=xp.where(at.a <= LARGEST_RATIO, at.a, xp.nan),
        d=d,
        epsilon=xp.minimum(xp.abs(at.epsilon), largest),
    )
    return _terms(cut)


@custom_jvp
def log_delta(at: Point) -> Reals:
    """`FlippedHuber.log_delta` for arrays of one shape."""
    return log_delta_at(_reduced(at).crossing, at.epsilon, at.d == 0)


@log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`; d delta / d a = g(u) X, from d log g / d a = E min(|T|, a) - min(|t|, a)."""
    (at,), (tangent,) = primals, tangents
    out, t = log_delta(at), _reduced(at)
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
