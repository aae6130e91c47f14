"""Which vertical line to sum along, and with what step: the saddle, and Poisson's summation.

The trapezoidal sum of step h is exactly sum_k exp(theta k p) delta(epsilon + k p), p = 2 pi / h
(Poisson), whose terms beyond k = 0 have Markov bounds at every other tilt: p is chosen from them.
Source: Poisson's summation with a tilt, as in Abate & Whitt, Queueing Systems 10, 1992.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP, log1m, log1p
from jaxdp._types import Bools, Reals
from jaxdp.loss.base import Term, Terms, add_up, cumulant, largest_finite
from jaxdp.loss.saddle import saddle_of

# The lowest real parts looked at, as logarithms; where the loss is bounded theta may grow large.
LOG_TILTS = (-23.0, 50.0)
_LOGIT_TILTS = (-28.0, 28.0)
# Of Markov's bound.
_POINTS = 33
# Of the logarithm of a tilt, where the aliased terms are bounded, too.
_OFFSETS = (-1.2, -0.8, -0.5, -0.3, -0.15, -0.05, 0.0, 0.003, 0.012, 0.05, 0.1, 0.2, 0.4, 0.8)
# Before these, where lines far below the saddle may take fewer points.
_LOWER = (-4.0, -3.0, -2.0)
# |F| may be higher by so much in logarithm for a longer step: a cumulant may be a wall right
# above its saddle.
_HIGHER, _MUCH_HIGHER = 2.0, 4.0
# Of the search for the saddle: log delta may be -1e8.
_ROUNDS = 9
# log of a 1 - delta that no digit of delta shows.
_NOTHING = -40.0
# The sum is below its saddle value by no more than this in logarithm, over all that was tried.
SADDLE_MARGIN = 12.0


class Line(NamedTuple):
    """The vertical line of one lane: all of shape (lanes,)."""

    theta: Reals
    step: Reals
    log_size: Reals  # log |F(theta)|
    complement: Bools  # the line gives 1 - delta
    aliasing: Reals  # a bound on the aliased terms, over |F(theta)|
    rounding: Reals  # a bound on the relative error of one |F|
    tilts: Reals  # other real parts, (lanes, tilts), and K - tilt epsilon there
    exponents: Reals

    def log_total(self, epsilon: Reals) -> Reals:
        """K(theta)."""
        return self.log_size + self.theta * epsilon + log_pole(self.theta)

    def markov(self, epsilon: Reals) -> Reals:
        """A bound on log delta, rounded up: the least over tilts > 0.

        K(tilt) - tilt epsilon and the logarithm of the largest (1 - e^-x) e^(-tilt x).
        """
        bound, tilts = self._height(epsilon), self._positive()
        return jnp.min(jnp.where(self.tilts > 0, bound + _log_peak(tilts), jnp.inf), axis=-1)

    def markov_epsilon(self, near: Reals, delta: Reals) -> Reals:
        """The least epsilon (*batch, m) that these bounds give each delta; `near`: the line's."""
        height, tilts = self._height(near)[..., None, :], self._positive()[..., None, :]
        above = (height + _log_peak(tilts) - jnp.log(delta)[..., None]) / tilts
        above = jnp.where(self.tilts[..., None, :] > 0, above, jnp.inf)
        found = near[..., None] + jnp.min(above, axis=-1)
        return found + 8.0 * ULP * (jnp.abs(found) + jnp.abs(near[..., None]))

    def _height(self, epsilon: Reals) -> Reals:
        """K(tilt) - tilt epsilon, rounded up."""
        size = jnp.abs(self.exponents) + self.tilts * epsilon[..., None]
        return self.exponents + ULP * (32.0 + 8.0 * size)

    def _positive(self) -> Reals:
        return jnp.where(self.tilts > 0, self.tilts, 1.0)

    def softened(self, mu: Reals, lowered: Reals, epsilon: Reals) -> "Line":
        """The same with a Gaussian of ratio mu, for an epsilon that is `lowered` by so much."""
        theta = self.theta

        def gain(tilt: Reals, mu: Reals, lowered: Reals) -> Reals:
            return 0.5 * tilt * (tilt + 1.0) * mu * mu + tilt * lowered

        log_size = self.log_size + gain(theta, mu, lowered)
        exponents = self.exponents + gain(self.tilts, mu[..., None], lowered[..., None])
        period = 2.0 * jnp.pi / self.step[..., None]
        others = Others.of(theta[..., None], log_size[..., None], self.tilts, exponents, epsilon)
        return self._replace(log_size=log_size, aliasing=others.aliasing(period))


def _rounding(gain: Reals, slope: Reals) -> Reals:
    """Of exp(K(theta) - theta epsilon), relatively."""
    return ULP * (32.0 + 8.0 * jnp.abs(gain) + 4.0 * jnp.abs(slope))


