"""delta of one mixture of Gaussians against another, on opposite sides, from Mills ratios."""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import custom_jvp, lax, logsumexp, softmax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1mexp, log1p
from jaxdp._numeric.mills import log_normal_survival, mills_pair
from jaxdp._numeric.search import bisect
from jaxdp.noise.base import mirrored_log_delta

# Bisections for the place where the loss is epsilon. derived: to below an ulp
_BISECTIONS = 110
# -log of the smallest weight that the bracket covers. chosen: below any double
_LEAST_WEIGHT = 800.0
# Error of a term of delta in ulps. measured: 1e-14 of delta, against 40 digits
_TERM_ULPS = 64.0


class Sides(NamedTuple):
    """Means in units of the scale, >= 0, and log weights; components along the first axis.

    P = sum_i p_i N(up_i, 1), Q = sum_j q_j N(-down_j, 1).
    """

    up: Reals
    log_up: Reals
    down: Reals
    log_down: Reals

    def reversed(self) -> Sides:
        """Q against P, mirrored."""
        return Sides(self.down, self.log_down, self.up, self.log_up)

    def log_ratios(self, x: Reals) -> tuple[Reals, Reals]:
        """log densities of P and of Q at x, over the density of N(0, 1)."""
        x = x[None]
        return (
            _log_ratio(self.up * x - 0.5 * self.up**2, self.log_up),
            _log_ratio(-self.down * x - 0.5 * self.down**2, self.log_down),
        )

    def loss_slope(self, x: Reals) -> Reals:
        """Slope of the difference of `log_ratios` in x: the weighted means of both sides, added."""
        x = x[None]
        ahead = softmax(self.log_up + self.up * x - 0.5 * self.up**2, axis=0)
        behind = softmax(self.log_down - self.down * x - 0.5 * self.down**2, axis=0)
        return xp.sum(ahead * self.up, axis=0) + xp.sum(behind * self.down, axis=0)

    def ends(self) -> tuple[Reals, Reals]:
        """The limits of the loss at minus infinity and at infinity."""
        at_zero = _weight(self.up == 0, self.log_up), _weight(self.down == 0, self.log_down)
        ratio = at_zero[0] - at_zero[1]
        above, below = (
            xp.any((mean > 0) & (log_weight > -xp.inf), axis=0)
            for mean, log_weight in ((self.up, self.log_up), (self.down, self.log_down))
        )
        return xp.where(below, -xp.inf, ratio), xp.where(above, xp.inf, ratio)


def _log_ratio(exponent: Reals, log_weight: Reals) -> Reals:
    """log sum w e^exponent, to full relative accuracy near 0, as the weights add up to 1."""
    near_terms = xp.exp(log_weight) * xp.expm1(xp.minimum(exponent, 1.0))
    excess = xp.sum(near_terms, axis=0)
    near = (xp.abs(excess) < 0.5) & (xp.max(exponent, axis=0) <= 1.0)
    far = logsumexp(log_weight + exponent, axis=0)
    return xp.where(near, log1p(xp.where(near, excess, 0.0)), far)


def _weight(chosen: Bools, log_weight: Reals) -> Reals:
    """log of the total weight of the chosen components; -inf for none."""
    return logsumexp(xp.where(chosen, log_weight, -xp.inf), axis=0)


@jitted
def mixture_log_delta(sides: Sides, epsilon: Reals) -> Reals:
    """log of P[X > t] - e^epsilon Q[X > t], L(t) = epsilon; rounded up.

    P and e^epsilon Q have the same density at t. With R the Mills ratio, every term is therefore
    positive:

        sum_i p_i phi(t - a_i) (R(t - a_i) - R(t)) + e^epsilon sum_j q_j phi(t + b_j) (R(t) -
        R(t + b_j)).

    delta(-e) = 1 - e^-e + e^-e delta(e), with delta(e) of the exchanged pair.
    """
    shape = xp.broadcast_shapes(epsilon.shape, *(x.shape[1:] for x in sides))
    more = (len(shape) + 1 - sides[0].ndim) * (1,)  # axes of epsilon alone, after the components
    apart = (x.reshape(x.shape[0], *more, *x.shape[1:]) for x in sides)
    sides = Sides(*(xp.broadcast_to(x, (x.shape[0], *shape)) for x in apart))
    epsilon = xp.broadcast_to(epsilon, shape)
    backward = epsilon < 0
    chosen = Sides(
        *(xp.where(backward, y, x) for x, y in zip(sides, sides.reversed(), strict=True))
    )
    size = xp.abs(epsilon)
    upper = _forward(chosen, size)
    mirrored = xp.minimum(mirrored_log_delta(upper, size, 1.0) + 8.0 * ULP, 0.0)
    certain = log1mexp(xp.where(backward, size, 1.0))
    mirrored = xp.where(upper == -xp.inf, certain, mirrored)
    value = xp.where(backward, mirrored, upper)
    return xp.where(xp.isnan(xp.sum(sides.up + sides.down, axis=0) + size), xp.nan, value)


