"""Renyi divergences of a symmetric noise by quadrature, its nodes where the tilted density lives.

With g the density, l(t) = log g(t) / g(t + m) the loss at t and s = order - 1,

    E[e^(s L)] - 1 = int_(-m / 2)^inf g (e^(s l) - 1) (1 - e^(-(s + 1) l)) dt,

as l is odd about -m / 2 and not negative beyond: no term is negative. So log(E[e^(s L)]) / s keeps
all its digits as m -> 0 and as s -> 0, where it is the Kullback-Leibler divergence. The line is cut
at kinks of g, the pieces in halves; on each half samples close in on the part within 44 nats of its
maximum, and Gauss-Legendre nodes, graded towards the kink, integrate it. Relative error: 1e-14; for
Subbotins 4e-11 at power 100 and 1e-8 at power 1,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import ULP, decay_means, lifted, log1p
from jaxdp._numeric.quadrature import accumulate_exponentials, graded_gauss_legendre

# Nodes on each half of a piece. measured: 64 lose 3e-11 of a flipped Huber's, 96 nothing
_NODES = 96
# Where the integrand has lost this many nats from its top it is cut off. derived: e^-44 is 1e-19
_DROP = 44.0
# log of the least distance from a kink that is looked at, in parts of the largest. chosen: e^-70
# widths of the density
_LOG_NEAREST = -110.0
# Distances that are looked at first, evenly by their logarithm, of one top on each half. chosen: it
# is seen from afar
ONE_TOP = 31
# And of several. chosen: 8 % apart, for a second one 200 widths away
ANY_TOPS = 1400
# log of the largest distance in widths of the density, next to the tilt's own. chosen
_LOG_REACH = 40.0
# Samples of each closer look, and looks at most. derived: to 1e-8 of the distance; narrower maxima,
# for exponents beyond 1e16, lie in the rounding
_SAMPLES = np.linspace(0.0, 1.0, 12)
_LOOKS = 13
# Looks end where each interval keeps this share of its length. chosen: a quarter of the nodes lost
_KEPT = 0.75
# Excess from which the slopes of log g bound a loss better than a difference does. measured: a
# Gaussian's errors peak there, at 1e-8
_MOST_EXCESS = 1e7
# Exponentials of more are not taken. chosen: products with them are numbers
_LARGE_EXPONENT = 300.0
# Beyond, exponents overflow before they are largest: the divergence is said to be infinite. chosen
_LARGEST_EXPONENT = 1e290
# So it is of tilts by more widths of the density. chosen: squares of it are numbers
_LARGEST_TILT = 1e100
# s beyond which a chord bounds a divergence of finite losses. measured: from 1e15 on, quadrature
# loses its nodes where the loss is a difference of log g
_LARGEST_EXCESS = 1e12

P = TypeVar("P")
# (log g(t), l(t)) of parameters, a shift and places t, all of as many axes.
Law = Callable[[P, Reals, Reals], tuple[Reals, Reals]]


def log1p_ratio(rate: Reals, s: Reals) -> Reals:
    """log(1 + s rate) / s for s >= 0; `rate` at s = 0."""
    value = log1p(s * rate)
    return rate * xp.exp(-value) / decay_means(value)[0]


def log1p_ratio_above(rate: Reals, top: Reals, s: Reals) -> Reals:
    """log(1 + s rate e^top) / s for any top; s > 0 where top > 300."""
    small = ~(top > _LARGE_EXPONENT)
    near = log1p_ratio(rate * xp.exp(xp.where(small, top, 0.0)), s)
    safe, high = xp.where(small, 1.0, s), xp.where(small, 1.0, top)
    inside = xp.where(small, 1.0, safe * rate + xp.exp(-high))
    return xp.where(small, near, (high + xp.log(inside)) / safe)


def renyi_of(noise: Any, shift: Reals, order: Reals) -> Reals:
    """`Noise.renyi` of arrays of one shape, at any shift and order <= inf, or a bound.

    With s = order - 1, log E[e^(s L)] is convex in s, and its slope is at most the largest loss.
    Where that is finite, the line of that slope from s = 1e12 bounds it beyond. The line is exact
    if the largest loss is an atom; for a logistic noise the divergence is log(s / 1e12) / s too
    high.
    """
    s, largest = order - 1.0, noise._pure_epsilon(shift)
    usual = (largest > 0) & (shift < xp.inf) & (s < xp.inf)
    beyond = usual & (s > _LARGEST_EXCESS) & (largest < xp.inf)
    near = xp.where(beyond, _LARGEST_EXCESS, xp.where(usual, s, 1.0))
    value = noise._divergence(xp.where(usual, shift, 1.0), near)
    share = _LARGEST_EXCESS / xp.where(beyond, s, 1.0)
    limit = xp.where(beyond, largest, 0.0)
    value = xp.where(beyond, limit - share * (limit - value), value)
    # No shift has no divergence of any order; an infinite order or shift has the largest loss.
    value = xp.where(usual, xp.minimum(value, largest), largest)
    return lifted(xp.where(xp.isnan(s), xp.nan, value), largest > 0)


def bound_of_differences(divergence: Reals, excess: Reals, rounding: float) -> Reals:
    """The divergence of order 1 + excess, increased by what `rounding` ulp of log g may have cost.

    Where e^(excess L) g is largest |log g| <= excess L: a difference L of two has a relative error
    of 2 excess units. A Gaussian's at its centre, of ratio r and divergence order r^2 / 2, has one
    of 1 / r. Where the excess is larger the slopes of log g bound L.
    """
    value = lax.stop_gradient(xp.where(divergence > 0, divergence, 1.0))
    units = 1.0 + xp.minimum(excess, _MOST_EXCESS) + xp.sqrt((1.0 + excess) / value)
    return divergence * (1.0 + 2.0 * rounding * ULP * units)


def divergence(
    law: Law[P],
    parameters: P,
    shift: Reals,
    s: Reals,
    kinks: tuple[Reals, ...] = (),
    looks: int = ONE_TOP,
) -> Reals:
    """The divergence of order 1 + s >= 1 at a finite shift, for arrays of one shape.

    `parameters` of the law are arrays that broadcast to that shape; `kinks`: places other than 0
    where the integrand is not smooth; `looks`: how closely its tops are looked for. Infinite where
    the exponents overflow, with s shift above 1e100 widths of the density.
    """
    parameters = jax.tree.map(lambda x: _of_rank(x, shift.ndim), parameters)
    peak = law(parameters, shift, xp.zeros_like(shift))[0]
    width = xp.exp(-peak)

    def exponent(point: tuple[P, Reals, Reals, Reals], t: Reals) -> tuple[Reals, Reals, Reals]:
        """The exponent of the integrand over the density's peak, the loss, and s times it."""
        own, m, s, peak = jax.tree.map(lambda x: _of_rank(x, t.ndim), point)
        log_density, loss = law(own, m, t)
        loss = xp.maximum(loss, 0.0)
        # 0 times an infinite loss is 0 here.
        grown = s * xp.where(s > 0, loss, xp.minimum(loss, _LARGEST_EXPONENT))
        value = log_density - peak + grown
        nothing = xp.isnan(value) | (log_density == -xp.inf)
        return xp.where(nothing, -xp.inf, value), xp.where(nothing, 0.0, loss), grown

    point = parameters, shift, s, peak
    still = lax.stop_gradient(point)
    origin, direction, longest = lax.stop_gradient(_halves(shift, width, s, kinks))

    def places(y: Reals) -> Reals:
        """Places at distances y, along a new first axis."""
        return origin[None] + direction[None] * y

    low, high = _ends(lambda y: exponent(still, places(y))[0], longest, looks)
    length = high - low

    def term(nodes: Reals) -> tuple[Reals, Reals]:
        size, loss, grown = exponent(point, places(low[None] + length[None] * nodes))
        factor = loss * decay_means(grown)[0] * -xp.expm1(-grown - loss)
        return size, factor * (length / width[None])[None]

    tops, sums = accumulate_exponentials(graded_gauss_legendre(_NODES), term, low)
    top = lax.stop_gradient(xp.max(tops, axis=0))
    rate = xp.sum(sums * xp.exp(tops - top[None]), axis=0)  # (E[e^(s L)] - 1) / s over e^top
    value = log1p_ratio_above(rate, top, s)
    endless = (top > _LARGEST_EXPONENT) | (xp.maximum(s, 1.0) * shift > _LARGEST_TILT * width)
    value = xp.where(endless, xp.inf, value)
    return xp.where(xp.isnan(peak + shift + s), xp.nan, value)


