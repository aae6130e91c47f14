"""The flipped Huber: a Laplace centre with Gaussian tails.

log delta is one expression in five regimes, with positive terms alone.

In units of gamma, a = alpha / gamma, D = shift / gamma, E = |epsilon|: the density is
g(t) = exp(-rho(t)) / kappa, rho(t) = a |t| up to a and (t^2 + a^2) / 2 beyond, and the loss
exceeds E beyond u, with v = u + D; see `gaussian_tails`, and `place_of` for u. H is
the Mills ratio R beyond a and R(a) + S(a) (1 - exp(-a (a - t))) / a below, S = -R'.

The distances of u and v from 0 and a are roots of quadratics, each formed as a quotient whose
numerator vanishes on a boundary of the regime; the numerators carry 32 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import custom_jvp, lax, special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric import double_double as dd
from jaxdp._numeric.elementary import (
    LOG_2,
    decay_mean,
    decay_means,
    log1m,
    log1m_near,
    normal_integral_over_density,
    round_up,
)
from jaxdp._numeric.mills import mills, mills_pair, mills_slope
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian_tails import (
    LARGEST,
    TINY,
    Crossing,
    GaussianTails,
    Point,
    log_delta_at,
    slopes_at,
)
from jaxdp.noise.kernels.divergence import divergence
from jaxdp.noise.structure import Kinks, atom_pair

_SQRT_2PI = math.sqrt(2.0 * math.pi)
# Terms of the series of the centre's moments. derived: the next one is below an ulp
_SERIES_TERMS = 20


@final
@pytree
class FlippedHuber(GaussianTails):
    """The density exp(-rho(x / gamma)) / (kappa gamma), a = alpha / gamma.

    rho(t) = a |t| for |t| <= a and (t^2 + a^2) / 2 beyond: a Laplace centre of scale
    gamma^2 / alpha out to |x| = alpha, then Gaussian tails of scale gamma.
    kappa = 2 (1 - exp(-a^2)) / a + 2 exp(-a^2) R(a), R the Mills ratio. `alpha` = 0 is the
    Gaussian; alpha, gamma -> inf at a fixed gamma^2 / alpha is the Laplace. `alpha` is finite;
    an infinite `gamma` is legal and private. Units, bad input: `Noise`.

    delta has five regimes: where epsilon meets the loss, left of -a to past a. `log_delta` is
    above the truth by at most 5e-15 of |log delta|; where delta > 1/2 by
    5e-15 + 1e-15 |log(1 - delta)| of it. Parameters count exactly as given: ratios and differences
    are carried to 32 digits, so the plateau of the loss at alpha shift / gamma^2 = epsilon, where
    designs lie, is met exactly. (A design should keep alpha shift / gamma^2 <= epsilon: an ulp
    above, delta grows by an ulp of the plateau's mass, which may be 1e-7 of delta.) NaN for
    alpha / gamma > 1e150. zcdp: rho = shift^2 / (2 gamma^2), the least possible, and its least xi
    to 1e-3. Relative errors of others: 1e-14 + (4 + rho(x / gamma)) ulp of log survival; 1e-13 of
    a quantile for u >= 1e-300; 2e-13 of moments of a power up to 100. Draws: by inversion of 53
    uniform bits and a sign.
    Muthukrishnan & Kalyani have the regimes; their printed forms overflow for alpha > 38 gamma or
    lose all digits. Those here are ours.
    Source: Muthukrishnan & Kalyani, arXiv:2212.09657.
    """

    alpha: Reals
    gamma: Reals

    def __init__(self, alpha: ArrayLike, gamma: ArrayLike):
        alpha = checks.zero_or_positive("alpha", alpha, LARGEST)
        assign(self, alpha=alpha, gamma=checks.positive("gamma", gamma))

    shapes = (2e-3, 30.0)
    whole_kind = "huber"

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        return _log_delta(self._point(shift, epsilon))

    def _log_density(self, x: Reals) -> Reals:
        """-rho(x / gamma) - log(kappa gamma)."""
        unit, t = _unit(self.alpha, self.gamma), xp.abs(x) / self.gamma
        rho = xp.where(xp.abs(x) <= self.alpha, unit.a * t, 0.5 * (t * t + unit.a * unit.a))
        return -rho - xp.log(unit.kappa) - xp.log(self.gamma)

    def _log_density_slope(self, x: Reals) -> Reals:
        """-alpha sign(x) / gamma^2, and -x / gamma^2 from alpha on."""
        place = xp.where(xp.abs(x) <= self.alpha, self.alpha * xp.sign(x), x)
        return -(place / self.gamma) / self.gamma

    def _log_survival(self, x: Reals) -> Reals:
        unit, t = _unit(self.alpha, self.gamma), xp.abs(x) / self.gamma
        gap = xp.maximum(self.alpha - xp.abs(x), 0.0) / self.gamma
        inside = unit.ratio + unit.slope * gap * decay_mean(unit.a * gap)
        tail = xp.abs(x) >= self.alpha
        exponent = xp.where(tail, 0.5 * (t * t + unit.a * unit.a), unit.a * t)
        upper = xp.log(xp.where(tail, mills(t), inside) / unit.kappa) - exponent
        return xp.where(x > 0, upper, log1m(xp.minimum(xp.exp(upper), 0.5)))

    def _upper_quantile(self, p: Reals, q: Reals) -> Reals:
        """Closed forms in log and the normal quantile."""
        return _upper_quantile(self.alpha, self.gamma, p, q)

    def _absolute_moment(self, power: Reals) -> Reals:
        """Two incomplete gamma functions, of the centre and the tails."""
        unit, n = _unit(self.alpha, self.gamma), power + 1.0
        square = unit.a * unit.a
        # The centre: a^n int_0^1 t^p exp(-a^2 t) dt.
        low = xp.minimum(square, 1.0)
        series = xp.ones_like(n)
        for k in range(_SERIES_TERMS, 0, -1):
            series = 1.0 + series * low / (n + k)
        wide = xp.where(square > 1.0, square, 2.0)
        large = xp.exp(special.gammaln(n) - 0.5 * n * xp.log(wide)) * special.gammainc(n, wide)
        centre = xp.where(square > 1.0, large, unit.a**n * xp.exp(-low) * series / n)
        log_tail = 0.5 * (power - 1.0) * LOG_2 + special.gammaln(0.5 * n) - 0.5 * square
        tail = xp.exp(log_tail) * special.gammaincc(0.5 * n, 0.5 * square)
        return self.gamma**power * (2.0 / unit.kappa) * (centre + tail)

    def _fisher_information(self) -> Reals:
        """(1 + 2 (exp(-a^2) - 1 + a^2) / (a kappa)) / gamma^2."""
        unit = _unit(self.alpha, self.gamma)
        mean = decay_means(unit.a * unit.a)[1]
        return (1.0 + 2.0 * unit.a * (unit.a * (unit.a * mean)) / unit.kappa) / self.gamma**2

    def kinks(self) -> tuple[Reals, ...]:
        """0 and +-alpha."""
        return -self.alpha, xp.zeros(()), self.alpha

    def _unit_divergence(self, a: Reals, d: Reals, excess: Reals) -> Reals:
        return divergence(_law, a, d, excess, (a, a - d, -a))

    def _offsets(self, a: Reals, d: Reals) -> tuple[Reals, Callable[..., tuple[Reals, ...]]]:
        """(alpha^2 - (alpha - shift)_+^2) / (2 gamma^2). Past the grid D_a < a rho."""

        def search(a: Reals, d: Reals) -> tuple[Reals, Reals]:
            # Where exp of the excess over the normal law, at its largest over the centre, times the
            # centre's length 2 a is below the mass that the tails lack: exp(-a^2 / 2) a^3 / 3.
            log_lack = xp.maximum(xp.log(6.0 / a**2), 0.0)
            edge = (a + xp.sqrt(a**2 + 2.0 * log_lack)) / d
            root = xp.sqrt(a**4 + 8.0 * d**2 * (a**2 + log_lack))
            last = xp.maximum(edge, 0.5 * (a**2 + root) / d**2)
            return round_up(last, 16), xp.zeros_like(a)

        return xp.where(d < a, d * (a - 0.5 * d), 0.5 * a * a), search

    def _singularities(self, shift: Reals) -> Kinks:
        """Atoms at +-alpha shift / gamma^2 where shift < alpha; at no shift the loss is 0."""
        a, d = self._ratios(shift)
        return atom_pair(xp.where((shift < self.alpha) | (d == 0), a * d, xp.nan))


class _Unit(NamedTuple):
    """The law in units of gamma."""

    a: Reals
    ratio: Reals  # R(a)
    slope: Reals  # S(a)
    decay: Reals  # exp(-a^2)
    kappa: Reals


def _unit(alpha: Reals, gamma: Reals) -> _Unit:
    a = ratio_of(alpha, gamma)
    ratio, slope = mills_slope(a)
    square = a * a
    decay = xp.exp(-square)
    kappa = 2.0 * (a * decay_mean(square) + decay * ratio)
    return _Unit(a, ratio, slope, decay, kappa)


@jitted
def _upper_quantile(alpha: Reals, gamma: Reals, p: Reals, q: Reals) -> Reals:
    """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""
    alpha, gamma, p, q = xp.broadcast_arrays(alpha, gamma, p, q)
    unit = _unit(alpha, gamma)
    centre = p > unit.decay * unit.ratio / unit.kappa
    a = xp.where(centre, unit.a, 1.0)
    y = xp.where(centre, a * unit.kappa * q, 0.0)
    lower = a * unit.kappa * p + unit.decay * unit.slope
    near = -log1m_near(xp.minimum(y, 0.5))
    inside = xp.where(y < 0.5, near, -xp.log(xp.where(centre, lower, 1.0))) / a
    # exp(-a^2) underflows for a > 27.3, and then only p = 0 comes here.
    growth = xp.exp(0.5 * xp.where(centre, 0.0, xp.minimum(unit.a, 30.0)) ** 2)
    normal = xp.where(centre, 0.5, xp.minimum(p * unit.kappa * growth / _SQRT_2PI, 0.5))
    return gamma * xp.where(centre, inside, -special.ndtri(normal))


def _law(a: Reals, d: Reals, t: Reals) -> tuple[Reals, Reals]:
    """log g and the loss in units of gamma, a = alpha / gamma and d = shift / gamma."""
    near, far, span = xp.abs(t), t + d, xp.minimum(2.0 * t + d, d)
    outside = xp.where(near >= a, span, xp.maximum(far - a, 0.0))
    loss = a * (span - outside)
    loss = loss + 0.5 * outside * (xp.maximum(near, a) + xp.maximum(far, a))
    rho = xp.where(near < a, a * near, 0.5 * (near * near + a * a))
    return -rho - xp.log(_unit(a, xp.ones_like(a)).kappa), loss


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
def _log_delta(at: Point) -> Reals:
    """`FlippedHuber.log_delta` for arrays of one shape."""
    return log_delta_at(_terms(at.cut()).crossing, at.epsilon, at.d == 0)


@_log_delta.defjvp
def _log_delta_jvp(primals, tangents):
    """See `slopes_at`; d delta / d a = g(u) X, from d log g / d a = E min(|T|, a) - min(|t|, a)."""
    (at,), (tangent,) = primals, tangents
    out, t = _log_delta(at), _terms(at.cut())
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
