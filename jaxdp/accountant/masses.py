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

from typing import Any, NamedTuple

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.tables import Table
from jaxdp.accountant.window import FITS
from jaxdp.dominating_pair.base import DominatingPair

PROFILE = 2e-12  # relative error of a profile, over 1 + |log delta|. derived: the pair's contract
ON_GRID = 4.0 * FITS  # distance of a loss from its grid point that counts as 0. chosen
NEGLIGIBLE = 1e-18  # tilted mass, over the largest, whose place does not matter. chosen


class Grid(NamedTuple):
    """Losses base + step i, i < N; masses there are multiplied by e^(tilt l - log_norm)."""

    base: Any
    step: Any
    tilt: Any
    log_norm: Any


class Masses(NamedTuple):
    """Tilted masses of total 1 of one release, and their errors."""

    value: Any  # (N,)
    log_norm: Any
    log_infinite: Any  # log of the finite mass that is counted as infinite
    log_beyond: Any  # log of the mass at the last point
    blur: Any  # tilted mass that rounding can misplace
    below: Any  # tilted mass that was moved up to the first point
    rounding: Any  # of the tilted profile: how far it can lie below the true one
    excess: Any  # of the tilted profile: how far it can lie above the true chords
    shared: Any  # for losses on the grid: tilted mass that rounding moved by a step
    misplacement: Any  # for losses on the grid: largest distance of a relevant loss from it


def _finite_log_delta(value: Any, log_infinite: Any, ended: Any) -> tuple[Any, Any]:
    """log(delta - P[L = inf]), and its relative error over the relative error of delta."""
    infinite = np.exp(log_infinite) * (1.0 - 4.0 * ULP)
    has_infinite = infinite > 0
    delta = np.exp(np.where(has_infinite, value, 0.0))
    finite = delta - infinite
    is_positive = has_infinite & ~(finite <= 0)  # true for NaN
    safe = np.where(is_positive, finite, 1.0)
    log_finite = np.where(is_positive, np.log(safe), -np.inf)
    result = np.where(has_infinite, log_finite, value)
    return np.where(ended, -np.inf, result), np.where(is_positive, delta / safe, 1.0)


def _profile(pair: DominatingPair, epsilon: Any, first: int) -> tuple[Any, Any]:
    """log delta and its error: of the exchanged pair at the `first` epsilons, of the pair after."""
    exchanged, found = pair.reversed(), []
    first = 0 if exchanged is pair else first
    for side, at in ((exchanged, epsilon[:first]), (pair, epsilon[first:])):
        if at.size == 0:
            continue
        side = side.prepared()
        error = np.broadcast_to(side.profile_error(at), at.shape)
        found.append((np.asarray(side.log_delta(at)), error))
    values, errors = zip(*found, strict=True)
    return np.concatenate(values), np.concatenate(errors)


def _values_of(pair: DominatingPair, facts: Table, grid: Grid, loss: Any) -> tuple[Any, ...]:
    """The tilted T at losses, rounded up, its relative error, and log delta at the last one.

    log T is log delta(loss) for loss >= 0, and loss + log delta(-loss) of the exchanged pair below.
    """
    is_negative = loss < 0
    # Moved towards 0, where T is larger, by more than the product's rounding; then lowered a
    # little.
    shifted_loss = loss * (1.0 - 4.0 * ULP) + facts.drift
    rounding = 4.0 * ULP * np.abs(facts.drift)
    epsilon = np.where(is_negative, -shifted_loss, shifted_loss) - rounding
    ended = epsilon >= np.where(is_negative, facts.smallest, facts.largest)
    value, error = _profile(pair, np.where(ended, 0.0, epsilon), int(np.sum(is_negative)))
    log_last = _finite_log_delta(value[-1], facts.log_infinite, ended[-1])[0]
    # Losses beyond the last point count as infinite: their share of the tilted T can be large.
    log_last_mass = np.where(ended[-1], facts.log_infinite, value[-1])
    infinite = np.where(is_negative, facts.exchanged_infinite, log_last_mass)
    ended = ended | (~is_negative & (value <= log_last_mass))
    value, amplification = _finite_log_delta(value, infinite, ended)
    log_t = value + np.where(is_negative, loss + facts.drift, 0.0)
    alive = log_t > -np.inf
    size = np.where(alive, np.abs(value), 0.0)
    exponent = np.where(log_t == -np.inf, 0.0, log_t + grid.tilt * loss - grid.log_norm)
    sizes = size + np.abs(loss) + np.abs(grid.tilt * loss) + np.abs(grid.log_norm)
    round_up = ULP * (8.0 * amplification + 2.0 * sizes)
    tilted = np.where(alive | np.isnan(log_t), np.exp(exponent + round_up), 0.0)
    relative = amplification * (PROFILE * (1.0 + size) + np.expm1(np.minimum(error, 1.0)))
    relative = relative + 2.0 * round_up
    return tilted, np.where(alive, relative, 0.0), log_last


