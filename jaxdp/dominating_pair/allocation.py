"""Random allocation: a record joins one of t steps of Gaussian noise, or one of t bins.

Identity: P = (1 / t) sum_i N(e_i / s), Q = N(0) in t dimensions. Under Q the loss is log(S / t),
with S a sum of t log-normal variables, and P has S / t times its density. The pair dominates
"remove", and exchanged "add", tightly; steps can depend on earlier releases.

For a law with density f of losses, T(e) = int_e (1 - e^(e - L)) f dL. Between the edges of panels

    T(e) = int_e^(L_j) (1 - e^(e - L)) f dL + (1 - e^(e - L_j)) F(L_j) + e^(e - L_j) T(L_j)

with F the mass beyond. Each e costs one panel. T is convex in e^e, since every panel has one error
of its density.

Error: `profile_error` reports the relative error of the density, 0.3 of its difference to a coarser
run: 1e-11 in most cases, measured 1e-8 of delta at worst. Densities with an error above 5e-8 are
run again with more nodes.
Sources: arXiv:2502.08202 and arXiv:2412.16802 for the pair; the densities are ours.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import kernel, logsumexp, xp
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._numeric.mills import log_normal_survival
from jaxdp._numeric.quadrature import gauss_legendre
from jaxdp._numeric.sum_density import LogDensity, log_normal_sum
from jaxdp.dominating_pair.base import DominatingPair, Law, Support, renyi_of_law
from jaxdp.noise.base import mirrored_log_delta
from jaxdp.noise.structure import Singularities, Smooth

# Nodes of the law, interpolated from the density's. chosen: a contour's phases turn little between
# two
_OF_LAW = 1400
# Nodes of a density and points of its integrals. measured: 1e-11 of delta in most cases
_FEW = (200, 80)
# The same where the first error is too large. measured: 1e-8 of delta at worst
_MANY = (320, 144)
# Nodes that are kept. measured: interpolation errors are below the density's own
_KEPT = 320
# Factor on the range of the nodes of the second run. chosen
_WIDER = 1.25
# Share of the difference of both runs that is stated as the error. derived: with Lagrange's
# polynomial through 10 nodes the second run's error is 1.25^10 = 9 times as large; measured: 6.6
# times at least
_SHARE = 0.3
# Relative error of a density above which more nodes are used. chosen: below 1e-6 of delta
_DOUBTFUL = 5e-8
# Least log mass of nodes whose errors count in this. chosen: smaller deltas are rare
_SEEN = -37.0
# Stretches of nodes whose largest errors are kept. chosen: 5 nodes each
_STRETCHES = 64
# Nodes of the density from one edge of a panel to the next. derived
_NODES = _KEPT // _STRETCHES
# Relative error where two runs agree. chosen: above the rounding of an interpolation
_ROUNDING = 1e-12
# Ratio above which a fixed step bounds the pair. chosen: no delta is small there
_LARGEST_RATIO = 12.0
# Least ratio; a pair raises smaller ones to it. chosen: the loss keeps its digits
_LEAST_RATIO = 1e-4
# Points of a panel's integral. measured: 1e-14 of it
_POINTS = 12
# log of no mass. chosen: negligible in any sum
_NOTHING = -1e4


@final
@pytree
class Allocation(DominatingPair):
    """A "remove" allocation to one of `steps` steps, "add" where `added` is 1.

    `ratio` is the sensitivity over the scale of the noise. Beyond a ratio of 12 the pair is the
    upper bound of a fixed step. Only concrete ratios have a law and a profile.
    """

    ratio: Reals
    steps: int = static()
    added: Reals

    def __init__(self, ratio: ArrayLike, steps: int | float, added: ArrayLike = 0.0):
        assign(
            self,
            ratio=xp.maximum(checks.nonnegative("ratio", ratio), _LEAST_RATIO),
            steps=checks.positive_integer("steps", steps),
            added=checks.probability("added", added),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of the integral of (1 - e^(epsilon - L))_+, plus the error of the density."""
        return self._log_deltas(epsilon)[..., 0]

    def profile_error(self, epsilon: ArrayLike) -> Reals:
        """Error of `log_delta` in nats: of the density, and of losses beyond its nodes."""
        found = self._log_deltas(epsilon)
        return found[..., 0] - found[..., 1]

    def _log_deltas(self, epsilon: ArrayLike) -> Any:
        """Upper and lower bounds on log delta (..., 2)."""
        values = self.ratio, self.added, checks.real("epsilon", epsilon)
        ratio, added, epsilon = np.broadcast_arrays(*values)
        found = np.full((*ratio.shape, 2), np.nan)
        for one in np.unique(ratio[~np.isnan(ratio)]):
            at = ratio == one
            lane = _lane_of(float(one), self.steps)
            found[at] = _log_deltas(lane, epsilon[at], added[at] > 0)
        return found

    def law(self) -> Law:
        """The nodes of the density; the second rule lies between them, and adds its error."""
        ratio, added = np.broadcast_arrays(self.ratio, self.added)
        sizes = (_OF_LAW,), (_OF_LAW,), (_OF_LAW,), (_OF_LAW - 1,), (_OF_LAW - 1,), ()
        columns: Any = [np.full(ratio.shape + size, np.nan) for size in sizes]
        for at in np.argwhere(~np.isnan(ratio)):
            at = tuple(at)
            lane = _lane_of(float(ratio[at]), self.steps)
            for column, values in zip(columns, _law_of(lane, bool(added[at] > 0)), strict=True):
                column[at] = values
        loss, log_mass, log_density, *check, left_out = columns
        largest, infinite = self.support()
        return Law(loss, log_mass, log_density, tuple(check), left_out, infinite, largest)

    def support(self) -> Support:
        """Unbounded losses, none of them infinite; NaN for a ratio of NaN."""
        largest = xp.where(xp.isnan(self.ratio + self.added), xp.nan, xp.inf)
        return Support(largest, -largest)

    def singularities(self) -> Singularities:
        """Smooth."""
        return Smooth()

    def reversed(self) -> Allocation:
        """`added` exchanged."""
        return Allocation(self.ratio, self.steps, 1.0 - self.added)

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes, or by convexity the divergence of a fixed step."""
        of_one_step = 0.5 * self.ratio**2 * (1.0 + 8.0 * ULP)
        return renyi_of_law(self, order, lambda order: order * of_one_step)


class _Panels(NamedTuple):
    """Edges of the panels of one direction (P + 1,) in the order of losses, and their tails.

    The first axis, of size 2, holds the tails with the errors of the density added and subtracted.
    """

    edge: Any  # v
    loss: Any
    log_mass: Any
    log_tail: Any  # log T


class _Lane(NamedTuple):
    """One ratio's density under Q, the errors of its logarithm, and the log masses beyond."""

    density: LogDensity
    errors: Any  # (_STRETCHES,)
    log_left_out: Any
    panels: _Panels  # of "remove" and of "add", along a first axis