def _log_peak(tilt: Reals) -> Reals:
    """log of the largest (1 - e^-x) e^(-tilt x) over x >= 0, rounded up."""
    return -(1.0 - 8.0 * ULP) * (log1p(tilt) + tilt * log1p(1.0 / tilt))


def log_pole(theta: Reals) -> Reals:
    """log |theta (1 + theta)|: the poles of the transform of delta are at 0 and -1."""
    return jnp.log(jnp.abs(theta * (1.0 + theta)))


def _near(theta: Reals, offsets: tuple[float, ...]) -> Reals:
    """Tilts on either side, near enough for the steepest cumulants; theta (*batch, 1)."""
    offset = jnp.array(offsets)[(None,) * (theta.ndim - 1)]
    beyond = theta * jnp.exp(offset)
    odds = (-1.0 - theta) / theta
    between = -1.0 / (1.0 + odds * jnp.exp(4.0 * offset))
    return jnp.where(theta > 0, beyond, between)


def line_of(terms: Terms, epsilon: Reals, tolerance: float) -> Line:
    """The saddle on either strip, the lower of the two, and the step."""
    column = epsilon[..., None, None]

    def heights(tilts: Reals) -> tuple[Reals, Reals]:
        flat = tilts.reshape(*epsilon.shape, math.prod(tilts.shape[epsilon.ndim :]))
        exponents = jnp.real(cumulant(terms, flat, "rough")).reshape(tilts.shape)
        exponents -= tilts * column
        return exponents, exponents - log_pole(tilts)

    def tilts_at(sizes: Reals) -> Reals:
        beyond, between = jnp.exp(sizes[..., :1, :]), -1.0 / (1.0 + jnp.exp(-sizes[..., 1:, :]))
        return jnp.concatenate([beyond, between], axis=-2)

    ends = jnp.array([LOG_TILTS, _LOGIT_TILTS])[(None,) * epsilon.ndim]
    ends = jnp.broadcast_to(ends, (*epsilon.shape, 2, 2))
    found = saddle_of(heights, ends[..., 0], ends[..., 1], tilts_at, _ROUNDS)
    theta, log_size = found.theta, found.least
    others = (x.reshape(*epsilon.shape, 2 * x.shape[-1]) for x in (found.tilts, found.first))
    chosen = log_size[..., 1] < log_size[..., 0]
    if all(term.noise.edges(term.shift) is not None for term in terms):
        # Edges are summed above epsilon.
        chosen &= log_size[..., 1] < _NOTHING
    theta = jnp.where(chosen, theta[..., 1], theta[..., 0])
    return line_at(terms, epsilon, theta, tuple(others), tolerance)


def line_at(
    terms: Terms,
    epsilon: Reals,
    theta: Reals,
    known: tuple[Reals, ...] | None,
    tolerance: float,
    margin: float | Reals = SADDLE_MARGIN,
) -> Line:
    """The line near theta (lanes,), where |F| need not be least but within a factor of two.

    `known`: other tilts (lanes, tilts), and K - tilt epsilon there.

    The aliased terms are below `tolerance` of exp(-margin) |F(theta)|.
    """
    column = epsilon[..., None]
    lowered = any(term.noise.lowered for term in terms)
    offsets = (*_LOWER, *_OFFSETS) if lowered else _OFFSETS
    near, middle = _near(theta[..., None], offsets), offsets.index(0.0)
    rough, above = terms[0].rough_and_above(near)
    for term in terms[1:]:
        more, further = term.rough_and_above(near)
        rough, above = rough + more, above + further
    risen = rough - near * column
    tilts, exponents = near, risen
    if known is not None:
        tilts = jnp.concatenate([known[0], near], axis=-1)
        exponents = jnp.concatenate([known[1], risen], axis=-1)
    digits = margin - math.log(tolerance) + (_MUCH_HIGHER if lowered else 0.0)
    digits = jnp.broadcast_to(digits, epsilon.shape)[..., None]
    sizes = risen - log_pole(near)
    least = jnp.min(jnp.where(jnp.isnan(sizes), jnp.inf, sizes), axis=-1)
    # Atoms fade with the tilt.
    recurs = any(term.noise.recurs for term in terms)
    highest = sizes[..., middle] if recurs else least + _HIGHER
    highest = least + _MUCH_HIGHER if lowered else highest
    theta, log_size, above = _of_longest_step(
        near, middle, (sizes, above), tilts, exponents, epsilon, digits, highest
    )
    if any(term.noise.rough for term in terms):
        log_size = jnp.real(cumulant(terms, theta)) - theta * column - log_pole(theta)
    others = Others.of(theta, log_size, tilts, exponents, epsilon)
    period = others.period(digits)
    aliasing = others.aliasing(period[..., None])
    theta, log_size = theta[..., 0], log_size[..., 0]
    gain = log_size + theta * epsilon + log_pole(theta)
    rounding = _rounding(gain, theta * epsilon)
    # Each of n summed cumulants, of about v^2 / 2, is off by some v ULP.
    summed = add_up(terms, Term.summed)
    rounding += 16.0 * ULP * jnp.sqrt(summed * (1.0 + jnp.abs(gain))) + above[..., 0]
    exponents = exponents + 64.0 * ULP * add_up(terms, lambda term: term.rough_rounding(tilts))
    step = 2.0 * jnp.pi / period
    return Line(theta, step, log_size, theta < 0, aliasing, rounding, tilts, exponents)