def _greatest_after(x: Any) -> Any:
    return np.maximum.accumulate(x[::-1])[::-1]


def _settled(slope: Any, on_left: Any, on_right: Any, fall: Any) -> Any:
    """Minus the tilted slopes of the cells, raised so that the untilted slopes fall.

    `fall` is the change of the log tilt from cell to cell.
    """
    index = np.arange(1.0 * slope.size)
    size = np.where(on_left, -slope, slope)
    log_size = np.log(np.maximum(size, 0.0)) - fall * index
    key = np.where(on_right, log_size, np.where(on_left, -log_size, -np.inf))
    # On the left the maximum of -log runs over the left cells alone.
    high = _greatest_after(np.where(on_right, key, -np.inf))
    low = -_greatest_after(np.where(on_left, key, -np.inf))
    raised = np.where(high > log_size, np.exp(high + fall * index), slope)
    lowered = np.where(low < log_size, -np.exp(low + fall * index), np.minimum(slope, 0.0))
    return np.where(on_right, raised, np.where(on_left, lowered, slope))


def _kink(grid: Grid, cell: int, log_finite: Any) -> tuple[Any, Any]:
    """The chord masses of (1 - x)_+ at both ends of the cell of a loss of 0."""
    low = np.clip(-(grid.base + cell * grid.step), 0.0, grid.step)  # from the left end up to 0
    upper = np.expm1(-low) / np.expm1(-grid.step)
    scale = np.exp(log_finite - grid.log_norm)
    rise = np.exp(grid.tilt * (grid.step - low))
    return (1.0 - upper) * np.exp(-grid.tilt * low) * scale, upper * rise * scale


def masses_of(pair: DominatingPair, facts: Table, grid: Grid, points: int) -> Masses:
    """The masses of one release, with parameters of shape (); the grid begins below 0."""
    index = np.arange(1.0 * points)
    loss = grid.base + grid.step * index
    value, relative, log_last = _values_of(pair, facts, grid, loss)
    growth = np.exp(grid.tilt * grid.step)
    raw = (value[:-1] - value[1:] / growth) / np.expm1(grid.step)
    cell = int(np.clip(np.floor(-grid.base / grid.step), 0.0, points - 2.0))
    fall = (grid.tilt + 1.0) * grid.step
    slope = np.append(_settled(raw, index[:-1] < cell, index[:-1] > cell, fall), 0.0)
    before = np.append(-value[:1], slope[:-1] * growth * np.exp(grid.step))
    kink = _kink(grid, cell, facts.log_finite)
    mass = before - slope
    mass[cell : cell + 2] += kink
    # Beyond the last node of a bounded loss there are only rounding errors.
    last_node = np.max(facts.law.loss, initial=-np.inf, where=facts.law.log_mass > -np.inf)
    is_beyond = loss > last_node - facts.drift + 2.0 * grid.step
    kept = np.where(is_beyond, 0.0, np.maximum(mass, 0.0))
    clipped = np.sum(np.where(is_beyond, np.abs(mass), np.maximum(-mass, 0.0)))
    mass, total = kept, np.sum(kept)
    steep = np.maximum(np.abs(before), np.abs(slope))
    size = np.abs(loss) + np.abs(facts.drift)
    # The value was taken at a loss with an error of one or two roundings, times the slope.
    excess = np.max(value * np.minimum(relative, 1.0) + 16.0 * ULP * size * steep)
    excess = excess + np.sum(slope[:-1] - raw) * np.expm1(grid.step)
    rounding = 4.0 * ULP * np.sum(value > 0) * np.max(value)
    blur = 16.0 * np.sum(steep) + (8.0 + 4.0 * np.abs(grid.log_norm)) * np.sum(kink)
    return Masses(
        value=mass / total,
        log_norm=grid.log_norm + np.log(total),
        log_infinite=log_last * (1.0 - 16.0 * ULP) + 16.0 * ULP,
        log_beyond=np.log(mass[-1]) - grid.tilt * loss[-1] + grid.log_norm,
        blur=(ULP * blur + clipped) / total,
        below=mass[0] / total,
        rounding=rounding / total,
        excess=(excess + rounding) / total,
        shared=ON_GRID * np.sum(mass * size) * (1.0 + growth) / grid.step / total,
        misplacement=ON_GRID * np.max(size, where=mass > NEGLIGIBLE * np.max(mass), initial=0.0),
    )
