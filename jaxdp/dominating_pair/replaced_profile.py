"""delta of one Poisson-sampled release whose record is replaced, from the noise's tails."""

from __future__ import annotations

import jax

from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.dominating_pair.poisson import log_mixed
from jaxdp.dominating_pair.sampled_profile import sampled_largest
from jaxdp.noise.base import Noise, mirrored_log_delta

# Bisections for t. derived: to an ulp
_BISECTIONS = 70
# Range of log t, in widths of the noise, where L = epsilon. chosen: beyond, convexity bounds it
_LOG_REACH = (-40.0, 20.0)


@jitted
def replaced_log_delta(noise: Noise, sampling_prob: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """log of P[X > t] - e^epsilon Q[X > t] for the P and Q of `Replaced`, L(t) = epsilon.

    L = log A+ - log A- is odd and rises. The result is an upper bound whose terms are small where
    delta is. With the noise's delta_0 of the whole release at 2 shift, S the survival function, and
    any loss e_0,

        q (delta_0(e_0) + (e^e_0 - e^e) S(t + shift)) - (1 - q) (e^e - 1) S(t)

    equals delta if e_0 is the loss of the whole release in t. The bound never exceeds q
    delta_0(epsilon), by joint convexity. delta(-e) = 1 - e^-e + e^-e delta(e).
    """
    arguments = noise, sampling_prob, shift, epsilon
    shape = xp.broadcast_shapes(*(xp.shape(x) for x in jax.tree.leaves(arguments)))
    # Without the barrier, XLA's rewrites of broadcast operands do not end.
    noise, q, shift, epsilon = lax.optimization_barrier(
        jax.tree.map(lambda x: xp.broadcast_to(x, shape), arguments)
    )
    size = xp.abs(epsilon)
    convex = round_up(noise.log_delta(2.0 * shift, size) + xp.log(q), 4)
    tails = _tails(noise, shift, q, size)
    upper = xp.where(tails < convex, tails, convex)
    outside = (q == 0) | (size >= replaced_largest(noise.pure_epsilon(shift), q))
    upper = xp.where(outside, -xp.inf, xp.minimum(upper, 0.0))
    value = xp.where(epsilon < 0, mirrored_log_delta(upper, size, 1.0), upper)
    return xp.where(xp.isnan(convex) | xp.isnan(q + epsilon), xp.nan, value)


def replaced_largest(largest: Reals, sampling_prob: Reals) -> Reals:
    """The largest loss, from the whole release's: the largest losses of both directions add up."""
    zero = xp.zeros_like(sampling_prob)
    sides = (sampled_largest(largest, sampling_prob, side) for side in (zero, zero + 1.0))
    return round_up(sum(sides, start=zero), 1)


def _tails(noise: Noise, shift: Reals, q: Reals, epsilon: Reals) -> Reals:
    width = xp.exp(-noise.log_density(xp.zeros_like(epsilon)))

    def halve(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        middle = 0.5 * (ends[0] + ends[1])
        x = width * xp.exp(middle)
        centre = noise.log_density(x)
        ahead, behind = (log_mixed(noise.log_density(x - m) - centre, q) for m in (shift, -shift))
        below = ahead - behind < epsilon
        return xp.where(below, middle, ends[0]), xp.where(below, ends[1], middle)

    start = tuple(xp.full_like(epsilon, end) for end in _LOG_REACH)
    high = lax.fori_loop(0, _BISECTIONS, halve, start)[1]
    # delta is stationary in t, so the error of t does not matter.
    t = lax.stop_gradient(xp.where(epsilon == 0, 0.0, width * xp.exp(high)))
    near, centre, far = (noise.log_survival(t + side * shift) for side in (-1.0, 0.0, 1.0))
    loss = noise.log_density(t - shift) - noise.log_density(t + shift)
    loss, largest = lax.stop_gradient(xp.maximum(loss, epsilon)), noise.pure_epsilon(2.0 * shift)
    ended = loss >= largest * (1.0 - 8.0 * ULP)
    gained = xp.exp(noise.log_delta(2.0 * shift, xp.where(ended, 0.0, loss)) - near)
    gained, loss = xp.where(ended, 0.0, gained), xp.where(ended, largest, loss)
    gained = gained - (xp.exp(loss + far - near) * xp.expm1(epsilon - loss))
    loss_part = xp.expm1(epsilon) * xp.exp(centre - near)
    value = q * gained - (1.0 - q) * loss_part
    sizes = q * gained + (1.0 - q) * loss_part
    value = value + ULP * (64.0 + 8.0 * xp.abs(near)) * sizes
    log_tail = near + xp.log(value)
    return xp.where(value > 0, round_up(log_tail, 4), xp.nan)
