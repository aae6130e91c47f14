"""Statistics of a plan in whole units, with their sensitivity to one record and their noise.

Values are clipped and summed exactly, and each sum is rounded once to whole multiples of a public
unit. Rounding is monotone and commutes with whole multiples. So one record, which moves the exact
sum by at most k units with k whole, moves the rounded one by at most k as well. The unit is 1 for
counts and, unless the plan gives one, for discrete noise, else a power of two, 2^-26 of the public
bound or less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.elementary import round_up
from jaxdp.design.expected_error import ExpectedError, expected_error
from jaxdp.design.families import MEMBERS, scaled
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.mechanism import Mechanism
from jaxdp.noise.lattice_draws import unit_of
from jaxdp.released import BITS
from jaxdp.tables.cells import Cells
from jaxdp.tables.keys import Entry
from jaxdp.tables.quantiles import DRAWS, rank_error, steps_of

# Bits of a bound in units. chosen: a hundred million records add up below 2^53
_UNIT_BITS = 26
# Units that a sum is clipped to. derived: doubles hold every whole number up to here
LARGEST = 2**53
# Units of a bound. derived: eight million records at the bound add up to LARGEST
_MOST_UNITS = 2**30
# Largest ratio of the whole number of units to the bound. chosen: a quarter more noise
_LARGEST_WASTE = Fraction(5, 4)
# Part of a bound that clips are moved by, to end on a whole number of units. derived: 32 ulps
_SLACK = Fraction(1, 2**48)
# Largest ratio of the lattice's step to the noise's scale. derived: `released.lattice_of`
LATTICE_STEP = 2.0**-BITS


class Query(NamedTuple):
    """Statistic in whole units: its terms, its sensitivity to one record, and its noise.

    Values are clipped to [lower, upper], the bounds or a few ulps within. `middle` is subtracted
    from each. A record moves the sum by at most `sensitivity` units; neighbours differ by `rows`
    records in each of `cells` cells, as `tables.people` has it. is_whole: the noisy number is
    whole, by rounding if the noise is continuous; True for counts that are released as they are.
    """

    entry: Entry
    unit: Fraction
    middle: float
    lower: float
    upper: float
    sensitivity: int
    base: float  # the scale over the common multiplier, in units; of quantiles epsilon times it
    is_whole: bool
    rows: int
    cells: int

    @property
    def points(self) -> int:
        """Points of the grid that quantiles are chosen from."""
        return round((Fraction(repr(self.upper)) - Fraction(repr(self.lower))) / self.unit) + 1

    @property
    def draws(self) -> int:
        """Number of the mechanism's runs in a cell."""
        return DRAWS * len(self.entry.probabilities) or 1

    @property
    def runs(self) -> int:
        """Number of the mechanism's runs in which neighbours differ."""
        return self.draws * self.cells


def error_of(
    query: Query, mechanism: Mechanism | ExponentialMechanism, level: float
) -> ExpectedError:
    """`expected_error` in the column's unit; the half width includes all rounding.

    For quantiles, bounds on the errors of the ranks; the worst one.
    """
    if isinstance(mechanism, ExponentialMechanism):
        errors = rank_errors(query, mechanism, 1.0 - level)
        return max(errors, key=lambda error: error.half_width)
    noise, unit = mechanism.noise, float(query.unit)
    fine = 0.0 if noise.on_integers else LATTICE_STEP * unit_of(noise)
    error = expected_error(mechanism, level, fine)
    half_width = error.half_width + (0.0 if query.entry.statistic == "count" else 0.5)
    if step_of(query, mechanism) is not None:
        # The exact count is whole, so that the rounded noise is its error.
        half_width = xp.floor(half_width + 0.5)
    errors = (error.standard_deviation, error.mean_absolute, half_width)
    return ExpectedError(*(unit * x for x in errors))


def rank_errors(query: Query, mechanism: ExponentialMechanism, miss: float) -> list[ExpectedError]:
    """Bounds on the errors of the ranks of each quantile, in records."""
    return [
        rank_error(mechanism, q, query.rows, query.points, miss) for q in query.entry.probabilities
    ]


def step_of(query: Query, mechanism: Mechanism) -> float | None:
    """The granularity in units: whole numbers, or as fine as the lattice."""
    return 1.0 if query.is_whole and not mechanism.noise.on_integers else None


