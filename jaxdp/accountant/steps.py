"""Engines and their bounds, the rows of the decision table, and the lanes for which a step runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms, exchanged
from jaxdp.noise.base import mirrored_log_delta


class LogBounds(NamedTuple):
    """Bounds on log delta, or on epsilon, of one shape; `upper` is NaN where the input is bad."""

    lower: Reals
    upper: Reals

    def mirrored(self, is_mirrored: Bools, size: Reals) -> LogBounds:
        """Bounds of the exchanged pair at -`size` in some lanes: 1 - e^-size + e^-size delta."""
        return LogBounds(
            xp.where(is_mirrored, mirrored_log_delta(self.lower, size, -1.0), self.lower),
            xp.where(is_mirrored, mirrored_log_delta(self.upper, size, 1.0), self.upper),
        )


Question: TypeAlias = Literal["log delta", "epsilon"]
# Maps a batch, the bounds found before and a level of effort to bounds.
Solve: TypeAlias = Callable[[Batch, LogBounds, Any], LogBounds]
# Maps bounds to the widths of their brackets.
Width: TypeAlias = Callable[[LogBounds], Reals]

# Value of `Row.above` with which a step runs for every lane. chosen: no width is negative
ALWAYS = -1.0


class Tangents(NamedTuple):
    """Upper bounds near lanes, by slopes in arrays that cost far less than an answer."""

    arrays: Callable[[Batch, LogBounds], Any]  # of lanes
    solve: Callable[[Any, Any], tuple[LogBounds, Any]]  # arrays and a level to bounds and slopes
    moved: Callable[[Any, Any], Reals]  # arrays nearby, and the slopes, to upper bounds
    most: Callable[[Any], int]  # largest number of lanes of a piece


class Engine(NamedTuple):
    """Bounds for one question, as a function of a batch of NumPy arrays."""

    solve: Solve
    least: float = -np.inf  # upper bound below which it does not run
    replaces: bool = False  # its bounds replace those before
    skips: Callable[[Batch], Any] | None = None  # True for lanes that it cannot settle
    tangents: Tangents | None = None  # without them, slopes are differences of its bounds
    step: float = 1e-3  # of a difference of its bounds, over the number that moves. chosen


class Row(NamedTuple):
    """A row of the decision table: an engine, and the lanes for which it runs."""

    engine: str
    above: float = 0.0  # width of a bracket above which it runs
    levels: tuple[int, ...] = (1,)  # efforts, one after the other while a bracket is wide
    more_than: int = 0  # it runs only for batches of more lanes
    if_unanswered: bool = False  # it skips lanes with a lower bound from the first step
    # A lane goes to the next level if the last one left at most this share of its bracket.
    most_left: float = np.inf
    most: float = np.inf  # width above which it does not


class Step(NamedTuple):
    """A row, and its engine for a question."""

    engine: Engine
    row: Row


# Maps terms to the steps of their composition.
Choice: TypeAlias = Callable[[Terms], tuple[Step, ...]]


class Query(NamedTuple):
    """A question and the engines that answer it; equal queries share programs."""

    on_host: Choice
    width: Width
    both: bool  # the worse direction of two
    on_gpu: Choice | None = None  # what a program for a GPU evaluates before the host does
    # Maps lanes and their bounds in the worse direction to bounds, by further questions.
    narrowed: Callable[[tuple[Terms, Any], LogBounds], LogBounds] | None = None

    @property
    def directions(self) -> int:
        """Number of directions of a lane."""
        return 2 if self.both else 1


def unknown(values: Lanes) -> LogBounds:
    """Infinite bounds of every lane."""
    infinite = xp.full(values.shape, xp.inf)
    return LogBounds(-infinite, infinite)


def worse(bounds: LogBounds, directions: int) -> LogBounds:
    """The larger bounds of all directions (lanes,)."""
    if directions == 1:
        return bounds
    return LogBounds(*(xp.max(x.reshape(directions, -1), axis=0) for x in bounds))


def goes_on(step: Step, width: Width, known: LogBounds, directions: int) -> tuple[Bools, Bools]:
    """True for the lanes (directions * lanes,) for which the step runs first, and then."""
    above = step.row.above
    if above == ALWAYS:
        every = xp.ones(known.upper.shape, bool)
        return every, every
    worst = worse(known, directions)
    by_direction = LogBounds(*(x.reshape(directions, -1) for x in known))
    is_wide = (width(worst) > above) & ~(worst.upper < step.engine.least)
    is_worst = by_direction.upper == worst.upper[None]
    is_better = (by_direction.upper < worst.lower[None]) | (width(by_direction) <= above)
    return (is_wide[None] & is_worst).ravel(), (is_wide[None] & ~is_better).ravel()


def directed(terms: Terms, values: Any, both: bool) -> tuple[Terms, Any]:
    """The lanes, followed by the lanes of the other direction if `both`."""
    if not both:
        return terms, values
    return exchanged(terms), xp.concatenate([values, values])


def of_numpy(lower: Any, upper: Any) -> LogBounds:
    """Bounds that are NumPy arrays or numbers."""
    return LogBounds(lower, upper)


def tighter(a: LogBounds, b: LogBounds) -> LogBounds:
    """The tighter of both bounds, on each side; NaN gives way to the other."""
    is_less = (b.upper < a.upper) | xp.isnan(a.upper) | (a.upper == xp.inf)
    is_more = (b.lower > a.lower) | xp.isnan(a.lower) & ~xp.isnan(b.lower)
    lower = xp.where(is_more, b.lower, a.lower)
    return LogBounds(lower, xp.where(is_less, b.upper, a.upper))


def width(bounds: LogBounds) -> Reals:
    """Widths of brackets on log delta; 0 where delta is 0, infinite where it is unknown."""
    size = xp.subtract(bounds.upper, bounds.lower)
    size = xp.where(bounds.upper == -xp.inf, 0.0, size)
    return xp.where(xp.isnan(size), xp.inf, size)


def epsilon_width(bounds: LogBounds) -> Reals:
    """Widths of brackets on epsilon, relative where epsilon is large."""
    size = xp.subtract(bounds.upper, bounds.lower) / xp.add(1.0, bounds.upper)
    size = xp.where(bounds.lower == xp.inf, 0.0, size)
    return xp.where(xp.isnan(size), xp.inf, size)


def exp_down(log_delta: Reals) -> Reals:
    """exp, rounded down by 4 ulp."""
    return xp.exp(log_delta) * (1.0 - 4.0 * xp.finfo(xp.float64).eps)
