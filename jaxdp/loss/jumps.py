"""Few releases hit the record: what the total owes to its largest loss, sorted by its size.

Below a loss of 1 the law of a sampled Gaussian's loss has a heavy tail (lognormal, nearly): the
total is large because one loss is, no tilt shows that, and one vertical line holds far more than
delta. So let A_0 = M and A_j be the transform of the law of one loss that is cut off smoothly above
a size which falls with j. Then, of n releases,

    M^n = sum over j < J of (A_j^n - A_(j+1)^n) + A_J^n,

all transforms of measures that are not negative: in the j-th the largest loss is of one size. Each
is summed along a line at a tilt of its own, where nothing cancels; the smoothness of the windows
makes it fall off. Far above epsilon delta is E[1 - e^(epsilon - T)] of the total T; far below
Markov's inequality bounds what is left, or A_J^n is summed as well. What else is released is a
factor of every transform, and moves the sizes that matter. The method is ours.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Bools, Index, Reals
from jaxdp.loss.base import Terms, by_lanes
from jaxdp.loss.exchange import LogBounds
from jaxdp.loss.few import Few
from jaxdp.loss.infinite import with_infinite
from jaxdp.loss.jump_parts import (
    Parameters,
    Parts,
    Releases,
    Window,
    applies,
    likely_of,
    parameters_of,
    releases_of,
)
from jaxdp.loss.jump_rest import Rest
from jaxdp.loss.jump_window import share_of, tilts_for

# Where the sum of what is left as a whole does not settle: not again for so many windows.
_PATIENCE = 8.0
_ROUNDS = 2
# In units of the tolerance: what is good enough to look no further.
_SETTLED = 10.0
# Of a parameter, relatively, for its derivative.
_MOVE = 1e-4


class _State(NamedTuple):
    window: Reals
    whole: Bools  # whether the rest may be summed as a whole
    refused: Reals  # the last window where that did not settle
    log_value: Reals  # of all windows so far
    log_error: Reals
    log_aliased: Reals
    log_left: Reals  # of a bound on what is left
    log_least: Reals  # the least bound on all, by a sum of what is left as a whole
    done: Bools


def tightened(
    terms: Terms, epsilon: Reals, known: LogBounds, slow: Bools, tolerance: float
) -> tuple[LogBounds, Bools]:
    """The nearer of all bounds on log delta where one line is too `slow`, and where it settles.

    Shape (*batch,). Derivatives of the upper one are differences: to 1e-6.
    """
    if not applies(terms):
        return known, jnp.zeros_like(slow)
    fixed, at = lax.stop_gradient((terms, epsilon))
    few = _in_lanes(fixed, parameters_of(fixed), at, slow, tolerance)
    better = slow & (few.log_delta < known.upper)
    upper = _follow(tolerance, better, few.log_delta, known.upper, terms, epsilon)
    lower = jnp.where(slow, jnp.maximum(few.log_lower, known.lower), known.lower)
    return LogBounds(lower, upper), slow & few.settled


def _in_lanes(terms: Terms, of: Parameters, epsilon: Reals, wanted: Bools, tolerance: float) -> Few:
    def lanes(terms: Terms, at: tuple[Parameters, Reals, Bools]) -> Few:
        found = jumps_of(*at, tolerance)
        lower, upper = with_infinite(terms, LogBounds(found.log_lower, found.log_delta))
        return Few(upper, lower, found.settled)

    return by_lanes(lanes, terms, (of, epsilon, wanted))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _follow(
    tolerance: float, better: Bools, lower: Reals, upper: Reals, terms: Terms, epsilon: Reals
) -> Reals:
    """`lower` where it is better, with the derivative of `jumps_of`."""
    del tolerance, terms, epsilon
    return jnp.where(better, lower, upper)


@_follow.defjvp
def _follow_jvp(tolerance, primals, tangents):
    better, _, _, terms, epsilon = primals
    of, moves = jax.jvp(parameters_of, (terms,), (tangents[3],))

    def at(of: Parameters, epsilon: Reals) -> Reals:
        return _in_lanes(terms, of, epsilon, better, tolerance).log_delta

    moved = _slope(at, of, epsilon, (moves, tangents[4]))
    return _follow(tolerance, *primals), jnp.where(better, moved, tangents[2])


def _slope(
    function: Callable[[Parameters, Reals], Reals],
    of: Parameters,
    epsilon: Reals,
    tangents: tuple[Parameters, Reals],
) -> Reals:
    """Of function(of, epsilon), by central differences in every parameter that may move."""
    moving, kind = jax.tree.flatten((of, epsilon[..., None]))
    moves = jax.tree.leaves((tangents[0], tangents[1][..., None]))
    sizes = [x.shape[-1] for x in moving[:-1]]
    values = jnp.concatenate(moving, axis=-1)
    number = values.shape[-1]

    def moved(index: Index) -> Reals:
        side = jnp.where(index < number, 1.0, -1.0)
        place = jnp.arange(number) == index % number
        now = values * (1.0 + _MOVE * side * place[(None,) * epsilon.ndim])
        parameters, at = jax.tree.unflatten(kind, jnp.split(now, np.cumsum(sizes), axis=-1))
        return function(parameters, at[..., 0])

    each = lax.map(moved, jnp.arange(2 * number)).reshape(2, number, *epsilon.shape)
    rises = jnp.moveaxis(each[0] - each[1], 0, -1)
    slopes = jnp.where(jnp.isfinite(rises) & (values != 0), rises, 0.0)
    slopes /= 2.0 * _MOVE * jnp.where(values != 0, values, 1.0)
    return jnp.sum(slopes * jnp.concatenate(moves, axis=-1), axis=-1)


class _Rounds(NamedTuple):
    found: Few
    likely: Reals  # log delta is not far less
    wanted: Bools


def jumps_of(of: Parameters, epsilon: Reals, wanted: Bools, tolerance: float) -> Few:
    """Where it is `wanted` and applies; else infinite.

    Where delta is less than was likely, losses that were left out matter: once more with them.
    """

    def unfinished(state: tuple[Index, _Rounds]) -> Bools:
        return (state[0] < _ROUNDS) & jnp.any(state[1].wanted)

    def advance(state: tuple[Index, _Rounds]) -> tuple[Index, _Rounds]:
        rounds, so_far = state
        releases = releases_of(of, epsilon, so_far.likely)
        end, now = _over_windows(releases, epsilon, so_far.wanted, tolerance)
        upper = jnp.where(so_far.wanted, now.log_delta, jnp.inf)
        lower = jnp.where(so_far.wanted, now.log_lower, -jnp.inf)
        found = Few(
            jnp.minimum(upper, so_far.found.log_delta),
            jnp.maximum(lower, so_far.found.log_lower),
            so_far.found.settled | (so_far.wanted & now.settled),
        )
        again = so_far.wanted & releases.sound & ~found.settled & ~releases.sizes.exceeds
        return rounds + 1, _Rounds(found, jnp.where(again, end, so_far.likely), again)

    first = _Rounds(Few.nothing(epsilon), likely_of(of, epsilon), wanted)
    return lax.while_loop(unfinished, advance, (jnp.zeros((), int), first))[1].found


def _over_windows(
    releases: Releases, epsilon: Reals, wanted: Bools, tolerance: float
) -> tuple[Reals, Few]:
    """What they sum to, a logarithm, and the bound."""
    usable = releases.sound & wanted
    at = jnp.where(usable, epsilon, 1.0)

    def unfinished(state: _State) -> Bools:
        return ~jnp.all(state.done)

    def advance(state: _State) -> _State:
        last = state.window >= releases.last
        whole = state.whole | last
        share = share_of(releases, state.window, whole, state.log_value, at, tolerance)
        value = jnp.logaddexp(state.log_value, share.value)
        error = jnp.logaddexp(state.log_error, share.error)
        aliased = jnp.logaddexp(state.log_aliased, share.aliased)
        left = jnp.minimum(share.left, state.log_left)
        # Down to here the windows hold what exceeds epsilon at once.
        done = (state.window > 1) & (left < value + math.log(0.1 * tolerance))
        done |= whole | jnp.isnan(value)
        again = state.refused + _PATIENCE <= state.window
        upper = jnp.where(whole, jnp.logaddexp(value, error), jnp.inf)
        least = jnp.where(upper < state.log_least, upper, state.log_least)
        alone = share.alone & again
        sums = value, error, aliased, left, least
        now = _State(state.window + 1, alone, state.refused, *sums, done)
        unsettled = whole & ~last & (share.error > value + math.log(_SETTLED * tolerance))
        # The bound is kept, though the windows go on.
        back = state._replace(whole=jnp.zeros_like(last), refused=state.window, log_least=least)
        now = jax.tree.map(lambda a, b: jnp.where(unsettled, a, b), back, now)
        return jax.tree.map(lambda a, b: jnp.where(state.done, a, b), state, now)

    infinite = jnp.full_like(at, jnp.inf)
    first = jnp.ones_like(at), jnp.zeros_like(usable), jnp.full_like(at, -_PATIENCE)
    start = _State(*first, *_highest(releases, at), -infinite, infinite, infinite, ~usable)
    end = lax.while_loop(unfinished, advance, start)
    spare = jnp.logaddexp(end.log_error, jnp.logaddexp(end.log_left, releases.log_rest()))
    least = jnp.logaddexp(end.log_least, releases.log_rest())
    upper = jnp.minimum(jnp.logaddexp(end.log_value, spare), least)
    upper += 16.0 * ULP * (1.0 + jnp.abs(upper))
    sound = usable & (upper < jnp.inf)
    settled = sound & (spare < end.log_value + math.log(_SETTLED * tolerance))
    over = end.log_value - jnp.logaddexp(end.log_error, end.log_aliased)
    certain = over > 0
    lower = end.log_value + log1mexp(jnp.where(certain, over, 1.0))
    lower -= 16.0 * ULP * (1.0 + jnp.abs(lower))
    found = Few(
        jnp.where(sound, upper, jnp.inf), jnp.where(sound & certain, lower, -jnp.inf), settled
    )
    return end.log_value, found


def _highest(releases: Releases, epsilon: Reals) -> tuple[Reals, Reals]:
    """Logarithms of what the highest window contributes, and of the error.

    With a loss there the total exceeds epsilon, but for what Markov bounds.
    """
    window = Window.of(releases, jnp.zeros_like(epsilon))
    beyond = -1.0 - tilts_for(releases)
    ends = jnp.array([0.0, -1.0])[(None,) * epsilon.ndim] + jnp.zeros_like(beyond[..., :2])
    tilts = jnp.concatenate([ends, beyond], axis=-1)
    alone = releases._replace(rest=Rest(()))
    exponents = Parts.of(alone, window, tilts, epsilon < 0).log_difference()
    exponents += releases.rest.log_moment_below(tilts) - tilts * epsilon[..., None]
    mass, less = exponents[..., 0], exponents[..., 1]
    value = mass + log1mexp(jnp.maximum(mass - less, 0.0))
    rounding = mass + math.log(256.0 * ULP)
    error = jnp.logaddexp(rounding, jnp.min(exponents[..., 2:], axis=-1))
    # A wide edge lets losses through far below epsilon.
    exceeds = releases.sizes.exceeds & (error < mass)
    return jnp.where(exceeds, value, -jnp.inf), jnp.where(exceeds, error, mass)
