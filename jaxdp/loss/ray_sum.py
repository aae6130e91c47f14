"""The sum over all points of a line from some height on, by integrals along two horizontal rays.

For f(z) = e^(z d) A(z), A analytic and falling above w = theta + iT, halfway between two points,

    h sum_(k >= N) f(theta + i k h) = -i h int (f(w + h r) + e^(-2 pi r) f(w - h r)) sigma(r) dr

where d < 0, sigma(r) = 1 / (1 + e^(-2 pi r)): the residues of f / (1 - e^(-2 pi (z - theta) / h))
between the rays, with sigma(r) to the right and e^(-2 pi r) sigma(r) to the left. Where d >= 0 the
sides are exchanged, and so is the sign. At the points d counts modulo 2 pi / h only, which makes
|d| h <= pi. Source: Abel & Plana's formula; exp-sinh quadrature: Takahasi & Mori, RIMS 9, 1974.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln

from jaxdp._numeric.elementary import ULP
from jaxdp._types import Bools, Reals

# Of the quadrature: its error is below 2e-10 of the first value times the height over all edges
# 0 <= |d| h <= 2 pi and heights of 64 to 512 steps.
_NODES, _END, _GRADE, _MIDDLE = 80, 2.8, 3.0, 300.0
_STEPS = np.linspace(-_END, _END, _NODES)
RADII = _MIDDLE * np.exp(_GRADE * np.sinh(_STEPS))
WEIGHTS = RADII * _GRADE * np.cosh(_STEPS) * (_STEPS[1] - _STEPS[0])
_SHARES = WEIGHTS / (1.0 + np.exp(-2.0 * np.pi * RADII))
QUADRATURE = 2e-10
# Of the other ray e^(-pi r) counts.
_BESIDE = int(np.sum(RADII < 12.5))
CHUNK = 64
# Of equal releases.
MOST_ALIKE = 64


class Summands(NamedTuple):
    """What is summed: (*batch, slots, edges), log A at (..., 2 radii), first to the right."""

    at: Reals
    log_size: Reals
    angle: Reals
    epsilon: Reals  # (*batch,)
    log_unit: Reals


class Fixed(NamedTuple):
    """What has no derivative: (*batch, slots), and (*batch,)."""

    fold: Reals
    kinds: Reals  # the first edges of a slot that are there
    total: Reals  # the number of sums of edges
    theta: Reals
    step: Reals
    height: Reals
    log_share: Reals  # `log_shares`, (*batch, nodes)
    turn: Reals


class Found(NamedTuple):
    """All (*batch,): the sum, of its terms' sizes, and of their values at the rays' beginning."""

    value: Reals
    size: Reals
    first: Reals


def of_chunk(edges: Summands, first: Reals, fixed: Fixed) -> Found:
    """Of CHUNK sums of edges."""
    batch = fixed.total.shape
    index = jnp.broadcast_to(
        first + jnp.arange(float(CHUNK))[(None,) * len(batch)], (*batch, CHUNK)
    )
    inside = index < fixed.total[..., None]
    folds, log_ways = _unranked(jnp.where(inside, index, 0.0), fixed, edges.at.shape[-1])

    def summed(x: Reals) -> Reals:
        flat = x.reshape(*batch, folds.shape[-1], x.shape[-1])
        return jnp.einsum("...cs,...sn->...cn", folds, flat)

    theta, step, height = (x[..., None] for x in (fixed.theta, fixed.step, fixed.height))
    way = summed(edges.at[..., None])[..., 0] - edges.epsilon[..., None]
    period = 2.0 * jnp.pi / step
    near = way - period * jnp.round(lax.stop_gradient(way) / period)
    below = near < 0
    level = jnp.where(inside, log_ways + theta * way - edges.log_unit[..., None], -jnp.inf)
    turn, fall = (height * near)[..., None], (step * jnp.abs(near))[..., None]
    logs = summed(edges.log_size) + level[..., None] + fixed.log_share[..., None, :]
    angles = summed(edges.angle) + turn + fixed.turn[..., None, :]
    radii = jnp.asarray(RADII)[(None,) * (level.ndim)]

    def of_side(right: Bools, nodes: int, falls: Reals) -> tuple[Reals, Reals]:
        ways = (slice(0, nodes), slice(_NODES, _NODES + nodes))
        chosen = (jnp.where(right[..., None], *(x[..., w] for w in ways)) for x in (logs, angles))
        log_size, angle = chosen
        size = jnp.exp(log_size - falls * radii[..., :nodes])
        return size, size * jnp.sin(angle)

    main, value = of_side(below, _NODES, fall)
    other, beside = of_side(~below, _BESIDE, 2.0 * jnp.pi - fall)
    value = jnp.where(below, 1.0, -1.0) * (jnp.sum(value, -1) + jnp.sum(beside, -1))
    scale = fixed.step / jnp.pi
    size = jnp.sum(main, axis=(-2, -1)) + jnp.sum(other, axis=(-2, -1))
    start = jnp.sum(main[..., 0], axis=-1) / _SHARES[0]
    return Found(scale * jnp.sum(value, -1), scale * size, scale * start)


def log_shares(theta: Reals, z_real: Reals, z_imaginary: Reals) -> tuple[Reals, Reals]:
    """log and angle of the nodes' shares times theta (1 + theta) / (z (z + 1)): (*batch, nodes)."""
    pole = theta * (1.0 + theta)
    size = 0.5 * (
        jnp.log(z_real**2 + z_imaginary**2) + jnp.log((1.0 + z_real) ** 2 + z_imaginary**2)
    )
    angle = jnp.arctan2(z_imaginary, z_real) + jnp.arctan2(z_imaginary, 1.0 + z_real)
    shares = jnp.asarray(np.log(np.concatenate([_SHARES, _SHARES])))[(None,) * theta.ndim]
    turned = jnp.where(pole < 0, jnp.pi, 0.0)[..., None]
    return jnp.log(jnp.abs(pole))[..., None] + shares - size, turned - angle


