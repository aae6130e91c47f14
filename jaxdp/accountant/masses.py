"""One release as tilted masses on a uniform grid of losses, by the chords of its privacy profile.

Identity: with x = e^epsilon, D(x) = delta(log x) is convex and falls. Masses p_i >= 0 at losses l_i
have the profile sum p_i (1 - x / x_i)_+, x_i = e^(l_i), whose slope changes by p_i / x_i at x_i.
Chords through the values at the grid points ("connect the dots") lie above D. They are the profile
of U = L + N, where E[e^-N | L] = 1 and N takes two values one step apart. This is an upper bound.
The coupling changes little, so it gives a lower bound too (see `grid`). Losses that lie on the grid
stay there.

Values: D = (1 - x)_+ + T(x), where only T, accurate to full relative precision on both sides of x =
1, is differenced. Rounding can leave slopes that do not fall. Each is raised to the largest slope
on its right (on the left of x = 1, where T rises, lowered to the least), which only raises the
profile.

Error of the tilted profile: the error of the values; N ulp from differencing N of them, since the
rounding of each slope is the rounding of a value over a step and T falls; the raise of the slopes.
Error of tilted mass: the rounding of the masses (`blur`), and the mass below the grid, moved up
(`below`). Infinite losses are left out: with P, Q of finite masses p, q, the remaining pair has the
loss L - log(p / q). The log is the drift, and masses are masses under P, of total p.

Source of the chords: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PETS 2022, algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.tables import Table
from jaxdp.accountant.window import FITS
from jaxdp.dominating_pair.base import DominatingPair, Law

PROFILE = 2e-12  # relative error of a profile, over 1 + |log delta|. derived: the pair's contract
ON_GRID = 4.0 * FITS  # distance of a loss from its grid point that counts as 0. chosen
NEGLIGIBLE = 1e-18  # tilted mass, over the largest, whose place does not matter. chosen


class Grid(NamedTuple):
    """Losses base + step i, i < N; masses there are multiplied by e^(tilt l - log_norm)."""

    base: Reals
    step: Reals
    tilt: Reals
    log_norm: Reals


class Masses(NamedTuple):
    """Tilted masses of total 1 of one release, and their errors."""

    value: Reals  # (N,)
    log_norm: Reals
    log_infinite: Reals  # log of the finite mass that is counted as infinite
    log_beyond: Reals  # log of the mass at the last point
    blur: Reals  # tilted mass that rounding can misplace
    below: Reals  # tilted mass that was moved up to the first point
    rounding: Reals  # of the tilted profile: how far it can lie below the true one
    excess: Reals  # of the tilted profile: how far it can lie above the true chords
    shared: Reals  # for losses on the grid: tilted mass that rounding moved by a step
    misplacement: Reals  # for losses on the grid: largest distance of a relevant loss from it


def selected(swap: Bools, pair: DominatingPair, exchanged: DominatingPair) -> DominatingPair:
    """`exchanged` where `swap` is true; arrays that both pairs share stay as they are."""
    return jax.tree.map(lambda a, b: a if a is b else xp.where(swap, b, a), pair, exchanged)


def _finite_log_delta(value: Reals, log_infinite: Reals, ended: Bools) -> tuple[Reals, Reals]:
    """log(delta - P[L = inf]), and its relative error over the relative error of delta."""
    infinite = xp.exp(log_infinite) * (1.0 - 4.0 * ULP)
    has_infinite = infinite > 0
    delta = xp.exp(xp.where(has_infinite, value, 0.0))
    finite = delta - infinite
    is_positive = has_infinite & ~(finite <= 0)  # true for NaN
    safe = xp.where(is_positive, finite, 1.0)
    log_finite = xp.where(is_positive, xp.log(safe), -xp.inf)
    result = xp.where(has_infinite, log_finite, value)
    return xp.where(ended, -xp.inf, result), xp.where(is_positive, delta / safe, 1.0)


class Values(NamedTuple):
    """The profile T of one release on its grid."""

    tilted: Reals  # (N,), rounded up
    relative: Reals  # (N,): relative error
    log_last: Reals  # log delta at the last point, not tilted


def values_of(pair: DominatingPair, facts: Table, grid: Grid, points: int) -> Values:
    """The profile of one release, with parameters of shape ().

    log T is log delta(loss) for loss >= 0, and loss + log delta(-loss) of the exchanged pair below.
    """
    loss = grid.base + grid.step * xp.arange(1.0 * points)
    is_negative = loss < 0
    # Moved towards 0, where T is larger, by more than the product's rounding; then lowered a
    # little.
    shifted_loss = loss * (1.0 - 4.0 * ULP) + facts.drift
    rounding = 4.0 * ULP * xp.abs(facts.drift)
    epsilon = xp.where(is_negative, -shifted_loss, shifted_loss) - rounding
    ended = epsilon >= xp.where(is_negative, facts.smallest, facts.largest)
    # Where delta is 0 its logarithm has no derivative.
    safe_epsilon = xp.where(ended, 0.0, epsilon)
    side = selected(is_negative, pair, pair.reversed()).prepared()
    value, error = side.log_delta(safe_epsilon), side.profile_error(safe_epsilon)
    log_last = _finite_log_delta(value[-1], facts.log_infinite, ended[-1])[0]
    # Losses beyond the last point count as infinite: their share of the tilted T can be large.
    log_last_mass = xp.where(ended[-1], facts.log_infinite, lax.stop_gradient(value[-1]))
    infinite = xp.where(is_negative, facts.exchanged_infinite, log_last_mass)
    ended = ended | (~is_negative & (value <= log_last_mass))
    value, amplification = _finite_log_delta(value, infinite, ended)
    log_t = value + xp.where(is_negative, loss + facts.drift, 0.0)
    alive = log_t > -xp.inf
    size = xp.where(alive, xp.abs(value), 0.0)
    exponent = xp.where(log_t == -xp.inf, 0.0, log_t + grid.tilt * loss - grid.log_norm)
    sizes = size + xp.abs(loss) + xp.abs(grid.tilt * loss) + xp.abs(grid.log_norm)
    round_up = lax.stop_gradient(ULP * (8.0 * amplification + 2.0 * sizes))
    tilted = xp.where(alive | xp.isnan(log_t), xp.exp(exponent + round_up), 0.0)
    relative = amplification * (PROFILE * (1.0 + size) + xp.expm1(xp.minimum(error, 1.0)))
    relative = lax.stop_gradient(relative + 2.0 * round_up)
    return Values(tilted, xp.where(alive, relative, 0.0), lax.stop_gradient(log_last))


def _settled(slope: Reals, on_left: Bools, on_right: Bools, fall: Reals) -> Reals:
    """Minus the tilted slopes of the cells, raised so that the untilted slopes fall.

    `fall` is the change of the log tilt from cell to cell.
    """
    index = xp.arange(1.0 * slope.size)
    size = xp.where(on_left, -slope, slope)
    log_size = xp.log(xp.maximum(size, 0.0)) - fall * index
    key = xp.where(on_right, log_size, xp.where(on_left, -log_size, -xp.inf))
    # On the left the maximum of -log runs over the left cells alone.
    high = lax.cummax(xp.where(on_right, key, -xp.inf), reverse=True)
    low = -lax.cummax(xp.where(on_left, key, -xp.inf), reverse=True)
    raised = xp.where(high > log_size, xp.exp(high + fall * index), slope)
    lowered = xp.where(low < log_size, -xp.exp(low + fall * index), xp.minimum(slope, 0.0))
    return xp.where(on_right, raised, xp.where(on_left, lowered, slope))


def _kink(grid: Grid, cell: Reals, log_finite: Reals, points: int) -> Reals:
    """The chord masses of (1 - x)_+: at a loss of 0, or shared by the ends of its cell."""
    index = xp.arange(1.0 * points)
    low = xp.clip(-(grid.base + cell * grid.step), 0.0, grid.step)  # from the left end up to 0
    upper = xp.expm1(-low) / xp.expm1(-grid.step)
    mass = xp.where(index == cell, (1.0 - upper) * xp.exp(-grid.tilt * low), 0.0)
    rise = xp.exp(grid.tilt * (grid.step - low))
    mass = xp.where(index == cell + 1.0, upper * rise, mass)
    return mass * xp.exp(log_finite - grid.log_norm)


class _Parts(NamedTuple):
    """Parts of the masses of one release, before division by their sum."""

    values: Values
    left: Reals  # tilted slopes of the cells on either side of a point
    right: Reals
    mass: Reals
    clipped: Reals  # negative masses, which were set to 0
    kink: Reals
    loss: Reals
    raised: Reals  # sum of the raises of the slopes


def _errors(parts: _Parts, grid: Grid, drift: Reals) -> dict[str, Reals]:
    """Error fields of `Masses`."""
    (value, relative, log_last), loss, mass = parts.values, parts.loss, parts.mass
    total_mass = xp.sum(mass)
    steep = xp.maximum(xp.abs(parts.left), xp.abs(parts.right))
    size = xp.abs(loss) + xp.abs(drift)
    # The value was taken at a loss with an error of one or two roundings, times the slope.
    excess = value * xp.minimum(relative, 1.0) + 16.0 * ULP * size * steep
    rounding = 4.0 * ULP * xp.sum(value > 0) * xp.max(value)
    blur = 16.0 * steep + (8.0 + 4.0 * xp.abs(grid.log_norm)) * parts.kink
    largest = xp.max(xp.where(mass > NEGLIGIBLE * xp.max(mass), size, 0.0))
    shared = xp.sum(mass * size) * (1.0 + xp.exp(grid.tilt * grid.step)) / grid.step
    return {
        "log_infinite": log_last * (1.0 - 16.0 * ULP) + 16.0 * ULP,
        "log_beyond": xp.log(mass[-1]) - grid.tilt * loss[-1] + grid.log_norm,
        "blur": (ULP * xp.sum(blur) + xp.sum(parts.clipped)) / total_mass,
        "below": mass[0] / total_mass,
        "rounding": rounding / total_mass,
        "excess": (xp.max(excess) + rounding + parts.raised) / total_mass,
        "shared": ON_GRID * shared / total_mass,
        "misplacement": ON_GRID * largest,
    }


def _last_node(law: Law) -> Reals:
    """The largest loss of a node with positive mass."""
    return xp.max(xp.where(law.log_mass > -xp.inf, law.loss, -xp.inf))


def masses_of(values: Values, facts: Table, grid: Grid, points: int) -> Masses:
    """The masses of one release, with parameters of shape (); the grid begins below 0."""
    index = xp.arange(1.0 * points)
    loss = grid.base + grid.step * index
    value = values.tilted
    growth = xp.exp(grid.tilt * grid.step)
    raw = (value[:-1] - value[1:] / growth) / xp.expm1(grid.step)
    cell = lax.stop_gradient(xp.clip(xp.floor(-grid.base / grid.step), 0.0, points - 2.0))
    fixed_slope, fall = lax.stop_gradient((raw, (grid.tilt + 1.0) * grid.step))
    settled = _settled(fixed_slope, index[:-1] < cell, index[:-1] > cell, fall)
    slope = raw + lax.stop_gradient(settled - fixed_slope)
    higher = xp.append(-value[:1], slope * growth * xp.exp(grid.step))
    kink = _kink(grid, cell, facts.log_finite, points)
    mass = higher - xp.append(slope, 0.0) + kink
    clipped = lax.stop_gradient(xp.maximum(-mass, 0.0))
    mass = mass + clipped
    # Beyond the last node of a bounded loss there are only rounding errors.
    last_node = lax.stop_gradient(_last_node(facts.law)) - facts.drift
    is_beyond = loss > last_node + 2.0 * grid.step
    clipped = clipped + lax.stop_gradient(xp.where(is_beyond, mass, 0.0))
    mass = xp.where(is_beyond, 0.0, mass)
    total_mass = xp.sum(mass)
    log_norm = grid.log_norm + xp.log(total_mass)
    raised = xp.sum(settled - fixed_slope) * xp.expm1(grid.step)
    parts = _Parts(values, higher, xp.append(slope, 0.0), mass, clipped, kink, loss, raised)
    errors = _errors(*lax.stop_gradient((parts, grid, facts.drift)))
    return Masses(mass / total_mass, log_norm, **errors)
