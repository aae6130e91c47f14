"""Private centres and deviations of bounded columns, for scaling.

A column is clipped to its public bounds and measured from their middle in units of half their
width, so that it lies in [-1, 1]. Its mean moves by at most 2 / n when one of n (public) records
is replaced, by 1 / n when one is added or removed; its mean square by 1 / n in either case. All 2p
are released at once, with noise from a lattice.

The release is shrunk towards a public guess, mean 0 and deviation 1/3 (bounds three deviations
away), by the share of the noise: with few records the guess is better than the release. Shrinking
and any further use are post-processing.

Its noise grows with the bounds. `narrowed` therefore releases noisy histograms first, whose noise
does not, and returns the bounds that nearly all records of each column lie in.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.checks import number_of_records
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.neighbours import SOLVER_RELATIONS, shift_factor
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import Key, Reals
from jaxdp.design.allocate import allocate
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.solvers import lattice
from jaxdp.solvers.blocks import Columns
from jaxdp.solvers.covariance import share_of_mean

# Variance and mean square of the mean that are guessed, in units of half the width. chosen: bounds
# of three deviations, as a user gives them for standardised columns
_GUESS = 1.0 / 9.0
# Histograms that narrow bounds: rounds at most. measured: heavy tails, bounds of 100 deviations
ROUNDS = 2
# Bins of a histogram. chosen: two rounds resolve a 256th of the width
BINS = 32
# Bits of the scale of a count's noise above the step of its lattice. chosen: histograms draw most
# numbers, so their sampling error is a fifth of the usual one; at epsilon 30 and delta 1e-6, 20
# columns are narrowed
_BITS = 40
# Share of the records that a window holds, but for its noise. chosen: tails of 3 deviations
_NEARLY_ALL = 0.995
# The same where tails are cut. measured: Gaussian naive Bayes under heavy tails and wide bounds
_MOST = 0.95
# Noise of a bin's count, as a share of the records, from which there is no second round.
# measured: as above
_SECOND = 0.02
# Noise of a window's count, as a share of the records, from which it is not taken. measured: as
# above; columns of which a tenth is not 0
_HIDES = 0.1
# Counts over their noise from which a bin is one that records lie in. measured: dummies of 2 %
_STANDS_OUT = 3.0
# Least `doubt` with which a column without a window gets one that may hold less, by one deviation
# of the noise. chosen: the doubt of targets; a tenth had no window. measured: targets mostly 0
_INSISTS = 2.0


@draws_in_float64
def release(
    values: np.ndarray | Columns,
    lower: np.ndarray,
    upper: np.ndarray,
    spent: GDP | PureDP,
    key: Key,
    *,
    relation: str,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Private centres and deviations of bounded columns.

    Args:
        values: (n, p), or `Columns`; those beyond the bounds are clipped.
        lower, upper: public bounds, (p,).
        spent: cost of the release without `sampling_error`: a `GDP` adds Gaussian noise, a `PureDP`
            Laplace noise, with the "inid" scales of `allocate`.
        key: of the noise: use it once.
        relation: "replace_one" or "add_remove".
        weights: of the columns' variances in the total that is minimised, (p,); 1 if None.

    Returns:
        (centres, deviations), (p,) each; deviations are positive and at most half the width. A
        variance below the standard deviation of its noise is taken for that.

    Other shapes, and no records: `ValueError`.

    >>> import jax
    >>> import numpy as np
    >>> import jaxdp as dp
    >>> from jaxdp.solvers import scaling
    >>> values, bound, key = np.zeros((1000, 2)), np.ones(2), jax.random.key(0)
    >>> centres, deviations = scaling.release(
    ...     values, -bound, bound, dp.GDP(1.0), key, relation="replace_one")
    >>> centres.shape, deviations.shape
    ((2,), (2,))
    """
    values, middle, half = _checked(values, lower, upper, relation)
    records, coordinates = values.shape
    # A square moves by 1 whether its record is replaced or there at all.
    moved = np.repeat([shift_factor(relation), 1.0], coordinates)
    sums = np.zeros((2, coordinates))
    for _, part in values.blocks():
        unit = _in_units(part, lower, upper)
        sums += unit.sum(axis=0), np.square(unit, out=unit).sum(axis=0)
    sums = sums.ravel() / records
    means, squares, *variances = (
        part
        for pair in _noisy(sums, moved, records, spent, key, weights)
        for part in np.reshape(pair, (2, coordinates))
    )
    centres, deviations = _shrunk(means, squares, *variances)
    return middle + half * centres, half * deviations


