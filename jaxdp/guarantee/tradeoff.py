"""The trade-off function of a delta profile, and the profile of a trade-off function.

With f(fpr) the least false-negative rate of any test, delta(epsilon) and f are two views of one
convex set: f(x) = sup over real epsilon of 1 - delta(epsilon) - e^epsilon x, and
delta(epsilon) = sup over x in [0, 1] of 1 - f(x) - e^epsilon x.
Source: Dong, Roth & Su, JRSS-B 84, 2022, where it is the convex conjugate of f.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import shape_of, sigmoid, updated, vmap, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._numeric.search import zoom
from jaxdp.guarantee.base import require_both_directions
from jaxdp.guarantee.supporting_lines import LARGEST_EPSILON, support

# Points of each round of a search. chosen: the bound has one hump, which is seen between them
_POINTS = 33
# Rounds. derived: 1,400 nats times 16^-12 is 5e-12
_ZOOMS = 12
# Rates on either side of the best, in equal ratios up to the end of [0, 1]. chosen: 20% a step
_RATES = 160
# Share of the way to the nearer end at which they begin. chosen: 3e-14, far above an ulp
_NEAREST = 2.0**-45


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


@in_float64
def profile_of_tradeoff(
    tradeoff: Callable[[Reals], Reals], epsilon: ArrayLike, error: float = 1e-10
) -> Reals:
    """An upper bound on delta at any real epsilon, from a trade-off function.

    Args:
        tradeoff: maps an array of false-positive rates to false-negative rates in [(1 - error) f,
            f] of a convex f, elementwise; its batch broadcasts with `epsilon`.
        epsilon: nats.
        error: relative error of `tradeoff`, in [0, 1).

    Returns:
        delta, above the truth by about 4 `error` at the most, absolutely: where delta itself is
        small take it from a `log_delta`.

    A finite set of rates would bound the supremum from below. But f is convex and falls, so that
    between two neighbouring rates it lies above the chords of the intervals on either side,
    extended, and above its value at the right end; 1 - f(x) - e^epsilon x is bounded on every
    interval between 0 and 1 by a mean of those lines. The intervals shrink towards the maximum in
    equal ratios, to 3e-14 of the distance to the nearer end. Bad input as in `tradeoff_of_profile`.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.profile_of_tradeoff(dp.GDP(1.0).tradeoff, 0.5):.4f}")
    0.2384
    """
    if not 0 <= error < 1:
        raise ValueError(f"error must lie in [0, 1), got {error}")
    return _profile(_as_tree(tradeoff), checks.real("epsilon", epsilon), error)


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
    return xp.maximum(-zoom(lambda x: -fnr(x), *ends, _POINTS, _ZOOMS)[1], 0.0)


@jitted
def _profile(tradeoff: jax.tree_util.Partial, epsilon: Reals, error: Reals) -> Reals:
    shape = xp.broadcast_shapes(epsilon.shape, shape_of(tradeoff, epsilon).shape)
    # A larger epsilon has a smaller delta, so that this one bounds it.
    slope = xp.exp(xp.minimum(xp.broadcast_to(epsilon, shape), LARGEST_EPSILON))

    def gain(logit: Reals) -> Reals:
        fpr = sigmoid(logit)
        return 1.0 - tradeoff(fpr) - slope[None] * fpr

    ends = xp.full(shape, -LARGEST_EPSILON), xp.full(shape, 37.0)
    middle = sigmoid(zoom(lambda x: -gain(x), *ends, _POINTS, _ZOOMS)[0])
    middle = xp.clip(middle, 1e-250, 1.0 - ULP)
    nearest = xp.minimum(middle, 1.0 - middle) * _NEAREST
    part = xp.expand_dims(xp.linspace(0.0, 1.0, _RATES), tuple(range(1, len(shape) + 1)))
    part, middle, nearest = xp.broadcast_arrays(part, middle[None], nearest[None])
    below = middle - nearest * (middle / nearest) ** part[::-1]
    above = middle + nearest * ((1.0 - middle) / nearest) ** part
    below, above = updated(below, 0, 0.0), updated(above, -1, 1.0)
    x = xp.clip(xp.concatenate([below, middle[:1], above]), 0.0, 1.0)
    return _bound_by_chords(x, vmap(tradeoff)(x), slope[None], error)


def _bound_by_chords(x: Reals, fnr: Reals, slope: Reals, error: Reals) -> Reals:
    """The greatest over the intervals of `x` (axis 0) of a bound on 1 - f(x) - slope x.

    The chord before an interval is a lower bound on f there if its far end is put too high.
    Any mean of the two lines is linear, hence greatest at an end of the interval; the mean that
    has the slope -slope has both ends equal, and its rounding costs no safety.
    """
    high = xp.minimum(round_up(fnr / (1.0 - error), 2), 1.0)
    width = x[1:] - x[:-1]
    safe = xp.where(width > 0, width, 1.0)
    steep = xp.where(width > 0, round_up((fnr[1:] - high[:-1]) / safe, 4), -1e300)
    shallow = xp.where(width > 0, round_up((high[1:] - fnr[:-1]) / safe, -4), 0.0)
    ends = xp.zeros_like(width[:1])
    from_left = xp.concatenate([ends, steep[:-1]])
    from_right = xp.concatenate([xp.minimum(shallow[1:], 0.0), ends])
    share = (from_right + slope) / (from_right - from_left)
    share = xp.where(from_right > from_left, xp.clip(share, 0.0, 1.0), 0.0)
    share = updated(share, 0, 0.0)
    left, right = fnr[:-1], fnr[1:]
    at_left = share * left + (1.0 - share) * (right - from_right * width)
    at_right = share * (left + from_left * width) + (1.0 - share) * right
    bounds = xp.maximum(1.0 - at_left - slope * x[:-1], 1.0 - at_right - slope * x[1:])
    bound = xp.max(bounds, axis=0) + 16.0 * ULP
    bound = xp.where(xp.isnan(xp.sum(fnr, axis=0) + slope[0]), xp.nan, bound)
    return xp.clip(bound, xp.maximum(1.0 - slope[0], 0.0), 1.0)
