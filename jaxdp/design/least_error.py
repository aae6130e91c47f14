"""The member of a noise family with the least error: its shape and its scale.

Shapes of a grid are lanes of one batch. Their scales are found roughly, by secants that start from
the shapes next to them, on grids that narrow around the best one; a parabola gives the shape, and a
last search its scale. Roots of epsilon need few secants: log epsilon is nearly straight in
log(scale), where log delta may fall off a cliff (next to a largest loss).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.search import Pair, secant_bracket, secants
from jaxdp.design.calibrate import SLOPE, straightened
from jaxdp.design.families import Family, kind_of, least_of
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
    kind = kind_of(family)

    def of_deviation(shape: Reals, deviation: Reals, _: Lanes) -> Noise:
        return kind._member(shape, deviation)

    safe, unsafe, likely = _bracket(lanes, _FAR if residuals.near is None else _NEAR)
    low, high = (xp.zeros_like(likely) + shape for shape in kind.shapes)
    if kind.shapes[0] == kind.shapes[1]:
        return _Search(of_deviation, residuals, low, lanes, safe, unsafe).least(likely)
    tall = jax.tree.map(
        lambda x: lax.stop_gradient(xp.broadcast_to(x, (_SHAPES, *x.shape))), (lanes, safe, unsafe)
    )

    def ranked(log_shape: Reals, log_start: Reals, slope: Reals) -> tuple[Reals, Reals, Reals]:
        shape = xp.exp(log_shape)
        root, slope = _Search(of_deviation, residuals, shape, *tall).rough_root(log_start, slope)
        error = getattr(kind._member(shape, xp.exp(root)), objective)()
        error = xp.where(xp.isnan(error), xp.inf, error)
        return error, xp.where(root < xp.inf, root, log_start), slope

    slope = SLOPE if residuals.near is None else _SLOPE
    log_best = _best(ranked, slope, *(xp.log(x) for x in (low, high, likely)))
    shape, start = (lax.stop_gradient(xp.exp(x)) for x in log_best)
    if family == "truncated_laplace":
        return _with_designed(of_deviation, objective, residuals, (shape, lanes, safe, start))
    found = _Search(of_deviation, residuals, shape, lanes, safe, unsafe).least(start)
    if family != "flipped_huber":
        return found
    ends = xp.full_like(likely, 60.0), xp.full_like(likely, 1e-2)
    # The composed epsilon hardly falls along a plateau: log delta alone has a root there.
    along = residuals._replace(near=None)
    other = _Search(_on_plateau, along, likely, lanes, *ends).least(xp.minimum(shape, _FLAT))
    both = jax.tree.map(lambda *x: xp.stack(x), found, other)
    return least_of(both, getattr(both, objective)(), 0)


def _with_designed(
    member: Callable[[Reals, Reals, Lanes], Noise],
    objective: str,
    residuals: Residuals,
    found: tuple[Reals, Lanes, Reals, Reals],
) -> Noise:
    """The better of the truncated Laplaces of the found shape and of the designed one."""
    shape, lanes, safe, start = found
    designed, deviation = _designed(lanes)
    if residuals.near is not None:  # the designed one meets the budget
        most = _WORSE * deviation
        safe = xp.where(most < safe, most, safe)
    unsafe = _bracket(lanes, _NEAR)[1]
    shape, start = xp.stack([shape, designed]), xp.stack([start, deviation])
    # XLA takes long chains of operations on broadcast arrays for a stuck rewrite.
    lanes, safe, unsafe = lax.optimization_barrier(
        jax.tree.map(lambda x: xp.broadcast_to(x, shape.shape), (lanes, safe, unsafe))
    )
    both = _Search(member, residuals, shape, lanes, safe, unsafe).least(start)
    return least_of(both, getattr(both, objective)(), 0)


class _Search(NamedTuple):
    """The search for the least parameter of members that meet the budget."""

    member: Callable[[Reals, Reals, Lanes], Noise]  # of shape, parameter, lanes
    residuals: Residuals
    shape: Reals
    lanes: Lanes
    safe: Reals
    unsafe: Reals

    def least(self, start: Reals) -> Noise:
        """The member, checked by the exact residual; infinite where none meets the budget."""
        exact, rough, near = self.residuals
        ends, residual = (self.safe, self.unsafe), self._residual(exact)
        close = _CLOSE if exact is rough else _CLOSE_COMPOSED
        if not checks.all_concrete(self.shape, self.lanes):
            found = secant_bracket(residual, *ends, close, start, SLOPE)
            return self.member(self.shape, found, self.lanes)
        slope: Any = SLOPE
        if near is not None:
            root = secants(self._residual(near), *ends, start, _SLOPE, close).found
            start = xp.where(root > 0, root * (1.0 + 2.0 * close), start)
            slope = xp.where(root > 0, _STEEP, SLOPE)
        found = secants(residual, *ends, start, slope, close).found
        return self.member(self.shape, xp.where(xp.isnan(found), xp.inf, found), self.lanes)

    def rough_root(self, log_start: Reals, slope: Reals) -> Pair:
        """The logarithm of about the least parameter, not checked, and the slope there."""
        residual = self._residual(self.residuals.rough)
        close = _COMPARED if self.residuals.near is None else _COMPARED_COMPOSED
        start = xp.exp(log_start + close)
        state = secants(residual, self.safe, self.unsafe, start, slope, close)
        root = state.last - state.value / state.slope
        return xp.where(xp.isnan(state.found), xp.inf, root), state.slope

    def _residual(self, residual: Residual) -> Callable[..., Reals]:
        """`residual` of parameters; NaN in concrete entries that are done."""

        def value(shape: Reals, parameter: Reals, lanes: Lanes) -> Reals:
            return residual(self.member(shape, parameter, lanes), lanes)

        def of_open(parameter: Reals, done: Bools | None = None) -> Reals:
            arguments = self.shape, parameter, self.lanes
            if done is None or not checks.all_concrete(arguments):
                return value(*arguments)
            values: Any = np.full(done.shape, np.nan)
            values[~done] = value(*jax.tree.map(lambda x: x[~done], arguments))
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
    Those of a round lie on parabolas through three of the round before.
    """
    shares = xp.linspace(-1.0, 1.0, _SHAPES).reshape((_SHAPES,) + (1,) * xp.ndim(low))

    def closer(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        x, _, starts, slopes = state
        x, starts, slopes = (_parabola(y[:, None], shares) for y in (x, starts, slopes))
        found = x, *ranked(x, starts, xp.where(slopes < 0, slopes, slope))
        middle = xp.clip(xp.argmin(found[1], axis=0), 1, _SHAPES - 2)[None]
        index = xp.concatenate([middle - 1, middle, middle + 1])
        return tuple(xp.take_along_axis(y, index, 0) for y in found)

    first = [low, 0.5 * (low + high), high], [start] * 3, [xp.full_like(low, slope)] * 3
    x, starts, slopes = lax.stop_gradient(tuple(xp.stack(three) for three in first))
    first = x, xp.full_like(x, xp.inf), starts, slopes
    x, error, start, _ = lax.fori_loop(0, _ROUNDS, closer, first)
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
    """bound / scale and deviation of the truncated Laplace of Geng et al., released `fold` times.

    Its loss is epsilon / fold, or infinite with probability delta / fold.
    """
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


def _on_plateau(_: Reals, shape: Reals, lanes: Lanes) -> Noise:
    """The flipped Huber of alpha / gamma with count alpha shift = gamma^2 epsilon."""
    gamma = shape * lanes.fold * lanes.shift / xp.maximum(lanes.epsilon, 1e-6)
    return FlippedHuber(shape * gamma, gamma)


def excess_of(log_delta: Reals, delta: Reals) -> Reals:
    """Excess of log delta: at most 0 where the budget is met with a slack for rounding."""
    log_target = xp.log(xp.where(delta == 0, 1.0, delta))
    slack = _SLACK * (1.0 + xp.abs(log_target))
    return straightened(excess_log_delta(log_delta, delta), slack, delta)
