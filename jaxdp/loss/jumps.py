"""Few releases hit the record: what the total owes to its largest loss, sorted by its size.

Below a loss of 1 the law of a sampled Gaussian's loss has a heavy tail (lognormal, nearly): the
total is large because one loss is, no tilt shows that, and one vertical line holds far more than
delta. So let A_0 = M and A_j be the transform of the law of one loss that is cut off smoothly above
a size which falls with j. Then, of n releases,

    M^n = sum over j < J of (A_j^n - A_(j+1)^n) + A_J^n,

all transforms of measures that are not negative: in the j-th the largest loss is of one size. Each
is summed along a line at a tilt of its own, where nothing cancels; the smoothness of the windows
makes it fall off. Far above epsilon delta is E[1 - e^(epsilon - T)] of the total T; far below
Markov's inequality bounds what is left, or A_J^n is summed as well. The method is ours.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import ULP, expm1, log1mexp, log1p
from jaxdp._numeric.turning import Pair, Turned, excess_at
from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import Terms, by_lanes
from jaxdp.loss.few import Few
from jaxdp.loss.jump_parts import (
    LARGEST_EXPONENT,
    Parameters,
    Parts,
    Releases,
    Window,
    applies,
    likely_of,
    parameters_of,
    releases_of,
)
from jaxdp.loss.line import Others, log_pole

# Of log delta: what is left is summed as a whole where the window above it is less in its saddle;
# where that does not settle, not again for so many windows.
_UNTOUCHED, _PATIENCE = -25.0, 8.0
# Of the tilts looked at, times the size of the loss, as logarithms; then nearer to the best.
_LOG_TILTS, _TILTS, _LOOKS = (-4.0, 9.0), 17, 3
_ROUNDS = 2
# Of a step, as a logarithm: how much longer it is where log |F| is higher by 1.
_HIGHER = 2.0
# Of a window's value: what the aliased terms leave.
_MARGIN = 6.0
# Points at a time, so many times, and of each those whose height stands for what follows.
_BLOCK, _BLOCKS, _WATCHED = 24, 48, 8
# The phase between two nodes that is resolved, where their share is not negligible.
_TURN, _NEGLIGIBLE = 5.5, 1e-13
# In units of the tolerance: what is good enough to look no further.
_SETTLED = 10.0
# Of all that is summed: more than twice as many nodes change.
_QUADRATURE = 1e-12
# Of a parameter, relatively, for its derivative.
_MOVE = 1e-4


class _State(NamedTuple):
    window: Reals
    whole: Bools  # whether the rest may be summed as a whole
    refused: Reals  # the window where that did not settle, or 0
    log_value: Reals  # of all windows so far
    log_error: Reals
    log_left: Reals  # of a bound on what is left
    done: Bools


def tightened(
    terms: Terms, epsilon: Reals, upper: Reals, slow: Bools, tolerance: float
) -> tuple[Reals, Bools]:
    """The lower of both bounds on log delta where one line is too `slow`, and where it settles.

    Shape (*batch,). Its derivatives are differences: to 1e-6.
    """
    if not applies(terms):
        return upper, jnp.zeros_like(slow)
    fixed, at = lax.stop_gradient((terms, epsilon))
    few = _in_lanes(fixed, parameters_of(fixed), at, slow, tolerance)
    better = slow & (few.log_delta < upper)
    lower = _follow(tolerance, better, few.log_delta, upper, terms, epsilon)
    return lower, slow & few.settled


def _in_lanes(terms: Terms, of: Parameters, epsilon: Reals, wanted: Bools, tolerance: float) -> Few:
    def lanes(_: Terms, at: tuple[Parameters, Reals, Bools]) -> Few:
        return jumps_of(*at, tolerance)

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
    moving = of.ratio, of.sampling_prob, of.number
    sizes = [x.shape[-1] for x in moving]
    values = jnp.concatenate([*moving, epsilon[..., None]], axis=-1)
    tangent = tangents[0]
    moves = [tangent.ratio, tangent.sampling_prob, tangent.number, tangents[1][..., None]]
    number = values.shape[-1]

    def moved(index: Index) -> Reals:
        side = jnp.where(index < number, 1.0, -1.0)
        place = jnp.arange(number) == index % number
        ratio, prob, count, at = jnp.split(
            values * (1.0 + _MOVE * side * place[(None,) * epsilon.ndim]),
            np.cumsum(sizes),
            axis=-1,
        )
        return function(Parameters(ratio, prob, count, of.added), at[..., 0])

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
        found = jax.tree.map(lambda a, b: jnp.where(so_far.wanted, b, a), so_far.found, now)
        again = so_far.wanted & releases.sound & ~found.settled & ~releases.sizes.exceeds
        return rounds + 1, _Rounds(found, jnp.where(again, end, so_far.likely), again)

    nothing = Few(jnp.full_like(epsilon, jnp.inf), jnp.zeros_like(wanted))
    first = _Rounds(nothing, likely_of(of, epsilon), wanted)
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
        share = _of_window(releases, state, whole, at, tolerance)
        value = jnp.logaddexp(state.log_value, share.value)
        error = jnp.logaddexp(state.log_error, share.error)
        left = jnp.minimum(share.left, state.log_left)
        # Down to here the windows hold what exceeds epsilon at once.
        done = (state.window > 1) & (left < value + math.log(0.1 * tolerance))
        done |= whole | jnp.isnan(value)
        again = state.refused + _PATIENCE <= state.window
        now = _State(state.window + 1, share.alone & again, state.refused, value, error, left, done)
        unsettled = whole & ~last & (share.error > value + math.log(_SETTLED * tolerance))
        back = state._replace(whole=jnp.zeros_like(last), refused=state.window)
        now = jax.tree.map(lambda a, b: jnp.where(unsettled, a, b), back, now)
        return jax.tree.map(lambda a, b: jnp.where(state.done, a, b), state, now)

    infinite = jnp.full_like(at, jnp.inf)
    first = jnp.ones_like(at), jnp.zeros_like(usable), jnp.full_like(at, -_PATIENCE)
    start = _State(*first, *_highest(releases, at), infinite, ~usable)
    end = lax.while_loop(unfinished, advance, start)
    spare = jnp.logaddexp(end.log_error, jnp.logaddexp(end.log_left, releases.log_rest()))
    upper = jnp.logaddexp(end.log_value, spare)
    upper += 16.0 * ULP * (1.0 + jnp.abs(upper))
    sound = usable & (upper < jnp.inf)
    settled = sound & (spare < end.log_value + math.log(_SETTLED * tolerance))
    return end.log_value, Few(jnp.where(sound, upper, jnp.inf), settled)


def _highest(releases: Releases, epsilon: Reals) -> tuple[Reals, Reals]:
    """Logarithms of what the highest window contributes, and of the error.

    With a loss there the total exceeds epsilon, but for what Markov bounds.
    """
    window = Window.of(releases, jnp.zeros_like(epsilon))
    beyond = -1.0 - _tilts(releases)
    ends = jnp.array([0.0, -1.0])[(None,) * epsilon.ndim] + jnp.zeros_like(beyond[..., :2])
    tilts = jnp.concatenate([ends, beyond], axis=-1)
    exponents = Parts.of(releases, window, tilts, epsilon < 0).log_difference()
    exponents -= tilts * epsilon[..., None]
    mass, less = exponents[..., 0], exponents[..., 1]
    value = mass + log1mexp(jnp.maximum(mass - less, 0.0))
    rounding = mass + math.log(256.0 * ULP)
    error = jnp.logaddexp(rounding, jnp.min(exponents[..., 2:], axis=-1))
    exceeds = releases.sizes.exceeds
    return jnp.where(exceeds, value, -jnp.inf), jnp.where(exceeds, error, mass)


def _tilts(releases: Releases) -> Reals:
    tilts = jnp.exp(jnp.linspace(*_LOG_TILTS, _TILTS))
    return tilts[(None,) * releases.last.ndim] / releases.sizes.largest[..., None]


class _Share(NamedTuple):
    """Logarithms."""

    value: Reals
    error: Reals
    left: Reals  # of a bound on all lower windows
    alone: Bools  # whether what is left does not reach up to its edge


class _Look(NamedTuple):
    """At some tilts, along a last axis."""

    tilts: Reals
    exponents: Reals  # K - tilt epsilon
    left: Reals  # of what is below the window


def _of_window(
    releases: Releases, so_far: _State, whole: Bools, epsilon: Reals, tolerance: float
) -> _Share:
    window = Window.of(releases, jnp.where(whole, so_far.window - 1.0, so_far.window))

    def nearer(middle_and_reach: tuple[Reals, Reals], _: None) -> tuple[tuple[Reals, Reals], _Look]:
        middle, reach = middle_and_reach
        offset = jnp.linspace(-1.0, 1.0, _TILTS)[(None,) * epsilon.ndim]
        tilts = jnp.exp(middle[..., None] + reach * offset)
        parts = Parts.of(releases, window, tilts, whole)
        fall = tilts * epsilon[..., None]
        look = _Look(tilts, parts.log_difference() - fall, parts.exponents()[0] - fall)
        sizes = look.exponents - log_pole(tilts)
        best = jnp.argmin(jnp.where(jnp.isnan(sizes), jnp.inf, sizes), axis=-1)[..., None]
        theta = jnp.take_along_axis(tilts, best, axis=-1)[..., 0]
        return (jnp.log(theta), reach * (2.0 / (_TILTS - 1))), look

    low, high = _LOG_TILTS
    middle = 0.5 * (low + high) - jnp.log(releases.sizes.largest)
    first = middle, jnp.asarray(0.5 * (high - low))
    looks = lax.scan(nearer, first, None, _LOOKS)[1]
    tilts, exponents, left = (jnp.concatenate(list(x), axis=-1) for x in looks)
    theta = _of_longest_step(tilts, exponents, epsilon, tolerance)
    parts = Parts.of(releases, window, theta[..., None], whole)
    log_size = parts.log_difference()[..., 0] - theta * epsilon - log_pole(theta)
    others = Others.of(theta[..., None], log_size[..., None], tilts, exponents, epsilon)
    digits = jnp.full_like(theta[..., None], _MARGIN - math.log(tolerance))
    step = 2.0 * jnp.pi / others.period(digits)
    number = jnp.max(so_far.window).astype(int)
    line = _Line(theta, step, epsilon, tolerance, so_far.log_value - log_size, number)
    value, error = (log_size + jnp.log(x) for x in _sum(releases, window, parts, line))
    # E[(1 - e^(epsilon - T))_+] <= E e^(tilt (T - epsilon)) / (1 + tilt).
    markov = jnp.min(exponents - jnp.log1p(tilts), axis=-1)
    lowest = jnp.argmin(left - log_pole(tilts), axis=-1)[..., None]
    at_lowest = jnp.take_along_axis(exponents - left, lowest, axis=-1)[..., 0]
    left = jnp.where(whole, -jnp.inf, jnp.min(left - jnp.log1p(tilts), axis=-1))
    summed = jnp.logaddexp(value, error) < markov
    return _Share(
        jnp.where(summed, value, -jnp.inf),
        jnp.where(summed, error, markov),
        left,
        at_lowest < _UNTOUCHED,
    )


def _of_longest_step(tilts: Reals, exponents: Reals, epsilon: Reals, tolerance: float) -> Reals:
    """Of all tilts the one where |F| is small and the step long: beside its least may be a wall."""
    sizes = exponents - log_pole(tilts)
    sizes = jnp.where(jnp.isnan(sizes), jnp.inf, sizes)
    each = tilts[..., None, :], exponents[..., None, :], epsilon[..., None]
    digits = jnp.full_like(tilts[..., None], _MARGIN - math.log(tolerance))
    periods = Others.of(tilts[..., None], sizes[..., None], *each).period(digits)
    higher = sizes - jnp.min(sizes, axis=-1)[..., None]
    score = jnp.log(periods) + _HIGHER * higher
    best = jnp.argmin(jnp.where(jnp.isnan(score), jnp.inf, score), axis=-1)[..., None]
    return jnp.take_along_axis(tilts, best, axis=-1)[..., 0]


class _Line(NamedTuple):
    """The vertical line through theta, of one window."""

    theta: Reals
    step: Reals
    epsilon: Reals
    tolerance: float
    log_others: Reals  # of the value of higher windows, over |F(theta)|
    window: Index  # >= 0, which the compiler does not know


class _Sum(NamedTuple):
    start: Index
    value: Reals
    absolute: Reals
    moved: Reals  # the same, times the height
    tail: Reals
    done: Bools


def _sum(releases: Releases, window: Window, parts: Parts, line: _Line) -> tuple[Reals, Reals]:
    """The window's delta and a bound on the error, in units of |F(theta)|."""
    law, count, theta, step = releases.law, releases.number, line.theta, line.step

    def tilted(share: Reals, log_total: Reals) -> Reals:
        some = share > 0
        exponent = law.log_weight + theta[..., None, None] * law.loss - log_total
        return jnp.where(some, share * jnp.exp(jnp.where(some, exponent, 0.0)), 0.0)

    kept, jump = tilted(window.below, parts.below), tilted(window.between, parts.between)
    # Of all releases, what is kept; of one jump, where it is.
    matters = (count[..., None] * kept > _NEGLIGIBLE) | (
        (count > 0)[..., None] & (jump > _NEGLIGIBLE)
    )
    highest = _TURN / jnp.max(jnp.where(matters, law.spacing, 0.0), axis=(-2, -1))
    weight = jnp.stack([kept, jump])
    pairs = Pair.of(weight), Pair.of(law.loss[None])
    turned = Turned.of(*pairs, step[None, ..., None, None], line.window)
    ratio = jnp.exp(jnp.minimum(parts.lifted()[0], LARGEST_EXPONENT))
    base, rise, _ = parts.exponents()
    everything = theta * (1.0 + theta)
    others = jnp.exp(jnp.minimum(line.log_others, LARGEST_EXPONENT))

    def total(each: Complexes) -> Complexes:
        real, imaginary = jnp.real(each), jnp.imag(each)
        counts = count[..., None]
        return lax.complex(jnp.sum(counts * real, axis=-2), jnp.sum(counts * imaginary, axis=-2))

    def unfinished(state: _Sum) -> Bools:
        return (state.start < _BLOCK * _BLOCKS) & ~jnp.all(state.done)

    def advance(state: _Sum) -> _Sum:
        indices = state.start + jnp.arange(_BLOCK)
        height = step[..., None] * indices[(None,) * theta.ndim]
        fallen, moved = excess_at(turned, indices)
        falls = log1p(fallen)
        below, more = total(falls), total(log1p(ratio * (1.0 + moved) * jnp.exp(-falls)))
        jumped = jnp.exp(below + more - rise) * expm1(-more) / jnp.expm1(-rise)
        phi = jnp.where(parts.whole[..., None], jnp.exp(below), jumped)
        z = theta[..., None] + 1j * height
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * theta.ndim] * step[..., None] / jnp.pi
        summand = phi * jnp.exp(-1j * height * line.epsilon[..., None]) / (z * (z + 1.0))
        summand *= share * everything[..., None]
        end = step * (state.start + _BLOCK)
        # What is not resolved is not summed, and bounded by |phi| <= 1.
        unresolved = end > highest
        seen = jnp.max(jnp.abs(phi)[..., -_WATCHED:], axis=-1)
        tail = seen * everything / (jnp.pi * (end - step))
        unseen = everything / (jnp.pi * step * jnp.maximum(state.start - 1.0, 0.0))
        tail = jnp.where(unresolved, unseen, tail)
        summand = jnp.where(unresolved[..., None], 0.0, summand)
        value = state.value + jnp.sum(jnp.real(summand), axis=-1)
        absolute = state.absolute + jnp.sum(jnp.abs(summand), axis=-1)
        moved = state.moved + jnp.sum(jnp.abs(summand) * height, axis=-1)
        enough = tail <= 0.1 * line.tolerance * (jnp.abs(value) + others)
        enough |= tail <= _QUADRATURE * absolute
        done = enough | unresolved | jnp.isnan(value)
        now = _Sum(state.start + _BLOCK, value, absolute, moved, tail, done)
        return jax.tree.map(lambda a, b: jnp.where(state.done, a, b) if a.ndim else b, state, now)

    zero = jnp.zeros_like(theta)
    start = _Sum(jnp.zeros((), int), zero, zero, zero, zero + jnp.inf, zero > 0)
    end = lax.while_loop(unfinished, advance, start)
    # Every exponent z L is rounded; so are the sums over nodes.
    size = jnp.sum(count * jnp.sum(kept * jnp.abs(law.loss), axis=-1), axis=-1)
    rounded = 64.0 + 8.0 * (jnp.abs(base[..., 0]) + theta * line.epsilon)
    rounding = (ULP * rounded + _QUADRATURE) * end.absolute
    rounding += 16.0 * ULP * size * (theta * end.absolute + end.moved)
    return jnp.maximum(end.value, 0.0), end.tail + rounding
