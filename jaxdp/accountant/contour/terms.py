"""delta of a batch by inversion along one vertical contour for each lane.

Identity: with M(z) = E e^(z loss) of all releases and any tilt theta > 0, the trapezoidal sum

    (h / pi) Re sum'_k M(z_k) e^(-z_k epsilon) / (z_k (z_k + 1)),   z_k = theta + i h k

is delta plus aliased deltas, at epsilon + 2 pi m / h and times e^(2 pi m theta / h), all positive.
M is exp(sum n log psi + v z (z + 1) / 2), v the variance of plain Gaussians beside them. psi of
each phase is a sum over nodes at a height above the real axis. The height damps the aliasing that
nodes on the real axis would cause.

Errors: `errors`. Source: Abate & Whitt, Queueing Systems 10, 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, matmul, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import log1p
from jaxdp.accountant.contour import transform
from jaxdp.accountant.contour.cumulant import composed
from jaxdp.accountant.contour.nodes import LEAST_LOG, FrozenContour, LineNodes, Pair, Stage, log_psi
from jaxdp.accountant.contour.rows import Rows
from jaxdp.accountant.contour.transform import Powers

FEW_POINTS = 32  # sums of up to this many terms turn each term by itself. chosen


class Line(NamedTuple):
    """psi of every phase along a contour, prepared for the sum."""

    nodes: LineNodes
    powers: Powers  # of psi over psi at the tilt
    log_psi: Reals  # (phases, lanes), at the tilt
    log_scale: Reals  # (lanes,): of M(theta) e^(-theta epsilon), in the unit
    drift: Reals  # (lanes,): sum of the mean losses that the nodes leave out
    wander: Reals  # (phases, lanes): sum |W l|


class Block(NamedTuple):
    """Terms of a block of points, in units of e^log_scale, and data for their errors."""

    terms: Pair  # (points, lanes)
    t: Reals  # (points, lanes)
    weight: Reals  # weight of the rule over |z (z + 1)| (points, lanes)
    log_phi: Pair  # of phi = psi / psi at the tilt (points, phases, lanes)
    size: Reals  # of phi - 1 (points, phases, lanes)
    log_power: Reals  # log |M / M(theta)| (points, lanes)
    turned: Reals  # sum of the absolute values of all angles (points, lanes)


def line(stage: Stage, rows: Rows, frozen: FrozenContour) -> Line:
    """The part that all points of a contour share."""
    psi = log_psi(rows.on_axis(stage, frozen.place), rows.power(frozen.tilt))
    nodes = rows.on_line(stage, frozen, psi)
    powers = transform.prepared(nodes.weight, nodes.loss, frozen.step, stage)
    scale = composed(rows, psi, frozen.tilt) - frozen.tilt * frozen.epsilon - frozen.log_unit
    drift = xp.sum(rows.sign * rows.number * nodes.mean, 0)
    wander = xp.sum(xp.hypot(*nodes.weight) * xp.hypot(*nodes.loss), 0)
    return Line(nodes, powers, psi, scale, drift, wander)


def block(
    stage: Stage, rows: Rows, frozen: FrozenContour, found: Line, index: Index | int
) -> Block:
    """The terms of the points of one block."""
    re, im = transform.transform(found.powers, stage.points, index)
    log_modulus, angle, size = _log_of_one_more(re, im)
    log_modulus, angle = lax.optimization_barrier((log_modulus, angle))
    k = xp.asarray(np.arange(1.0 * stage.points)[:, None]) + 1.0 * stage.points * index
    t = frozen.step * k
    turns = rows.number * angle
    variance = rows.variance + frozen.smoothed
    log_power = xp.sum(rows.number * log_modulus, 1) - 0.5 * variance * t * t
    own = variance * t * (frozen.tilt + 0.5)
    total = xp.sum(rows.sign * turns, 1) + own + t * (found.drift - frozen.epsilon)
    rule = xp.where(k == 0, 0.5, 1.0) * frozen.step / xp.pi
    # Real and imaginary part of z (z + 1).
    across, up = frozen.tilt * (frozen.tilt + 1.0) - t * t, t * (2.0 * frozen.tilt + 1.0)
    weight = xp.where(t <= frozen.end, rule * lax.rsqrt(across * across + up * up), 0.0)
    total = total - xp.arctan2(up, across)
    modulus = weight * xp.exp(xp.maximum(log_power, LEAST_LOG))
    terms = lax.optimization_barrier((modulus * xp.cos(total), modulus * xp.sin(total)))
    turned = xp.sum(xp.abs(turns), 1) + xp.abs(own)
    logs = log_modulus, angle
    return Block(terms, t, weight, logs, size, log_power, turned)


def own(_: FrozenContour, found: Block) -> Pair:
    """Terms of delta itself."""
    return found.terms


def slope_of(frozen: FrozenContour, found: Block) -> Pair:
    """Terms of minus the derivative in epsilon: z times the terms."""
    (re, im), t = found.terms, found.t
    return frozen.tilt * re - t * im, frozen.tilt * im + t * re


def density_of(frozen: FrozenContour, found: Block) -> Pair:
    """Terms of the density of the total at epsilon: z (z + 1) times the terms."""
    across = frozen.tilt * (frozen.tilt + 1.0) - found.t**2
    up = found.t * (2.0 * frozen.tilt + 1.0)
    re, im = found.terms
    return across * re - up * im, across * im + up * re


def _log_of_one_more(re: Reals, im: Reals) -> tuple[Reals, Reals, Reals]:
    """Modulus and angle of log(1 + re + i im), and |re + i im|."""
    size = re * re + im * im
    square = 2.0 * re + size
    near = square > -0.5
    inside = xp.where(near, 1.0, xp.maximum((1.0 + re) ** 2 + im * im, 1e-200))
    log_square = xp.where(near, log1p(xp.where(near, square, 0.0)), xp.log(inside))
    is_zero = size == 0.0
    modulus = xp.where(is_zero, 0.0, xp.sqrt(xp.where(is_zero, 1.0, size)))
    return 0.5 * log_square, xp.arctan2(im, 1.0 + re), modulus


def turned_sums(stage: Stage, pairs: list[Pair], turn: Reals) -> Pair:
    """sum_k term_k e^(-i k turn) of a block: real and imaginary parts (pairs, lanes)."""
    if stage.points <= FEW_POINTS:
        at = xp.asarray(np.arange(1.0 * stage.points)[:, None]) * turn
        c, s = xp.cos(at), xp.sin(at)
        parts = [(xp.sum(re * c + im * s, 0), xp.sum(im * c - re * s, 0)) for re, im in pairs]
        real, imag = zip(*parts, strict=True)
        return xp.stack(real), xp.stack(imag)
    near = 1 << (stage.points.bit_length() // 2)
    at = turn[:, None] * xp.asarray(np.arange(1.0 * near))
    far = turn[:, None] * xp.asarray(np.arange(0.0, stage.points, near))
    rows = [x.T.reshape(turn.size, -1, near) for pair in pairs for x in pair]
    parts = xp.stack(rows, axis=1).reshape(turn.size, len(pairs), 2, -1, near)
    waves = xp.stack([xp.cos(at), xp.sin(at)], -1)
    waves, parts = lax.optimization_barrier((waves, parts))
    found = matmul(parts, waves[:, None, None])
    real, imag = (
        found[:, :, 0, :, 0] + found[:, :, 1, :, 1],
        found[:, :, 1, :, 0] - found[:, :, 0, :, 1],
    )
    c, s = xp.cos(far)[:, None], xp.sin(far)[:, None]
    return xp.sum(real * c + imag * s, -1).T, xp.sum(imag * c - real * s, -1).T


def over_blocks(stage: Stage, blocks: Index | int, each: Callable[..., Any], start: Any) -> Any:
    """`each` for every block in use, in a loop; without a loop if the stage has one block."""
    return each(0, start) if stage.blocks == 1 else lax.fori_loop(0, blocks, each, start)
