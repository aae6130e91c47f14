"""Renyi differential privacy, at a vector of orders."""

from __future__ import annotations

from typing import final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals, Shape
from jaxdp._numeric.double_double import sum_up
from jaxdp._numeric.elementary import ULP, conversion_entropy
from jaxdp.guarantee.base import Guarantee, repeated
from jaxdp.guarantee.renyi_profile import tradeoff_of_renyi

# Orders at most. chosen: far enough from overflow
_LARGEST_ORDER = 1e300


@final
@pytree
class RDP(Guarantee):
    """The Renyi divergence of each `order` in [1, 1e300] is at most `value` nats, both ways round.

    The last axis holds the orders, axes before it are the batch; a number is one order. An
    infinite value says nothing of its order. Order 1 is the Kullback-Leibler divergence: it bounds
    the trade-off, and delta only by that. Bad input: `ValueError`, or NaN where traced.
    Source: Mironov, CSF 2017.
    """

    order: Reals
    value: Reals

    def __init__(self, order: ArrayLike, value: ArrayLike):
        order = xp.atleast_1d(checks.real("order", order, 1.0, _LARGEST_ORDER))
        value = xp.atleast_1d(checks.nonnegative("value", value))
        if value.shape[-1] not in (1, order.shape[-1]) or order.shape[-1] == 0:
            raise ValueError(
                f"value must hold one divergence for each of {order.shape[-1]} orders (at least "
                f"one) on its last axis, got shape {value.shape}"
            )
        order, value = xp.broadcast_arrays(order, value)
        assign(self, order=order, value=value)

    @property
    def shape(self) -> Shape:
        """The batch."""
        return xp.broadcast_shapes(self.order.shape, self.value.shape)[:-1]

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """The least over the orders of s (value - epsilon) - log(1 + s) - s log(1 + 1/s), or 0.

        s = order - 1; every real epsilon, in the batch's shape; rounded up. Each order gives a
        bound on the same delta, so the least one holds, whichever it is.
        Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
        """
        return _log_delta(self, checks.real("epsilon", epsilon))

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """The least fnr whose two-point test obeys every order held here, both ways round.

        (1 - fnr)^a fpr^(1 - a) + fnr^a (1 - fpr)^(1 - a) <= exp((a - 1) value) and the same with
        the two laws exchanged, by data processing. Rounded down. It uses that the divergences
        are bounded in both directions, as they are for a symmetric neighbouring relation.
        """
        return _tradeoff(self, checks.probability("fpr", fpr, lift=True))

    def composed(self, other: RDP) -> RDP:
        """The values add, order by order. The orders must be the same: `ValueError` if not."""
        orders = self.order.shape[-1], other.order.shape[-1]
        concrete = checks.all_concrete(self.order, other.order)
        if orders[0] != orders[1] or (
            concrete and np.any(np.asarray(self.order) != np.asarray(other.order))
        ):
            raise ValueError(f"order must be the same in both, got {self.order} and {other.order}")
        order, other_order, value, other_value = xp.broadcast_arrays(
            self.order, other.order, self.value, other.value
        )
        return RDP(order, xp.where(order == other_order, sum_up(value, other_value), xp.nan))

    def __rmul__(self, count: ArrayLike) -> RDP:
        count, value = xp.broadcast_arrays(checks.whole("count", count)[..., None], self.value)
        return RDP(self.order, repeated("value", count, value))


def _guarded(guarantee: RDP, argument: Reals) -> tuple[Reals, Reals, Reals]:
    """s, the values and the argument, all in one shape with the orders last."""
    order, value, argument = xp.broadcast_arrays(
        guarantee.order, checks.guard(guarantee.value), argument[..., None]
    )
    s = xp.where((order >= 1) & (order <= _LARGEST_ORDER), order - 1.0, xp.nan)
    return s, value, argument


@jitted
def _log_delta(guarantee: RDP, epsilon: Reals) -> Reals:
    s, value, epsilon = _guarded(guarantee, epsilon)
    first, gap = s == 0, value - epsilon  # of order 1 the bound is 1
    gain = xp.where(first & ~xp.isnan(gap), 0.0, s * gap)
    entropy = conversion_entropy(s)
    bound = gain - entropy + 16.0 * ULP * (xp.abs(gain) + entropy)
    # An infinite gain has an infinite error of the other sign.
    bound = xp.where(xp.isinf(gain), gain, bound)
    bound = xp.where(xp.isinf(value) & ~xp.isnan(s + epsilon), 0.0, bound)
    return xp.minimum(xp.min(bound, axis=-1), 0.0)


@jitted
def _tradeoff(guarantee: RDP, fpr: Reals) -> Reals:
    s, value, rate = _guarded(guarantee, fpr)
    return tradeoff_of_renyi(s, value, rate[..., 0])
