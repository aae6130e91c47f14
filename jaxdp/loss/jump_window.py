"""What a total owes to one window of its largest loss: the sum along a line of its own.

See `loss.jumps`: no measure here is negative, so that nothing cancels at its saddle.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, expm1, log1p
from jaxdp._numeric.turning import Pair, Turned, excess_at
from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.jump_gap import Recurring, without_small
from jaxdp.loss.jump_parts import LARGEST_EXPONENT, Parts, Releases, Window, tilted
from jaxdp.loss.line import Others, log_pole
from jaxdp.noise.base import Points

# Of the tilts looked at, times the size of the loss, as logarithms; then nearer to the best.
_LOG_TILTS, _TILTS, _LOOKS = (-4.0, 9.0), 17, 3
# Of log delta: where the window in the saddle of what is left is less, that ends below its edge.
_UNTOUCHED = -25.0
# Of a step, as a logarithm: how much longer it is where log |F| is higher by 1.
_HIGHER = 2.0
# Of a window's value: what the aliased terms leave.
_MARGIN = 6.0
# Points at a time, so many times, and of each those whose height stands for what follows.
_BLOCK, _BLOCKS, _WATCHED = 24, 48, 8
# The phase between two nodes that is resolved, where their share is not negligible.
_TURN, _NEGLIGIBLE = 5.5, 1e-13
# Of all that is summed: more than twice as many nodes change.
_QUADRATURE = 1e-12


class Share(NamedTuple):
    """Logarithms."""

    value: Reals
    error: Reals
    aliased: Reals  # by which the value may be too large besides
    left: Reals  # of a bound on all lower windows
    alone: Bools  # whether what is left does not reach up to its edge


class _Look(NamedTuple):
    """At some tilts, along a last axis."""

    tilts: Reals
    exponents: Reals  # K - tilt epsilon
    left: Reals  # of what is below the window


def share_of(
    releases: Releases,
    index: Reals,
    whole: Bools,
    log_others: Reals,
    epsilon: Reals,
    tolerance: float,
) -> Share:
    """Of the window of an `index`, or of the `whole` rest from there on; `log_others`: known."""
    window = Window.of(releases, jnp.where(whole, index - 1.0, index))

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
    window, all_sizes, small = without_small(releases, window, theta, whole, epsilon)
    parts = Parts.of(releases, window, theta[..., None], all_sizes)
    log_size = parts.log_difference()[..., 0] - theta * epsilon - log_pole(theta)
    others = Others.of(theta[..., None], log_size[..., None], tilts, exponents, epsilon)
    digits = jnp.full_like(theta[..., None], _MARGIN - math.log(tolerance))
    period = others.period(digits)
    number = jnp.max(index).astype(int)
    line = _Line(theta, 2.0 * jnp.pi / period, epsilon, tolerance, log_others - log_size, number)
    value, error = (log_size + jnp.log(x) for x in _sum(releases, window, parts, line))
    error = jnp.logaddexp(error, small)
    # E[(1 - e^(epsilon - T))_+] <= E e^(tilt (T - epsilon)) / (1 + tilt).
    markov = jnp.min(exponents - jnp.log1p(tilts), axis=-1)
    lowest = jnp.argmin(left - log_pole(tilts), axis=-1)[..., None]
    at_lowest = jnp.take_along_axis(exponents - left, lowest, axis=-1)[..., 0]
    left = jnp.where(whole, -jnp.inf, jnp.min(left - jnp.log1p(tilts), axis=-1))
    summed = jnp.logaddexp(value, error) < markov
    return Share(
        jnp.where(summed, value, -jnp.inf),
        jnp.where(summed, error, markov),
        jnp.where(summed, log_size + jnp.log(others.aliasing(period[..., None])), -jnp.inf),
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

    kept = tilted(law, theta, window.below, parts.below)
    jump = tilted(law, theta, window.between, parts.between)
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
    recurring = Recurring.of(law, kept)
    rest, beside = releases.rest, releases.rest.on_line(theta, step)
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
        # (e^more - 1) / (e^rise - 1), whichever of both may overflow.
        grown = jnp.real(more) > 0
        jumped = jnp.exp(below - rise + jnp.where(grown, more, 0.0))
        jumped *= jnp.where(grown, 1.0, -1.0) * expm1(jnp.where(grown, -more, more))
        jumped /= jnp.expm1(-rise)
        phi = jnp.where(parts.whole[..., None], jnp.exp(below), jumped)
        points = Points(theta, step, jnp.full_like(theta, jnp.inf), indices, True)
        turn, falling = rest.rise(points, beside)
        z = theta[..., None] + 1j * height
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * theta.ndim] * step[..., None] / jnp.pi
        summand = phi * jnp.exp(turn - 1j * height * line.epsilon[..., None]) / (z * (z + 1.0))
        summand *= share * everything[..., None]
        end = step * (state.start + _BLOCK)
        # What is not resolved is not summed, and bounded by |phi| <= 1.
        unresolved = (end > highest) | jnp.any(jnp.isnan(summand), axis=-1)
        seen = jnp.max(jnp.abs(phi)[..., -_WATCHED:], axis=-1)
        highest_kept = recurring.bound(end - step, fallen[..., -1])
        to_come = _at_most(parts, highest_kept, jnp.abs(1.0 + moved[..., -1]))
        tail = jnp.maximum(seen, to_come) * jnp.exp(falling) * everything
        tail /= jnp.pi * (end - step)
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
    rounding += rest.rounding(theta, line.epsilon, end.absolute, end.moved)
    return jnp.maximum(end.value, 0.0), end.tail + rounding


def _at_most(parts: Parts, kept: Reals, jump: Reals) -> Reals:
    """What |phi| is at most, where |A| and |B| are, (*lanes, m)."""
    ratio = jnp.exp(jnp.minimum(parts.lifted()[0], LARGEST_EXPONENT))[..., 0]
    rise = parts.exponents()[1][..., 0]
    below = jnp.sum(parts.number * jnp.log(kept), axis=-1)
    more = jnp.sum(parts.number * log1p(ratio * jump / kept), axis=-1)
    # Either exponential alone may overflow.
    jumped = jnp.exp(below + more - rise) * jnp.expm1(-more) / jnp.expm1(-rise)
    return jnp.where(parts.whole, jnp.exp(below), jumped)


def tilts_for(releases: Releases) -> Reals:
    """Some, along a last axis, far apart."""
    tilts = jnp.exp(jnp.linspace(*_LOG_TILTS, _TILTS))
    return tilts[(None,) * releases.last.ndim] / releases.sizes.largest[..., None]
