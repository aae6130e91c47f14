"""Moments of a mixture's likelihood ratios on the real axis, and how exact they are."""

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, expm1_minus, log1p
from jaxdp._types import Reals
from jaxdp.loss.pieces import Nodes, dot

# Of the sum over all points and over every second one: to the power 1.5 it is added.
_AGREED = 1e-7
# Nats within which moments are sums of what differs from 1.
_NEAR = 25.0
# Units in the last place by which terms may be off, besides what their logarithms are.
_ROUNDED = 64


def log_moment(nodes: Nodes, powers: tuple[Reals, ...], q: Reals) -> tuple[Reals, Reals]:
    """An upper bound of log E_g0[A+^u A-^v], and how far it may be above.

    Both are infinite, or NaN, where the nodes may miss some.
    """
    log_weight, centre, logs, halves, resolved = nodes
    exponent = dot(powers, logs)
    top = jnp.max(log_weight + exponent, axis=-1)
    near = top < _NEAR
    log_weight -= jnp.where(near, 0.0, top)[..., None]
    whole = jnp.exp(log_weight + exponent)
    # E_g0[A - 1] = 0: without it the terms are of second order, and round as such.
    bend, sizes = (_excess(log_weight, exponent),) * 2
    slope = jnp.zeros_like(exponent)
    for power, log in zip(powers, logs, strict=True):
        part = power[..., None] * _excess(log_weight, log)
        share = 1.0 - (1.0 - q[..., None]) * jnp.exp(-log)
        mixed = jnp.where(near[..., None], jnp.exp(log_weight + log), 0.0)
        slope += jnp.abs(power[..., None] * share * (whole - mixed))
        bend, sizes = bend - part, sizes + jnp.abs(part)
    terms = jnp.where(near[..., None], bend, whole)
    # The density is as exact as its logarithm, and a loss as the logarithms whose difference it is.
    rounding = (_ROUNDED + 8.0 * jnp.abs(centre)) * jnp.where(near[..., None], sizes, whole)
    rounding += 8.0 * (1.0 + jnp.abs(centre)) * slope
    total = jnp.sum(terms, axis=-1)
    error = jnp.abs(total - jnp.sum(halves * terms, axis=-1))
    agreed = resolved & (error <= _AGREED * jnp.abs(total))
    # At the order 1 every term is 0; elsewhere 0 / 0 says that nothing was held.
    cancelled = near & (error == 0) & jnp.any(log_weight > -jnp.inf, axis=-1)
    size = jnp.where(cancelled, 1.0, jnp.abs(total))
    off = ULP * jnp.sum(rounding, axis=-1) + error * jnp.sqrt(error / size)
    off = lax.stop_gradient(off)
    total += off
    value = jnp.where(near, log1p(jnp.where(near, total, 0.0)), top + jnp.log(total))
    above = 2.0 * off / jnp.where(near, 1.0 + total, total)
    return jnp.where(agreed, value, jnp.inf), jnp.where(agreed, above, jnp.inf)


def _excess(log_weight: Reals, y: Reals) -> Reals:
    """The weight times e^y - 1 - y."""
    near = jnp.abs(y) <= 1.0
    far = jnp.exp(log_weight + y) - jnp.exp(log_weight) * (1.0 + y)
    return jnp.where(near, jnp.exp(log_weight) * expm1_minus(jnp.where(near, y, 0.0)), far)
