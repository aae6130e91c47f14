"""Choice of the engines of a composition: the one decision table.

| composition                                          | first engine            | error stated    |
|------------------------------------------------------|-------------------------|-----------------|
| one release; Gaussians, which are one                | its own profile         | 2e-12 (1 + |x|) |
| every loss on a lattice; all on one: exact           | `grid`                  | 1e-10; 1e-5     |
| sampled Gaussians, groups too, beside plain ones     | `contour` on `mixtures` | 1e-6, or found  |
| other losses                                         | `contour` on `laws`     | as found        |

x is log delta. `TABLE` has the engines of every kind, in order, and the width of a bracket above
which each of them runs. To add an engine, add a row, and the engine to `_ENGINES`. The choice
depends only on the types of the pairs and on the units of lattices.

If many values belong to one loss, `contour.shared` evaluates them first. The bounds by the ends of
a composition (`closed_forms`) follow the first engines, for every lane. `contour.few_hits` serves
sampled Gaussians if few samples hold the record that is removed or replaced.
`contour.number_of_rare_losses` counts rare large losses of other samples, for log delta alone:
`evaluate` inverts it if the bracket of an epsilon stays wide. `divergences` is last. A program for
a GPU evaluates one engine, and the host evaluates the lanes that stay wide (`steps_on_gpu`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant import closed_forms, divergences, grid
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms, is_gaussian
from jaxdp.accountant.contour import engine as contour
from jaxdp.accountant.contour import few_hits, number_of_rare_losses, shared
from jaxdp.accountant.contour.laws import are_coarse, laws_of
from jaxdp.accountant.contour.mixtures import mixtures_of
from jaxdp.accountant.runner import by_lanes, by_releases
from jaxdp.accountant.steps import ALWAYS, Engine, LogBounds, Question, Row, Step, Tangents
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.known_guarantee import BoundedRange
from jaxdp.noise.structure import Lattice, Smooth

Kind: TypeAlias = Literal["gaussian", "single", "lattice", "mixtures", "smooth", "other"]

# Numbers of blocks of a long sum over mixtures, one after the other. chosen
BLOCKS = (1, 4, 16, 64)
LAW_BLOCKS = (1, 16, 64)  # the same of laws. measured: 4 seldom helps
# Share of a bracket above which no longer sum on laws is tried. measured: atoms leave nearly all
MOST_LEFT = 0.9

END = Row("end", ALWAYS)
ON_MIXTURES = Row("mixtures", 1e-6, BLOCKS)
FEW = Row("few hits", 1e-5)
# Last engine of smooth losses: its bounds are a nat or more above the truth. measured
LAST = Row("divergences", 0.1)
RARE = Row("number of rare losses", 1e-3)  # narrower: lowers few. measured
ON_LAWS = Row("laws", levels=LAW_BLOCKS, if_unanswered=True, most_left=MOST_LEFT)
SHARED_LAWS = Row("shared laws", shared.CLOSE, LAW_BLOCKS, most_left=MOST_LEFT)

# Widths of brackets above which the next engine runs: 1e-6 in general, 1e-5 where another engine is
# rarely tighter (measured), and 1e-3 before engines of 1 s a lane.
TABLE: dict[Kind, tuple[Row, ...]] = {
    "gaussian": (Row("profile"),),
    "single": (Row("profile"), END, Row("divergences", 1e-6)),
    "lattice": (
        Row("points"),
        END,
        Row("laws", 1e-5, LAW_BLOCKS[2:]),
        Row("divergences", 1e-5),
    ),
    "mixtures": (
        Row("shared mixtures", 1e-6, BLOCKS, most_left=MOST_LEFT),
        # In a small batch the short sum costs more than it saves. chosen
        Row("short mixtures", more_than=64, if_unanswered=True),
        ON_MIXTURES,
        FEW,
        END,
        # Pairs that few hits do not serve, as of truncated batches.
        Row("laws", 1e-5, LAW_BLOCKS[1:2]),
        RARE,
        Row("points", 1e-3),
        LAST,
    ),
    "smooth": (
        SHARED_LAWS,
        END,
        ON_LAWS,
        FEW,
        RARE,
        Row("points", 1e-5),
        LAST,
    ),
    "other": (
        SHARED_LAWS,
        END,
        # Where a short contour over atoms is wide, a longer one is seldom better than the grid.
        ON_LAWS._replace(engine="fine laws", most=shared.HOPELESS),
        Row("points", 1e-6),
        RARE,
        ON_LAWS._replace(engine="fine laws", above=1e-5, levels=LAW_BLOCKS[1:]),
        Row("divergences", 1e-3),
    ),
}
# Follows the others if some pair is a bounded range, whose position an adversary chooses anew at
# every release. That costs a third of the variance. A Renyi divergence of a fixed order composes
# without that loss, and costs about two nats of log delta in the conversion.
OF_RANGES = Row("divergences of ranges", ALWAYS)
# Engines from masses on a grid alone; to compare epsilons, divergences where it has no bound.
MASSES = Row("points"), END, Row("divergences", 1e-6)
ROUGH = *MASSES[:2], Row("divergences", 1.0)


def steps_of(question: Question, terms: Terms) -> tuple[Step, ...]:
    """Engines to evaluate on the host, in order."""
    first, *others = terms
    is_alone = not others and first.count.shape[-1] == 1
    if is_alone and is_gaussian(first):
        return _steps(question, TABLE["gaussian"])
    kind = _kind_of(terms)
    rows = TABLE[kind]
    if is_alone:
        is_one = np.asarray(first.count) == 1
        if is_one.all():
            rows = TABLE["single"]
        elif is_one.any():
            rows = *TABLE["single"][:2], *(row for row in rows if row.above != ALWAYS)
    if kind not in ("mixtures", "smooth"):  # a smooth loss can be rarely large by itself
        is_sampled = any(np.any(np.asarray(term.pair.log_hit()) < 0) for term in terms)
        rows = tuple(row for row in rows if is_sampled or row != RARE)
    if not few_hits.serves(terms):
        rows = tuple(row for row in rows if row != FEW)
    return _steps(question, (*rows, *_of_ranges(terms)))


def steps_on_gpu(question: Question, terms: Terms) -> tuple[Step, ...]:
    """The engine that a program for a GPU evaluates before the host answers the rest, or none."""
    first, *others = terms
    if not others and first.count.shape[-1] == 1 and isinstance(first.pair, Additive):
        return _steps(question, TABLE["gaussian"])  # a closed form
    serves = contour.serves(terms) and contour.are_few(terms)
    return _steps(question, (ON_MIXTURES,) if serves else ())


def grid_steps(question: Question, points: int, terms: Terms) -> tuple[Step, ...]:
    """Engines that bound the question by masses on a grid of `points` points, in order."""
    first, *others = (step.row for step in steps_of(question, terms))
    rows: tuple[Row, ...] = MASSES if question == "log delta" else ROUGH
    if first.engine == "profile":
        rows = (first, END, rows[0], rows[2]) if others else (first,)
    return _steps(question, (*rows, *_of_ranges(terms)), points)


def _of_ranges(terms: Terms) -> tuple[Row, ...]:
    return (OF_RANGES,) if any(isinstance(term.pair, BoundedRange) for term in terms) else ()


@functools.lru_cache(256)
def _steps(question: Question, rows: tuple[Row, ...], points: int = 0) -> tuple[Step, ...]:
    """The engines of rows for a question; `points` of a grid, if they are given."""
    steps = []
    for row in rows:
        if question not in _ENGINES[row.engine]:
            continue
        if question == "epsilon":  # log delta falls by about 10 a nat
            row = row._replace(most=0.1 * row.most)
        engines = _on_grid(points) if points and row.engine == "points" else _ENGINES[row.engine]
        steps.append(Step(engines[question], row))
    return tuple(steps)


def _kind_of(terms: Terms) -> Kind:
    """The kind of several releases."""
    # The releases of a term have singularities of one class: one release of each is enough.
    one = [jax.tree.map(lambda x: np.ravel(x)[:1], term.pair) for term in terms]
    singularities = {type(pair.singularities()) for pair in one}
    if singularities == {Lattice}:
        return "lattice"
    if contour.serves(terms):
        return "mixtures"
    return "smooth" if singularities == {Smooth} else "other"


def _of_terms(batch: Batch, known: LogBounds) -> Any:
    return batch.terms, batch.values, known


def by_terms(function: Callable[..., LogBounds]) -> Engine:
    """function(terms, values, bounds before) of lanes, which has slopes of its own."""

    def solve(lanes: Any, _: Any) -> LogBounds:
        return function(*lanes)

    def with_slopes(lanes: Any, _: Any) -> tuple[LogBounds, Any]:
        return function(*lanes), ()

    def moved(lanes: Any, _: Any) -> Reals:
        return function(*lanes).upper

    tangents = Tangents(_of_terms, with_slopes, moved, by_releases)
    return by_lanes(_of_terms, solve, by_releases, tangents=tangents)


def _on_grid(points: int) -> dict[Question, Engine]:
    """The grid of `points` points."""

    def engine(solve: Callable[..., LogBounds]) -> Engine:
        return Engine(lambda batch, known, _: solve(batch, known, points))

    return {"log delta": engine(grid.log_bounds), "epsilon": engine(grid.epsilon_bounds)}


def _of_bounded_ranges(question: Question) -> Engine:
    """Renyi divergences, or the bounds before where those are less."""
    engine = divergences.engine(question)

    def tighter(batch: Batch, known: LogBounds, level: Any) -> LogBounds:
        upper = engine.solve(batch, known, level).upper
        # The engines may have met the same bound: the lower one of the pair is above the truth.
        is_less = upper <= known.upper + 16.0 * ULP * (1.0 + xp.abs(known.upper))
        lower = xp.where(is_less, -xp.inf, known.lower)
        return LogBounds(lower, xp.where(upper < known.upper, upper, known.upper))  # NaN stays

    return Engine(tighter, replaces=True)


def _both(engine: Callable[[Question], Engine]) -> dict[Question, Engine]:
    return {"log delta": engine("log delta"), "epsilon": engine("epsilon")}


_ENGINES: dict[str, dict[Question, Engine]] = {
    "profile": {
        "log delta": by_terms(closed_forms.profile_log_delta),
        "epsilon": by_terms(closed_forms.profile_epsilon),
    },
    "end": {
        "log delta": by_terms(closed_forms.end_log_delta),
        "epsilon": by_terms(closed_forms.end_epsilon),
    },
    "divergences": _both(divergences.engine),
    "divergences of ranges": _both(_of_bounded_ranges),
    "points": _on_grid(grid.POINTS),
    "shared mixtures": _both(partial(shared.engine, way=shared.MIXTURES)),
    "shared laws": _both(partial(shared.engine, way=shared.LAWS)),
    "short mixtures": _both(partial(contour.engine, stage=contour.BULK, rows_of=mixtures_of)),
    "mixtures": _both(partial(contour.engine, stage=contour.LONG, rows_of=mixtures_of)),
    "laws": _both(partial(contour.engine, stage=contour.OF_LAWS, rows_of=laws_of)),
    "fine laws": _both(
        partial(contour.engine, stage=contour.OF_LAWS, rows_of=laws_of, skips=are_coarse)
    ),
    "few hits": _both(few_hits.engine),
    "number of rare losses": {"log delta": number_of_rare_losses.engine()},
}
