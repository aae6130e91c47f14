"""Plan of a table: counts, sums and means, each with its own noise, that share one budget.

Values are clipped and summed exactly, and each sum is rounded once to whole multiples of a public
unit. Rounding is monotone and commutes with whole multiples. So one record, which moves the exact
sum by at most k units with k whole, moves the rounded one by at most k as well. The unit is 1 for
counts and, unless the plan gives one, for discrete noise, else a power of two, 2^-26 of the public
bound or less. Neighbours differ by one record that is added or removed. It is
in one category at most, so that counts by category cost no more than one count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate
from jaxdp.design.expected_error import ExpectedError, expected_error
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.pure import ApproxDP
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.lattice_draws import unit_of
from jaxdp.released import BITS, size_error
from jaxdp.tables.keys import Entry, entries_of, number_of, require_known, text_of, zone_of

NOISES = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": DiscreteLaplace,
}
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
_STEP = 2.0**-BITS
# Largest level of half widths. chosen: they are finite
_LARGEST_LEVEL = 1.0 - 1e-6
_KEYS = ("epsilon", "delta", "rho", "noise", "level", "ledger", "zone", "release")


class Query(NamedTuple):
    """Statistic in whole units: its terms, its sensitivity to one record, and its noise.

    Values are clipped to [lower, upper], the bounds or a few ulps within. `middle` is subtracted
    from each. A record moves the sum by at most `sensitivity` units.
    """

    entry: Entry
    unit: Fraction
    middle: float
    lower: float
    upper: float
    sensitivity: int
    base: float  # the scale over the common multiplier, in units


class TablePlan(NamedTuple):
    """Plan of a table, calibrated: the statistics, their mechanisms in units, and the guarantee.

    guarantee: of all releases, an `ApproxDP`, or of a plan with rho the `ZCDP` of an exact sampler
    with the sampling error; level: of the half widths; loss: the composition of exact draws.
    """

    queries: tuple[Query, ...]
    mechanisms: tuple[Mechanism, ...]
    guarantee: ApproxDP | Drawn
    level: float
    ledger: str | None
    loss: PrivacyLoss

    def expected_errors(self) -> dict[str, ExpectedError]:
        """`expected_error` of each statistic by name, in its column's unit; of a mean, its sum's.

        No record is read. The error of a mean is about the error of its sum over the number of
        records.
        """
        pairs = zip(self.queries, self.mechanisms, strict=True)
        return {query.entry.name: error_of(query, m, self.level) for query, m in pairs}


@in_float64
def plan(plan: Mapping[str, Any]) -> TablePlan:
    """Plan of a table of counts, sums and means whose noises meet one budget together.

    Args:
        plan: the content of a TOML file with these keys. `epsilon` and `delta`, or `rho` of
            zero-concentrated privacy: the budget, of neighbours that differ by one record added or
            removed. `noise`: "gaussian", "laplace", "discrete_gaussian" or "discrete_laplace", of
            statistics that name none; "gaussian" if left out. `level` of the half widths, 0.95.
            `ledger`: the file of a `Ledger`, if any. `zone`: where times with an offset become
            dates, such as "Europe/Zurich"; UTC if left out. A table `release` for each statistic:
            `statistic` is "count" (of all records, or of a `column` by its public `categories`;
            `other` = true adds a cell of all others), "sum" or "mean" (of a `column` clipped to the
            public `lower` and `upper`); `unit`, which a sum is rounded to; `name`; `noise`; and
            `weight` or `scale`. Noise scales are multiplier * sensitivity / weight, or multiplier *
            scale (in the column's unit); the weight is 1 if left out.

    Returns:
        A `TablePlan` with the least multiplier that the budget allows under exact composition
        (`calibrate`; with `rho` the rhos add). Sums are rounded once to multiples of `unit`; if it
        is left out, it is 1 for discrete noise, else at most 2^-26 of the largest value. The
        sensitivity is a whole number of units: a `unit` that makes it a quarter larger raises
        `ValueError`.

    A mean is the sum of values less the middle of their bounds over the noisy count, which the plan
    must hold. Keys that are unknown, missing or out of range raise `ValueError` with their name,
    and so does a budget that nothing meets. Noise is sampled within 2^-64 of its law in total
    variation. So delta = 0 raises, and delta must be at least about 1e-17; with `rho` the guarantee
    states this error beside it.

    >>> import jaxdp as dp
    >>> count = {"statistic": "count", "noise": "discrete_laplace"}
    >>> ages = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100, "weight": 2}
    >>> plan = dp.tables.plan({"epsilon": 1.0, "delta": 1e-6, "release": [count, ages]})
    >>> for name, error in plan.expected_errors().items():
    ...     print(name, f"{error.standard_deviation:.2f}")
    count 12.88
    mean of age 227.88
    """
    require_known("plan", plan, _KEYS)
    level = number_of("plan", {"level": 0.95, **plan}, "level", lower=0.0, upper=_LARGEST_LEVEL)
    ledger = text_of("plan", plan, "ledger")
    queries = tuple(_query(entry) for entry in entries_of(plan, tuple(NOISES), zone_of(plan)))
    exact, guarantee = _budget(plan, queries)
    build = partial(_zcdp if isinstance(exact, ZCDP) else _loss, queries)
    multiplier = float(calibrate(build, exact))
    if not math.isfinite(multiplier):
        raise ValueError(f"plan: the budget must be one that some noise meets, got {guarantee}")
    mechanisms = tuple(
        _mechanism(q.entry.noise, multiplier * q.base, q.sensitivity) for q in queries
    )
    loss = _loss(queries, xp.asarray(multiplier))
    return TablePlan(queries, mechanisms, guarantee, level, ledger, loss)


def error_of(query: Query, mechanism: Mechanism, level: float) -> ExpectedError:
    """`expected_error` in the column's unit; the half width includes all rounding."""
    granularity = step_of(query, mechanism)
    if granularity is None:
        granularity = 0.0 if mechanism.noise.on_integers else _STEP * unit_of(mechanism.noise)
    rounding = 0.0 if query.entry.statistic == "count" else 0.5
    error, unit = expected_error(mechanism, level, granularity), float(query.unit)
    errors = (error.standard_deviation, error.mean_absolute, error.half_width + rounding)
    return ExpectedError(*(unit * x for x in errors))


