"""Which engine answers a composition: the one decision table.

| composition                                         | engine           | error stated            |
|-----------------------------------------------------|------------------|-------------------------|
| one release; Gaussians, which are one               | its own profile  | 2e-12 (1 + |log delta|) |
| every loss on a lattice                             | `grid`, exact    | 1e-10                   |
| Gaussians sampled by Poisson, truncated or not, or  | `sampled`        | 1e-6, or what it finds  |
|   in fixed batches, groups too, in up to 8 phases,  |                  |                         |
|   beside plain ones; where known and wider than     | `contour`        | what it finds           |
|   1e-3, then where wider than .1                    | `grid`           | the bracket             |
| everything else: first                              | `contour`        | what it finds           |
| where that is wider than 1e-6 (few releases, atoms) | `grid`           | the bracket             |
| sampled Gaussians in more phases wider than 1e-3,   | `grid`           | the bracket             |
|   random allocations where known                    |                  |                         |

The engine depends on the kinds of pairs alone, so that traced values take the same one; of sampled
Gaussians and random allocations the grid is asked of known values only, as it would double a user's
program. What is wide
goes on to the next engine; the higher of the lower bounds and the lower of the upper ones is
reported. An engine maps (terms, values), arrays of lanes (L, n) and (L,), to bounds: on log delta
at epsilons >= 0, or, an inverse, on the least epsilon at deltas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import MOST_LANES, compiled
from jaxdp._core.namespace import lax, xp
from jaxdp._core.threads import in_threads
from jaxdp._core.tracing import kernel
from jaxdp._core.types import Lanes, Reals
from jaxdp.accountant import contour, grid, profile
from jaxdp.accountant.batches import in_pieces
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import (
    Terms,
    is_allocation,
    is_gaussian,
    is_sampled_gaussian,
)
from jaxdp.accountant.sampled import engine as sampled
from jaxdp.accountant.tables import Table, tabled
from jaxdp.dominating_pair.base import (
    DominatingPair,
    log_of_infinite,
    rounding_of_infinite,
)
from jaxdp.noise.structure import Lattice

Engine: TypeAlias = Callable[[Terms, Lanes], LogBounds]

_REFINE_ABOVE = 1e-8  # width of a bracket of log delta beyond which more points are tried. chosen
_NEXT_ENGINE_ABOVE = 1e-6  # width beyond which the next engine is asked. chosen
_FEW_POINTS = 2**12  # of a grid on a lattice, where they suffice. measured: 4,000 responses, 2,000
# Widths of what is known of sampled Gaussians, above which the next engine is asked.
_COARSE = 1e-3  # below, a grid is no nearer. measured: mostly
_USELESS = 0.1  # above, the noise is far below a sensitivity. chosen: a grid takes a second a lane


class Step(NamedTuple):
    """An engine, and the width of a bracket above which it is asked."""

    engine: Engine
    above: float = 0.0
    side_by_side: bool = True  # whether traced lanes are answered together
    of_whole_lanes: bool = False  # whether it compares the directions of a lane by itself


def engines_of(terms: Terms, ways: int, **options: Any) -> tuple[Step, ...]:
    """The engines that are asked for log delta, in turn; lanes are those of so many directions.

    `options`: what the engine of sampled Gaussians takes besides.
    """
    return _single_first(terms, by_profile, _BOUNDS.of(terms, ways, **options))


def inverses_of(terms: Terms, ways: int) -> tuple[Step, ...]:
    """The engines that are asked for epsilon, in turn."""
    return _single_first(terms, epsilon_by_profile, _INVERSES.of(terms, ways))


def searched_by(terms: Terms) -> tuple[Step, ...]:
    """The engines that a search for epsilon asks for log delta; none where it finds no more."""
    alone = len(engines_of(terms, 1)) == 1 and not is_on_lattice(terms)
    return () if alone or sampled.serves(terms) else _BOUNDS.of(terms, 1)[-2:]


def brackets_of(terms: Terms, points: int) -> tuple[Step, ...]:
    """The engines that bracket log delta by masses on a grid of so many points, in turn."""
    return _single_first(terms, by_profile, (Step(partial(by_grid, points=points)),))


class _Table(NamedTuple):
    """The engines of every kind of composition."""

    on_lattice: tuple[Step, ...]
    on_contour: tuple[Step, ...]
    many_phases: tuple[Step, ...]
    of_sampled: Callable[..., LogBounds]

    def of(self, terms: Terms, ways: int, **options: Any) -> tuple[Step, ...]:
        """The engines of a composition."""
        if is_on_lattice(terms):
            return self.on_lattice
        if sampled.serves(terms):
            by_sampled = partial(self.of_sampled, ways=ways, **options)
            first = Step(by_sampled, _NEXT_ENGINE_ABOVE, of_whole_lanes=True)
            known = checks.all_concrete(terms)
            along, on_grid = self.on_contour
            others = along._replace(above=_COARSE), on_grid._replace(above=_USELESS)
            return (first, *others) if known else (first,)
        allocated = any(map(is_allocation, terms))
        if not all(is_gaussian(t) or is_sampled_gaussian(t) or is_allocation(t) for t in terms):
            return self.on_contour
        known = checks.all_concrete(terms) or not allocated
        return self.many_phases if known else self.many_phases[:1]


def _single_first(terms: Terms, single: Engine, engines: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps that begin with the profile of one release where there may be one release."""
    counts, first = [term.count for term in terms], Step(single)
    if len(counts) > 1 or counts[0].shape[-1] > 1:
        return engines
    if is_gaussian(terms[0]):
        return (first,)
    if not checks.is_concrete(counts[0]):
        return first, *engines
    ones = np.asarray(counts[0]) == 1
    return (first,) if ones.all() else (first, *engines) if ones.any() else engines


