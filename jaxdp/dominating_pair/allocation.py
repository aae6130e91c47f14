"""Random allocation: a record joins one of t steps of Gaussian noise, or one of t bins.

Identity: P = (1 / t) sum_i N(e_i / s), Q = N(0) in t dimensions. Under Q the loss is log(S / t),
with S a sum of t log-normal variables, and P has S / t times its density. The pair dominates
"remove", and exchanged "add", tightly; steps can depend on earlier releases.

Error: `profile_error` reports the relative error of the density; measured 1e-8 of delta at worst.
Sources: arXiv:2502.08202 and arXiv:2412.16802 for the pair; the densities are ours.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import lax, vmap, xp
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp._numeric.sum_density import LogDensity
from jaxdp.dominating_pair.allocation_profile import (
    LEAST_RATIO,
    Lane,
    known_lanes,
    log_deltas,
    panels_of,
    traced_lane,
)
from jaxdp.dominating_pair.base import DominatingPair, Law, Support
from jaxdp.dominating_pair.moments import renyi_beyond, renyi_of_law
from jaxdp.noise.structure import Singularities, Smooth

# Nodes of the law, interpolated from the density's. chosen: a contour's phases turn little between
# two
_OF_LAW = 1400


@final
@pytree
class Allocation(DominatingPair):
    """A "remove" allocation, "add" where `added` is 1; made by `allocation`.

    A concrete ratio has the nodes of its density, each an array of the pair's shape. A traced ratio
    has `steps`, and its density is computed at every use. The pair that `prepared` returns has the
    density with its nodes along a last axis, and the panels of its integrals.
    """

    centre: Reals | None = None
    width: Reals | None = None
    low: Reals | None = None
    step: Reals | None = None
    log_density: tuple[Reals, ...] = ()
    log_error: tuple[Reals, ...] = ()
    log_left_out: Reals | None = None
    ratio: Reals = math.nan  # pyright: ignore[reportAssignmentType]
    added: Reals = math.nan  # pyright: ignore[reportAssignmentType]
    steps: int | None = static(default=None, repr=False)
    lanes: Any = dataclasses.field(default=None, repr=False)
    panels: Any = dataclasses.field(default=None, repr=False)

    def prepared(self) -> Allocation:
        """The pair with its density; lanes of a traced ratio one after the other."""
        if self.lanes is not None:
            return self
        if self.steps is None:
            values, errors = (xp.stack(x, axis=-1) for x in (self.log_density, self.log_error))
            known: Any = self
            density = LogDensity(known.centre, known.width, known.low, known.step, values)
            lanes = Lane(density, errors, known.log_left_out, self.ratio)
        else:
            of_ratio = functools.partial(traced_lane, steps=self.steps)
            shape, lanes = xp.shape(self.ratio), lax.map(of_ratio, self.ratio.reshape(-1))
            lanes = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), lanes)
        of_lanes = functools.reduce(lambda f, _: vmap(f), range(xp.ndim(self.ratio)), panels_of)
        return Allocation(ratio=self.ratio, added=self.added, lanes=lanes, panels=of_lanes(lanes))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of the integral of (1 - e^(epsilon - L))_+, plus the error of the density."""
        return self._log_deltas(epsilon)[..., 0]

    def profile_error(self, epsilon: ArrayLike) -> Reals:
        """Error of `log_delta` in nats: of the density, and of losses beyond its nodes."""
        higher, lower = xp.moveaxis(self._log_deltas(epsilon), -1, 0)
        return higher - lower

    def _log_deltas(self, epsilon: ArrayLike) -> Reals:
        pair = self.prepared()
        epsilon = checks.real("epsilon", epsilon)
        return _by_lane(log_deltas, (pair.lanes, pair.panels), epsilon, self.added > 0)

    def law(self) -> Law:
        """The nodes of the density; the second rule lies between them, and adds its error."""
        lanes, support = self.prepared().lanes, self.support()
        loss, log_mass, log_density, *check = _by_lane(_law_columns, (lanes,), self.added)
        left_out = xp.broadcast_to(lanes.log_left_out, support.largest.shape)
        infinite = support.log_infinite
        return Law(loss, log_mass, log_density, tuple(check), left_out, infinite, support.largest)

    def support(self) -> Support:
        """Unbounded losses, none of them infinite; NaN for a ratio of NaN."""
        largest = xp.where(xp.isnan(self.ratio + self.added), xp.nan, xp.inf)
        return Support(largest, -largest)

    def singularities(self) -> Singularities:
        """Smooth."""
        return Smooth()

    def reversed(self) -> Allocation:
        """`added` exchanged."""
        return dataclasses.replace(self, added=1.0 - self.added)

    def mean_distance(self) -> Reals:
        """The ratio."""
        return self.ratio

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes, or by convexity the divergence of a fixed step."""

        def of_one_step(order: Reals) -> Reals:
            return 0.5 * order * self.ratio**2 * (1.0 + 8.0 * ULP)

        def beyond(order: Reals, log_left_out: Reals) -> Reals:
            return renyi_beyond(of_one_step, order, log_left_out)

        return renyi_of_law(self.prepared(), order, of_one_step, beyond)


def allocation(ratio: ArrayLike, steps: int) -> Allocation:
    """The pair of a record that joins one of `steps` steps and moves it by `ratio` scales.

    Args:
        ratio: sensitivity over the scale of the noise, at least 0; a batch of any shape.
        steps: concrete.

    The relative error of the density is 0.3 of its difference to a coarser run: 1e-11 in most
    cases. Concrete lanes with an error above 5e-8 are run again with more nodes. Beyond a ratio of
    12 the pair is the upper bound of a fixed step.
    """
    ratio = xp.maximum(checks.nonnegative("ratio", ratio), LEAST_RATIO)
    steps, removed = checks.positive_integer("steps", steps), xp.zeros(ratio.shape)
    if not checks.is_concrete(ratio):
        return Allocation(ratio=ratio, added=removed, steps=steps)
    lanes = known_lanes(xp.ravel(ratio), steps)

    def shaped(x: Reals) -> Reals:
        return x.reshape(ratio.shape)

    def by_node(x: Reals) -> tuple[Reals, ...]:
        return tuple(np.asarray(x).T.reshape(-1, *ratio.shape))

    density = lanes.density
    return Allocation(
        shaped(density.centre),
        shaped(density.width),
        shaped(density.low),
        shaped(density.step),
        by_node(density.values),
        by_node(lanes.errors),
        shaped(lanes.log_left_out),
        shaped(lanes.ratio),
        removed,
    )


def _by_lane(function: Callable[..., Any], of_lane: tuple[Any, ...], *values: Any) -> Any:
    """function(*of_lane, *values) of every element of the batch; values are numbers or vectors."""
    lane_shape = of_lane[0].ratio.shape
    shape = xp.broadcast_shapes(lane_shape, *(x.shape for x in values))
    flat_values = [xp.broadcast_to(x, shape).reshape(-1) for x in values]
    # A single pair serves many values without a copy of its nodes for each.
    is_single = math.prod(lane_shape) == 1

    def flat(x: Reals) -> Reals:
        inner = x.shape[len(lane_shape) :]
        if is_single:
            return x.reshape(inner)
        padded = x.reshape(*[1] * (len(shape) - len(lane_shape)), *x.shape)
        return xp.broadcast_to(padded, (*shape, *inner)).reshape(-1, *inner)

    of_all = function if is_single else vmap(function)
    results = of_all(*jax.tree.map(flat, of_lane), *flat_values)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), results)


def _law_columns(lane: Lane, added: Reals) -> tuple[Reals, ...]:
    """Columns of the `Law`: of the first rule, and of the second one."""
    density, sign = lane.density, xp.where(added > 0, -1.0, 1.0)[..., None]
    tilt = xp.where(added > 0, 0.0, 1.0)[..., None]
    step = (density.high - density.low) / (_OF_LAW - 1.0)

    def rule(v: Reals) -> tuple[Reals, Reals, Reals]:
        place = density.place(v)
        under_p = density.read(v) + tilt * place
        return sign * place, under_p + density.log_slope(v) + xp.log(step), under_p

    first = density.low + step * xp.arange(1.0 * _OF_LAW)
    second = first[:-1] + 0.5 * step
    loss, log_mass, _ = rule(second)
    return *rule(first), loss, log_mass + lane.error_at(second)
