"""Releases as tilted masses on uniform grids of losses, by the chords of their privacy profiles.

Identity: with x = e^epsilon, D(x) = delta(log x) is convex and falls. Masses p_i >= 0 at losses l_i
have the profile sum p_i (1 - x / x_i)_+, x_i = e^(l_i), whose slope changes by p_i / x_i at x_i.
Chords through the values at the grid points ("connect the dots") lie above D. They are the profile
of U = L + N, where E[e^-N | L] = 1 and N takes two values one step apart. This is an upper bound.
The coupling changes little, so it gives a lower bound too (see `grid`). Losses that lie on the grid
stay there. Losses of a lattice are found on a grid of its unit, and then put on the common one.

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

from typing import Any, NamedTuple

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.batch import Table
from jaxdp.accountant.window import FITS
from jaxdp.dominating_pair.base import DominatingPair

PROFILE = 2e-12  # relative error of a profile, over 1 + |log delta|. derived: the pair's contract
ON_GRID = 4.0 * FITS  # distance of a loss from its grid point that counts as 0. chosen
PLACED = 8.0 * ULP  # error of a loss's place between two points. derived: some roundings
NEGLIGIBLE = 1e-18  # tilted mass, over the largest, whose place does not matter. chosen


class Grid(NamedTuple):
    """Losses base + step i, i < points; masses there are multiplied by e^(tilt l - log_norm)."""

    base: Any  # (R, 1)
    step: Any  # (R, 1)
    tilt: Any
    log_norm: Any  # (R, 1)
    zero: int  # of the first loss that is not below 0
    points: int

    @property
    def loss(self) -> Any:
        """The losses (R, points)."""
        return self.loss_at(slice(None), np.arange(self.points))

    def loss_at(self, rows: Any, columns: Any) -> Any:
        """The losses at some points; rounding changes no sign."""
        row = slice(None) if isinstance(rows, slice) else 0
        loss = self.base[rows, row] + self.step[rows, row] * columns
        return np.where(columns < self.zero, np.minimum(loss, 0.0), np.maximum(loss, 0.0))


class Masses(NamedTuple):
    """Tilted masses of total 1 of releases."""

    value: Any  # (R, points)
    log_norm: Any
    log_infinite: Any  # log of the finite mass that is counted as infinite
    log_beyond: Any  # log of the mass at the last point
    errors: Errors


class Errors(NamedTuple):
    """Errors of tilted masses (R,)."""

    blur: Any  # tilted mass that rounding can misplace
    below: Any  # tilted mass that was moved up to the first point
    rounding: Any  # of the tilted profile: how far it can lie below the true one
    excess: Any  # of the tilted profile: how far it can lie above the true chords
    shared: Any  # of losses on a grid: tilted mass that rounding moved by a step
    misplacement: Any  # of losses on a grid: largest distance of a relevant loss from it


def _finite_log_delta(value: Any, log_infinite: Any, ended: Any) -> tuple[Any, Any]:
    """log(delta - P[L = inf]), and its relative error over the relative error of delta."""
    has_infinite = log_infinite > -np.inf
    if not has_infinite.any():
        return np.where(ended, -np.inf, value), 1.0
    infinite = np.exp(log_infinite) * (1.0 - 4.0 * ULP)
    has_infinite = infinite > 0
    delta = np.exp(np.where(has_infinite, value, 0.0))
    finite = delta - infinite
    is_positive = has_infinite & ~(finite <= 0)  # true for NaN
    safe = np.where(is_positive, finite, 1.0)
    log_finite = np.where(is_positive, np.log(safe), -np.inf)
    result = np.where(has_infinite, log_finite, value)
    return np.where(ended, -np.inf, result), np.where(is_positive, delta / safe, 1.0)


def _profile(pair: DominatingPair, epsilon: Any, zero: int) -> tuple[Any, Any]:
    """log delta and its error: of the exchanged pair at the `zero` first epsilons, then the pair.

    Parameters of the pair have the shape (R, 1), epsilons (R, points).
    """
    exchanged, found = pair.reversed(), []
    zero = 0 if exchanged is pair else zero
    for side, at in ((exchanged, epsilon[:, :zero]), (pair, epsilon[:, zero:])):
        if at.size == 0:
            continue
        error = np.broadcast_to(side.profile_error(at), at.shape)
        found.append((np.asarray(side.log_delta(at)), error))
    values, errors = zip(*found, strict=True)
    if len(values) == 1:
        return values[0], errors[0]
    return np.concatenate(values, axis=1), np.concatenate(errors, axis=1)


def _values_of(pair: DominatingPair, facts: Table, grid: Grid, loss: Any) -> tuple[Any, ...]:
    """The tilted T at losses, rounded up, its relative error, and log delta at the last one.

    log T is log delta(loss) for loss >= 0, and loss + log delta(-loss) of the exchanged pair below.
    """
    is_negative = np.arange(grid.points) < grid.zero
    # Moved towards 0, where T is larger, by more than the product's rounding; then lowered a
    # little.
    shifted_loss = loss * (1.0 - 4.0 * ULP) + facts.drift
    rounding = 4.0 * ULP * np.abs(facts.drift)
    epsilon = np.where(is_negative, -shifted_loss, shifted_loss) - rounding
    ended = epsilon >= np.where(is_negative, facts.smallest, facts.largest)
    value, error = _profile(pair, np.where(ended, 0.0, epsilon), grid.zero)
    last, end = value[:, -1:], ended[:, -1:]
    log_last = _finite_log_delta(last, facts.log_infinite, end)[0]
    # Losses beyond the last point count as infinite: their share of the tilted T can be large.
    log_last_mass = np.where(end, facts.log_infinite, last)
    infinite = np.where(is_negative, facts.exchanged_infinite, log_last_mass)
    ended = ended | (~is_negative & (value <= log_last_mass))
    value, amplification = _finite_log_delta(value, infinite, ended)
    log_t = value + np.where(is_negative, loss + facts.drift, 0.0)
    alive = log_t > -np.inf
    size = np.where(alive, np.abs(value), 0.0)
    tilted_loss = grid.tilt * loss
    exponent = np.where(log_t == -np.inf, 0.0, log_t + tilted_loss - grid.log_norm)
    sizes = size + np.abs(loss) + np.abs(tilted_loss) + np.abs(grid.log_norm)
    round_up = ULP * (8.0 * amplification + 2.0 * sizes)
    tilted = np.where(alive | np.isnan(log_t), np.exp(exponent + round_up), 0.0)
    relative = PROFILE * (1.0 + size)
    if error.any():
        relative = relative + np.expm1(np.minimum(error, 1.0))
    relative = amplification * relative + 2.0 * round_up
    return tilted, np.where(alive, relative, 0.0), log_last[:, 0]


def _settled(slope: Any, cell: int, fall: Any) -> Any:
    """Minus the tilted slopes of the cells, raised so that the untilted slopes fall.

    `fall` is the change of the log tilt from cell to cell; `cell` has the loss 0.
    """
    change, found = fall * np.arange(1.0 * slope.shape[1]), slope.copy()
    # On the left, the least of the sizes from a cell to `cell`; on the right, the greatest after.
    left, right = slice(0, cell), slice(cell + 1, None)
    for part, sign in ((left, -1.0), (right, 1.0)):
        key = sign * (np.log(np.maximum(sign * slope[:, part], 0.0)) - change[:, part])
        best = np.maximum.accumulate(key[:, ::-1], axis=1)[:, ::-1]
        moves = best > key
        moved = sign * np.exp(sign * best + change[:, part], where=moves, out=np.zeros_like(key))
        least = slope[:, part] if sign > 0 else np.minimum(slope[:, part], 0.0)
        found[:, part] = np.where(moves, moved, least)
    return found


def _kink(grid: Grid, cell: int, log_finite: Any) -> Any:
    """The chord masses of (1 - x)_+ at both ends of the cell of a loss of 0 (R, 2)."""
    low = np.clip(-(grid.base + cell * grid.step), 0.0, grid.step)  # from the left end up to 0
    upper = np.expm1(-low) / np.expm1(-grid.step)
    scale = np.exp(log_finite - grid.log_norm)
    rise = np.exp(grid.tilt * (grid.step - low))
    both = (1.0 - upper) * np.exp(-grid.tilt * low) * scale, upper * rise * scale
    return np.concatenate(both, axis=1)


def masses_of(pair: DominatingPair, facts: Table, grid: Grid, exact: Any) -> Masses:
    """The masses of releases; every grid begins below 0.

    Parameters of the pair have the shape (R, 1), and the columns of the table too. Losses of
    `exact` releases (R,) lie on the grid.
    """
    loss = grid.loss
    value, relative, log_last = _values_of(pair, facts, grid, loss)
    growth = np.exp(grid.tilt * grid.step)
    raw = (value[:, :-1] - value[:, 1:] / growth) / np.expm1(grid.step)
    cell = grid.zero - 1
    slope = _settled(raw, cell, (grid.tilt + 1.0) * grid.step)
    raised = np.sum(slope - raw, axis=1)
    slope = np.pad(slope, ((0, 0), (0, 1)))
    before = np.concatenate([-value[:, :1], slope[:, :-1] * (growth * np.exp(grid.step))], axis=1)
    kink = _kink(grid, cell, facts.log_finite)
    mass = before - slope
    mass[:, cell : cell + 2] += kink
    # Beyond both ends of a bounded loss there are only rounding errors.
    room, finite = np.where(exact[:, None], 0.5, 2.0) * grid.step, loss + facts.drift
    law = facts.law
    last = np.max(law.loss, axis=-1, initial=-np.inf, where=law.log_mass > -np.inf)
    is_beyond = (finite > last + room) | (finite < -facts.smallest - room)
    kept = np.where(is_beyond, 0.0, np.maximum(mass, 0.0))
    clipped = np.sum(np.where(is_beyond, np.abs(mass), np.maximum(-mass, 0.0)), axis=1)
    mass, total = kept, np.sum(kept, axis=1)
    steep = np.maximum(np.abs(before), np.abs(slope))
    size = np.abs(loss) + np.abs(facts.drift)
    # The value was taken at a loss with an error of one or two roundings, times the slope.
    excess = np.max(value * np.minimum(relative, 1.0) + 16.0 * ULP * size * steep, axis=1)
    excess = excess + raised * np.expm1(grid.step[:, 0])
    rounding = 4.0 * ULP * np.sum(value > 0, axis=1) * np.max(value, axis=1)
    log_norm = grid.log_norm[:, 0]
    blur = 16.0 * np.sum(steep, axis=1)
    blur = blur + (8.0 + 4.0 * np.abs(log_norm)) * np.sum(kink, axis=1)
    matters = mass > NEGLIGIBLE * np.max(mass, axis=1, keepdims=True)
    # Where the step is the unit of the losses, it does not have to fit them.
    off_grid = exact * np.where(facts.spacing == grid.step, FITS, ON_GRID)[:, 0]
    return Masses(
        value=mass / total[:, None],
        log_norm=log_norm + np.log(total),
        log_infinite=log_last * (1.0 - 16.0 * ULP) + 16.0 * ULP,
        log_beyond=np.log(mass[:, -1]) - grid.tilt * loss[:, -1] + log_norm,
        errors=Errors(
            blur=(ULP * blur + clipped) / total,
            below=mass[:, 0] / total,
            rounding=rounding / total,
            excess=(excess + rounding) / total,
            shared=_shared(grid, off_grid * np.sum(mass * size, axis=1) / total),
            misplacement=off_grid * np.max(size, axis=1, where=matters, initial=0.0),
        ),
    )


def _shared(grid: Grid, off: Any) -> Any:
    """Tilted mass that errors of places, `off` over the mass, move by a step."""
    step = grid.step[:, 0]
    return off * (1.0 + np.exp(grid.tilt * step)) / step


def regridded(masses: Masses, own: Grid, grid: Grid) -> Masses:
    """The chord law on `grid` of masses at losses on grids of their own.

    Each mass goes to both neighbours of its loss l, such that the sum of e^-l remains. Losses are
    raised by their rounding first. Masses below `grid` move up to its first point, and of those
    above it the part that its last point cannot hold counts as infinite.
    """
    count, points = len(grid.base), grid.points
    rows, columns = np.nonzero(masses.value > 0)
    mass, loss = masses.value[rows, columns], own.loss_at(rows, columns)
    base, step = grid.base[rows, 0], grid.step[rows, 0]
    size = np.abs(loss) + np.abs(base)
    loss = loss + 4.0 * ULP * size
    cell = np.clip(np.floor((loss - base) / step), 0, points - 2).astype(int)
    into = loss - (base + step * cell)
    inside = np.clip(into, 0.0, step)
    up = np.expm1(-inside) / np.expm1(-step)
    is_above = into > step
    each, log_infinite, log_beyond = mass, masses.log_infinite, masses.log_beyond
    mass = mass * np.where(is_above, np.exp(inside - into), 1.0)
    if is_above.any():
        scale = np.exp(masses.log_norm[rows] - grid.tilt * loss, where=is_above, out=0.0 * loss)
        beyond, kept = (np.bincount(rows, x * scale, count) for x in (each, mass))
        log_beyond = np.logaddexp(log_beyond, np.log(beyond))
        log_infinite = np.logaddexp(log_infinite, np.log(beyond - kept))
    at = rows * points + cell
    value = np.bincount(at, mass * (1.0 - up) * np.exp(-grid.tilt * into), count * points)
    value += np.bincount(at + 1, mass * up * np.exp(grid.tilt * (step - into)), count * points)
    value = value.reshape(count, points)
    total, growth = np.sum(value, axis=1), np.exp(grid.tilt * grid.step[:, 0])
    mean_size = np.bincount(rows, each * size, count)
    most, of_own = growth / np.minimum(total, 1.0), masses.errors
    errors = of_own._replace(
        blur=most * (of_own.blur + 64.0 * ULP),
        below=most * of_own.below + value[:, 0] / total,
        rounding=most * of_own.rounding,
        excess=most * of_own.excess,
        shared=most * (of_own.shared + _shared(grid, PLACED * mean_size)),
    )
    log_norm = masses.log_norm + np.log(total)
    return Masses(value / total[:, None], log_norm, log_infinite, log_beyond, errors)
