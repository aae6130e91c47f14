"""The member of a noise family with the least error: its shape and its scale.

Shapes of a grid are lanes of one batch. Their scales are found roughly, by secants that start from
the shapes next to them, on grids that narrow around the best one; a parabola gives the shape, and a
last search its scale. Roots of epsilon need few secants: log epsilon is nearly straight in
log(scale), where log delta may fall off a cliff (next to a largest loss).

The search runs on the host, in NumPy; inside of a trace it is one call of the host. Derivatives are
those of the scale at a fixed shape, or along the curve on which the best shape lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import kernel, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.search import Pair, secants, with_slopes_of_root
from jaxdp.accountant.primitive import searched
from jaxdp.design.calibrate import SLOPE, straightened
from jaxdp.design.families import Family, kind_of
from jaxdp.guarantee.base import Budget, excess_log_delta
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.base import Noise
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.truncated_laplace import TruncatedLaplace

# Tolerances of log(scale). Closed forms, of noises that are compared. chosen: log delta is not
# straight next to a largest loss
_COMPARED = 1e-6
_CLOSE = 5e-12  # the same, of the result. chosen: near its rounding
# Compositions, of noises that are compared. chosen: two grids differ by less, and the last secant
# of epsilon is far nearer
_COMPARED_COMPOSED = 1e-3
# The same, of the result. chosen: the bounds of two neighbours differ by less
_CLOSE_COMPOSED = 1e-9
# Slope of log epsilon in log(scale), at first. derived: of pure losses
_SLOPE = -1.0
# A slope of a search that ends at its first feasible point. chosen: above any slope of log delta
_STEEP = -1e12
# Shapes of a round; the next one lies between the neighbours of the best. chosen: the last three
# lie (2 / 11)^2 / 11 of the range apart, in logarithms, where the error is nearly a parabola
_SHAPES = 12
_ROUNDS = 3
# Largest ratio of three errors on a parabola. chosen: an infinite loss makes them jump
_SMOOTH = 1.1
# Largest deviation, over that of a noise that meets the budget, of which more is sought. chosen
_WORSE = 1.01
# Largest start of the search along the plateau. measured: a single release has 3.3 there
_FLAT = 3.0
# Relative slack of a search in log delta. chosen: above the rounding of log delta
_SLACK = 4e-12
# Safe end of a search, over the larger of the Gaussian's and the Laplace's scale. chosen: no closed
# form or conversion needs more
_FAR = 1e3
# The same where a composition is exact. derived: its best member needs at most sqrt(2), the
# Laplace's deviation over its scale; far beyond, a grid knows no delta
_NEAR = 2.0


class Lanes(NamedTuple):
    """Requirements that every fit of the batch must meet, arrays of one shape."""

    epsilon: Reals
    delta: Reals
    shift: Reals
    fold: Reals


# Maps a noise and lanes to a value that is at most 0 where the noise meets the budget.
Residual: TypeAlias = Callable[[Noise, Lanes], Reals]


class Residuals(NamedTuple):
    """Residuals of a search: of its result, of noises that are compared, and of epsilon.

    Without the third the first two are one closed form of log delta, `excess_of`.
    """

    exact: Residual
    rough: Residual
    near: Residual | None = None  # its root is near that of `exact`, and found sooner


def least_error(family: Family, objective: str, lanes: Lanes, residuals: Residuals) -> Noise:
    """The member of `family` with the least error that meets the budget."""
    if checks.all_concrete(lanes):
        return _member(family, _least(family, objective, lanes, residuals), lanes)

    def found(lanes: Lanes) -> tuple[Any, ...]:
        with kernel():
            place = _least(family, objective, lanes, residuals)
            return *place, *jax.tree.leaves(_member(family, place, lanes))

    def member(parameter: Reals, given: tuple[Lanes, Reals, Reals]) -> Noise:
        return _member(family, _Place(parameter, *given[1:]), given[0])

    def residual(parameter: Reals, given: tuple[Lanes, Reals, Reals]) -> Reals:
        return residuals.exact(member(parameter, given), given[0])

    of_any = jax.eval_shape(lambda x: _member(family, _Place(x, x, x), lanes), lanes.epsilon)
    structure = jax.tree.structure(of_any)
    number = 3 + structure.num_leaves
    parameter, shape, on_curve, *leaves = searched(found, number, lanes, lanes.epsilon.shape)
    noise = structure.unflatten(leaves)
    return with_slopes_of_root(residual, member, parameter, (lanes, shape, on_curve), noise)


class _Place(NamedTuple):
    """A member of a family: on the curve of its best shapes, or of a fixed shape."""

    parameter: Reals  # the deviation; on a curve that gives it, alpha / gamma
    shape: Reals
    is_on_curve: Reals  # 1 or 0


def _member(family: Family, place: _Place, lanes: Lanes) -> Noise:
    """The noise of a place."""
    parameter, shape, is_on_curve = place
    if family == "truncated_laplace":
        shape = xp.where(is_on_curve > 0, _designed(lanes)[0], shape)
    noise = kind_of(family)._member(shape, parameter)
    if family != "flipped_huber":
        return noise
    # alpha / gamma with count alpha shift = gamma^2 epsilon.
    gamma = parameter * lanes.fold * lanes.shift / xp.maximum(lanes.epsilon, 1e-6)
    other = FlippedHuber(parameter * gamma, gamma)
    return jax.tree.map(lambda x, y: xp.where(is_on_curve > 0, x, y), other, noise)


def _least(family: Family, objective: str, lanes: Lanes, residuals: Residuals) -> _Place:
    """The place of the member; its parameter is infinite where none meets the budget."""
    kind = kind_of(family)
    safe, unsafe, likely = _bracket(lanes, _FAR if residuals.near is None else _NEAR)
    low, high = (xp.zeros_like(likely) + shape for shape in kind.shapes)
    search = _Search(family, residuals, low, xp.zeros_like(low), lanes, safe, unsafe)
    if kind.shapes[0] == kind.shapes[1]:
        return search.least(likely)
    tall = jax.tree.map(lambda x: xp.broadcast_to(x, (_SHAPES, *x.shape)), search[3:])

    def ranked(log_shape: Reals, log_start: Reals, slope: Reals) -> tuple[Reals, Reals, Reals]:
        shape = xp.exp(log_shape)
        root, slope = _Search(family, residuals, shape, *tall).rough_root(log_start, slope)
        error = getattr(kind._member(shape, xp.exp(root)), objective)()
        error = xp.where(xp.isnan(error), xp.inf, error)
        return error, xp.where(root < xp.inf, root, log_start), slope

    slope = SLOPE if residuals.near is None else _SLOPE
    log_best = _best(ranked, slope, *(xp.log(x) for x in (low, high, likely)))
    shape, start = (xp.exp(x) for x in log_best)
    found, curve = search._replace(shape=shape), xp.ones_like(shape)
    if family == "truncated_laplace":
        designed, deviation = _designed(lanes)
        if residuals.near is not None:  # the designed one meets the budget
            found = found._replace(safe=xp.fmin(_WORSE * deviation, safe))
        found = found._replace(unsafe=_bracket(lanes, _NEAR)[1])
        other = found._replace(shape=designed, is_on_curve=curve).least(deviation)
    elif family == "flipped_huber":
        # The composed epsilon hardly falls along a plateau: log delta alone has a root there.
        along = residuals._replace(near=None)
        ends = xp.full_like(likely, 60.0), xp.full_like(likely, 1e-2)
        on_plateau = _Search(family, along, likely, curve, lanes, *ends)
        other = on_plateau.least(xp.minimum(shape, _FLAT))
    else:
        return found.least(start)
    first = found.least(start)
    errors = [getattr(_member(family, x, lanes), objective)() for x in (first, other)]
    first_error, error = (xp.where(xp.isnan(x), xp.inf, x) for x in errors)
    return jax.tree.map(lambda x, y: xp.where(error < first_error, y, x), first, other)


class _Search(NamedTuple):
    """The search for the least parameter of members that meet the budget."""

    family: Family
    residuals: Residuals
    shape: Any
    is_on_curve: Reals
    lanes: Lanes
    safe: Reals
    unsafe: Reals

    def least(self, start: Reals) -> _Place:
        """The place of the member, checked by the exact residual."""
        exact, rough, near = self.residuals
        ends, slope = (self.safe, self.unsafe), SLOPE
        close = _CLOSE if exact is rough else _CLOSE_COMPOSED
        if near is not None:
            root = secants(self._residual(near), *ends, start, _SLOPE, close).found
            start = xp.where(root > 0, root * (1.0 + 2.0 * close), start)
            slope = xp.where(root > 0, _STEEP, SLOPE)
        found = secants(self._residual(exact), *ends, start, slope, close).found
        found = xp.where(xp.isnan(found), xp.inf, found)
        return _Place(found, self.shape, self.is_on_curve)

    def rough_root(self, log_start: Reals, slope: Reals) -> Pair:
        """The logarithm of about the least parameter, not checked, and the slope there."""
        residual = self._residual(self.residuals.rough)
        close = _COMPARED if self.residuals.near is None else _COMPARED_COMPOSED
        start = xp.exp(log_start + close)
        state = secants(residual, self.safe, self.unsafe, start, slope, close)
        root = state.last - state.value / state.slope
        return xp.where(xp.isnan(state.found), xp.inf, root), state.slope

    def _residual(self, residual: Residual) -> Callable[[Reals, Bools], Any]:
        """`residual` of parameters; NaN in entries that are done."""

        def of_open(parameter: Reals, done: Bools) -> Any:
            numbers = _Place(parameter, self.shape, self.is_on_curve), self.lanes
            place, lanes = jax.tree.map(lambda x: x[~done], numbers)
            values: Any = np.full(done.shape, np.nan)
            values[~done] = residual(_member(self.family, place, lanes), lanes)
            return values

        return of_open


def _best(
    ranked: Callable[[Reals, Reals, Reals], tuple[Reals, Reals, Reals]],
    slope: float,
    low: Reals,
    high: Reals,
    start: Reals,
) -> Pair:
    """The best shape of a unimodal error and its deviation, as logarithms.

    `ranked` maps shapes along a first axis, starts and slopes to errors, deviations and slopes.
    """
    shares = xp.linspace(-1.0, 1.0, _SHAPES).reshape((_SHAPES,) + (1,) * xp.ndim(low))

    first = [low, 0.5 * (low + high), high], [start] * 3, [xp.full_like(low, slope)] * 3
    x, start, slopes = (xp.stack(three) for three in first)
    error = xp.full_like(x, xp.inf)
    for _ in range(_ROUNDS):
        x, start, slopes = (_parabola(y[:, None], shares) for y in (x, start, slopes))
        found = x, *ranked(x, start, xp.where(slopes < 0, slopes, slope))
        middle = xp.clip(xp.argmin(found[1], axis=0), 1, _SHAPES - 2)[None]
        index = xp.concatenate([middle - 1, middle, middle + 1])
        x, error, start, slopes = (xp.take_along_axis(y, index, 0) for y in found)
    rise, bend = error[2] - error[0], error[2] - 2.0 * error[1] + error[0]
    share = -0.5 * rise / xp.where(bend > 0, bend, 1.0)
    is_smooth = xp.max(error, axis=0) <= _SMOOTH * xp.min(error, axis=0)
    inside = is_smooth & (bend > 0) & (xp.abs(share) <= 1.0)
    share = xp.where(inside, share, xp.argmin(error, axis=0) - 1.0)
    return _parabola(x, share), _parabola(start, share)


def _parabola(values: Reals, share: Reals) -> Reals:
    """The parabola through three values at -1, 0 and 1, at shares in [-1, 1], within the values."""
    low, middle, high = values
    value = middle + share * (0.5 * (high - low) + share * (0.5 * (high + low) - middle))
    return xp.clip(value, xp.min(values, axis=0), xp.max(values, axis=0))


def _designed(lanes: Lanes) -> Pair:
    """bound / scale and deviation of Geng et al.'s truncated Laplace at (epsilon, delta) / fold."""
    epsilon, delta = lanes.epsilon / lanes.fold, lanes.delta / lanes.fold
    shape = log1p(xp.expm1(epsilon) / xp.maximum(2.0 * delta, 1e-300))
    return shape, xp.sqrt(TruncatedLaplace._of_shape(shape, lanes.shift / epsilon).variance())


def _bracket(lanes: Lanes, reach: float) -> tuple[Reals, Reals, Reals]:
    """Standard deviations that are enough for the best member of any family, surely not, likely."""
    budget = Budget(lanes.epsilon, lanes.delta)
    gaussian = xp.sqrt(lanes.fold) * lanes.shift / largest_gdp(budget).mu
    laplace = lanes.fold * lanes.shift / largest_laplace_ratio(budget)
    finite = xp.where(xp.isfinite(gaussian), gaussian, 0.0)
    safe = reach * xp.maximum(finite, xp.where(xp.isfinite(laplace), laplace, 0.0))
    safe = xp.where(safe > 0, safe, 1e30 * lanes.shift)
    unsafe = 1e-3 * xp.minimum(xp.minimum(gaussian, laplace), lanes.shift * 1e3)
    return safe, unsafe, xp.minimum(gaussian, laplace)


def excess_of(log_delta: Reals, delta: Reals) -> Reals:
    """Excess of log delta: at most 0 where the budget is met with a slack for rounding."""
    log_target = xp.log(xp.where(delta == 0, 1.0, delta))
    slack = _SLACK * (1.0 + xp.abs(log_target))
    return straightened(excess_log_delta(log_delta, delta), slack, delta)