def _of_rank(x: Reals, rank: int) -> Reals:
    """An array with axes of length 1 before its own."""
    return xp.reshape(x, (1,) * (rank - xp.ndim(x)) + xp.shape(x))


def _halves(
    shift: Reals, width: Reals, s: Reals, kinks: tuple[Reals, ...]
) -> tuple[Reals, Reals, Reals]:
    """Halves of pieces along a first axis: places origin + direction y, y from 0 to length."""
    start = -0.5 * shift
    places = [xp.zeros_like(start), *(xp.broadcast_to(kink, start.shape) for kink in kinks)]
    breaks = xp.sort(xp.maximum(xp.stack(places), start[None]), axis=0)
    reach = np.exp(_LOG_REACH) * (width + s * shift)
    inner = 0.5 * xp.diff(breaks, axis=0)
    left = xp.concatenate([breaks[:1] - start[None], inner])
    right = xp.concatenate([inner, reach[None]])
    sides = xp.ones_like(breaks)
    both = xp.concatenate([breaks, breaks]), xp.concatenate([-sides, sides])
    return *both, xp.concatenate([left, right])


def _ends(exponent: Callable[[Reals], Reals], longest: Reals, looks: int) -> tuple[Reals, Reals]:
    """Least and largest distance on each half that count, of the exponent there."""

    def narrow(y: Reals) -> tuple[Reals, Reals]:
        size = exponent(y)
        counts = size >= xp.max(size, axis=0, keepdims=True) - _DROP
        before = xp.concatenate([y[:1], y[:-1]])
        after = xp.concatenate([y[1:], y[-1:]])
        low = xp.min(xp.where(counts, before, xp.inf), axis=0)
        return low, xp.max(xp.where(counts, after, 0.0), axis=0)

    def along(shares: np.ndarray) -> Reals:
        return xp.asarray(shares).reshape(-1, *(1,) * longest.ndim)

    def look(state: tuple[Reals, Reals, Bools, Index]) -> tuple[Reals, Reals, Bools, Index]:
        low, high, _, count = state
        length = high - low
        low, high = narrow(low[None] + length[None] * along(_SAMPLES))
        return low, high, xp.any(high - low < _KEPT * length), count + 1

    def on(state: tuple[Reals, Reals, Bools, Index]) -> Bools:
        return state[2] & (state[3] < _LOOKS)

    first = np.append(0.0, np.exp(np.linspace(_LOG_NEAREST, 0.0, looks)))
    ends = narrow(longest[None] * along(first))
    return lax.while_loop(on, look, (*ends, xp.ones((), bool), xp.zeros((), int)))[:2]