def _of_longest_step(
    near: Reals,
    middle: int,
    known: tuple[Reals, Reals],
    tilts: Reals,
    exponents: Reals,
    epsilon: Reals,
    digits: Reals,
    highest: Reals,
) -> tuple[Reals, Reals, Reals]:
    """Of the tilts `near` a saddle with |F| not higher: that of the shortest period.

    And what is `known` there: log |F|, and how far that may be above.
    """
    log_sizes = known[0]
    size = log_sizes[..., middle, None]
    to_all = (tilts[..., None, :], exponents[..., None, :], epsilon[..., None])
    periods = Others.of(near[..., None], size[..., None], *to_all).period(digits[..., None])
    periods = jnp.where(log_sizes <= highest[..., None], periods, jnp.inf)
    best = jnp.argmin(periods, axis=-1)[..., None]
    theta, size, above = (jnp.take_along_axis(x, best, axis=-1) for x in (near, *known))
    return theta, size, above


class Others(NamedTuple):
    """The other tilts of the strip, and its ends: delta <= 1, 1 - delta <= e^epsilon."""

    heights: Reals  # log of Markov's bound over |F(theta)|, infinite where it says nothing
    distance: Reals
    below: Bools

    @staticmethod
    def of(
        theta: Reals, log_size: Reals, tilts: Reals, exponents: Reals, epsilon: Reals
    ) -> "Others":
        zero = jnp.zeros_like(theta)
        ends = jnp.broadcast_to(epsilon[..., None], zero.shape)
        strip = (tilts > 0) == (theta > 0)
        tilts, exponents = (jnp.broadcast_to(x, strip.shape) for x in (tilts, exponents))
        others = jnp.concatenate([tilts, zero, zero - 1.0], axis=-1)
        usable = jnp.concatenate([strip, theta == theta, theta < 0], axis=-1)
        heights = jnp.concatenate([exponents, zero, ends], axis=-1) - log_size
        distance = jnp.abs(others - theta)
        usable &= distance > 1e-9 * jnp.abs(theta)
        return Others(
            jnp.where(usable, heights, jnp.inf), jnp.where(usable, distance, 1.0), others < theta
        )

    def _least(self, values: Reals) -> tuple[Reals, Reals]:
        """On either side of theta."""
        below = jnp.min(jnp.where(self.below, values, jnp.inf), axis=-1)
        return below, jnp.min(jnp.where(self.below, jnp.inf, values), axis=-1)

    def period(self, digits: Reals) -> Reals:
        """The least p whose aliased terms are at most e^-digits of |F(theta)|."""
        wanted = (self.heights + digits) / self.distance
        return jnp.maximum(*self._least(wanted))

    def aliasing(self, period: Reals) -> Reals:
        """The bound on the aliased terms, over |F(theta)|."""
        reach = self.distance * period
        aliased = self.heights - reach - log1m(jnp.exp(-jnp.clip(reach, 1e-300, 700.0)))
        below, above = self._least(aliased)
        return jnp.exp(below) + jnp.exp(above)


def largest_epsilon(terms: Terms, delta: Reals) -> Reals:
    """An epsilon that meets `delta`: the least (K(theta) - log delta) / theta, by Markov.

    Infinite where there is none: an infinite loss may be more probable than `delta`.
    """
    infinite = -jnp.expm1(add_up(terms, Term.log_finite))
    delta = jnp.where(infinite > 0, delta - infinite, delta)
    tilts = jnp.broadcast_to(jnp.exp(jnp.linspace(*LOG_TILTS, _POINTS)), (*delta.shape, _POINTS))
    log_delta = jnp.log(jnp.where(delta >= 0, delta, 1.0))[..., None]
    meets = (jnp.real(cumulant(terms, tilts, "rough")) - log_delta) / tilts
    most = jnp.minimum(jnp.min(meets, axis=-1) * (1.0 + 1e-9), largest_finite(terms))
    return jnp.where(delta < 0, jnp.inf, most + 0.0 * delta)
