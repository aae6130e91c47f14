"""Roots and minima on a bracket, elementwise, ending on the safe side.

`bisect` halves a bracket, `secant_bracket` finds a root of an expensive residual in about a dozen
evaluations, `zoom` a minimum on finer grids, in traces as well.
A point is feasible if its residual is at most 0, as at the safe end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax

from jaxdp._core.namespace import custom_jvp, lax, on_host, xp
from jaxdp._core.types import Bools, Index, Reals

T = TypeVar("T")
Function: TypeAlias = Callable[[Reals], Reals]
Pair: TypeAlias = tuple[Reals, Reals]

# Halvings of a bracket. derived: to the last place from any two doubles, also in log x
_BISECTIONS = 64
# Ulps by which a root moves to its safe side, 4 times more after each failed check. chosen: two
# compilations of a profile differ by one or two ulps of its argument
_GIVE_WAY = 4.0
# Largest number of checks of a root. chosen: the last one moves it by 256 ulps
_CHECKS = 4
# Largest step of log x until both signs are seen. chosen: slopes far from the root mislead
_REACH = 3.0
# Steps by secants before every other step halves the bracket. chosen: smooth residuals need fewer
_SECANTS = 6
# Largest number of steps of secants. chosen: halvings from any bracket need 90
_MOST_STEPS = 100


def bisect(
    passes: Callable[[Reals], Bools],
    good: Reals,
    bad: Reals,
    geometric: bool = False,
    halvings: int = _BISECTIONS,
) -> Pair:
    """Neighbouring (good, bad) after some halvings: `passes` holds up to good, not from bad on."""

    def halve(_: Index | int, ends: Pair) -> Pair:
        good, bad = ends
        middle = xp.sqrt(good) * xp.sqrt(bad) if geometric else 0.5 * (good + bad)
        inside = passes(middle)
        return xp.where(inside, middle, good), xp.where(inside, bad, middle)

    return lax.fori_loop(0, halvings, halve, (good, bad))


def last_feasible(
    residual: Function, safe: Reals, unsafe: Reals, slack: Reals, otherwise: float = xp.inf
) -> Reals:
    """The x nearest to `unsafe`, from `safe`, with residual(x) <= 0; both ends > 0.

    `residual` falls towards `safe`; the arrays have one shape. `slack` covers the difference of two
    compilations of `residual`; where it is steep, the end moves towards `safe` by a few ulps.
    Returns `unsafe` if it is feasible, and `otherwise` if `safe` is not, NaN residuals included.
    The derivative is the root's, by the implicit function theorem; it is 0 at a clamped end.
    """

    def solve(function: Function, start: Reals) -> Reals:
        good = bisect(lambda x: function(x) <= -slack, start, unsafe, geometric=True)[0]
        aside = _GIVE_WAY * xp.finfo(xp.float64).eps * xp.sign(start - good)

        def check(state: tuple[Reals, Bools, Index]) -> tuple[Reals, Bools, Index]:
            x, holds, checks = state
            x = xp.where(holds, x, x * (1.0 + aside * 4.0**checks))
            return x, function(x) <= 0, checks + 1

        state = good, xp.zeros(good.shape, bool), xp.zeros((), int)
        x, holds, _ = lax.while_loop(lambda x: (x[2] < _CHECKS) & ~xp.all(x[1]), check, state)
        return xp.where(holds, x, otherwise)

    residual = _of_known(residual, safe, unsafe, slack)
    root = lax.custom_root(residual, safe, solve, _slope_solve)
    return xp.where(residual(unsafe) <= 0, unsafe, root)


class Secants(NamedTuple):
    """State of a search by secants in log x."""

    aim: Reals  # log x of the next step
    last: Reals
    value: Reals  # at `last`
    slope: Reals
    good: Reals
    bad: Reals
    found: Reals  # the feasible x at `good`; NaN: none
    done: Bools
    steps: Reals


def secant_bracket(
    residual: Function,
    safe: Reals,
    unsafe: Reals,
    close: float = 5e-12,
    slope: float = xp.nan,
) -> Reals:
    """`last_feasible` of a smooth residual by `secants`: within 4 `close` of the root, relatively.

    Infinite where no x is feasible.
    """

    def solve(function: Function, start: Reals) -> Reals:
        found = secants(lambda x, _: function(x), start, unsafe, None, slope, close).found
        return xp.where(xp.isnan(found), xp.inf, found)

    return lax.custom_root(_of_known(residual, safe, unsafe), safe, solve, _slope_solve)


def secants(
    residual: Callable[[Reals, Bools], Reals],
    safe: Reals,
    unsafe: Reals,
    guess: Reals | None = None,
    slope: Reals | float = xp.nan,
    close: float = 5e-12,
) -> Secants:
    """The last state of a search by secants in log x, from a guess or the middle of the bracket.

    `residual` also gets a mask of the entries that are done, whose values have no effect. The ends
    are evaluated only if the steps reach them. After 6 steps, every other step halves the bracket.
    `slope` is that of a nearly straight residual: a secant's root then needs no other side.
    """
    near, far = xp.log(safe), xp.log(unsafe)
    middle, nothing = 0.5 * (near + far), xp.full_like(near, xp.nan)
    aim = middle if guess is None else xp.log(xp.broadcast_to(guess, near.shape))
    aim = xp.clip(aim, xp.minimum(near, far), xp.maximum(near, far))
    aim = xp.where(xp.isnan(aim), middle, aim)
    slopes = xp.broadcast_to(slope, near.shape) + xp.zeros_like(near)

    def step(state: Secants) -> Secants:
        inside = xp.where(state.aim == far, unsafe, xp.exp(state.aim))
        x = xp.where(state.aim == near, safe, inside)
        return _moved(state, x, residual(x, state.done), (near, far, close), slopes == slopes)

    is_done = xp.zeros(near.shape, bool)
    first = Secants(aim, nothing, nothing, slopes, near, far, nothing, is_done, xp.zeros(()))
    return lax.while_loop(lambda x: (x.steps < _MOST_STEPS) & ~xp.all(x.done), step, first)


def _moved(
    state: Secants, x: Reals, value: Reals, ends: tuple[Reals, Reals, float], is_straight: Bools
) -> Secants:
    """Next state, given the residual `value` at x."""
    near, far, close = ends
    inward = xp.sign(near - far) * close
    passes = value <= 0
    slope = (value - state.value) / (state.aim - state.last)
    is_like = xp.isnan(state.slope) | (xp.sign(slope) == xp.sign(state.slope))
    slope = xp.where(xp.isfinite(slope) & is_like, slope, state.slope)
    good = xp.where(passes, state.aim, state.good)
    bad = xp.where(passes, state.bad, state.aim)
    root = state.aim - value / slope
    is_near = passes & (xp.abs(root - state.aim) <= 3.0 * close)
    is_done = (passes & (state.aim == far)) | (~passes & (state.aim == near))
    is_done = is_done | (xp.abs(good - bad) <= 4.0 * close) | (is_near & is_straight)
    middle = 0.5 * (good + bad)
    steady = xp.isfinite(root) & ((state.steps < _SECANTS) | (state.steps % 2 == 0))
    inside = (root - good) * (root - bad) < 0
    aim = xp.where(
        steady & inside, xp.where(is_near, state.aim - 3.0 * inward, root + inward), middle
    )
    # An end is evaluated if it may fail at the safe side, or pass at the other.
    aim = xp.where(~passes & (good == near) & ((root - near) * inward >= 0), near, aim)
    step = xp.clip(aim - state.aim, -_REACH, _REACH)
    aim = xp.where((good == near) | (bad == far), state.aim + step, aim)
    aim = xp.where((aim - near) * inward >= 0, near, aim)
    is_beyond = steady & passes & ((root - far) * inward <= 0) & (state.bad == far)
    is_beyond = is_beyond & (xp.abs(far - state.aim) <= _REACH)
    aim = xp.where(is_beyond, far, aim)
    keep = state.done
    return Secants(
        xp.where(keep, state.aim, aim),
        xp.where(keep, state.last, state.aim),
        xp.where(keep, state.value, value),
        xp.where(keep, state.slope, slope),
        xp.where(keep, state.good, good),
        xp.where(keep, state.bad, bad),
        xp.where(passes & ~keep, x, state.found),
        keep | is_done,
        state.steps + 1.0,
    )


def zoom(function: Function, low: Reals, high: Reals, points: int = 16, rounds: int = 12) -> Pair:
    """(argument, value) of the minimum of a unimodal function over [low, high], elementwise.

    Each round evaluates the function at `points` points between the neighbours of the best one,
    along a new first axis. The defaults shrink the bracket to 3e-11 of its width. The value is a
    value of the function, so it is never below the minimum.
    """
    shares = xp.linspace(0.0, 1.0, points).reshape((points,) + (1,) * xp.ndim(low))

    def closer(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, best, least = state
        x = low[None] + shares * (high - low)[None]
        values = function(x)
        index = xp.argmin(values, axis=0)[None]
        near = (xp.clip(index + i, 0, points - 1) for i in (-1, 1, 0))
        below, above, found = (xp.take_along_axis(x, i, 0)[0] for i in near)
        value = xp.take_along_axis(values, index, 0)[0]
        return below, above, xp.where(value < least, found, best), xp.minimum(value, least)

    first = low, high, low, xp.full_like(low, xp.inf)
    return lax.fori_loop(0, rounds, closer, first)[2:]


@partial(custom_jvp, nondiff_argnums=(0, 1))
def with_slopes_of_root(
    residual: Callable[[Reals, Any], Reals],
    at_root: Callable[[Reals, Any], T],
    root: Reals,
    numbers: Any,
    result: T,
) -> T:
    """`result`, with the slopes in `numbers` of at_root(root, numbers).

    `root`, where residual(root, numbers) is 0, moves by the implicit function theorem. Slopes are 0
    where it is 0 or infinite, and NaN where it is NaN.
    """
    del residual, at_root, root, numbers
    return result


@with_slopes_of_root.defjvp
def _(residual: Any, at_root: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (root, numbers, result), along = primals, tangents[1]
    is_root = xp.isfinite(root) & (root > 0)
    other = xp.where(xp.isnan(root), xp.nan, 0.0)
    root = xp.where(is_root, root, 1.0)
    _, rise = jax.linearize(residual, root, numbers)
    across = rise(xp.ones_like(root), jax.tree.map(xp.zeros_like, numbers))
    slope = _slope_solve(lambda _: across, -rise(xp.zeros_like(root), along))
    _, moved = jax.jvp(at_root, (root, numbers), (slope, along))
    return result, jax.tree.map(lambda x: xp.where(is_root, x, other), moved)


def _of_known(residual: Function, *known: Reals) -> Function:
    """The residual; if the bracket is on the host, its results are moved there."""
    if not on_host(known):
        return residual
    return lambda x: xp.asarray(jax.device_get(residual(x)))


def _slope_solve(linear: Function, value: Reals) -> Reals:
    slope = linear(xp.ones_like(value))
    return value / xp.where(xp.isfinite(slope) & (slope != 0), slope, xp.inf)
