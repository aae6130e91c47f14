"""epsilon from delta, and delta in a hurry: by one vertical line, where that settles it.

One line serves every epsilon near the one that is sought: the cumulant is evaluated once along it,
and Newton's method then costs a sum over the points for each epsilon.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import (
    FEW_LANES,
    MORE_LANES,
    Term,
    Terms,
    add_up,
    by_lanes,
    largest_loss,
)
from jaxdp.loss.guess import Guess, middle
from jaxdp.loss.line import SADDLE_MARGIN, Line, line_at
from jaxdp.loss.quick_sum import BLOCK, Summed, sum_along

_TOLERANCE = 5e-11
SHORT, LONG = 512, 7680
# For short lines: most sums are not far below the saddle's value.
_MARGIN = 7.0
_NEWTON_STEPS = 9
# Of a chunk where a point takes about as many nodes.
_LANES = 64
# Of step epsilon: below it a line takes more points the smaller it is. More than any nodes.
_FEW_POINTS, _NODES = 1.0, 1e5
# A last step of so many 1 / theta leaves the square of that.
_CONVERGED = 1e-6
# What the line may leave out of epsilon, relatively, and the least and most of delta.
_OF_EPSILON, _SPARE = 1e-9, (1e-10, 7e-9)
# Of log delta: two lines for the same delta differ by less.
_SLACK = 6e-10
# Of two lines for one delta the sums' errors differ by less than this factor.
_OTHERS = 8.0
_ROUGHER = 1e-8
# Nearer to delta = 1 the line left of the axis is the better one.
_LEAST_LOG = -0.1
# Of log delta: Markov bounds from the tilts of two lines differ by less.
_CLEAR = 0.1


def quick_epsilon(
    terms: Terms, delta: Reals, near: Guess, points: int, both: bool
) -> tuple[Reals, Bools]:
    """The least epsilon >= 0 that meets each delta (*batch, m), and where one line settles it.

    `both`: axis 0 of all arguments are directions; of the results it is the worse one. Settled:
    the bound of this line, above the truth by less than 7e-9, mostly 1e-11, meets delta with a
    slack of 6e-10 in log delta. Not settled where the points do not reach that, where delta is too
    far from the middle or some loss may be infinite.
    """

    def line_for(terms: Terms, at: tuple[Reals, Guess]) -> Line:
        wanted, near = jnp.log(at[0]), at[1]
        margin = SADDLE_MARGIN if points > SHORT else _MARGIN
        margins = margin + jnp.max(wanted, axis=-1) - middle(wanted)
        return line_at(terms, near.epsilon, near.tilt, None, _TOLERANCE, margins)

    nodes, guess = _nodes(terms, near.tilt), near.epsilon
    lines = by_lanes(line_for, terms, (delta, near), MORE_LANES, nodes)
    bound = jnp.minimum(lines.markov_epsilon(guess, delta), largest_loss(terms)[..., None])
    bound += _CLEAR / lines.theta[..., None]

    def on(terms: Terms, at: tuple[Reals, tuple[Line, Reals]]) -> tuple[Reals, Bools]:
        return _epsilon_on(terms, *at, points)

    alike = _alike(lines, guess, nodes)
    return _worse(on, terms, (delta, (lines, guess)), bound, alike, _LANES, both)


def _nodes(terms: Terms, tilt: Reals) -> Reals:
    return add_up(terms, lambda term: term.nodes(tilt))


def _alike(lines: Line, epsilon: Reals, nodes: Reals) -> Reals:
    """Of near values where sums take about as long."""
    shorter = jnp.maximum(lines.step * epsilon, 1e-9) / _FEW_POINTS
    return nodes + _NODES * jnp.ceil(jnp.maximum(-jnp.log2(shorter), 0.0))


def _worse(
    function: Callable[[Terms, Any], tuple[Reals, Bools]],
    terms: Terms,
    values: Any,
    bound: Reals,
    alike: Reals,
    lanes: int,
    both: bool,
) -> tuple[Reals, Bools]:
    """function's larger results (*batch, m) of both directions, along the first axis if there are.

    That of the larger `bound` (*batch, m) first: nothing is summed for bounds below what is known
    then. `alike` (*batch,): see `by_lanes`.
    """
    at = terms, values, bound, alike
    if both:
        later = jnp.all(bound[0] < bound[1], axis=-1)
        at = jax.tree.map(lambda x: _exchanged(x, later), at)
    else:
        at = jax.tree.map(lambda x: x[None], at)

    def direction(known: tuple[Reals, Bools], at: Any) -> tuple[tuple[Reals, Bools], None]:
        terms, values, bound, alike = at
        clear = jnp.all(bound <= known[0], axis=-1) & _finite(terms)

        def on(terms: Terms, at: tuple[Any, Reals, Bools]) -> tuple[Reals, Bools]:
            values, bound, clear = at
            return lax.cond(
                jnp.all(clear),
                lambda: (bound, bound < jnp.inf),
                lambda: function(terms, values),
            )

        longest_last = jnp.where(clear, jnp.inf, alike)
        found, settled = by_lanes(on, terms, (values, bound, clear), lanes, longest_last)
        found = jnp.where(clear[..., None], known[0], jnp.maximum(found, known[0]))
        return (found, known[1] & (settled | clear[..., None])), None

    nothing = jnp.full(at[2].shape[1:], -jnp.inf)
    return lax.scan(direction, (nothing, nothing < 0), at)[0]


def _exchanged(pair: Reals | Bools, where: Bools) -> Reals | Bools:
    where = where.reshape(*where.shape, *(1,) * (pair.ndim - 1 - where.ndim))
    return jnp.where(where, jnp.flip(pair, axis=0), pair)


def _finite(terms: Terms) -> Bools:
    return add_up(terms, Term.log_finite) == 0


def _epsilon_on(
    terms: Terms, delta: Reals, known: tuple[Line, Reals], points: int
) -> tuple[Reals, Bools]:
    wanted, (line, guess) = jnp.log(delta), known
    end = sum_along(terms, guess, line, points)
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
    end: Summed,
    step: Reals,
    spare: Reals,
    theta: Reals,
    guess: Reals,
    log_size: Reals,
    target: Reals,
) -> tuple[Reals, Reals, Reals]:
    """epsilon (*batch, m), log delta there, and the share of what is spare in it."""
    indices = jnp.arange(BLOCK)[(None,) * target.ndim]
    angle = step[..., None]

    def log_delta(epsilon: Reals) -> tuple[Reals, Reals, Reals]:
        """And its slope, and the share of `spare`."""
        turn = angle * (guess - epsilon)
        # exp(-i k h (epsilon - guess)) from two factors.
        inside = _phase(turn[..., None] * indices)

        def add(block: Index, sums: tuple[Complexes, Complexes]) -> tuple[Complexes, Complexes]:
            start = block * BLOCK
            summand = lax.dynamic_slice_in_dim(end.summand, start, BLOCK, -1)[..., None, :]
            turned = summand * inside * _phase(turn * start)[..., None]
            moved = turned * (start + indices)
            return sums[0] + jnp.sum(turned, axis=-1), sums[1] + jnp.sum(moved, axis=-1)

        nothing = jnp.zeros(epsilon.shape, complex)
        total, moved = lax.fori_loop(0, end.start // BLOCK, add, (nothing, nothing))
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


def _phase(angle: Reals) -> Complexes:
    sine, cosine = sine_cosine(angle)
    return lax.complex(cosine, sine)


def quick_log_delta(
    terms: Terms, epsilon: Reals, near: Reals, points: int, both: bool
) -> tuple[Reals, Bools, Reals]:
    """log of an upper bound on delta at epsilon >= 0 (*batch,), where settled, the lines' tilts.

    `near`: a tilt within a factor of two of the saddle. `both`: axis 0 of all arguments and of the
    tilts are directions; of the bound it is the worse one. Settled: above what any line reports, by
    less than 1e-8 in log delta, mostly 6e-10; or -inf. Else the points do not reach that, delta is
    near 1, or some loss may be infinite.
    """

    def line_for(terms: Terms, at: tuple[Reals, Reals]) -> Line:
        epsilon, near = at
        return line_at(terms, epsilon, near, None, _TOLERANCE, _MARGIN)

    nodes = _nodes(terms, near)
    lines = by_lanes(line_for, terms, (epsilon, near), MORE_LANES, nodes)
    bound = jnp.where(epsilon >= largest_loss(terms), -jnp.inf, lines.markov(epsilon) + _CLEAR)

    def on(terms: Terms, at: tuple[Reals, Line]) -> tuple[Reals, Bools]:
        found, settled = _log_delta_on(terms, *at, points)
        return found[..., None], settled[..., None]

    alike = _alike(lines, epsilon, nodes)
    at = terms, (epsilon, lines), bound[..., None], alike
    found, settled = _worse(on, *at, FEW_LANES, both)
    return found[..., 0], settled[..., 0], lines.theta


def _log_delta_on(terms: Terms, epsilon: Reals, line: Line, points: int) -> tuple[Reals, Bools]:
    end = sum_along(terms, epsilon, line, points, kept=False)
    spare = end.tail + line.rounding * end.absolute + line.aliasing
    # Another line's rounding may be larger, the bound that is reported in the end as well.
    upper = line.log_size + jnp.log(end.value + _OTHERS * spare) + 0.5 * _SLACK
    settled = (_OTHERS * spare <= _ROUGHER * end.value) & (upper < _LEAST_LOG)
    settled &= _finite(terms)
    none = epsilon >= largest_loss(terms)
    markov = line.markov(epsilon)
    upper = jnp.where(none, -jnp.inf, jnp.where(upper <= markov, upper, markov))
    return upper, settled | none
