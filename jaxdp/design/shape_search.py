"""The least error over the shapes of a family, each at the least scale that meets a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.search import secant_bracket, zoom
from jaxdp.design.families import MEMBERS
from jaxdp.guarantee.base import Budget, excess_log_delta
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.noise.base import Noise
from jaxdp.noise.flipped_huber import FlippedHuber

# How near a scale is found, in its logarithm, while a shape is searched. chosen: it only ranks
# shapes, and is never returned
_SEARCH_CLOSE = 1e-7
# The same for the result. chosen: near its rounding
_CLOSE = 5e-12
# Shapes of a round; the next one lies between the neighbours of the best. chosen: with the rounds
# a shape is known to (2 / 15)^4 of its range, in logarithms
_SHAPES = 16
_ROUNDS = 4
# Relative slack of a search in log delta. chosen: above the rounding of log delta
_SLACK = 4e-12
# Safe end of a search, over the larger of the Gaussian's and the Laplace's scale. chosen: no closed
# form or conversion needs more
FAR = 1e3
# The same where a composition is exact. derived: its best member needs at most sqrt(2), the
# Laplace's deviation over its scale; far beyond, a grid knows no delta
NEAR = 2.0


class Lanes(NamedTuple):
    """Requirements that every fit of the batch must meet, arrays of one shape."""

    epsilon: Reals
    delta: Reals
    shift: Reals
    fold: Reals


# log delta of a noise for each lane; True on the last look, which may cost more.
LogDelta: TypeAlias = Callable[[Noise, Lanes, bool], Reals]


def least_error(
    family: str, objective: str, lanes: Lanes, log_delta: LogDelta, reach: float = FAR
) -> Noise:
    """The member of `family` with the least error whose `log_delta` meets the budget."""
    build, shapes = MEMBERS[family].build, MEMBERS[family].shapes

    def least(shape: Reals, lanes: Lanes, final: bool) -> Noise:
        """The least member of `shape` inside the budget."""

        def residual(deviation: Reals) -> Reals:
            return excess_log_delta(log_delta(build(shape, deviation), lanes, final), lanes.delta)

        safe, unsafe = _bracket(lanes, reach)
        slack = _SLACK * (1.0 + xp.abs(xp.log(xp.where(lanes.delta == 0, 1.0, lanes.delta))))
        close = _CLOSE if final else _SEARCH_CLOSE
        return build(
            shape, secant_bracket(lambda x: residual(x) + slack, safe, unsafe, close=close)
        )

    def error(shape: Reals, lanes: Lanes) -> Reals:
        value = getattr(least(shape, lanes, False), objective)()
        return xp.where(xp.isnan(value), xp.inf, value)

    start = xp.zeros_like(lanes.shift) + shapes[0]
    if shapes[0] == shapes[1]:
        return least(start, lanes, True)
    tall = jax.tree.map(lambda x: xp.broadcast_to(x, (_SHAPES, *x.shape)), lanes)

    ends = xp.log(start), xp.log(start * (shapes[1] / shapes[0]))
    shape = xp.exp(zoom(lambda x: error(xp.exp(x), tall), *ends, _SHAPES, _ROUNDS)[0])
    if family == "truncated_laplace":
        shape = xp.stack([shape, _designed_bound(lanes)])
        # XLA takes long chains of operations on broadcast arrays for a stuck rewrite.
        lanes = lax.optimization_barrier(
            jax.tree.map(lambda x: xp.broadcast_to(x, shape.shape), lanes)
        )
    solution = least(shape, lanes, True)
    if family == "flipped_huber":
        candidates = (solution, _on_plateau(lanes, log_delta))
        solution = jax.tree.map(lambda *x: xp.stack(x), *candidates)
    elif family != "truncated_laplace":
        return solution
    return least_of(solution, getattr(solution, objective)(), 0)


def _designed_bound(lanes: Lanes) -> Reals:
    """bound / scale of the truncated Laplace of Geng et al.: its loss is epsilon, or infinite."""
    epsilon = lanes.epsilon / lanes.fold
    return log1p(xp.expm1(epsilon) / xp.maximum(2.0 * lanes.delta, 1e-300))


def _bracket(lanes: Lanes, reach: float) -> tuple[Reals, Reals]:
    """Standard deviations that are enough for the best member of any family, and surely not."""
    budget = Budget(lanes.epsilon, lanes.delta)
    gaussian = xp.sqrt(lanes.fold) * lanes.shift / largest_gdp(budget).mu
    laplace = lanes.fold * lanes.shift / largest_laplace_ratio(budget)
    finite = xp.where(xp.isfinite(gaussian), gaussian, 0.0)
    safe = reach * xp.maximum(finite, xp.where(xp.isfinite(laplace), laplace, 0.0))
    safe = xp.where(safe > 0, safe, 1e30 * lanes.shift)
    return safe, 1e-3 * xp.minimum(xp.minimum(gaussian, laplace), lanes.shift * 1e3)


def _on_plateau(lanes: Lanes, log_delta: LogDelta) -> Noise:
    """The flipped Huber with count alpha shift = gamma^2 epsilon: a root in alpha / gamma."""

    def member(shape: Reals) -> Noise:
        gamma = shape * lanes.fold * lanes.shift / xp.maximum(lanes.epsilon, 1e-6)
        return FlippedHuber(shape * gamma, gamma)

    def residual(shape: Reals) -> Reals:
        return excess_log_delta(log_delta(member(shape), lanes, True), lanes.delta)

    zero = xp.zeros_like(lanes.shift)
    slack = _SLACK * (1.0 + xp.abs(xp.log(xp.where(lanes.delta == 0, 1.0, lanes.delta))))
    return member(secant_bracket(lambda x: residual(x) + slack, zero + 60.0, zero + 1e-2))


def least_of(noise: Noise, error: Reals, axis: int) -> Noise:
    """Along `axis`, the member with the least error; infinite error where it is NaN."""
    index = xp.argmin(xp.where(xp.isnan(error), xp.inf, error), axis=axis)
    index = xp.expand_dims(index, axis)
    return jax.tree.map(lambda x: xp.take_along_axis(x, index, axis).squeeze(axis), noise)