@custom_jvp
def _forward(sides: Sides, epsilon: Reals) -> Reals:
    """log delta at epsilon >= 0."""
    high = sides.ends()[1]
    inside = epsilon < high
    epsilon = xp.where(inside, epsilon, 0.0)
    t = _place(sides, epsilon)
    of_up = sides.log_up + _log_term(t[None] - sides.up, sides.up)
    exponent = -t[None] * sides.down - 0.5 * sides.down**2
    of_down = epsilon[None] + sides.log_down + exponent
    of_down = of_down + _log_term(xp.broadcast_to(t[None], exponent.shape), sides.down)
    terms = xp.concatenate([of_up, of_down])
    total = logsumexp(terms, axis=0)
    size = xp.max(xp.where(terms > -xp.inf, xp.abs(terms), 0.0), axis=0)
    # If t has an error of an ulp the two densities differ; R(t) multiplies the difference.
    p, q = sides.log_ratios(t)
    ulps = 16.0 * epsilon + 8.0 * xp.abs(sides.loss_slope(t)) * (1.0 + xp.abs(t))
    gap = ULP * ulps + xp.abs(p - q - epsilon)
    log_off = log_normal_survival(t) + xp.maximum(p, epsilon + q) + xp.log(gap)
    total = xp.logaddexp(total, log_off) + ULP * (_TERM_ULPS + 8.0 * size)
    return xp.where(inside, xp.minimum(total, 0.0), -xp.inf)


@_forward.defjvp
def _forward_jvp(primals: tuple[Sides, Reals], tangents: tuple[Sides, Reals]):
    """The derivative with the place t fixed, where delta is stationary."""
    (sides, epsilon), (of_sides, of_epsilon) = primals, tangents
    value = _forward(sides, epsilon)
    inside = value > -xp.inf
    t = _place(sides, xp.where(inside, epsilon, 0.0))
    t, epsilon, inside = t[None], epsilon[None], inside[None]
    log_unit = xp.where(inside, value[None], 0.0)

    def share(log_weight: Reals, log_part: Reals) -> Reals:
        return xp.where(inside, xp.exp(log_weight + log_part - log_unit), 0.0)

    y_up, y_down = t - sides.up, t + sides.down
    log_density = lambda x: -0.5 * x * x - LOG_SQRT_2PI  # noqa: E731
    log_down = epsilon + sides.log_down
    survival_up = share(sides.log_up, log_normal_survival(y_up))
    survival_down = share(log_down, log_normal_survival(y_down))
    parts = (
        share(sides.log_up, log_density(y_up)) * of_sides.up
        + xp.where(sides.log_up > -xp.inf, survival_up * of_sides.log_up, 0.0),
        share(log_down, log_density(y_down)) * of_sides.down
        - xp.where(sides.log_down > -xp.inf, survival_down * of_sides.log_down, 0.0)
        - survival_down * of_epsilon[None],
    )
    return value, xp.sum(parts[0], axis=0) + xp.sum(parts[1], axis=0)


def _place(sides: Sides, epsilon: Reals) -> Reals:
    """The t with L(t) = epsilon, by bisection; the loss rises."""
    largest = xp.maximum(xp.max(sides.up, axis=0), xp.max(sides.down, axis=0))
    safe = xp.where(largest > 0, largest, 1.0)
    reach = xp.minimum((epsilon + _LEAST_WEIGHT) / safe + safe, 1e200)

    def is_below(t: Reals) -> Bools:
        p, q = sides.log_ratios(t)
        return p - q < epsilon

    return lax.stop_gradient(bisect(is_below, -reach, reach, halvings=_BISECTIONS)[1])


def _log_term(y: Reals, width: Reals) -> Reals:
    """log of phi(y) (R(y) - R(y + width)), width >= 0, by terms that are positive."""
    log_density = -0.5 * y * y - LOG_SQRT_2PI
    positive = xp.maximum(y, 0.0)
    above = log_density + xp.log(mills_pair(positive, width).difference)
    # Below 0, R(y) = 1 / phi(y) - R(-y): up to 0, and beyond it.
    negative = xp.minimum(y, 0.0)
    part = xp.minimum(-negative, width)
    end = negative + part
    up_to_zero = -xp.expm1(0.5 * part * (negative + end))
    density = xp.exp(-0.5 * negative**2 - LOG_SQRT_2PI)
    up_to_zero = up_to_zero + density * mills_pair(-end, part).difference
    from_zero = density * mills_pair(xp.zeros_like(y), xp.maximum(y + width, 0.0)).difference
    from_zero = xp.where(y < 0, from_zero, 0.0)
    below = xp.log(up_to_zero + from_zero)
    return xp.where(width == 0, -xp.inf, xp.where(y >= 0, above, below))
