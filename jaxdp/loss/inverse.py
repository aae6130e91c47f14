"""epsilon from delta, and delta in a hurry: by one vertical line, where that settles it.

One line serves every epsilon near the one that is sought.

delta <= |F(theta)| / (a width) for every theta, so the least over theta of
(K(theta) - log(theta (1 + theta)) - log delta) / theta is near the epsilon sought, and the theta
that attains it near its saddle. The cumulant is evaluated once, along that line; Newton's method
then costs a sum over the points for each epsilon.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import (
    FEW_LANES,
    MORE_LANES,
    Term,
    Terms,
    add_up,
    by_lanes,
    cumulant,
    largest_loss,
    on_line,
    rise,
)
from jaxdp.loss.decay import probed
from jaxdp.loss.line import LOG_TILTS, SADDLE_MARGIN, Line, line_at, log_pole
from jaxdp.loss.saddle import Saddle, saddle_of
from jaxdp.noise.base import Points

_TOLERANCE = 5e-11
SHORT, LONG = 512, 7680
_BLOCK = 64
# Of a block: its largest |phi| stands for what follows.
_WATCHED = 16
# For short lines: most sums are not far below the saddle's value.
_MARGIN = 7.0
_NEWTON_STEPS = 9
# Of a chunk where the lines are of about one length.
_LANES = 16
# A last step of so many 1 / theta leaves the square of that.
_CONVERGED = 1e-6
# What the line may leave out of epsilon, relatively, and the least and most of delta.
_OF_EPSILON, _SPARE = 1e-9, (1e-10, 7e-9)
# Of the sum at the guess, which may be larger.
_TAIL = 1e-12
# Of log delta: two lines for the same delta differ by less.
_SLACK = 3e-10
# Of two lines for one delta the sums' errors differ by less than this factor.
_OTHERS = 8.0
_ROUGHER = 1e-8
# Nearer to delta = 1 the line left of the axis is the better one.
_LEAST_LOG = -0.1
# Of log delta: a Markov bound is rarely farther above it.
_CLEAR = 3.0


class _Summed(NamedTuple):
    summand: Complexes  # F(theta + it) / |F(theta)| and its share, (lanes, points), if kept
    start: Index
    tail: Reals
    value: Reals
    absolute: Reals
    done: Bools


class Quick(NamedTuple):
    """A value, and where one line settles it."""

    value: Reals
    settled: Bools
    bounded: Bools  # a bound, at least

    def worse(self, both: bool) -> tuple[Reals, Bools]:
        """Of the directions, along the first axis, if there are both."""
        if not both:
            return self.value, self.settled
        worse = jnp.max(self.value, axis=0, keepdims=True)
        below = self.bounded & (self.value < worse)
        return worse[0], jnp.all(self.settled | below, axis=0)


class Guess(NamedTuple):
    """Of shape (*batch,): near the epsilon sought, and a tilt within a factor of two of its saddle.

    By how far the saddle alone is off, that is a factor of two for nearly all compositions.
    """

    epsilon: Reals
    tilt: Reals


def guess_epsilon(terms: Terms, delta: Reals) -> Guess:
    """Of the middle of the deltas (*batch, m)."""

    def at_saddle(terms: Terms, middle: Reals) -> Guess:
        saddle = _saddle(terms, middle)
        # Of the least epsilon the second derivative is that of log |F| over theta.
        width = _log_width(saddle.bend * saddle.theta, saddle.theta)
        return Guess(saddle.least + width / saddle.theta, saddle.theta)

    return by_lanes(at_saddle, terms, _middle(jnp.log(delta)), MORE_LANES)


def _middle(wanted: Reals) -> Reals:
    return 0.5 * (jnp.min(wanted, axis=-1) + jnp.max(wanted, axis=-1))


def quick_epsilon(terms: Terms, delta: Reals, near: Guess, points: int, both: bool) -> Quick:
    """The least epsilon >= 0 that meets each delta (*batch, m); `both`: axis 0 are directions.

    One line, for the middle of the m deltas. Settled: the bound of this line, above the truth by
    less than 2e-10, meets delta with a slack of 3e-10 in log delta. Not settled where the points
    do not reach that, where delta is too far from the middle or some loss may be infinite.
    """

    def line_for(terms: Terms, at: tuple[Reals, Guess]) -> Line:
        wanted, near = jnp.log(at[0]), at[1]
        margin = SADDLE_MARGIN if points > SHORT else _MARGIN
        margins = margin + jnp.max(wanted, axis=-1) - _middle(wanted)
        return line_at(terms, near.epsilon, near.tilt, None, _TOLERANCE, margins)

    lines, guess = by_lanes(line_for, terms, (delta, near), MORE_LANES), near.epsilon
    bound = jnp.minimum(lines.markov_epsilon(guess, delta), largest_loss(terms)[..., None])
    other = jnp.flip(bound - _CLEAR / lines.theta[..., None], axis=0)
    clear = jnp.all(bound < other, axis=-1) & both & _finite(terms)

    def on(terms: Terms, at: tuple[Reals, tuple[Line, Reals], Reals, Bools]) -> Quick:
        delta, known, bound, clear = at
        never = jnp.zeros(delta.shape, dtype=bool)
        return lax.cond(
            jnp.all(clear),
            lambda: Quick(jnp.maximum(bound, 0.0), never, ~never),
            lambda: Quick(*_epsilon_on(terms, delta, known, points), never),
        )

    lanes = min(_LANES, delta[0, ..., 0].size) if both else _LANES
    return by_lanes(on, terms, (delta, (lines, guess), bound, clear), lanes)


def _finite(terms: Terms) -> Bools:
    return add_up(terms, Term.log_finite) == 0


def _epsilon_on(
    terms: Terms, delta: Reals, known: tuple[Line, Reals], points: int
) -> tuple[Reals, Bools]:
    wanted, (line, guess) = jnp.log(delta), known
    end = _sum(terms, guess, line, points)
    # Another line's rounding may be larger, the bound that is reported in the end as well.
    spare = _OTHERS * (end.tail + line.rounding * end.absolute)
    theta, guess, log_size, spare = (
        x[..., None] for x in (line.theta, guess, line.log_size, spare)
    )
    target = wanted - _SLACK - 4.0 * line.rounding[..., None]
    found, value, share = _newton(end, line.step, spare, theta, guess, log_size, target)
    aliasing = line.aliasing[..., None] * jnp.exp(log_size - theta * (found - guess) - value)
    sure = share + aliasing <= jnp.clip(_OF_EPSILON * theta * found, *_SPARE)
    settled = end.done[..., None] & sure & (value <= wanted - 0.5 * _SLACK)
    settled &= value > target - _SLACK
    settled &= (found < largest_loss(terms)[..., None]) & _finite(terms)[..., None]
    return jnp.maximum(found, 0.0), settled


def _newton(
    end: _Summed,
    step: Reals,
    spare: Reals,
    theta: Reals,
    guess: Reals,
    log_size: Reals,
    target: Reals,
) -> tuple[Reals, Reals, Reals]:
    """epsilon (*batch, m), log delta there, and the share of what is spare in it."""
    indices = jnp.arange(_BLOCK)[(None,) * target.ndim]
    angle = step[..., None]

    def log_delta(epsilon: Reals) -> tuple[Reals, Reals, Reals]:
        """And its slope, and the share of `spare`."""
        turn = angle * (guess - epsilon)
        # exp(-i k h (epsilon - guess)) from two factors.
        inside = jnp.exp(1j * turn[..., None] * indices)

        def add(block: Index, sums: tuple[Complexes, Complexes]) -> tuple[Complexes, Complexes]:
            start = block * _BLOCK
            summand = lax.dynamic_slice_in_dim(end.summand, start, _BLOCK, -1)[..., None, :]
            turned = summand * inside * jnp.exp(1j * turn * start)[..., None]
            moved = turned * (start + indices)
            return sums[0] + jnp.sum(turned, axis=-1), sums[1] + jnp.sum(moved, axis=-1)

        nothing = jnp.zeros(epsilon.shape, complex)
        total, moved = lax.fori_loop(0, end.start // _BLOCK, add, (nothing, nothing))
        value = jnp.real(total) + spare
        slope = angle * jnp.imag(moved)
        fall = theta * (epsilon - guess)
        return log_size - fall + jnp.log(value), slope / value - theta, spare / value

    def far(state: tuple[Index, Reals, Reals]) -> Bools:
        steps, _, move = state
        return (steps < _NEWTON_STEPS) & jnp.any(jnp.abs(move) > _CONVERGED)

    def advance(state: tuple[Index, Reals, Reals]) -> tuple[Index, Reals, Reals]:
        steps, epsilon, _ = state
        value, slope, _ = log_delta(epsilon)
        slope = jnp.minimum(slope, -0.1 * theta)
        move = jnp.clip(theta * (target - value) / slope, -3.0, 3.0)
        return steps + 1, epsilon + move / theta, move

    first = jnp.broadcast_to(guess, target.shape)
    start = (jnp.zeros((), int), first, jnp.full_like(first, jnp.inf))
    found = lax.while_loop(far, advance, start)[1]
    value, _, share = log_delta(found)
    return found, value, share


def quick_log_delta(
    terms: Terms, epsilon: Reals, near: Reals, points: int, both: bool
) -> tuple[Quick, Reals]:
    """log of an upper bound on delta at epsilon >= 0 (*batch,), and the line's tilt.

    `near`: a tilt within a factor of two of the saddle. `both`: axis 0 are directions. Settled:
    above what any line reports, by less than 1e-8 in log delta, mostly 3e-10; or -inf. Else the
    points do not reach that, delta is near 1, or some loss may be infinite.
    """

    def line_for(terms: Terms, at: tuple[Reals, Reals]) -> Line:
        epsilon, near = at
        return line_at(terms, epsilon, near, None, _TOLERANCE, _MARGIN)

    lines = by_lanes(line_for, terms, (epsilon, near), MORE_LANES)
    none = epsilon >= largest_loss(terms)
    bound = jnp.where(none, -jnp.inf, lines.markov(epsilon))
    clear = (bound < jnp.flip(bound, axis=0) - _CLEAR) & both & _finite(terms)

    def on(terms: Terms, at: tuple[Reals, Line, Reals, Bools, Bools]) -> Quick:
        epsilon, line, bound, clear, none = at
        every = jnp.ones(epsilon.shape, dtype=bool)
        return lax.cond(
            jnp.all(clear | none),
            lambda: Quick(bound, none, every),
            lambda: Quick(*_log_delta_on(terms, epsilon, line, points), every),
        )

    lanes = min(FEW_LANES, epsilon[0].size) if both else FEW_LANES
    return by_lanes(on, terms, (epsilon, lines, bound, clear, none), lanes), lines.theta


def _log_delta_on(terms: Terms, epsilon: Reals, line: Line, points: int) -> tuple[Reals, Bools]:
    end = _sum(terms, epsilon, line, points, kept=False)
    spare = end.tail + line.rounding * end.absolute + line.aliasing
    # Another line's rounding may be larger, the bound that is reported in the end as well.
    upper = line.log_size + jnp.log(end.value + _OTHERS * spare) + 0.5 * _SLACK
    settled = (_OTHERS * spare <= _ROUGHER * end.value) & (upper < _LEAST_LOG)
    settled &= _finite(terms)
    none = epsilon >= largest_loss(terms)
    markov = line.markov(epsilon)
    upper = jnp.where(none, -jnp.inf, jnp.where(upper <= markov, upper, markov))
    return upper, settled | none


def rough_log_delta(terms: Terms, epsilon: Reals) -> tuple[Reals, Reals]:
    """log delta to a few percent, where it is below -1, from the saddle alone; and its tilt."""

    def at_saddle(terms: Terms, epsilon: Reals) -> tuple[Reals, Reals]:
        def heights(tilts: Reals) -> tuple[Reals, Reals]:
            exponents = jnp.real(cumulant(terms, tilts, "loose")) - tilts * epsilon[..., None]
            return exponents, exponents - log_pole(tilts)

        found = saddle_of(heights, *_ends(epsilon))
        return found.least + _log_width(found.bend, found.theta), found.theta

    return by_lanes(at_saddle, terms, epsilon, MORE_LANES)


def _log_width(bend: Reals, theta: Reals) -> Reals:
    """log of delta over |F(theta)|, of the second derivative of log |F| in log theta."""
    return jnp.log(theta) - 0.5 * jnp.log(2.0 * jnp.pi * bend)


def _saddle(terms: Terms, log_target: Reals) -> Saddle:
    """The theta that gives the least epsilon."""

    def guesses(tilts: Reals) -> tuple[Reals, Reals]:
        values = jnp.real(cumulant(terms, tilts, "loose"))
        return values, (values - log_pole(tilts) - log_target[..., None]) / tilts

    return saddle_of(guesses, *_ends(log_target))


def _ends(lanes: Reals) -> tuple[Reals, Reals]:
    return jnp.full_like(lanes, LOG_TILTS[0]), jnp.full_like(lanes, LOG_TILTS[1])


def _sum(terms: Terms, epsilon: Reals, line: Line, points: int, kept: bool = True) -> _Summed:
    zero, known = jnp.zeros_like(epsilon), on_line(terms, line.theta, line.step)
    decay = probed(terms, line, False, zero > 0)
    everything = line.theta * (1.0 + line.theta)
    tilt, unit = line.theta[..., None], (everything * line.step / jnp.pi)[..., None]

    def unfinished(state: _Summed) -> Bools:
        return (state.start < points) & ~jnp.all(state.done)

    def advance(state: _Summed) -> _Summed:
        indices = state.start + jnp.arange(_BLOCK)
        at = Points(line.theta, line.step, jnp.full_like(epsilon, jnp.inf), indices)
        turn, height = lax.optimization_barrier((rise(terms, at, known), at.heights()))
        turn = jnp.where(state.done[..., None], -jnp.inf, turn)
        size = jnp.exp(jnp.real(turn))
        phase = jnp.imag(turn) - height * epsilon[..., None]
        # z (z + 1), whose complex quotient would cost more than all else.
        real, imaginary = (everything[..., None] - height**2), (tilt + tilt + 1.0) * height
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * epsilon.ndim] * size * unit
        share /= real * real + imaginary * imaginary
        cosine, sine = share * jnp.cos(phase), share * jnp.sin(phase)
        turned = cosine * real + sine * imaginary, sine * real - cosine * imaginary
        summand = lax.complex(*lax.optimization_barrier(turned))
        value = state.value + jnp.sum(jnp.real(summand), axis=-1)
        absolute = state.absolute + jnp.sum(jnp.abs(summand), axis=-1)
        keep = state.summand
        if kept:
            keep = lax.dynamic_update_slice(keep, summand, (*(0,) * epsilon.ndim, state.start))
        end = line.step * (state.start + _BLOCK)
        seen = jnp.max(size[..., -_WATCHED:], axis=-1)
        height = jnp.maximum(seen, jnp.exp(decay.log_beyond(zero + state.start + _BLOCK)))
        tail = jnp.where(state.done, state.tail, everything * height / (jnp.pi * end))
        return _Summed(
            keep,
            state.start + _BLOCK,
            tail,
            value,
            absolute,
            state.done
            | (tail <= (_TAIL if kept else _TOLERANCE) * jnp.abs(value))
            | jnp.isnan(value),
        )

    nothing = jnp.zeros((*epsilon.shape, points if kept else 0), complex)
    first = _Summed(nothing, jnp.zeros((), int), zero + jnp.inf, zero, zero, zero > 0)
    return lax.while_loop(unfinished, advance, first)
