"""The trade-off function of a privacy profile, from lines below it.

f(x) is the least false-negative rate of any test at the false-positive rate x. Each epsilon gives
two lines below f:

    f(x) >= 1 - delta - e^epsilon x    and    f(x) >= e^-epsilon (1 - delta - x),

so any set of epsilons gives a lower bound, and the supremum over all epsilons is f. Source: Dong,
Roth & Su, JRSS-B 84, 2022, where f is the convex conjugate.

`tradeoff_by_lines` evaluates an expensive concrete loss at epsilons that all rates share: a grid,
then a finer grid between the best epsilons, then a few points around the best epsilon of each rate.
Both lines have the form P(u) - u x, with u = e^epsilon and P(u) = 1 - delta, or with u = e^-epsilon
and P(u) = e^-epsilon (1 - delta). P is concave in u. Between neighbouring points P lies above its
chord and below the extended chords of the intervals on either side, which meet at a corner. The
corners bound f from above. The next epsilon of a rate is at a corner, or where the slope of P
equals the rate, estimated from the slopes of the chords.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import shape_of, xp
from jaxdp._core.types import ArrayLike, Reals, Shape
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._numeric.search import zoom
from jaxdp.guarantee.base import require_both_directions

# Largest epsilon, nats. derived: e^700 fits a double, and a rate below e^-700 is reported as 0
LARGEST_EPSILON = 700.0
# Points of each round of a search. chosen: the bound is unimodal, and two points bracket its top
POINTS = 33
# Rounds. derived: 1,400 nats times 16^-12 is 5e-12
ZOOMS = 12


@in_float64(side=-1.0)
def tradeoff_of_profile(log_delta: Callable[[Reals], Reals], fpr: ArrayLike) -> Reals:
    """A lower bound on the false-negative rate of any test, from the delta of every epsilon.

    Args:
        log_delta: maps an array of epsilons (nats) to log delta, elementwise; its batch broadcasts
            with `fpr`. One direction ("add", "remove") alone raises `ValueError`.
        fpr: false-positive rates in [0, 1].

    Returns:
        Lower bounds on the false-negative rates.

    The largest value found of 1 - delta(e) - e^e fpr and, by symmetry of the profile, e^-e (1 -
    delta(e) - fpr), e >= 0. Every e gives a bound and rounding is subtracted, so the result holds
    if `log_delta` is an upper bound. delta is convex in e^e: the supremum is found to 1e-12 of e on
    [0, 700]. If `log_delta` is a bound that is not convex, the search can miss a better e, which
    only lowers the result. `ValueError` for a bad concrete `fpr`; NaN for a bad traced one or
    delta.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.tradeoff_of_profile(dp.GDP(1.0).log_delta, 0.05):.4f}")
    0.7405
    """
    require_both_directions(getattr(log_delta, "__self__", None))
    return _tradeoff(_as_tree(log_delta), checks.probability("fpr", fpr, lift=True))


def _as_tree(function: Callable[[Reals], Reals]) -> jax.tree_util.Partial:
    """A method of a record becomes its function and that record, so that it compiles once."""
    owner = getattr(function, "__self__", None)
    if owner is None or jax.tree.leaves(owner) == [owner]:
        return jax.tree_util.Partial(function)
    return jax.tree_util.Partial(getattr(type(owner), function.__name__), owner)


@jitted
def _tradeoff(log_delta: jax.tree_util.Partial, fpr: Reals) -> Reals:
    shape = xp.broadcast_shapes(fpr.shape, shape_of(log_delta, fpr).shape)
    fpr = xp.broadcast_to(fpr, shape)

    def fnr(epsilon: Reals) -> Reals:
        return support(epsilon, log_delta(xp.abs(epsilon)), fpr[None])

    # The value is one that the function took; NaN if it ever was NaN.
    ends = xp.full(shape, -LARGEST_EPSILON), xp.full(shape, LARGEST_EPSILON)
    return xp.maximum(-zoom(lambda x: -fnr(x), *ends, POINTS, ZOOMS)[1], 0.0)


# Points of the first grid and of the finer one. chosen: the finer lines look smooth in a picture
_POINTS = 48
# The least epsilon of the first grid but 0. chosen: below it a bound changes by 1e-8
_LEAST_EPSILON = 1e-4
# Tolerance of a false-negative rate. chosen: no picture or attack shows it
_CLOSE = 1e-10
# Distance of the points on either side of a rate's best epsilon. derived: its square is `_CLOSE`
_NEAR = 1e-5
# Rounds after both grids, at most. measured: two are enough for smooth profiles, one for kinks
_ROUNDS = 6
# Distance of epsilons below which one of them is left out. chosen: deltas there differ by rounding
_LEAST_GAP = 1e-9
# Least slope, and least distance from 1, of which a logarithm is taken. chosen: normal numbers
_LEAST_SLOPE, _LEAST_REST = 1e-300, 1e-16


def tradeoff_by_lines(
    log_delta: Callable[[ArrayLike], Any], fpr: np.ndarray, shape: Shape
) -> Reals:
    """`tradeoff_of_profile` for an expensive concrete profile, from a few batched evaluations.

    Args:
        log_delta: maps epsilons >= 0 (points, *shape) to log delta.
        fpr: rates, concrete.
        shape: the profile's batch; broadcasts with the rates.

    Returns:
        Lower bounds on the false-negative rates, in the common shape. If delta is convex in
        e^epsilon, they are within 1e-10 of the best, or the last of 6 rounds was not enough.
    """
    whole = np.broadcast_shapes(shape, np.shape(fpr))
    batch = (1,) * (len(whole) - len(shape)) + tuple(shape)
    shared = tuple(i for i, size in enumerate(batch) if size == 1)
    last = tuple(range(-len(shared), 0))
    rates = np.moveaxis(np.broadcast_to(fpr, whole), shared, last)
    by_rates, losses = rates.shape, math.prod(batch)
    rates = rates.reshape(losses, -1)

    def evaluated(points: list[np.ndarray]) -> np.ndarray:
        """log delta (losses, points) at as many points of every loss."""
        epsilon = np.stack(points, axis=-1).reshape(-1, *batch)
        found = np.broadcast_to(np.asarray(log_delta(epsilon)), epsilon.shape)
        return found.reshape(len(epsilon), losses).T

    grid = np.concatenate([[0.0], np.geomspace(_LEAST_EPSILON, LARGEST_EPSILON, _POINTS - 1)])
    first = evaluated([grid] * losses)
    lines = [_Lines(grid, first[i], x, _best(grid, first[i], x)) for i, x in enumerate(rates)]
    for index in range(_ROUNDS + 1):
        found = [x.refined(is_first=index == 0) for x in lines]
        most = max(x.size for x in found)
        if most == 0:
            break
        padded = [np.resize(x if x.size else grid[:1], most) for x in found]
        log_deltas = evaluated(padded)
        lines = [line.joined(*x) for line, *x in zip(lines, padded, log_deltas, strict=True)]
    fnr = np.stack([line.fnr for line in lines]).reshape(by_rates)
    return xp.asarray(np.moveaxis(fnr, last, shared))


class _Lines(NamedTuple):
    """Points of the profile of one loss (points,) by epsilon, rates, and bounds (rates,)."""

    epsilon: np.ndarray
    log_delta: np.ndarray
    rate: np.ndarray
    fnr: np.ndarray

    @np.errstate(all="ignore")  # of infinite losses
    def refined(self, is_first: bool) -> np.ndarray:
        """Epsilons that can raise a bound by more than the tolerance."""
        at, power, intercept = self._both_sides()
        slope = np.diff(intercept) / np.diff(power)
        slope = np.minimum.accumulate(np.clip(slope, 0.0, 1.0))
        # In an interval, the share of the way to the corner of the neighbours' chords.
        around = np.concatenate([slope[:1], slope, slope[-1:]])
        drop = around[:-2] - around[2:]
        share = np.where(drop > 0, (slope - around[2:]) / np.where(drop > 0, drop, 1.0), 0.5)
        corner = power[:-1] + share * np.diff(power)
        highest = intercept[:-1] + around[:-2] * (corner - power[:-1])
        best = np.searchsorted(-slope, -self.rate)
        sides = np.maximum(best - 1, 0), np.minimum(best, slope.size - 1)
        most = np.maximum(*(highest[i] - corner[i] * self.rate for i in sides))
        is_open = most - self.fnr > _CLOSE
        if not is_open.any():
            return np.zeros(0)
        if is_first:
            used = best[is_open]
            ends = at[max(used.min() - 1, 0)], at[min(used.max() + 1, at.size - 1)]
            lowest = 0.0 if ends[0] < 0 < ends[1] else np.abs(ends).min()
            return np.linspace(lowest, np.abs(ends).max(), _POINTS)
        middle = 0.5 * (at[1:] + at[:-1])
        own = np.interp(-_logit(self.rate), -_logit(slope), middle)
        points = own - _NEAR, own, own + _NEAR, *(np.log(corner[i]) for i in sides)
        return np.unique(np.abs(np.concatenate([x[is_open] for x in points])))

    def _both_sides(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log u, rising, u and P(u) at every epsilon and at minus every epsilon."""
        intercept = -np.expm1(self.log_delta)
        mirrored = np.exp(-self.epsilon) * intercept
        at = np.concatenate([-self.epsilon[:0:-1], self.epsilon])
        return at, np.exp(at), np.concatenate([mirrored[:0:-1], intercept])

    def joined(self, epsilon: np.ndarray, log_delta: np.ndarray) -> _Lines:
        """The lines with more points, each of which serves the rates near it."""
        fnr = np.maximum(self.fnr, _best(epsilon, log_delta, self.rate))
        epsilon, index = np.unique(np.append(self.epsilon, epsilon), return_index=True)
        log_delta = np.append(self.log_delta, log_delta)[index]
        apart = np.append(True, np.diff(epsilon) > _LEAST_GAP)
        return _Lines(epsilon[apart], log_delta[apart], self.rate, fnr)


