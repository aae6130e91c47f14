"""Choice of the engines of a composition: the one decision table.

| composition                                         | engine          | error stated            |
|-----------------------------------------------------|-----------------|-------------------------|
| one release; Gaussians, which are one               | its own profile | 2e-12 (1 + |log delta|) |
| every loss on a lattice                             | `grid`, exact   | 1e-10                   |
| Gaussians sampled by Poisson, truncated or not, or  | `contour`, on   | 1e-6, or as found       |
|   in fixed batches, groups too, in up to 8 phases,  |   `mixtures`    |                         |
|   beside plain ones; if concrete and wider than     | on `laws`       | as found                |
|   1e-5, then if wider than .1                       | `laws`, `RARE`  | an upper bound          |
|   then if wider than 1e-3                           | `grid`          | the bracket             |
| other smooth losses: first                          | on `laws`       | as found                |
|   if concrete and wider than .1                     | `laws`, `RARE`  | an upper bound          |
|   if concrete and wider than 1e-5                   | `grid`          | the bracket             |
| everything else: first                              | on `laws`       | as found                |
|   if concrete and wider than .1                     | `laws`, `RARE`  | an upper bound          |
|   if wider than 1e-6 (few releases, atoms)          | `grid`          | the bracket             |
|   if concrete and wider than 1e-5                   | on `laws`, long | as found                |

If many concrete values belong to one loss, `contour.by_loss` answers them before `contour`. `ends`
follows the first engine in every row, for every lane; it precedes contours of concrete laws.
`divergences` follows the last one, for lanes that are still wide. The choice depends only on the
types of the pairs, so traced values take the same engines. For smooth losses the grid serves
concrete values only, since it would double a user's program. An engine maps (terms, values), arrays
of lanes (L, n) and (L,), to bounds: on log delta at epsilons >= 0, or, for an inverse, on the least
epsilon at deltas. It can read the bounds found before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import MOST_LANES, compiled
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp.accountant import divergences, ends, grid, grid_by_loss, profile
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.batches import in_pieces, piece_of
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.cascade import ALWAYS, Engine, Step
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import by_loss
from jaxdp.accountant.contour import engine as contour
from jaxdp.accountant.tables import Table, tabled
from jaxdp.dominating_pair.base import (
    DominatingPair,
)
from jaxdp.noise.structure import Lattice, Smooth

Question: TypeAlias = Literal["log delta", "epsilon"]

_REFINE_ABOVE = 1e-8  # width of a bracket of log delta above which more points are used. chosen
_NEXT_ENGINE_ABOVE = 1e-6  # width of a bracket above which the next engine is evaluated. chosen
_FEW_POINTS = 2**12  # of a grid on a lattice, where enough. measured: 4,000 responses take 2,000
# Widths of the brackets of smooth losses above which the next engine is evaluated.
_COARSE = 1e-5  # below, a grid is rarely tighter. measured
_USELESS = 1e-3  # above, rare losses far below delta are left out. chosen: a grid takes 1 s a lane


class _Engines(NamedTuple):
    """All engines for one question."""

    profile: Engine
    contour: Step  # on rows of laws
    rare: Step  # the same without rare large losses
    grid: Callable[[int], Engine]  # of the number of points
    sampled: tuple[Step, ...]  # the contour on rows of mixtures
    shared: tuple[Step, Step]  # a few contours of one loss, on rows of mixtures and of laws
    end: Engine
    divergences: Engine
    hopeless: float  # width above which a longer contour over atoms follows the grid


def steps_of(question: Question, terms: Terms) -> tuple[Step, ...]:
    """Engines to evaluate, in order."""
    engines = _ENGINES[question]
    single, counts = Step(engines.profile), [term.count for term in terms]
    if len(counts) > 1 or counts[0].shape[-1] > 1:
        return _composed(engines, terms)
    if is_gaussian(terms[0]):
        return (single,)
    alone = single, Step(engines.end, ALWAYS)
    if checks.is_concrete(counts[0]):
        ones = np.asarray(counts[0]) == 1
        if ones.all():
            return *alone, Step(engines.divergences, _NEXT_ENGINE_ABOVE)
        if not ones.any():
            return _composed(engines, terms)
    return *alone, *(step for step in _composed(engines, terms) if step.above != ALWAYS)


def searched_by(terms: Terms) -> tuple[Step, ...]:
    """Engines of log delta for a search for epsilon; none where a search cannot improve."""
    if (_is_alone(terms) and not is_on_lattice(terms)) or contour.serves(terms):
        return ()
    return _composed(_ENGINES["log delta"], terms)


def _is_alone(terms: Terms) -> bool:
    """True for one release, or for Gaussians, which are one."""
    counts = [term.count for term in terms]
    if len(counts) > 1 or counts[0].shape[-1] > 1:
        return False
    return is_gaussian(terms[0]) or (
        checks.is_concrete(counts[0]) and bool((np.asarray(counts[0]) == 1).all())
    )


def brackets_of(terms: Terms, points: int) -> tuple[Step, ...]:
    """Engines that bracket log delta by masses on a grid of `points` points, in order."""
    engines = _ENGINES["log delta"]
    first, on_grid = steps_of("log delta", terms)[:1], Step(engines.grid(points))
    last = Step(engines.end, ALWAYS), Step(engines.divergences, _NEXT_ENGINE_ABOVE)
    if first[0].engine is not engines.profile:
        return on_grid, *last
    return first if is_gaussian(terms[0]) else (*first, last[0], on_grid, last[1])


def _composed(engines: _Engines, terms: Terms) -> tuple[Step, ...]:
    """Engines of several releases, in order; the end of the losses follows the first ones."""
    kinds = {_structure_of(*_kind_of(term.pair)) for term in terms}
    on_contour, rare, end = engines.contour, engines.rare, Step(engines.end, ALWAYS)
    on_grid = Step(engines.grid(grid.POINTS), _NEXT_ENGINE_ABOVE, pack=lambda: 1)
    last = Step(engines.divergences, _NEXT_ENGINE_ABOVE)
    if kinds == {Lattice}:
        few = Step(engines.grid(_FEW_POINTS))
        return few, end, on_grid._replace(above=_REFINE_ABOVE), last
    is_known = checks.all_concrete(terms)
    if contour.serves(terms):
        long = on_contour._replace(above=_COARSE, levels=on_contour.levels[1:2])
        last = last._replace(above=_USELESS)
        further = long, rare, on_grid._replace(above=_USELESS)
        if is_known:
            return engines.shared[0], *engines.sampled, end, *further, last
        return *engines.sampled, end, last
    if kinds == {Smooth}:
        on_grid, last = (step._replace(above=_COARSE) for step in (on_grid, last))
    if is_known:
        alone = on_contour._replace(if_unanswered=True)
        if kinds == {Smooth}:
            return engines.shared[1], end, alone, rare, on_grid, last
        # Where a short contour over atoms is wide, a longer one is seldom better than the grid.
        alone = alone._replace(most=engines.hopeless)
        longer = alone._replace(above=_COARSE, levels=on_contour.levels[1:], most=np.inf)
        last = last._replace(above=_USELESS)
        return engines.shared[1], end, alone, rare, on_grid, longer, last
    return (on_contour, end, last) if kinds == {Smooth} else (on_contour, end, on_grid, last)


def is_on_lattice(terms: Terms) -> bool:
    """True if the losses of every kind of pair lie on a lattice."""
    return all(_structure_of(*_kind_of(term.pair)) is Lattice for term in terms)


def _kind_of(pair: DominatingPair) -> tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]:
    leaves, structure = jax.tree.flatten(pair)
    return structure, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)


@functools.lru_cache(256)
def _structure_of(structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...]) -> type:
    """The class of the pair's singularities."""
    pair = jax.tree.unflatten(structure, leaves)
    return type(jax.eval_shape(lambda pair: pair.singularities(), pair))


