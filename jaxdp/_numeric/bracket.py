"""Roots and minima on a bracket, in a fixed number of steps, ending on the safe side."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Reals

# Halvings of a bracket in its logarithm. derived: to the last place from any two doubles
_BISECTIONS = 64
# More than bisection needs: room for the steps that do not halve the bracket.
_EXTRA_STEPS = 12.0
# Steps of a quick search at most. chosen: ends it where the residual never settles
_MOST_STEPS = 100
# Ulps by which a root gives way to its safe side, 4 times more after each check that fails, and
# checks at most. chosen: two compilations of a profile differ by one or two ulps of its argument.
_GIVE_WAY = 4.0
# Checks of a root at most. chosen: the last one gives way by 256 ulps
_CHECKS = 4
# Share of a bracket that a step of the golden section keeps. derived: (sqrt(5) - 1) / 2
_GOLDEN = 0.6180339887498949
# Steps of it. derived: .618^60 = 3e-13 of the bracket is left
_GOLDEN_STEPS = 60


def last_feasible(
    residual: Callable[[Reals], Reals],
    safe: Reals,
    unsafe: Reals,
    slack: Reals,
    otherwise: float = xp.inf,
    compiled: bool = True,
) -> Reals:
    """The x nearest to `unsafe`, from `safe`, with residual(x) <= 0, elementwise; both ends > 0.

    `residual` is monotone, falling towards `safe`; the arrays have one shape. 64 geometric
    bisections keep an end with residual <= -slack, which is returned once residual <= 0 has been
    checked anew: `slack` covers the rounding by which two compilations of `residual` differ, and
    where `residual` is steep a few ulps by which the end gives way towards `safe` do. The
    result is `unsafe` where that is feasible and `otherwise` where `safe` is not, NaN residuals
    included. The derivative is the root's, by the implicit function theorem; 0 at a clamped end.
    Not `compiled`: `residual` is called as it is, and nothing has a derivative.
    """

    def solve(function: Callable[[Reals], Reals], start: Reals) -> Reals:
        def halve(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
            good, bad = ends
            middle = xp.sqrt(good) * xp.sqrt(bad)
            passes = function(middle) <= -slack
            return xp.where(passes, middle, good), xp.where(passes, bad, middle)

        ends = start, unsafe
        if compiled:
            ends = lax.fori_loop(0, _BISECTIONS, halve, ends)
        else:
            for _ in range(_BISECTIONS):
                ends = halve(xp.zeros((), int), ends)
        return _confirmed(function, ends[0], start, otherwise, compiled)

    root = (
        lax.custom_root(residual, safe, solve, _slope_solve) if compiled else solve(residual, safe)
    )
    return xp.where(residual(unsafe) <= 0, unsafe, root)


def _confirmed(
    function: Callable[[Reals], Reals],
    value: Reals,
    safe: Reals,
    otherwise: float,
    compiled: bool,
) -> Reals:
    """A few ulps from `value` towards `safe`, where function <= 0 there, else `otherwise`."""
    aside = _GIVE_WAY * xp.finfo(xp.float64).eps * xp.sign(safe - value)

    def check(state: tuple[Reals, Bools, Index]) -> tuple[Reals, Bools, Index]:
        x, holds, checks = state
        x = xp.where(holds, x, x * (1.0 + aside * 4.0**checks))
        return x, function(x) <= 0, checks + 1

    def unsettled(state: tuple[Reals, Bools, Index]) -> Bools:
        return (state[2] < _CHECKS) & ~xp.all(state[1])

    state = value, xp.zeros(value.shape, bool), xp.zeros((), int)
    if compiled:
        state = lax.while_loop(unsettled, check, state)
    else:
        while unsettled(state):
            state = check(state)
    return xp.where(state[1], state[0], otherwise)


def last_feasible_quick(
    residual: Callable[[Reals], Reals],
    safe: Reals,
    unsafe: Reals,
    slack: Reals,
    close: float = 5e-12,
) -> Reals:
    """`last_feasible` for a dear and smooth residual: about 14 evaluations, not 66.

    The ITP method (Oliveira & Takahashi, ACM TOMS 47, 2020) in log x: at most 12 steps more than
    bisection in the worst case. The result lies within 2 `close`, relatively, of the root. One loop
    holds every evaluation, the ends included, because each costs a compilation. Infinite where
    nothing passes.
    """

    def solve(function: Callable[[Reals], Reals], start: Reals) -> Reals:
        near, far = xp.log(start), xp.log(unsafe)
        radius = 0.5 * xp.abs(far - near)
        max_steps = xp.ceil(xp.log2(xp.maximum(radius / close, 1.0))) + _EXTRA_STEPS

        def wide(state: _Bracket) -> Bools:
            open_ends = xp.any(xp.abs(state.bad - state.good) > 2.0 * close)
            return (state.steps < 2) | (open_ends & (state.steps < _MOST_STEPS))

        def step(state: _Bracket) -> _Bracket:
            aim = _aim(state, radius, max_steps, close)
            x = xp.where(state.steps == 0, start, xp.where(state.steps == 1, unsafe, xp.exp(aim)))
            aim = xp.where(state.steps == 0, near, xp.where(state.steps == 1, far, aim))
            value = function(x) + slack
            passes = (value <= 0) | (state.steps == 0)
            return _Bracket(
                xp.where(passes, aim, state.good),
                xp.where(passes, value, state.at_good),
                xp.where(passes, x, state.found),
                xp.where(passes & (state.steps != 1), state.bad, aim),
                xp.where(passes, state.at_bad, value),
                state.steps + 1.0,
            )

        nothing = xp.full_like(near, xp.nan)
        first = _Bracket(near, nothing, start, far, nothing, xp.zeros(()))
        end = lax.while_loop(wide, step, first)
        return xp.where(end.at_good <= 0, end.found, xp.inf)

    root = lax.custom_root(residual, safe, solve, _slope_solve)
    return xp.where(root == unsafe, unsafe, root)


class _Bracket(NamedTuple):
    good: Reals  # log x of the last that passes
    at_good: Reals
    found: Reals  # that x itself
    bad: Reals
    at_bad: Reals
    steps: Reals


def _aim(state: _Bracket, radius: Reals, max_steps: Reals, close: float) -> Reals:
    """Next point: between the chord's root, pushed towards the middle, and the middle."""
    good, at_good, bad, at_bad, steps = state[0], state[1], *state[3:]
    middle, width = 0.5 * (good + bad), xp.abs(bad - good)
    chord = (at_bad * good - at_good * bad) / (at_bad - at_good)
    inside = xp.isfinite(chord) & (xp.abs(chord - middle) <= 0.5 * width)
    chord = xp.where(inside, chord, middle)
    side = xp.sign(middle - chord)
    push = xp.maximum(0.05 * width * width / radius, 0.5 * close)
    aim = xp.where(push <= xp.abs(middle - chord), chord + side * push, middle)
    room = xp.maximum(close * 2.0 ** (max_steps - steps) - 0.5 * width, 0.0)
    return xp.where(xp.abs(aim - middle) <= room, aim, middle - side * room)


def _slope_solve(linear: Callable[[Reals], Reals], value: Reals) -> Reals:
    slope = linear(xp.ones_like(value))
    return value / xp.where(xp.isfinite(slope) & (slope != 0), slope, xp.inf)


def least_value(function: Callable[[Reals], Reals], lower: Reals, upper: Reals) -> Reals:
    """The least of a unimodal `function` over [lower, upper] (0 < lower), elementwise.

    Golden section in log x, 60 steps: the argument to 3e-13 log(upper / lower), the value to
    the square of that. Every value looked at is one of the function's, so the result is never
    below the true minimum.
    """

    def shrink(_: Index, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, least = state
        width = _GOLDEN * (high - low)
        left, right = function(xp.exp(high - width)), function(xp.exp(low + width))
        keep_left = left <= right
        least = xp.minimum(least, xp.minimum(left, right))
        return (
            xp.where(keep_left, low, high - width),
            xp.where(keep_left, low + width, high),
            least,
        )

    least = xp.minimum(function(lower), function(upper))
    return lax.fori_loop(0, _GOLDEN_STEPS, shrink, (xp.log(lower), xp.log(upper), least))[2]
