"""Where a tilted loss lies: the tilt, the windows and the steps of a composition.

From Chernoff's bounds at many orders. Nothing here need be exact: what lies outside of a window
is bounded again, from the masses.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Index, Reals
from jaxdp.loss.base import Terms
from jaxdp.noise.base import Loss

# Tilts that are tried, as logarithms, and rounds of a finer grid around the best.
_LOG_TILTS = (-23.0, 50.0)
_TRIED = 65
_ROUNDS = 4
# Orders of the Chernoff bounds, above and below the tilt.
_LOG_ORDERS = (-30.0, 50.0)
_ORDERS = 241
# -log of the tilted mass that may lie outside, on either side.
OUTSIDE = 42.0
# And of the mass of one release beyond its window, over delta.
_BEYOND = 42.0
# Of a step that was found without the chords' variance, what it may become with it.
_SPARE = 1.25
# Of a window, by how much it may be longer below.
_LOWERED = 0.25


class Window(NamedTuple):
    """Of a sum of losses under the tilted law: all of shape (), or (terms,)."""

    low: Reals
    high: Reals
    order_low: Reals
    order_high: Reals


class Plan(NamedTuple):
    """How one composition is worked off: `folds` times a part of `often` releases, and the rest."""

    tilt: Reals
    log_norms: Reals  # (elements,)
    folds: Reals
    often: Reals  # (elements,)
    rest: Reals  # (elements,)
    low: Reals  # (elements,) of one release
    step: Reals
    coarsening: Reals  # a whole number: the second grid's step over the first's
    part: Window  # of `often` releases
    remainder: Window  # of `rest`
    whole: Window


def elements(terms: Terms) -> Reals:
    """The counts of all terms, (elements,)."""
    return jnp.concatenate([term.count for term in terms])


def cumulants(terms: Terms, z: Reals) -> Reals:
    """K of one release of every element, less its drift, at z (points,): (elements, points)."""

    def each(noise, shift):
        return jnp.real(noise.cgf(shift, z)) - z * noise.drift(shift)

    return jnp.concatenate([jax.vmap(each)(term.noise, term.shift) for term in terms])


def _window(
    counts: Reals, up: Reals, down: Reals, orders: Reals, bound: Reals, variance: Reals
) -> Window:
    """From K at tilt +- orders less K at the tilt, (elements, orders); with the chords' variance.

    A mass that is moved to the ends of a cell of h: its cumulant is below h^2 order^2 / 8
    (Hoeffding), of a variance of h^2 / 4.
    """

    def total(change: Reals) -> Reals:
        weight = counts[:, None]
        each = jnp.sum(jnp.where(weight == 0, 0.0, weight * change), axis=0)
        return each + 0.5 * variance * orders**2

    high = (total(up) + OUTSIDE) / orders
    low = -(total(down) + OUTSIDE) / orders
    high = jnp.where(jnp.isfinite(high), high, jnp.inf)
    low = jnp.where(jnp.isfinite(low), low, -jnp.inf)
    best_high, best_low = jnp.argmin(high), jnp.argmax(low)
    top, bottom = high[best_high], low[best_low]
    # Of bounded losses the sum; chords, and shifts, add up to two steps to each.
    spare = jnp.where(bound < jnp.inf, 0.02 * bound, 0.0)
    top, bottom = jnp.minimum(top, bound) + spare, jnp.maximum(bottom, -bound) - spare
    top = jnp.maximum(top, bottom)
    return Window(bottom, top, orders[best_low], orders[best_high])


def _lowered(window: Window, by: Reals) -> Window:
    """Masses below a loss lie up to a step lower; where that is far they say nothing anyway."""
    most = _LOWERED * (window.high - window.low)
    return window._replace(low=window.low - jnp.minimum(by, most))


def _tilt(terms: Terms, counts: Reals, epsilon: Reals, most: Reals) -> Reals:
    """The saddle of exp(K(z) - z epsilon) / (z (z + 1)) on z > 0."""

    def narrow(_: Index | int, state: tuple[Reals, Reals, Reals]) -> tuple[Reals, Reals, Reals]:
        tried = jnp.linspace(state[0], state[1], _TRIED)
        z = jnp.exp(tried)
        each = cumulants(terms, z)
        total = jnp.sum(jnp.where(counts[:, None] == 0, 0.0, counts[:, None] * each), axis=0)
        height = total - z * epsilon - jnp.log(z) - jnp.log1p(z)
        height = jnp.where(jnp.isfinite(height), height, jnp.inf)
        best = jnp.argmin(height)
        low, high = tried[jnp.maximum(best - 1, 0)], tried[jnp.minimum(best + 1, _TRIED - 1)]
        return low, high, z[best]

    low, high = jnp.asarray(_LOG_TILTS[0]), jnp.minimum(_LOG_TILTS[1], jnp.log(most))
    return lax.fori_loop(0, _ROUNDS, narrow, (low, high, low))[2]


def plan_of(terms: Terms, epsilon: Reals, points: int) -> Plan:
    """The plan for one composition, parameters of shape (n,), at one epsilon >= 0."""
    counts = elements(terms)

    def greatest(noise: Loss, shift: Reals) -> Reals:
        """Of the loss less its drift, or the negative of that, where they are finite."""
        exchanged, drift = noise.reversed(jnp.ones_like(shift, dtype=bool)), noise.drift(shift)
        return jnp.maximum(
            noise.largest_finite(shift) - drift, exchanged.largest_finite(shift) + drift
        )

    bounds = jnp.concatenate([jax.vmap(greatest)(*t.parts()[:2]) for t in terms])
    bounds = jnp.where(counts == 0, 0.0, bounds)

    def most_of(n: Reals) -> Reals:
        return jnp.sum(jnp.where(n == 0, 0.0, n * bounds))

    most = most_of(counts)
    # A loss that is bounded ends before the tilted masses could change by e from step to step.
    tilt = _tilt(
        terms,
        counts,
        epsilon,
        jnp.where(most < jnp.inf, jnp.clip(0.1 * points / most, 1e-9, 1e20), jnp.inf),
    )
    orders = jnp.exp(jnp.linspace(*_LOG_ORDERS, _ORDERS))
    every = cumulants(terms, jnp.concatenate([tilt[None], tilt + orders, tilt - orders]))
    at, up, down = jnp.split(every, (1, 1 + _ORDERS), axis=-1)
    up, down = up - at, down - at
    largest = jnp.max(counts)
    folds = jnp.where(largest < 4, 1.0, jnp.round(jnp.sqrt(largest)))
    often = jnp.floor(counts / folds)
    rest = counts - folds * often

    total = jnp.sum(jnp.where(counts == 0, 0.0, counts * at[:, 0]))
    log_size = total - tilt * epsilon - jnp.log(tilt) - jnp.log1p(tilt) - 8.0
    nothing = jnp.zeros(())
    alone = jax.vmap(lambda n, u, d, b: _window(n[None], u[None], d[None], orders, b, nothing))(
        jnp.ones_like(counts), up, down, bounds
    )
    reach = (up + at + _BEYOND + jnp.log(jnp.maximum(counts, 1.0))[:, None] - log_size) / (
        (tilt + orders)[None]
    )
    reach = jnp.min(jnp.where(jnp.isfinite(reach), reach, jnp.inf), axis=-1)
    high = jnp.maximum(jnp.minimum(reach, bounds), 0.0)
    low = jnp.minimum(alone.low, high)
    # Some steps are kept free at both ends.
    room = 0.98 * points - 16.0
    one = jnp.max(jnp.where(counts == 0, 0.0, high - low))

    def window(n: Reals, step: Reals, more: Reals) -> Window:
        variance = 0.25 * (jnp.sum(n) * step * step + more)
        found = _window(n, up, down, orders, most_of(n), variance)
        return _lowered(found, step * jnp.sum(n))

    def windows(step: Reals, wide: Reals) -> tuple[Window, Window, Window]:
        part, remainder = (window(n, step, nothing) for n in (often, rest))
        return part, remainder, window(counts, step, (folds + 1.0) * wide * wide)

    def steps_for(part: Window, remainder: Window, whole: Window) -> tuple[Reals, Reals]:
        widest = jnp.maximum(part.high - part.low, remainder.high - remainder.low)
        widest = jnp.maximum(widest, one)
        step = jnp.maximum(widest / room, 1e-12 * (1.0 + epsilon))
        return step, jnp.maximum(jnp.ceil((whole.high - whole.low) / (room * step)), 1.0)

    step, coarsening = steps_for(*windows(nothing, nothing))
    part, remainder, whole = windows(_SPARE * step, _SPARE * step * coarsening)
    step, coarsening = steps_for(part, remainder, whole)
    step = _aligned(step, coarsening, counts, bounds)
    wide = step * coarsening

    def spared(window: Window, n: Reals, added: Reals) -> Window:
        # Where the steps are wide beside a bounded loss, chords add more than `_window` left free.
        missing = jnp.maximum(2.0 * added - 0.02 * most_of(n), 0.0) + 4.0 * wide
        return window._replace(low=window.low - missing, high=window.high + missing)

    steps = step * jnp.sum(counts) + wide * (folds + 1.0)
    part = spared(part, often, step * jnp.sum(often))
    remainder = spared(remainder, rest, step * jnp.sum(rest))
    whole = spared(whole, counts, steps)
    return Plan(tilt, at[:, 0], folds, often, rest, low, step, coarsening, part, remainder, whole)


def _aligned(step: Reals, coarsening: Reals, counts: Reals, bounds: Reals) -> Reals:
    """A step no smaller, with the largest loss, if it is bounded, just above a point of both grids.

    An atom at the largest loss may only move down: by a step, unless it lies on the grid. It is
    left above by more than a chord is above the profile, which is 1 / 4 of the step squared
    times the density beside it.
    """
    weight = jnp.where((bounds < jnp.inf) & (bounds > 0), counts, 0.0)
    bound = jnp.where(jnp.max(weight) > 0, bounds[jnp.argmax(weight)], 1.0)
    above = step * (step + 2.0**-30)
    whole = coarsening * jnp.floor((bound - above) / (step * coarsening))
    aligned = (bound - above) / jnp.maximum(whole, 1.0)
    return jnp.where((jnp.max(weight) > 0) & (whole >= 1), aligned, step)