def _logit(rate: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(rate, _LEAST_SLOPE)) - np.log(np.maximum(1.0 - rate, _LEAST_REST))


@np.errstate(all="ignore")
def _best(epsilon: Any, log_delta: Any, rate: Any) -> np.ndarray:
    """The best bound at every rate."""
    sides = (support(x[:, None], log_delta[:, None], rate) for x in (epsilon, -epsilon))
    return np.asarray(xp.max(xp.maximum(0.0, xp.maximum(*sides)), axis=0))


def support(epsilon: Reals, log_delta: Reals, fpr: Reals) -> Reals:
    """A lower bound on the trade-off function from log delta at |epsilon|, rounded down."""
    delta = round_up(xp.exp(log_delta), 8)
    power = -xp.expm1(log_delta) * (1.0 - 8.0 * ULP)
    cost = xp.exp(epsilon) * fpr * (1.0 + 8.0 * ULP)
    falling = power - cost - ULP * (power + cost)
    # fpr is near 1 in the first and near 0 in the second: neither subtracts what is lost.
    by_symmetry = (1.0 - fpr) * (1.0 - ULP) - delta
    by_symmetry = xp.maximum(by_symmetry - ULP * delta, power - fpr - ULP * (power + fpr))
    flat = round_up(xp.exp(epsilon) * by_symmetry, -8)
    either = xp.where(epsilon > 0, falling, xp.maximum(falling, flat))
    return xp.where(epsilon < 0, flat, either)