def by_profile(batch: Batch, *_: Any) -> LogBounds:
    """Bounds on log delta of a single release by its privacy profile; infinite for several."""
    return _lanes(_profile_bounds, batch)


def epsilon_by_profile(batch: Batch, *_: Any) -> LogBounds:
    """Bounds on epsilon of a single release by its privacy profile; infinite for several."""
    return _lanes(_profile_epsilon, batch)


def by_grid(batch: Batch, known: LogBounds, _: Any, *, points: int) -> LogBounds:
    """Bounds on log delta from masses on a grid of `points` points."""
    if checks.all_concrete(batch.terms, batch.values, known):
        return grid_by_loss.log_bounds(batch, known, points)
    return _one_by_one(partial(grid.log_bounds, points=points), batch)


def epsilon_by_grid(batch: Batch, known: LogBounds, _: Any, *, points: int) -> LogBounds:
    """Bounds on epsilon from masses on a grid of `points` points."""
    if checks.all_concrete(batch.terms, batch.values, known):
        return grid_by_loss.epsilon_bounds(batch, known, points)
    return _one_by_one(partial(grid.epsilon_bounds, points=points), batch)


def by_end(batch: Batch, known: LogBounds, _: Any) -> LogBounds:
    """Tighter of the bounds `known` on log delta and the bounds from the end of the losses."""
    return _lanes(ends.bound_log_delta, batch, known)


