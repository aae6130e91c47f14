"""Statistics of a plan in whole units, with their sensitivity to one record and their noise.

Values are clipped and summed exactly, and each sum is rounded once to whole multiples of a public
unit. Rounding is monotone and commutes with whole multiples. So one record, which moves the exact
sum by at most k units with k whole, moves the rounded one by at most k as well. The unit is 1 for
counts and, unless the plan gives one, for discrete noise, else a power of two, 2^-26 of the public
bound or less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.elementary import round_up
from jaxdp.design.expected_error import ExpectedError, expected_error
from jaxdp.design.families import MEMBERS, scaled
from jaxdp.mechanism import Mechanism
from jaxdp.released import BITS, unit_of
from jaxdp.tables.cells import Cells
from jaxdp.tables.labels import DROP, Missing
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
# Largest ratio of the lattice's step to the noise's scale. derived: `released`
LATTICE_STEP = 2.0**-BITS


class Query(NamedTuple):
    """Checked statistic of a plan in whole units; `where` names it in errors.

    column: of the values, None for counts of records. cells: by column, of the groups; none if the
    statistic is of all records. margins: sums over some or all of the columns are wanted, too.
    bounds: public, of the values. missing: "drop", the number of a missing value, or None: raise.
    probabilities: of the quantiles; unknown_delta: of a count by categories that the records bring,
    else None. given_unit: None if the plan gives none.

    Values are clipped to [lower, upper], the bounds or a few ulps within. `middle` is subtracted
    from each. A record moves the sum by at most `sensitivity` units. base: the scale of the noise
    over the common multiplier, in units; of quantiles epsilon times it. Neighbours differ by `rows`
    records in each of `moved` cells, as `tables.people` has it. mechanism: in units, None before
    the plan is calibrated.
    """

    where: str
    name: str
    statistic: str
    column: str | None
    cells: tuple[Cells, ...]
    margins: bool
    bounds: tuple[float, float]
    missing: Missing
    noise: str
    weight: float
    probabilities: tuple[Fraction, ...]
    unknown_delta: float | None
    given_unit: Fraction | None
    unit: Fraction = Fraction(1)
    middle: float = 0.0
    lower: float = 0.0
    upper: float = 1.0
    sensitivity: int = 1
    base: float = 1.0
    rows: int = 1
    moved: int = 1
    mechanism: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of cells by column."""
        return tuple(len(cells.names) for cells in self.cells)

    @property
    def unknown_columns(self) -> tuple[str, ...]:
        """The column whose labels are the cells, if the records bring them."""
        return () if self.unknown_delta is None or self.column is None else (self.column,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        own = () if self.column is None else (self.column,)
        return (*own, *(cells.column for cells in self.cells))

    @property
    def is_whole(self) -> bool:
        """True if the noisy number is whole, by rounding if the noise is continuous."""
        return self.statistic == "count" or MEMBERS[self.noise].on_integers

    @property
    def step(self) -> float | None:
        """The granularity in units: whole numbers, or None: as fine as the lattice."""
        return 1.0 if self.is_whole and not MEMBERS[self.noise].on_integers else None

    @property
    def points(self) -> int:
        """Points of the grid that quantiles are chosen from."""
        return round((Fraction(repr(self.upper)) - Fraction(repr(self.lower))) / self.unit) + 1

    @property
    def draws(self) -> int:
        """Number of the mechanism's runs in a cell."""
        return DRAWS * len(self.probabilities) or 1

    @property
    def runs(self) -> int:
        """Number of the mechanism's runs in which neighbours differ."""
        return self.draws * self.moved

    def is_number_in(self, count: Query) -> bool:
        """True if `count`, or a margin of it, is the number of values in each cell.

        Summed over a column, its cells are all records if one of them is the cell of all others.
        """
        if count.statistic != "count":
            return False
        if count.column != (self.column if self.missing == DROP else None):
            return False
        more = [cells for cells in count.cells if cells not in self.cells]
        return all(c in count.cells for c in self.cells) and all(c.has_other for c in more)


def name_of(statistic: str, column: str | None, cells: Sequence[Cells]) -> str:
    """The name of a table: "mean of age by region, sex"."""
    of = "" if column is None else f" of {column}"
    by = f" by {', '.join(c.column for c in cells)}" if cells else ""
    return f"{statistic}{of}{by}"


def shown(queries: Sequence[Query]) -> Iterator[tuple[int, tuple[Cells, ...]]]:
    """The tables to show, as statistics and columns: margins that are wanted, each table once."""
    seen = {_table(query, query.cells) for query in queries}
    for i, query in enumerate(queries):
        yield i, query.cells
        for size in reversed(range(len(query.cells) if query.margins else 0)):
            for margin in itertools.combinations(query.cells, size):
                if (table := _table(query, margin)) not in seen:
                    seen.add(table)
                    yield i, margin


def _table(query: Query, cells: tuple[Cells, ...]) -> Hashable:
    """Key of the table that counts or sums for a query; columns without `other` drop records."""
    partial = frozenset(c for c in query.cells if not c.has_other)
    kind = query.statistic, query.column, query.bounds, query.missing
    return (*kind, query.unknown_delta, partial, frozenset(cells))


def error_of(query: Query, level: float) -> ExpectedError:
    """`expected_error` in the column's unit; the half width includes all rounding.

    For quantiles, bounds on the errors of the ranks; the worst one.
    """
    if query.probabilities:
        return max(rank_errors(query, 1.0 - level), key=lambda error: error.half_width)
    noise, unit = query.mechanism.noise, float(query.unit)
    fine = 0.0 if noise.on_integers else LATTICE_STEP * unit_of(noise)
    error = expected_error(query.mechanism, level, fine)
    half_width = error.half_width + (0.0 if query.statistic == "count" else 0.5)
    if query.step is not None:
        # The exact count is whole, so that the rounded noise is its error.
        half_width = xp.floor(half_width + 0.5)
    errors = (error.standard_deviation, error.mean_absolute, half_width)
    return ExpectedError(*(unit * x for x in errors))


def rank_errors(query: Query, miss: float) -> list[ExpectedError]:
    """Bounds on the errors of the ranks of each quantile, in records."""
    epsilon = float(query.mechanism.epsilon_bound)
    return [rank_error(epsilon, q, query.rows, query.points, miss) for q in query.probabilities]


def in_units(query: Query) -> Query:
    """The statistic with its unit, sensitivity, clips and scale."""
    lower, upper = query.bounds
    if query.probabilities:
        unit = steps_of(query.where, query.bounds, query.given_unit)
        # Of the exponential mechanism, whose rho is then about that of a Gaussian of this weight.
        return query._replace(unit=unit, lower=lower, upper=upper, base=2.0 * query.weight)
    if query.statistic == "count":
        return query._replace(base=1.0 / query.weight)
    middle = 0.5 * lower + 0.5 * upper if query.statistic == "mean" else 0.0
    bound = max(Fraction(upper) - Fraction(middle), Fraction(middle) - Fraction(lower))
    # The default unit is 1 for discrete noise, and far below the bound for other noise.
    usual = Fraction(2) ** (math.frexp(float(bound))[1] - 1 - _UNIT_BITS)
    unit = query.given_unit or (Fraction(1) if MEMBERS[query.noise].on_integers else usual)
    sensitivity = math.ceil(bound / unit * (1 - _SLACK))
    if sensitivity * unit > _LARGEST_WASTE * bound:
        raise ValueError(
            f"{query.where}: unit must be at most {float(bound) / 4:.3g} or divide "
            f"{float(bound):g}, the largest distance of a bound to {middle:g}, got {float(unit):g}"
        )
    if sensitivity > _MOST_UNITS:
        raise ValueError(
            f"{query.where}: unit must be at least {float(bound / _MOST_UNITS):.1g} at these "
            f"bounds, got {float(unit):g}"
        )
    while Fraction(upper) - Fraction(middle) > sensitivity * unit:
        upper = math.nextafter(upper, -math.inf)
    while Fraction(middle) - Fraction(lower) > sensitivity * unit:
        lower = math.nextafter(lower, math.inf)
    clips = {"middle": middle, "lower": lower, "upper": upper, "base": sensitivity / query.weight}
    return query._replace(unit=unit, sensitivity=sensitivity, **clips)


def with_moves(queries: Sequence[Query], rows: int, max_cells: int | None) -> tuple[Query, ...]:
    """The statistics with the records and cells that neighbours differ by: `tables.people`."""
    own = [{*query.cells, *query.unknown_columns} for query in queries]
    finest = set[Cells | str]().union(*own)
    found = []
    for query, columns in zip(queries, own, strict=True):
        if max_cells is None:
            query = query._replace(rows=rows)
        elif columns == finest:
            most = max_cells if query.unknown_columns else math.prod(query.shape)
            query = query._replace(rows=rows, moved=min(max_cells, most))
        else:
            query = query._replace(rows=rows * max_cells)
        found.append(query)
    return tuple(found)


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