@draws_in_float64
def narrowed(
    values: np.ndarray | Columns,
    lower: np.ndarray,
    upper: np.ndarray,
    spent: GDP,
    key: Key,
    *,
    relation: str,
    doubt: np.ndarray | float = 0.25,
    cuts_tails: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds that nearly all records of each column lie in, from noisy histograms: (lower, upper).

    spent: cost of all `rounds`. doubt: number of deviations of its noise by which the count of a
    window may fall short, a number or (p,). A larger doubt narrows more columns and cuts off more
    rare values; from 2 on, one more deviation is allowed in the first round if no window is found.
    cuts_tails: use windows of 95 % of the records, whatever lies beyond them, for moments of most
    records.

    A record is in one bin of each column. A window is the shortest run of bins that holds nearly
    all records, with one more bin on either side. It is used if it is at most a quarter of the
    width and no bin beyond it stands out of the noise, which `cuts_tails` does not require.
    """
    columns, *_ = _checked(values, lower, upper, relation)
    records, width = columns.shape
    turns = rounds(records, width, spent, relation)
    key, low, high = checked_key(key, spent), lower.copy(), upper.copy()
    mu = float(spent.mu) / max(turns, 1) ** 0.5
    scale: Any
    scale, ratio = _noise_of_bins(width, mu, relation), mu / (width * BINS) ** 0.5
    for turn in range(turns):
        step = (high - low) / BINS
        counts: Any = np.zeros((width, BINS))
        for _, part in columns.blocks():
            bins = np.clip((np.clip(part, lower, upper) - low) / step, 0, BINS - 1).astype(np.int64)
            bins += BINS * np.arange(width)
            counts += np.bincount(bins.ravel(), minlength=counts.size).reshape(counts.shape)
        turn_key = jax.random.fold_in(key, turn)
        noise = lattice.added(Gaussian(1.0), scale, ratio, turn_key, counts.shape, bits=_BITS)
        noisy = np.asarray(noise.to(counts))
        known, found = (records, scale, cuts_tails), []
        for column, each in zip(noisy, np.broadcast_to(doubt, (width,)), strict=True):
            window = _window(column, each, *known, 0.0)
            if window is None and each >= _INSISTS and turn == 0:
                window = _window(column, each, *known, 1.0)
            found.append(window or (0, BINS))
        first, last = np.array(found).T
        ends = low + first * step, low + last * step
        # Bounds that are a few ulp apart have no room for windows.
        has_room = ends[1] - ends[0] > 0.5 * step
        low, high = (np.where(has_room, *pair) for pair in zip(ends, (low, high), strict=True))
    return low, high


def rounds(records: int, width: int, spent: GDP, relation: str) -> int:
    """Histograms that `narrowed` releases, from public numbers: none where noise hides all."""
    noise = _noise_of_bins(width, float(spent.mu), relation) / records
    # A column whose middle is at the edge of two bins needs both, with the noise of both.
    return 0 if noise * 2.0**0.5 > _HIDES else 1 + int(noise < _SECOND)


def _noise_of_bins(width: int, mu: float, relation: str) -> float:
    """Deviation of the noise of a count: a record moves one bin of each column, or two."""
    return float(np.sqrt(shift_factor(relation) * width)) / mu * (1.0 + 1e-12)


def _window(
    counts: np.ndarray, doubt: float, records: int, scale: float, cuts_tails: bool, leeway: float
) -> tuple[int, int] | None:
    """The window of a column as (first bin, last bin + 1), or None if there is none.

    leeway: deviations of the noise, added to `doubt` and to the limit above which bins stand out.
    """
    wanted = (_MOST if cuts_tails else _NEARLY_ALL) * records
    sums = np.append(0.0, np.cumsum(counts))
    for length in range(1, BINS // 4 - 1):
        inside, noise = sums[length:] - sums[:-length], scale * np.sqrt(length)
        best = int(np.argmax(inside))
        if noise > _HIDES * records or inside[best] < wanted - (doubt + leeway) * noise:
            continue
        first, last = max(best - 1, 0), min(best + length + 1, BINS)
        beyond = np.append(counts[:first], counts[last:])
        if cuts_tails or beyond.max() < (_STANDS_OUT + leeway) * scale:
            return first, last
    return None


def release_pooled(
    values: np.ndarray | Columns,
    lower: np.ndarray,
    upper: np.ndarray,
    features: int,
    spent: GDP | PureDP,
    key: Key,
    *,
    relation: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Centres and deviations of many columns from one mean square of all `features`.

    For more columns than the budget can tell apart. A record moves the mean square, in units of
    half the width of the bounds, by 1 / n. A further column, of targets, has a mean and a mean
    square of its own. The sampling error is at most that of `release`.
    """
    values, middle, half = _checked(values, lower, upper, relation)
    records, extra = values.shape[0], values.shape[1] - features
    pooled, sums = 0.0, np.zeros((2, extra))
    for _, part in values.blocks():
        unit = _in_units(part, lower, upper)
        rest = unit[:, features:]
        # Of each record first: its share of the mean is what rounding may move.
        pooled += np.minimum((unit[:, :features] ** 2).mean(axis=1), 1.0).sum()
        sums += rest.sum(axis=0), (rest**2).sum(axis=0)
    moved = np.repeat([1.0, shift_factor(relation), 1.0], [1, extra, extra])
    sums = np.append(pooled, sums) / records
    found, variances = _noisy(sums, moved, records, spent, key)
    (means, squares), noise = (np.reshape(x[1:], (2, extra)) for x in (found, variances))
    own = _shrunk(means, squares, *noise)
    root = np.sqrt(np.clip(found[0], np.sqrt(variances[0]), None).clip(max=1.0))
    centres = np.append(np.zeros(features), own[0])
    return middle + half * centres, half * np.append(np.full(features, root), own[1])


@draws_in_float64
def means(
    values: np.ndarray, moved: np.ndarray, records: int, spent: GDP, key: Key
) -> tuple[np.ndarray, np.ndarray]:
    """Means over the records, released together, and the deviations of their noise.

    moved: the most that a record moves each sum by. The sampling error is one of a draw each.
    """
    found, variances = _noisy(values, moved, records, spent, key)
    return found, np.sqrt(variances)


def _shrunk(
    means: np.ndarray, squares: np.ndarray, mean_noise: np.ndarray, square_noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Centres and deviations in units of half the width, as the module shrinks them."""
    means = np.clip(means * _GUESS / (_GUESS + mean_noise), -1.0, 1.0)
    trust = _GUESS**2 / (_GUESS**2 + square_noise)
    found = np.maximum(squares - means**2, np.sqrt(square_noise))
    return means, np.sqrt(np.minimum(trust * found + (1.0 - trust) * _GUESS, 1.0))


def _noisy(
    values: Any,
    moved: np.ndarray,
    records: int,
    spent: GDP | PureDP,
    key: Key,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Means with noise, and its variances; a record moves the sums by `moved` at most."""
    moved = moved * share_of_mean(records)
    noise = Gaussian if isinstance(spent, GDP) else Laplace
    each = None if weights is None else np.tile(weights, len(moved) // len(weights))
    scales = allocate(noise.name, moved, spent, each)
    ratios: Any = np.asarray(moved) / scales
    added = lattice.added(noise(1.0), scales, ratios, checked_key(key, spent), scales.shape)
    return np.asarray(added.to(values)), np.asarray(noise(scales).variance())


def sampling_error(coordinates: int) -> Reals:
    """Sampling error of `release` in total variation, for a number of columns."""
    return lattice.sampling_error(2 * coordinates, "lattice")


def narrowing_error(coordinates: int, turns: int) -> Reals:
    """Sampling error of `narrowed` in total variation, for a number of columns and rounds."""
    return lattice.sampling_error(turns * BINS * coordinates, "lattice", _BITS)


def _in_units(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Values measured from the middles of their bounds in half widths, in [-1, 1]."""
    unit = np.clip(values, lower, upper)
    unit -= 0.5 * (lower + upper)
    unit /= 0.5 * (upper - lower)
    # Clipped again: the middle of bounds that are a few ulp apart is rounded by up to half an ulp.
    return np.clip(unit, -1.0, 1.0, out=unit)


def _checked(
    values: np.ndarray | Columns, lower: np.ndarray, upper: np.ndarray, relation: str
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """Columns, each with its bounds; middles and half widths of these."""
    checks.one_of("relation", relation, SOLVER_RELATIONS)
    columns = values if isinstance(values, Columns) else Columns(values)
    shapes = np.shape(columns.features), lower.shape, upper.shape
    if len(shapes[0]) != 2 or not shapes[1] == shapes[2] == columns.shape[1:]:
        raise ValueError(f"values must be (n, p), lower and upper (p,), got {shapes}")
    number_of_records({"values": columns.shape[0]})
    return columns, 0.5 * (lower + upper), 0.5 * (upper - lower)
