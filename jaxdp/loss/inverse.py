"""epsilon from delta: one vertical line serves every epsilon near the one that is sought.

delta <= |F(theta)| / (a width) for every theta, so the least over theta of
(K(theta) - log(theta (1 + theta)) - log delta) / theta is near the epsilon sought, and the theta
that attains it near its saddle. The cumulant is evaluated once, along that line; Newton's method
then costs a sum over the points for each epsilon.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import Term, Terms, add_up, cumulant, largest_loss
from jaxdp.loss.line import LOG_TILTS, Line, line_at, log_pole
from jaxdp.noise.base import Points

_TOLERANCE = 5e-11
_COARSE, _FINE, _ROUNDS = 37, 9, 3
_POINTS, _BLOCK = 512, 64
_BUCKETS = (128, 256, 512)
_NEWTON_STEPS = 9
# Of delta: what the line may leave out.
_SPARE = 1e-10
# Of log delta: two lines for the same delta differ by less.
_SLACK = 3e-10
# Of tilts whose second difference is the curvature at the saddle, relatively.
_APART = 0.05


class _Summed(NamedTuple):
    phi: Complexes  # M(theta + it) / M(theta), (lanes, points)
    start: Index
    tail: Reals
    value: Reals
    done: Bools


def quick_epsilon(terms: Terms, delta: Reals) -> tuple[Reals, Bools]:
    """The least epsilon >= 0 that meets each delta (*batch, m), and where it is settled.

    One line, for the middle of the m deltas. Settled: the bound of this line, above the truth by
    less than 2e-10, meets delta with a slack of 3e-10 in log delta. Not settled where 512 points
    do not reach that, where delta is too far from the middle or some loss may be infinite.
    """
    wanted = jnp.log(delta)
    middle = 0.5 * (jnp.min(wanted, axis=-1) + jnp.max(wanted, axis=-1))
    tilts, cumulants, theta, guess = _saddle(terms, middle)
    line = line_at(terms, guess, theta, tilts, cumulants - tilts * guess[..., None], _TOLERANCE)
    end = _sum(terms, guess, line)
    heights = line.step[..., None] * jnp.arange(_POINTS)[(None,) * middle.ndim]
    z = line.theta[..., None] + 1j * heights
    kernel = (line.theta * (1.0 + line.theta))[..., None] / (z * (z + 1.0))
    share = jnp.where(heights == 0, 0.5, 1.0) * line.step[..., None] / jnp.pi
    summand = end.phi * kernel * share
    spare = end.tail + line.rounding * jnp.sum(jnp.abs(summand), axis=-1)
    theta, guess, log_size, spare = (x[..., None] for x in (theta, guess, line.log_size, spare))
    target = wanted - _SLACK - 4.0 * line.rounding[..., None]
    used = functools.partial(_newton, summand, heights, spare, theta, guess, log_size, target)
    # Most lines end early, and Newton's method costs as much as its points.
    buckets = [lambda _, n=n: used(n) for n in _BUCKETS]
    bucket = jnp.searchsorted(jnp.asarray(_BUCKETS), jnp.minimum(end.start, _POINTS))
    found, value, sure = lax.switch(bucket, buckets, 0)
    settled = end.done[..., None] & sure & (value <= wanted - 0.5 * _SLACK)
    settled &= value > target - _SLACK
    finite = add_up(terms, Term.log_finite) == 0
    settled &= (found < largest_loss(terms)[..., None]) & finite[..., None]
    return jnp.maximum(found, 0.0), settled


def _newton(
    summand: Complexes,
    heights: Reals,
    spare: Reals,
    theta: Reals,
    guess: Reals,
    log_size: Reals,
    target: Reals,
    points: int,
) -> tuple[Reals, Reals, Bools]:
    """epsilon (*batch, m), log delta there, and whether what is spare is little beside it."""
    summand, heights = summand[..., None, :points], heights[..., None, :points]

    def log_delta(epsilon: Reals) -> tuple[Reals, Reals, Reals]:
        """And its slope, and the share of `spare`."""
        turned = summand * jnp.exp(-1j * heights * epsilon[..., None])
        value = jnp.sum(jnp.real(turned), axis=-1) + spare
        slope = jnp.sum(heights * jnp.imag(turned), axis=-1)
        fall = theta * (epsilon - guess)
        return log_size - fall + jnp.log(value), slope / value - theta, spare / value

    def far(state: tuple[Index, Reals, Reals]) -> Bools:
        steps, epsilon, move = state
        return (steps < _NEWTON_STEPS) & jnp.any(jnp.abs(move) > 1e-15 * (1.0 + jnp.abs(epsilon)))

    def step(state: tuple[Index, Reals, Reals]) -> tuple[Index, Reals, Reals]:
        steps, epsilon, _ = state
        value, slope, _ = log_delta(epsilon)
        slope = jnp.minimum(slope, -0.1 * theta)
        move = jnp.clip((target - value) / slope, -3.0 / theta, 3.0 / theta)
        return steps + 1, epsilon + move, move

    first = jnp.broadcast_to(guess, target.shape)
    found = lax.while_loop(far, step, (jnp.zeros((), int), first, jnp.full_like(first, jnp.inf)))[1]
    value, _, share = log_delta(found)
    return found, value, share <= _SPARE


def rough_log_delta(terms: Terms, epsilon: Reals) -> Reals:
    """log delta to a few percent, where it is below -1, from the saddle alone: a first guess."""

    def exponents(tilts: Reals) -> tuple[Reals, Reals]:
        values = jnp.real(cumulant(terms, tilts, rough=True))
        return values, values - tilts * epsilon[..., None] - log_pole(tilts)

    theta, least = _narrowed(exponents, epsilon)[2:]
    offsets = (1.0 + _APART * jnp.arange(-1.0, 2.0))[(None,) * theta.ndim]
    near = theta[..., None] * offsets
    around = exponents(near)[1]
    bend = (around[..., 0] + around[..., 2] - 2.0 * around[..., 1]) / (_APART * theta) ** 2
    return least - 0.5 * jnp.log(2.0 * jnp.pi * jnp.maximum(bend, 1e-300))


def _saddle(terms: Terms, log_target: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    """Coarse tilts and K there, theta, and the epsilon that it gives."""

    def guesses(tilts: Reals) -> tuple[Reals, Reals]:
        values = jnp.real(cumulant(terms, tilts, rough=True))
        return values, (values - log_pole(tilts) - log_target[..., None]) / tilts

    return _narrowed(guesses, log_target)


def _narrowed(
    objective: Callable[[Reals], tuple[Reals, Reals]], lanes: Reals
) -> tuple[Reals, Reals, Reals, Reals]:
    """Coarse tilts and the first result there; where the second is least, and how low it is."""
    rank = (None,) * lanes.ndim
    shares = jnp.linspace(0.0, 1.0, _FINE)[rank]

    def around(tilts: Reals, found: Reals) -> tuple[Reals, Reals, Reals, Reals]:
        index = jnp.argmin(jnp.where(jnp.isnan(found), jnp.inf, found), axis=-1)[..., None]
        near = [jnp.clip(index + offset, 0, tilts.shape[-1] - 1) for offset in (-1, 1, 0)]
        low, high, theta = (jnp.take_along_axis(tilts, i, -1)[..., 0] for i in near)
        return low, high, theta, jnp.take_along_axis(found, index, -1)[..., 0]

    coarse = jnp.exp(jnp.linspace(*LOG_TILTS, _COARSE))[rank]
    tilts = jnp.broadcast_to(coarse, (*lanes.shape, _COARSE))
    first, found = objective(tilts)

    def narrow(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high = state[0][..., None], state[1][..., None]
        fine = low * (high / low) ** shares
        return around(fine, objective(fine)[1])

    theta, least = lax.fori_loop(0, _ROUNDS, narrow, around(tilts, found))[2:]
    return tilts, first, theta, least


def _sum(terms: Terms, epsilon: Reals, line: Line) -> _Summed:
    everything = line.theta * (1.0 + line.theta)

    def unfinished(state: _Summed) -> Bools:
        return (state.start < _POINTS) & ~jnp.all(state.done)

    def advance(state: _Summed) -> _Summed:
        indices = state.start + jnp.arange(_BLOCK)
        points = Points(line.theta, line.step, jnp.full_like(epsilon, jnp.inf), indices)
        rise = add_up(terms, lambda term: term.rise(points)).astype(complex)
        phi = jnp.where(state.done[..., None], 0.0, jnp.exp(rise))
        height = points.heights()
        z = line.theta[..., None] + 1j * height
        turned = phi * jnp.exp(-1j * height * epsilon[..., None]) / (z * (z + 1.0))
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * epsilon.ndim]
        added = jnp.sum(share * jnp.real(turned), axis=-1) * everything * line.step / jnp.pi
        value = state.value + added
        end = line.step * (state.start + _BLOCK)
        envelope = jnp.max(jnp.abs(phi), axis=-1) * everything / (jnp.pi * end)
        tail = jnp.where(state.done, state.tail, envelope)
        where = (*(0,) * epsilon.ndim, state.start)
        return _Summed(
            lax.dynamic_update_slice(state.phi, phi, where),
            state.start + _BLOCK,
            tail,
            value,
            state.done | (tail <= _TOLERANCE * jnp.abs(value)),
        )

    zero = jnp.zeros_like(epsilon)
    phi = jnp.zeros((*epsilon.shape, _POINTS), complex)
    first = _Summed(phi, jnp.zeros((), int), zero + jnp.inf, zero, zero > 0)
    return lax.while_loop(unfinished, advance, first)