def step_of(query: Query, mechanism: Mechanism) -> float | None:
    """The granularity in units: noisy counts are whole, sums are as fine as the lattice."""
    if mechanism.noise.on_integers or query.entry.statistic != "count":
        return None
    return 1.0


def _query(entry: Entry) -> Query:
    """The statistic in whole units."""
    if entry.statistic == "count":
        base = 1.0 / entry.weight if entry.scale is None else entry.scale
        return Query(entry, Fraction(1), 0.0, 0.0, 1.0, 1, base)
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
    return Query(entry, unit, middle, lower, upper, sensitivity, base)


def _bound(lower: float, upper: float, middle: float) -> Fraction:
    """The largest distance of a value to the middle, exact."""
    return max(Fraction(upper) - Fraction(middle), Fraction(middle) - Fraction(lower))


def _unit(entry: Entry, middle: float) -> Fraction:
    """The unit of a sum: the plan's, else 1 for discrete noise, else far below the bound."""
    if entry.unit is not None:
        return entry.unit
    if NOISES[entry.noise] in (DiscreteGaussian, DiscreteLaplace):
        return Fraction(1)
    bound = float(_bound(entry.lower, entry.upper, middle))
    return Fraction(2) ** (math.frexp(bound)[1] - 1 - _UNIT_BITS)


def _mechanism(noise: str, scale: ArrayLike, sensitivity: Sequence[int] | int) -> Mechanism:
    """The mechanism in units, the rounding to a lattice that is coarser in its sensitivity."""
    scaled, shift = NOISES[noise](scale), xp.asarray(sensitivity, xp.float64)
    if not scaled.on_integers:
        shift = round_up(shift + _STEP * scaled.scale, 8)
    return Mechanism(scaled, shift)


def _batches(queries: tuple[Query, ...], multiplier: Reals) -> Iterator[Mechanism]:
    """All statistics, one batch for each kind of noise."""
    for noise in NOISES:
        queries_of_noise = [query for query in queries if query.entry.noise == noise]
        if queries_of_noise:
            scales = multiplier[..., None] * xp.asarray([query.base for query in queries_of_noise])
            yield _mechanism(noise, scales, [query.sensitivity for query in queries_of_noise])


def _loss(queries: tuple[Query, ...], multiplier: Reals) -> PrivacyLoss:
    """Composition of all statistics."""
    first, *others = (privacy_loss(batch).sum(-1) for batch in _batches(queries, multiplier))
    return sum(others, first)


def _zcdp(queries: tuple[Query, ...], multiplier: Reals) -> ZCDP:
    """zCDP of all statistics, rounded up."""
    parts = [batch.zcdp() for batch in _batches(queries, multiplier)]
    pairs = ([part.xi for part in parts], [part.rho for part in parts])
    sums = (xp.sum(xp.concatenate(pair, axis=-1), axis=-1) for pair in pairs)
    return ZCDP(*(round_up(x, 2 * len(queries)) for x in sums))


def _budget(
    plan: Mapping[str, Any], queries: tuple[Query, ...]
) -> tuple[Budget | ZCDP, ApproxDP | Drawn]:
    """Budget of exact draws, and the guarantee stated, with the sampling error of all cells."""
    cells = sum(len(query.entry.categories or ("",)) for query in queries)
    # The sum and the product are rounded by much less than a millionth.
    error = float(size_error(cells, _STEP))
    if "rho" in plan:
        if "epsilon" in plan or "delta" in plan:
            raise ValueError("plan: give either rho, or epsilon and delta")
        exact = ZCDP(0.0, number_of("plan", plan, "rho", lower=0.0))
        return exact, Drawn(exact, error)
    epsilon = number_of("plan", plan, "epsilon", lower=0.0)
    delta = number_of("plan", plan, "delta", lower=0.0, upper=1.0)
    lost_delta = error * (1.0 + math.exp(min(epsilon, 700.0))) * (1.0 + 1e-6)
    if not delta >= 2.0 * lost_delta:
        raise ValueError(
            f"plan: delta must be at least {2.0 * lost_delta:.1e} at this epsilon, got {delta}: "
            f"the noise is sampled within {error:.1e} of its law in total variation, so that no "
            "table has a delta of 0, although discrete Laplace noise drawn without any error would"
        )
    return Budget(epsilon, delta - lost_delta), ApproxDP(epsilon, delta)