def ways_of(fold: Reals, kinds: Reals) -> Reals:
    """The number of multisets of `fold` out of so many kinds."""
    return _choose(fold, kinds - 1.0)


def _choose(m: Reals, q: Reals) -> Reals:
    """(m + q) over q for whole q <= 5."""
    found = jnp.ones_like(m)
    for i in range(1, 6):
        found *= jnp.where(i <= q, (m + i) / i, 1.0)
    return jnp.round(found)


def _unranked(index: Reals, fixed: Fixed, edges: int) -> tuple[Reals, Reals]:
    """How often each edge of each slot counts, (*batch, sums, slots edges); log of the ways."""

    def descend(
        state: tuple[Reals, Reals], slot: tuple[Reals, Reals]
    ) -> tuple[tuple[Reals, Reals], Reals]:
        rest, log_ways = state
        fold, kinds = (jnp.broadcast_to(x[..., None], rest.shape) for x in slot)
        several = ways_of(fold, kinds)
        later = jnp.floor(rest / several)
        rank, left, found = rest - later * several, fold, []
        log_ways = log_ways + gammaln(fold + 1.0)
        for e in range(edges):
            others = kinds - 1.0 - e
            takes = jnp.arange(1.0, MOST_ALIKE + 1.0)[(None,) * rest.ndim]
            open_to = jnp.maximum(others, 0.0)[..., None]
            # Those with fewer than `takes` of this edge come before.
            whole = _choose(left[..., None], open_to)
            before = whole - _choose(jnp.maximum(left[..., None] - takes, 0.0), open_to)
            before = jnp.where(takes > left[..., None], jnp.inf, before)
            taken = jnp.sum(before <= rank[..., None], axis=-1, dtype=jnp.float64)
            passed = whole[..., 0] - _choose(left - taken, open_to[..., 0])
            taken = jnp.where(others > 0, taken, jnp.where(others == 0, left, 0.0))
            rank = jnp.where(others > 0, rank - passed, rank)
            left = left - taken
            log_ways = log_ways - gammaln(taken + 1.0)
            found.append(taken)
        return (later, log_ways), jnp.stack(found, axis=-1)

    slots = jnp.moveaxis(fixed.fold, -1, 0), jnp.moveaxis(fixed.kinds, -1, 0)
    start = index, jnp.zeros_like(index)
    (_, log_ways), folds = lax.scan(descend, start, slots)
    folds = jnp.moveaxis(folds, 0, -2)
    return folds.reshape(*index.shape, folds.shape[-2] * edges), log_ways


def rounding(fold: Reals) -> Reals:
    """Of a term, relatively: its parts are good to 1e-13 each."""
    return 1e-13 * jnp.sum(fold, axis=-1) + 64.0 * ULP