def query_of(entry: Entry, is_alone: bool, moves: tuple[int, int]) -> Query:
    """The statistic in whole units; `is_alone`: no other table is made consistent with it.

    moves: of how many records and cells neighbours differ.
    """
    is_whole = MEMBERS[entry.noise].on_integers
    if entry.probabilities:
        unit = steps_of(entry.where, (entry.lower, entry.upper), entry.unit)
        bounds = 0.0, entry.lower, entry.upper
        # Of the exponential mechanism, whose rho is then about that of a Gaussian of this weight.
        return Query(entry, unit, *bounds, 1, 2.0 * entry.weight, False, *moves)
    if entry.statistic == "count":
        base = 1.0 / entry.weight if entry.scale is None else entry.scale
        return Query(entry, Fraction(1), 0.0, 0.0, 1.0, 1, base, is_whole or is_alone, *moves)
    lower, upper = entry.lower, entry.upper
    middle = 0.5 * lower + 0.5 * upper if entry.statistic == "mean" else 0.0
    unit, bound = _unit(entry, middle), _bound(lower, upper, middle)
    sensitivity = math.ceil(bound / unit * (1 - _SLACK))
    if sensitivity * unit > _LARGEST_WASTE * bound:
        raise ValueError(
            f"{entry.where}: unit must be at most {float(bound) / 4:.3g} or divide "
            f"{float(bound):g}, the largest distance of a bound to {middle:g}, got {float(unit):g}"
        )
    if sensitivity > _MOST_UNITS:
        raise ValueError(
            f"{entry.where}: unit must be at least {float(bound / _MOST_UNITS):.1g} at these "
            f"bounds, got {float(unit):g}"
        )
    while Fraction(upper) - Fraction(middle) > sensitivity * unit:
        upper = math.nextafter(upper, -math.inf)
    while Fraction(middle) - Fraction(lower) > sensitivity * unit:
        lower = math.nextafter(lower, math.inf)
    base = sensitivity / entry.weight if entry.scale is None else entry.scale / float(unit)
    return Query(entry, unit, middle, lower, upper, sensitivity, base, is_whole, *moves)


def _bound(lower: float, upper: float, middle: float) -> Fraction:
    """The largest distance of a value to the middle, exact."""
    return max(Fraction(upper) - Fraction(middle), Fraction(middle) - Fraction(lower))


def _unit(entry: Entry, middle: float) -> Fraction:
    """The unit of a sum: the plan's, else 1 for discrete noise, else far below the bound."""
    if entry.unit is not None:
        return entry.unit
    if MEMBERS[entry.noise].on_integers:
        return Fraction(1)
    bound = float(_bound(entry.lower, entry.upper, middle))
    return Fraction(2) ** (math.frexp(bound)[1] - 1 - _UNIT_BITS)


def moves_of(
    entries: Sequence[Entry], rows: int, max_cells: int | None
) -> Iterator[tuple[int, int]]:
    """For each statistic the records and the cells that neighbours differ by: `tables.people`."""
    own = [{*entry.cells, *entry.unknown_columns} for entry in entries]
    finest = set[Cells | str]().union(*own)
    for entry, columns in zip(entries, own, strict=True):
        if max_cells is None:
            yield rows, 1
        elif columns == finest:
            most = max_cells if entry.unknown_columns else math.prod(entry.shape)
            yield rows, min(max_cells, most)
        else:
            yield rows * max_cells, 1


def mechanism_of(
    noise: str, scale: ArrayLike, sensitivity: Sequence[int] | int, rows: Sequence[int] | int = 1
) -> Mechanism:
    """The mechanism in units, for neighbours that differ by `rows` records: see `tables.people`.

    Its sensitivity counts the rounding of as many cells to a lattice that is coarser than units.
    """
    made, shift = scaled(noise, scale), xp.asarray(sensitivity, xp.float64)
    if not made.on_integers:
        shift = round_up(shift + LATTICE_STEP * made.scale, 8)
    # A product of whole numbers is exact.
    factor = xp.asarray(rows, xp.float64)
    return Mechanism(made, round_up(factor * shift, 0 if made.on_integers else 2))
