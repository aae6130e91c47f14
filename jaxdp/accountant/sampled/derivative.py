"""Derivatives of a batch's bounds: of the contour's sum, with nodes and contour fixed."""

from __future__ import annotations

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Index, Reals
from jaxdp.accountant.sampled import contour
from jaxdp.accountant.sampled.contour import FrozenContour
from jaxdp.accountant.sampled.law import Releases, Stage


def log_delta_slopes(
    stage: Stage, releases: Releases, frozen: FrozenContour
) -> tuple[Releases, Reals]:
    """Derivatives of log delta in every parameter, and in epsilon, at the centre of the terms."""
    lanes = releases.variance.size
    fixed = {"strip", "sign"} | ({"coin"} if releases.mixtures == 1 else set())
    moving = {name: x for name, x in releases._asdict().items() if name not in fixed}

    def value(moving: dict[str, Reals], epsilon: Reals) -> Reals:
        return _log_sum(stage, releases._replace(**moving), frozen._replace(epsilon=epsilon))

    leaves, tree = jax.tree.flatten((moving, frozen.epsilon))
    sizes = [x.size // lanes for x in leaves]

    def along(direction: Reals) -> Reals:
        parts = xp.split(direction, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)])
        tangents = [
            xp.broadcast_to(d.reshape(*x.shape[:-1], 1), x.shape)
            for d, x in zip(parts, leaves, strict=True)
        ]
        primals, tangents = (jax.tree.unflatten(tree, x) for x in (leaves, tangents))
        return jax.jvp(value, primals, tangents)[1]

    slopes = lax.map(along, xp.eye(sum(sizes)))  # (parameters, lanes)
    slopes = xp.where(xp.isfinite(slopes), slopes, 0.0)
    parts = xp.split(slopes, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)])
    found = [x.reshape(y.shape) for x, y in zip(parts, leaves, strict=True)]
    of_moving, of_epsilon = jax.tree.unflatten(tree, found)
    return jax.tree.map(xp.zeros_like, releases)._replace(**of_moving), of_epsilon


def _log_sum(stage: Stage, releases: Releases, frozen: FrozenContour) -> Reals:
    line = contour.line(stage, releases, frozen)

    def of_block(index: Index | int, total: Reals) -> Reals:
        return total + xp.sum(contour.block(stage, releases, frozen, line, index).terms[0], 0)

    total = contour.over_blocks(stage, frozen.blocks, of_block, xp.zeros_like(frozen.epsilon))
    positive = total > 0
    return line.log_scale + xp.where(positive, xp.log(xp.where(positive, total, 1.0)), xp.nan)