@functools.lru_cache(maxsize=1024)
@kernel()
def _lane_of(concrete: float, steps: int) -> _Lane:
    """The lane of a concrete ratio; with more nodes if the error is large."""
    ratio: Any = np.float64(concrete)
    density, error = _density(ratio, steps, _FEW)
    if _largest_error(density, error) > _DOUBTFUL:
        density, error = _density(ratio, steps, _MANY)
    density, errors = _reduced(density, error)
    log_beyond = np.log(steps) + log_normal_survival(10.5 + ratio)
    log_low = log_normal_survival(xp.full((), 10.5))
    left_out = np.logaddexp(log_low, log_beyond) + np.log(2.0)
    density = density._replace(centre=density.centre - np.log(steps))
    sides = (_panels(density, errors, is_added) for is_added in (False, True))
    panels = _Panels(*(np.stack(x) for x in zip(*sides, strict=True)))
    return _Lane(density, errors, left_out, panels)


def _density(ratio: Any, steps: int, resolution: tuple[int, int]) -> tuple[LogDensity, Any]:
    """The density, and its difference to a coarser run at its nodes."""
    if ratio > _LARGEST_RATIO:
        # A fixed step: its law is one log-normal's, shifted as the sum is divided by t.
        single = log_normal_sum(ratio, 1.0, 1, *resolution)
        single = single._replace(centre=single.centre + np.log(steps))
        return single, np.zeros(single.values.size)
    fine, coarse = (log_normal_sum(ratio, x, steps, *resolution) for x in (1.0, _WIDER))
    values = coarse.read(coarse.at_place(fine.nodes[0]))
    return fine, np.minimum(np.abs(fine.values - values), 1.0)


def _largest_error(density: LogDensity, error: Any) -> Any:
    """The largest error at nodes where either law has mass."""
    place, dl = density.nodes
    mass = density.values + np.log(dl)
    larger = np.maximum(mass, mass + place - density.centre)
    return _SHARE * np.max(np.where(larger > _SEEN, error, 0.0))


def _reduced(density: LogDensity, error: Any) -> tuple[LogDensity, Any]:
    """The density at the nodes that are kept, and the largest errors of its stretches.

    The errors include the interpolation error between these nodes.
    """
    step = (density.high - density.low) / (_KEPT - 1.0)
    v = density.low + step * np.arange(1.0 * _KEPT)
    reduced = density._replace(step=step, values=density.read(v))
    middle = v + 0.5 * step
    read_error = np.abs(reduced.read(middle) - density.read(middle))
    index = np.clip((v - density.low) / density.step, 0.0, error.size - 1.0)
    near = error[np.floor(index).astype(int)], error[np.ceil(index).astype(int)]
    errors = _SHARE * np.maximum(*near) + read_error + _ROUNDING
    errors = np.maximum(errors, np.append(errors[1:], errors[-1]))
    return reduced, np.max(errors.reshape(_STRETCHES, -1), axis=-1)


