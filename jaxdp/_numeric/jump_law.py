"""The loss of one sampled Gaussian release on nodes that are dense near one loss.

c = shift / scale; x is standard normal under the law without the record, the loss
L(x) = log(1 - q + q e^(c x - c^2 / 2)), and its law the mixture's, of density e^L times normal.
The substitution x = x_l + sinh(v) / c, L(x_l) = l, is analytic, so that the trapezoidal rule in
v converges geometrically.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp._numeric.sampled_gaussian import loss_at
from jaxdp._types import Bools, Reals

_NODES, _FEW_NODES = 1024, 128
# exp(-9.5^2 / 2) = 2.5e-20: what lies below.
_LOWEST = -9.5
# Half its square is -log of what lies above the last node, over what lies above `loss`.
_MARGIN = 9.0
# Steps of v, and of x where the mass is, whose errors are below 1e-14.
_FINEST, _LARGEST_STEP = 0.05, 0.75
# e^epsilon that is as good as e^epsilon - 1.
_LARGE = 50.0


class JumpLaw(NamedTuple):
    """Of one release, along a new last axis; `log_rest` and `resolved` without it."""

    loss: Reals
    log_weight: Reals
    spacing: Reals  # of the losses
    log_rest: Reals  # log of a bound on the probability of what lies above the last node
    resolved: Bools


def _point_of(c: Reals, q: Reals, loss: Reals) -> Reals:
    """The x of a loss > 0."""
    large = loss > _LARGE
    exponent = log1p(jnp.expm1(jnp.where(large, 0.0, loss)) / q)
    return jnp.where(large, loss - jnp.log(q), exponent) / c + 0.5 * c


def _slope(x: Reals, loss: Reals, c: Reals, q: Reals) -> Reals:
    return c * q * jnp.exp(c * (x - 0.5 * c) - loss)


def steepness(c: Reals, q: Reals, loss: Reals) -> Reals:
    """How fast the density falls with log L at `loss`: minus its logarithm's slope."""
    x = _point_of(c, q, loss)
    return x * loss / _slope(x, loss, c, q)


def jump_law(c: Reals, q: Reals, loss: Reals, largest: Reals, scale: Reals) -> JumpLaw:
    """Nodes around `loss` > 0, at least up to `largest`; c > 0, 0 < q <= 1, all of one shape.

    Equally far apart within `scale` of log L, then in its logarithm.
    """
    middle = _point_of(c, q, loss)
    highest = c + jnp.hypot(jnp.maximum(middle - c, 0.0), _MARGIN)
    highest = jnp.maximum(highest, _point_of(c, q, largest))
    unit = scale / c
    ends = [jnp.arcsinh((end - middle) / unit) for end in (_LOWEST, highest)]
    step = (ends[1] - ends[0]) / (_NODES - 1)
    v = ends[0][..., None] + step[..., None] * jnp.arange(_NODES)[(None,) * c.ndim]
    x = middle[..., None] + jnp.sinh(v) * unit[..., None]
    width = (step * unit)[..., None] * jnp.cosh(v)
    loss = loss_at(x, c[..., None], q[..., None])
    slope = _slope(x, loss, c[..., None], q[..., None])
    above = highest - c
    tails = [jnp.log(p) - 0.5 * y * y - jnp.log(y) for p, y in ((q, above), (1.0 - q, highest))]
    return JumpLaw(
        loss,
        loss - 0.5 * x * x - LOG_SQRT_2PI + jnp.log(width),
        slope * width,
        jnp.logaddexp(*tails) - LOG_SQRT_2PI,
        (step < _FINEST) & (width[..., 0] < _LARGEST_STEP),
    )


def moments_below(c: Reals, q: Reals, loss: Reals) -> tuple[Reals, Reals]:
    """About E[L; L < loss] and E[L^2; L < loss]: what a release adds that is not a large loss."""
    share = ((jnp.arange(_FEW_NODES) + 0.5) / _FEW_NODES)[(None,) * c.ndim]
    length = (c - 2.0 * _LOWEST)[..., None]
    x = _LOWEST + length * share
    each = loss_at(x, c[..., None], q[..., None])
    weight = jnp.exp(each - 0.5 * x * x - LOG_SQRT_2PI) * length / _FEW_NODES
    below = jnp.where(each < loss[..., None], weight * each, 0.0)
    return jnp.sum(below, axis=-1), jnp.sum(below * each, axis=-1)