def epsilon_by_end(batch: Batch, known: LogBounds, _: Any) -> LogBounds:
    """Tighter of the bounds `known` on epsilon and the bounds from the end of the losses."""
    return _lanes(ends.bound_epsilon, batch, known)


def by_divergences(batch: Batch, *_: Any) -> LogBounds:
    """The upper bound on log delta from Renyi divergences."""
    return _above_all(divergences.log_delta_of(batch.terms, batch.values))


def epsilon_by_divergences(batch: Batch, *_: Any) -> LogBounds:
    """The upper bound on epsilon from Renyi divergences."""
    return _above_all(divergences.epsilon_of(batch.terms, batch.values))


def _above_all(upper: Reals) -> LogBounds:
    return LogBounds(xp.full_like(upper, -xp.inf), upper)


def _lanes(function: Callable[..., LogBounds], batch: Batch, *known: Any) -> LogBounds:
    """function(terms, values, *known), in pieces if all arguments are concrete."""
    arguments = batch.terms, batch.values, *known
    if not checks.all_concrete(arguments):
        return function(*arguments)
    releases = sum(term.count.shape[-1] for term in batch.terms)
    return in_pieces(function, arguments, piece_of(batch.values.shape[0], releases))


def _one_by_one(function: Callable[[Terms, Table, Reals], LogBounds], batch: Batch) -> LogBounds:
    """function(terms, table, value) of one traced lane at a time: one lane fills the cache."""
    lanes = batch.terms, batch.values
    return lax.map(lambda lane: function(lane[0], tabled(lane[0]), lane[1]), lanes)


_profile_bounds, _profile_epsilon = (
    compiled(f, lanes=MOST_LANES) for f in (profile.log_bounds, profile.epsilon_bounds)
)


_ENGINES: dict[Question, _Engines] = {
    "log delta": _Engines(
        by_profile,
        contour.law_step("log delta"),
        contour.rare_step("log delta"),
        lambda points: partial(by_grid, points=points),
        contour.steps("log delta", _NEXT_ENGINE_ABOVE),
        (by_loss.mixture_step("log delta", _NEXT_ENGINE_ABOVE), by_loss.law_step("log delta")),
        by_end,
        by_divergences,
        by_loss.HOPELESS,
    ),
    "epsilon": _Engines(
        epsilon_by_profile,
        contour.law_step("epsilon"),
        contour.rare_step("epsilon"),
        lambda points: partial(epsilon_by_grid, points=points),
        contour.steps("epsilon", _NEXT_ENGINE_ABOVE),
        (by_loss.mixture_step("epsilon", _NEXT_ENGINE_ABOVE), by_loss.law_step("epsilon")),
        epsilon_by_end,
        epsilon_by_divergences,
        0.1 * by_loss.HOPELESS,  # log delta falls by about 10 a nat
    ),
}
