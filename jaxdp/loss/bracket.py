"""delta of a composition between two bounds, from masses on a grid: `bounds`.

Everything is tilted: masses times e^(theta l), normalised, theta at the saddle, so that the
rounding of a transform, which is relative to the largest mass, is small beside those that make
up delta(epsilon), however small that is. With a_i the tilted masses of the whole composition at
losses l_i = epsilon + y_i, and U = K(theta) - theta epsilon the logarithm of their unit,

    delta = e^U sum_i a_i w(y_i),   w(y) = e^(-theta y) (1 - e^-y)_+ <= w_max.

A fine grid suffices for a part of about sqrt(n) releases, whose window is sqrt(sqrt n) times
narrower than that of all n; the part is put on a coarser grid, by chords again, and repeated
(as in Ghazi, Kamath, Kumar & Manurangsi, ICML 2022). The chords add a variance of h^2 / 6 a
release where the loss has a density.

The budget of errors, all in units of e^U, all inside both bounds. Tilted mass that is missing or
misplaced by m in one factor changes delta by w_max m at most, since all the others have mass 1:
* windows: a window of N steps holds what wraps around. The mass outside of it has Chernoff bounds
  exp(K~(s) - s high) + exp(K~(-s) + s low), K~ the cumulant of the tilted masses themselves;
* the transform: its relative l2 error is below 8 u log2 N, u = 2^-53 (Higham, Accuracy and
  Stability, theorem 24.2: a radix-2 step has sqrt 2 + 4 roundings and one of its factor). A
  product of powers n of factors <= 1 multiplies that of a factor by n, and its own rounding
  is 4 pi n u (the phase is n times an angle of at most pi) + 12 u. A vector that is
  wrong by E in l2 has misplaced sqrt N E of mass, and a sum with weights w is wrong by |w|_2 E;
* the profile and the masses: `loss.grid`;
* the sums: N u each, relatively; exponents and weights: 4 u for every unit of their terms.
All this is of finite losses, less their drifts: infinite ones, of probability p, add
1 - prod (1 - p)^n to both.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP
from jaxdp._types import Complexes, Reals
from jaxdp.loss.base import Terms, largest_finite, largest_loss
from jaxdp.loss.exchange import LogBounds
from jaxdp.loss.grid import Grid, Masses, masses_of, second, settle, spread
from jaxdp.loss.infinite import with_infinite
from jaxdp.loss.window import OUTSIDE, Plan, Window, elements, plan_of

POINTS = 2**16
# Of the tilted mass of a part, what is rounded down to the second grid.
_TOP = 1e-9


class _Part(NamedTuple):
    """A product of powers of factors, transformed, and what its error needs."""

    spectrum: Complexes
    first: Reals  # of the grid, a whole number: exact
    log_norm: Reals
    error: Reals  # l2, of the masses
    high: Reals  # the cumulant at the upper order; at the lower one
    low: Reals
    misplaced: Reals
    size: Reals  # of the terms of log_norm, added


def in_lanes(terms: Terms, epsilon: Reals, points: int = POINTS) -> LogBounds:
    """In any batch of one shape: epsilon (*batch,), terms (*batch, n)."""

    def flat(x: Reals) -> Reals:
        return x.reshape(epsilon.size, *x.shape[epsilon.ndim :])

    lanes = jax.tree.map(flat, (terms, epsilon))
    found = lax.map(lambda lane: _lane(lane[0], lane[1], points), lanes)
    return LogBounds(*(x.reshape(epsilon.shape) for x in found))


def exp_down(log_delta: Reals) -> Reals:
    """exp, rounded down by 4 ulp."""
    return jnp.exp(log_delta) * (1.0 - 4.0 * ULP)


def _lane(terms: Terms, epsilon: Reals, points: int) -> LogBounds:
    size = jnp.abs(epsilon)
    terms = tuple(term.reversed(epsilon < 0) for term in terms)
    found = _forward(terms, size, points)
    # Only what every noise says of itself decides what is a legal input: its profile is not NaN.
    each = jnp.concatenate(
        [jax.vmap(lambda n, s: n.log_delta(s, size))(*t.parts()[:2]) for t in terms]
    )
    counts = elements(terms)
    bad = jnp.any(jnp.isnan(each) | jnp.isnan(counts)) | jnp.isnan(epsilon)
    none = size >= largest_loss(terms)
    both = LogBounds(*(jnp.where(none, -jnp.inf, jnp.minimum(x, 0.0)) for x in found))
    both = both.mirrored(epsilon < 0, size)
    return LogBounds(*(jnp.where(bad, jnp.nan, x) for x in both))


def _forward(terms: Terms, epsilon: Reals, points: int) -> LogBounds:
    """At epsilon >= 0, parameters of shape (n,)."""
    drifts = jnp.concatenate([jax.vmap(type(t.noise).drift)(*t.parts()[:2]) for t in terms])
    counts = elements(terms)
    left = epsilon - jnp.sum(jnp.where(counts == 0, 0.0, counts * drifts))
    plan = plan_of(terms, left, points)
    below, above, infinite = _factors(terms, plan, points)
    low, high = (
        _total(
            _coarsened(parts[0], plan.part, plan, points, upper),
            _coarsened(parts[1], plan.remainder, plan, points, upper),
            plan,
            left,
            points,
            upper,
        )
        for upper, parts in ((False, below), (True, above))
    )
    # What was taken for infinite is little.
    high = jnp.logaddexp(high, infinite) + 8.0 * ULP
    beyond = epsilon >= largest_finite(terms)
    found = LogBounds(
        jnp.where(beyond | jnp.isnan(low), -jnp.inf, low),
        jnp.where(beyond, -jnp.inf, jnp.where(jnp.isnan(high), 0.0, high)),
    )
    return with_infinite(terms, found)


def _transform_error(points: int) -> float:
    return 4.0 * ULP * (points.bit_length() - 1)


def _power(spectrum: Complexes, count: Reals) -> Complexes:
    log_modulus = jnp.log(jnp.maximum(jnp.abs(spectrum), 1e-300))
    power = jnp.exp(count * log_modulus + 1j * count * jnp.angle(spectrum))
    return jnp.where(count == 0, 1.0, power)


def _empty(points: int) -> _Part:
    zero = jnp.zeros(())
    one = jnp.ones(points // 2 + 1, complex)
    return _Part(one, zero, zero, zero, zero, zero, zero, zero)


def _times(part: _Part, masses: Masses, grid: Grid, count: Reals, window: Window) -> _Part:
    """`part` and `count` more of `masses`."""
    points = masses.value.size
    loss = grid.step * (grid.first + jnp.arange(1.0 * points))
    norm = jnp.sqrt(jnp.sum(masses.value**2))

    def cumulant(order: Reals, toward: Reals) -> Reals:
        """Of `toward` times the order, rounded up: orders of 1e20 leave nothing of a sum."""
        most = jnp.max(jnp.where(masses.value > 0, toward, -jnp.inf))
        weights = jnp.exp(order * jnp.minimum(toward - most, 0.0))
        top = order * most
        return top + jnp.log(jnp.sum(masses.value * weights)) + 1e-11 + 4.0 * ULP * jnp.abs(top)

    def add(total: Reals, each: Reals) -> Reals:
        return total + jnp.where(count == 0, 0.0, count * each)

    return _Part(
        part.spectrum * _power(jnp.fft.rfft(masses.value), count),
        add(part.first, grid.first),
        add(part.log_norm, masses.log_norm),
        add(part.error, _transform_error(points) * norm + 8.0 * jnp.pi * ULP / jnp.sqrt(points)),
        add(part.high, cumulant(window.order_high, loss)),
        add(part.low, cumulant(window.order_low, -loss)),
        add(part.misplaced, masses.blur),
        add(part.size, jnp.abs(masses.log_norm)),
    )


def _factors(terms: Terms, plan: Plan, points: int):
    """The part that is repeated and the remainder, below and above; log of what is left above."""

    def body(state, element):
        below, above, infinite = state
        (noise, shift), log_norm, low, often, rest = element
        first = jnp.floor(low / plan.step) - 4.0
        grid = Grid(plan.step, first, plan.tilt, log_norm)
        # Chernoff's bound at `low`; twice, for the rounding of the cumulant.
        left_out = jnp.where(first > 0, 2.0 * jnp.exp(-OUTSIDE), 0.0)
        found = masses_of(noise, shift, grid, points, left_out)
        now = []
        for parts, masses in zip((below, above), found, strict=True):
            part = _times(parts[0], masses, grid, often, plan.part)
            now.append((part, _times(parts[1], masses, grid, rest, plan.remainder)))
        count = plan.folds * often + rest
        each = jnp.where(count == 0, -jnp.inf, jnp.log(count) + found[1].log_infinite)
        return (now[0], now[1], jnp.logaddexp(infinite, each)), None

    start = _empty(points)
    state = ((start, start), (start, start), -jnp.inf * jnp.ones(()))
    at = 0
    for term in terms:
        many = term.count.size
        here = slice(at, at + many)
        each = (
            term.parts()[:2],
            plan.log_norms[here],
            plan.low[here],
            plan.often[here],
            plan.rest[here],
        )
        state = lax.scan(body, state, each)[0]
        at += many
    return state


def _placed(part: _Part, window: Window, first: Reals, step: Reals, points: int):
    """The masses from index `first` of the grid on; their l2 error; what of them wrapped around."""
    value = jnp.fft.irfft(part.spectrum, points)
    turn = jnp.mod(first - part.first, 1.0 * points).astype(int)
    own = (_transform_error(points) + 12.0 * ULP) * jnp.sqrt(jnp.sum(value**2))
    error = part.error * jnp.exp(part.error * jnp.sqrt(1.0 * points)) + own
    high = jnp.minimum(window.high, step * (first + points - 1.0))
    low = jnp.maximum(window.low, step * first)
    outside = jnp.exp(part.high - window.order_high * high)
    outside += jnp.exp(part.low + window.order_low * low)
    # Masses below the error may be nothing but rounding, which high orders would magnify.
    value = jnp.roll(value, -turn)
    loss = step * (first + jnp.arange(1.0 * points))
    kept = (value > error) & (loss >= low) & (loss <= high)
    outside += jnp.sum(jnp.where(kept, 0.0, jnp.maximum(value, 0.0)))
    return jnp.where(kept, value, 0.0), error, outside


class _Coarse(NamedTuple):
    """Masses on the second grid, normalised; what is misplaced in units of the first."""

    masses: Masses
    grid: Grid
    log_total: Reals
    size: Reals


def _coarsened(part: _Part, window: Window, plan: Plan, points: int, upper: bool) -> _Coarse:
    """On the grid whose steps are `coarsening` times as long: chords, or chords less s."""
    step, wide = plan.step, plan.step * plan.coarsening
    # The window begins on a point of the second grid.
    first = jnp.floor(window.low / wide - 4.0 / plan.coarsening)
    value, error, outside = _placed(part, window, first * plan.coarsening, step, points)
    misplaced = part.misplaced + jnp.sqrt(1.0 * points) * error + outside
    index = jnp.arange(1.0 * points)
    cell = jnp.floor((index + 0.5) / plan.coarsening)
    within = index - cell * plan.coarsening
    place = cell.astype(int)
    # A mass goes to the ends of its cell so that mass and mean of e^-l are kept.
    share = jnp.expm1(-within * step) / jnp.expm1(-wide)
    down = jnp.exp(-plan.tilt * within * step)
    rise = jnp.exp(plan.tilt * (plan.coarsening - within) * step)
    zero, growth = jnp.zeros(points), jnp.exp(plan.tilt * wide)

    def deal(low: Reals, high: Reals) -> Reals:
        return zero.at[place].add(low).at[place + 1].add(high, mode="drop")

    if upper:
        dealt = deal(value * (1.0 - share) * down, value * share * rise)
    else:
        # Near the top nothing is left to pay with: there all goes down.
        beyond = jnp.cumsum(value[::-1])[::-1]
        top = jnp.max(jnp.where(beyond > _TOP, cell, -1.0)) - 1.0
        main = jnp.where(cell < top, value, 0.0)
        # A mass is no nearer to its chord than at its own place: added up, a bound for the cell.
        gap = main * share * -jnp.expm1(-(plan.coarsening - within) * step) * down
        s = spread(zero.at[place].add(gap)[:-1], growth)
        ends = jnp.concatenate([s[:1] / growth, s, s[-1:] * growth])
        bent = second(ends, jnp.exp(wide), growth)
        chords = deal((main * (1.0 - share) + value - main) * down, main * share * rise)
        smooth, paid = settle(chords - bent, growth, True)
        floors = deal(value * down, zero)
        better = paid & (jnp.sum(smooth) > jnp.sum(floors)) & (plan.coarsening > 1)
        dealt = jnp.where(better, smooth, floors)
    total = jnp.sum(dealt)
    grid = Grid(wide, first, plan.tilt, part.log_norm)
    # Products, sums of `coarsening` masses and payments.
    rounding = (64.0 + 2.0 * plan.coarsening) * ULP
    masses = Masses(dealt / total, part.log_norm + jnp.log(total), zero[0], misplaced + rounding)
    return _Coarse(masses, grid, jnp.log(total), part.size)


def _total(
    part: _Coarse, rest: _Coarse, plan: Plan, epsilon: Reals, points: int, upper: bool
) -> Reals:
    """log of a bound on delta but for the mass at infinity."""
    one = jnp.ones(())
    both = _times(_empty(points), part.masses, part.grid, plan.folds, plan.whole)
    both = _times(both, rest.masses, rest.grid, one, plan.whole)
    step = part.grid.step
    first = jnp.floor(plan.whole.low / step) - 4.0
    value, error, outside = _placed(both, plan.whole, first, step, points)
    loss = step * (first + jnp.arange(1.0 * points))
    y, tilt = loss - epsilon, plan.tilt
    # Epsilon is a sum over the elements.
    off = (4.0 + plan.often.size) * ULP * (jnp.abs(loss) + epsilon) * (1.0 if upper else -1.0)
    inside = jnp.maximum(y + off, 0.0)
    weight = jnp.exp(-tilt * jnp.maximum(y, 0.0)) * -jnp.expm1(-inside)
    most = jnp.exp(-tilt * jnp.log1p(1.0 / tilt)) / (1.0 + tilt)
    # Units of the first grid are smaller where masses were lost, and what is misplaced may rise.
    lost = jnp.maximum(-plan.folds * part.log_total - rest.log_total, 0.0)
    lost += tilt * step
    # What is misplaced in several factors at once multiplies: prod (1 + m) - 1.
    misplaced = 1.01 * most * (jnp.expm1(both.misplaced * jnp.exp(lost)) + outside)
    wrong = misplaced + jnp.sqrt(jnp.sum(weight**2)) * error
    size = plan.folds * part.size + rest.size + both.size + jnp.abs(both.log_norm)
    size += tilt * (epsilon + jnp.max(jnp.abs(loss)))
    relative = ULP * (2.0 * points + 16.0 + 8.0 * size)
    found = jnp.sum(value * weight)
    found = found + wrong if upper else jnp.maximum(found - wrong, 0.0)
    return both.log_norm - tilt * epsilon + jnp.log(found) + (relative if upper else -relative)