def is_on_lattice(terms: Terms) -> bool:
    """True if the losses of every kind of pair lie on a lattice."""
    return all(_lies_on_lattice(*_kind_of(term.pair)) for term in terms)


def _kind_of(pair: DominatingPair) -> tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]:
    leaves, structure = jax.tree.flatten(pair)
    return structure, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)


@functools.lru_cache(256)
def _lies_on_lattice(structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    pair = jax.tree.unflatten(structure, leaves)
    return isinstance(jax.eval_shape(lambda pair: pair.singularities(), pair), Lattice)


def by_profile(terms: Terms, epsilon: Lanes) -> LogBounds:
    """Bounds on log delta of a single release by its privacy profile; none for several."""
    return _lanes(_profile_bounds, terms, epsilon)


def epsilon_by_profile(terms: Terms, delta: Lanes) -> LogBounds:
    """Bounds on epsilon of a single release by its privacy profile; none for several."""
    return _lanes(_profile_epsilon, terms, delta)


def by_contour(terms: Terms, epsilon: Lanes) -> LogBounds:
    """Bounds on log delta along a contour; infinite losses are added."""
    return _lanes(lambda terms, values: _along(tabled(terms), values), terms, epsilon)


def epsilon_by_contour(terms: Terms, delta: Lanes) -> LogBounds:
    """Bounds on epsilon along a contour."""
    return _lanes(lambda terms, values: _inverse(tabled(terms), values), terms, delta)


def by_grid(terms: Terms, epsilon: Lanes, points: int) -> LogBounds:
    """Bounds on log delta from masses on a grid of `points` points."""
    return _one_by_one(partial(grid.log_bounds, points=points), terms, epsilon)


def epsilon_by_grid(terms: Terms, delta: Lanes, points: int) -> LogBounds:
    """Bounds on epsilon from masses on a grid of `points` points."""
    return _one_by_one(partial(grid.epsilon_bounds, points=points), terms, delta)


def _lanes(function: Engine, terms: Terms, values: Lanes) -> LogBounds:
    """function(terms, values), concrete ones in pieces."""
    if not checks.all_concrete(terms, values):
        return function(terms, values)
    releases = sum(term.count.shape[-1] for term in terms)
    return in_pieces(function, (terms, values), releases)


def _one_by_one(
    function: Callable[[Terms, Table, Reals], LogBounds], terms: Terms, values: Lanes
) -> LogBounds:
    """function(terms, table, value) of every lane: each fills the cache."""
    if not checks.all_concrete(terms, values):
        return lax.map(lambda lane: function(lane[0], tabled(lane[0]), lane[1]), (terms, values))

    terms, values = jax.tree.map(np.asarray, (terms, values))

    def one(i: int) -> LogBounds:
        lanes = jax.tree.map(lambda x: x[i : i + 1], terms)
        lane, table = jax.tree.map(lambda x: np.asarray(x)[0], (lanes, tabled(lanes)))
        with kernel():
            return function(lane, table, xp.asarray(values[i]))

    results = [one(0), *in_threads(one, [(i,) for i in range(1, values.shape[0])])]
    return jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *results)


def _contour(table: Table, epsilon: Reals) -> LogBounds:
    return with_infinite_losses(table, contour.log_bounds(table, epsilon))


def with_infinite_losses(table: Table, bounds: LogBounds) -> LogBounds:
    """Bounds on what finite losses make, and infinite ones."""
    infinite = log_of_infinite(table.total(table.log_finite))
    has_infinite = infinite != -xp.inf  # NaN is left
    error = rounding_of_infinite(infinite, table.used)
    ends = (bounds.lower, infinite - error), (bounds.upper, infinite + error)
    bounds = LogBounds(*(xp.where(has_infinite, xp.logaddexp(x, y), x) for x, y in ends))
    upper = xp.minimum(bounds.upper, table.log_hit)
    return LogBounds(xp.minimum(bounds.lower, upper), upper)


def _epsilon_of_contour(table: Table, delta: Reals) -> LogBounds:
    finite_delta = delta + xp.expm1(table.total(table.log_finite))
    possible = finite_delta > 0

    bounds = contour.epsilon_bounds(table, xp.where(possible, finite_delta, 0.5))
    if_impossible = xp.where(xp.isnan(finite_delta), xp.nan, xp.inf)
    return LogBounds(*(xp.where(possible, x, if_impossible) for x in bounds))


_profile_bounds, _profile_epsilon = (
    compiled(f, (), lanes=MOST_LANES) for f in (profile.log_bounds, profile.epsilon_bounds)
)
_along, _inverse = (compiled(f, (), lanes=MOST_LANES) for f in (_contour, _epsilon_of_contour))


def _table(
    along: Engine,
    of_sampled: Callable[..., LogBounds],
    on_grid: Callable[..., LogBounds],
) -> _Table:
    few, many = (partial(on_grid, points=points) for points in (_FEW_POINTS, grid.POINTS))
    first = Step(along)
    return _Table(
        on_lattice=(Step(few), Step(many, _REFINE_ABOVE, side_by_side=False)),
        on_contour=(first, Step(many, _NEXT_ENGINE_ABOVE, side_by_side=False)),
        many_phases=(first, Step(many, _COARSE, side_by_side=False)),
        of_sampled=of_sampled,
    )


# The order in which engines are asked, for delta and for epsilon.
_BOUNDS = _table(by_contour, sampled.log_bounds, by_grid)
_INVERSES = _table(epsilon_by_contour, sampled.epsilon_bounds, epsilon_by_grid)
