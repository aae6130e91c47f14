"""Renyi divergences of a pair from the nodes of its law, rounded up."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._numeric.elementary import ULP, expm1_minus, lifted, log1p, round_up
from jaxdp._types import RealLike, Reals
from jaxdp.dominating_pair.base import DominatingPair, Law

# Of order - 1: divergences of smaller orders are that of this one. chosen: K / s keeps its digits.
_LEAST_EXCESS = 2.0**-30
# Of a moment: between two rules, and at the last nodes, where it is resolved.
_RESOLVED = 1e-11
# Nodes at either end that must not matter, and by how much in logarithms.
_END_NODES = 16
_FALLEN = 30.0


def cumulant(law: Law, z: Reals) -> Reals:
    """log E[e^(z L); L < inf] at real z, elementwise in the shape of the law."""
    return jax.nn.logsumexp(law.log_mass + z[..., None] * law.loss, axis=-1)


def renyi_of_law(
    pair: DominatingPair, order: RealLike, otherwise: Callable[[Reals], Reals]
) -> Reals:
    """log E[e^((a - 1) L)] / (a - 1) of order a; where the nodes do not resolve it `otherwise`.

    That is an upper bound. Resolved: two rules agree to 1e-11 of the moment, and its integrand has
    fallen at the ends. Infinite where a loss is; of infinite order the largest loss.
    """
    order = _check.real("order", order, 1.0)
    law = pair.law()
    order = jnp.broadcast_to(order, jnp.broadcast_shapes(order.shape, law.largest.shape))
    excess = jnp.clip(order - 1.0, _LEAST_EXCESS, 1e300)
    (found, size), (again, _) = (
        _divergence(*x, excess) for x in ((law.loss, law.log_mass), law.check)
    )
    # Of order 1 E[L + e^-L - 1] and what Q has at -inf, whose terms are positive.
    hidden = jnp.exp(pair.reversed().law().log_infinite)
    first = jnp.sum(jnp.exp(law.log_mass) * expm1_minus(-law.loss), axis=-1) + hidden
    found, size = (jnp.where(order == 1.0, first, x) for x in (found, size))
    again = jnp.where(order == 1.0, first, again)
    error = jnp.abs(found - again) + 64.0 * ULP * (found + size)
    exponent = law.log_mass + excess[..., None] * law.loss
    ends = jnp.max(exponent[..., (*range(_END_NODES), *range(-_END_NODES, 0))], axis=-1)
    # Bounded losses end, unbounded ones are cut off at the last node.
    bounded = jnp.isfinite(law.largest)
    resolved = (ends < jnp.max(exponent, axis=-1) - _FALLEN) | bounded
    resolved &= (excess * error <= _RESOLVED) & jnp.isfinite(found)
    bound = jnp.broadcast_to(otherwise(order), order.shape)
    value = jnp.where(resolved & (found + error < bound), found + error, bound)
    largest = jnp.where(law.log_infinite > -jnp.inf, jnp.inf, law.largest)
    largest = jnp.broadcast_to(
        jnp.where(jnp.isnan(law.log_infinite), jnp.nan, largest), order.shape
    )
    value = jnp.where(
        (order == jnp.inf) | (largest == jnp.inf) & (law.log_infinite > -jnp.inf), largest, value
    )
    return lifted(round_up(jnp.minimum(value, largest), 4), largest > 0)


def _divergence(loss: Reals, log_mass: Reals, excess: Reals) -> tuple[Reals, Reals]:
    """log E[e^(s L)] / s, by e^(s L) - 1 where the exponents are small; the size of its terms."""
    exponent = excess[..., None] * loss
    small = jnp.max(jnp.where(log_mass > -jnp.inf, jnp.abs(exponent), 0.0), axis=-1) < 1.0
    grown = jnp.expm1(jnp.where(small[..., None], exponent, 0.0))
    near = log1p(jnp.sum(jnp.exp(log_mass) * grown, axis=-1))
    far = jax.nn.logsumexp(log_mass + exponent, axis=-1)
    size = jnp.sum(jnp.exp(log_mass) * jnp.abs(grown), axis=-1)
    return jnp.where(small, near, far) / excess, lax.stop_gradient(size / excess)