def _panels(density: LogDensity, errors: Any, is_added: bool) -> _Panels:
    order = -1 if is_added else 1
    index = np.minimum(_NODES * np.arange(_STRETCHES + 1.0), _KEPT - 1.0)[::order]
    edge = density.low + density.step * index
    loss = order * density.place(edge)
    x, share = gauss_legendre(_POINTS)
    width = np.diff(edge)[:, None]
    v = edge[:-1, None] + width * x[None]
    place = density.place(v)
    log_mass = density.read(v) + density.log_slope(v) + (0.0 if is_added else place)
    log_mass = log_mass + (np.log(np.abs(width)) + np.log(share)[None])
    errors = errors[::order, None]
    log_masses = np.stack([log_mass + errors, log_mass - errors])[:, None]
    # Sums over all panels that follow each edge.
    later = np.arange(_STRETCHES) >= np.arange(_STRETCHES + 1)[:, None]
    gap: Any = np.maximum(order * place - loss[:, None, None], 1e-300)
    log_mass, log_tail = (
        logsumexp(np.where(later[..., None], x, _NOTHING), axis=(2, 3))
        for x in (log_masses, log_masses + log1mexp(gap))
    )
    edge, loss = (np.broadcast_to(x, log_mass.shape) for x in (edge, loss))
    return _Panels(edge, loss, log_mass, log_tail)


@kernel()
def _log_deltas(lane: _Lane, epsilon: Any, added: Any) -> Any:
    """Upper and lower bounds on log delta at any epsilons (E,): (E, 2)."""
    size: Any = np.abs(epsilon)
    backward = epsilon < 0
    # delta(-e) = 1 - e^-e + e^-e delta(e), with delta(e) of the exchanged pair.
    value = _log_tails(lane, size, added ^ backward)
    mirrored = mirrored_log_delta(value, size[..., None], 1.0) + 8.0 * ULP
    return np.minimum(np.where(backward[..., None], mirrored, value), 0.0)


def _log_tails(lane: _Lane, epsilon: Any, added: Any) -> Any:
    """log T at epsilons >= 0 (E,): (E, 2), with the mass beyond the nodes, and without."""
    density, sign = lane.density, np.where(added, -1.0, 1.0)
    start = np.clip(density.at_place(sign * epsilon), density.low, density.high)
    stretch = np.floor((start - density.low) / density.step / _NODES).astype(int)
    stretch = np.clip(stretch, 0, _STRETCHES - 1)
    way, panel = added.astype(int), np.where(added, _STRETCHES - 1 - stretch, stretch)
    edge, loss, log_mass, log_tail = (x[way, :, panel + 1] for x in lane.panels)
    length = edge[..., 0] - start
    x, share = gauss_legendre(_POINTS)
    inside = np.abs(length) > 0
    v = start[..., None] + length[..., None] * x
    place = density.place(v)
    excess: Any = np.maximum(sign[..., None] * place - epsilon[..., None], 1e-300)
    value = density.read(v) + density.log_slope(v) + log1mexp(excess)
    value = value + np.where(added[..., None], 0.0, place)
    log_part = logsumexp(value + np.log(share), axis=-1)
    log_part = log_part + np.log(np.where(inside, np.abs(length), 1.0))
    error = lane.errors[stretch]
    log_part = np.stack([log_part + error, log_part - error], axis=-1)
    gap: Any = np.maximum(loss - epsilon[..., None], 1e-300)
    log_rest = np.logaddexp(log1mexp(gap) + log_mass, log_tail - gap)
    log_total = np.logaddexp(np.where(inside[..., None], log_part, _NOTHING), log_rest)
    upper = np.logaddexp(log_total[..., 0], lane.log_left_out)
    return np.stack([upper, log_total[..., 1]], axis=-1)


@kernel()
def _law_of(lane: _Lane, is_added: bool) -> tuple[Any, ...]:
    """Arrays of the `Law`: three of the first rule, two of the second rule, and `log_left_out`."""
    density, sign, tilt = lane.density, -1.0 if is_added else 1.0, 0.0 if is_added else 1.0
    step = (density.high - density.low) / (_OF_LAW - 1.0)

    def rule(v: Any) -> tuple[Any, Any, Any]:
        place = density.place(v)
        under_p = density.read(v) + tilt * place
        return sign * place, under_p + density.log_slope(v) + np.log(step), under_p

    first = density.low + step * np.arange(1.0 * _OF_LAW)
    second = first[:-1] + 0.5 * step
    loss, log_mass, _ = rule(second)
    # Each node has the largest error of its stretch of nodes.
    node = (second - density.low) / density.step
    stretch = np.clip(np.floor(node * (_STRETCHES / _KEPT)), 0, _STRETCHES - 1).astype(int)
    log_mass = log_mass + lane.errors[stretch]
    return *rule(first), loss, log_mass, lane.log_left_out
