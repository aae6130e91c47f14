"""delta of a batch by inversion along one vertical contour for each lane.

Identity: with M(z) = E e^(z loss) of all releases and any tilt theta > 0, the trapezoidal sum

    (h / pi) Re sum'_k M(z_k) e^(-z_k epsilon) / (z_k (z_k + 1)),   z_k = theta + i h k

is delta plus aliased deltas, at epsilon + 2 pi m / h and times e^(2 pi m theta / h), all positive.
M is exp(sum n log psi + v z (z + 1) / 2), v the variance of plain Gaussians beside them. psi of
each phase is a sum over nodes at a height above the real axis. The height damps the aliasing that
nodes on the real axis would cause.

Errors: `curve`. Source: Abate & Whitt, Queueing Systems 10, 1992.

Transforms: S_k = sum_j W_j (e^(i k h l_j) - 1), k = 0, 1, ..., in real arithmetic. The sum runs
over differences from 1, so its rounding error scales with k h sum |W_j l_j|, even if little mass
moves. Complex numbers are pairs of arrays (nodes, phases, lanes). Many points come in blocks, each
one matrix product of near and far powers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, on_host, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.contour.nodes import (
    LEAST_LOG,
    FrozenContour,
    LineNodes,
    Pair,
    Rows,
    Stage,
    composed,
    log_psi,
)

FEW_POINTS = 32  # sums of up to this many terms turn each term by itself. chosen
INNER = 256  # nodes of one product. measured: BLAS threads slow down larger ones
AT_ONCE = 128  # points up to which a loop is faster than a matrix product. measured
PRODUCT = 40.0  # ulps of a weight and a turn. derived: arguments of exp from -37
NO_WEIGHT = 1e-30  # of a node, of a total of 1. derived: thousands are far below rounding
_UNROLLED = 8  # powers in one kernel of a GPU. chosen: 16 and 64 powers are 2 and 8 launches
BLOCK_PRODUCTS = 72.0  # ulps of a block's turns, a far and a near one. derived: 64 blocks


class Powers(NamedTuple):
    """Weights and losses; if points come in blocks, powers less one, lanes first."""

    weight: Pair
    loss: Pair
    step: Reals  # (lanes,)
    flat: Pair | None  # weights (phases and lanes, nodes)
    near: Reals | None  # (phases and lanes, parts, count, nodes)
    far: Reals | None
    first: Reals | None  # powers at the first points of blocks
    skipped: int = 0  # nodes before the first that matters


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
    powers = prepared(nodes.weight, nodes.loss, frozen.step, stage)
    scale = composed(rows, psi, frozen.tilt) - frozen.tilt * frozen.epsilon - frozen.log_unit
    drift = xp.sum(rows.sign * rows.number * nodes.mean, 0)
    wander = xp.sum(xp.hypot(*nodes.weight) * xp.hypot(*nodes.loss), 0)
    return Line(nodes, powers, psi, scale, drift, wander)


def block(
    stage: Stage, rows: Rows, frozen: FrozenContour, found: Line, index: Index | int
) -> Block:
    """The terms of the points of one block."""
    re, im = transform(found.powers, stage.points, index)
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
    weight = xp.where(t <= frozen.end, rule * (1.0 / xp.sqrt(across * across + up * up)), 0.0)
    total = total - xp.arctan2(up, across)
    modulus = weight * xp.exp(xp.maximum(log_power, LEAST_LOG))
    terms = lax.optimization_barrier((modulus * xp.cos(total), modulus * xp.sin(total)))
    turned = xp.sum(xp.abs(turns), 1) + xp.abs(own)
    logs = log_modulus, angle
    return Block(terms, t, weight, logs, size, log_power, turned)


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
    found = xp.matmul(parts, waves[:, None, None])
    real, imag = (
        found[:, :, 0, :, 0] + found[:, :, 1, :, 1],
        found[:, :, 1, :, 0] - found[:, :, 0, :, 1],
    )
    c, s = xp.cos(far)[:, None], xp.sin(far)[:, None]
    return xp.sum(real * c + imag * s, -1).T, xp.sum(imag * c - real * s, -1).T


def over_blocks(stage: Stage, blocks: Index | int, each: Callable[..., Any], start: Any) -> Any:
    """`each` for every block in use, in a loop; without a loop if the stage has one block."""
    return each(0, start) if stage.blocks == 1 else lax.fori_loop(0, blocks, each, start)


def prepared(weight: Pair, loss: Pair, step: Reals, stage: Stage) -> Powers:
    """Tables that every block of points needs, built in a loop so that XLA keeps them."""
    if stage.points <= AT_ONCE:
        return Powers(weight, loss, step, None, None, None, None)
    size = _near(stage.points)
    part = _heavy(weight) if on_host(weight, loss) else slice(0, None)
    weight, loss = ((x[part], y[part]) for x, y in (weight, loss))
    flat = _flat(loss)
    steps = xp.broadcast_to(step, weight[0].shape[1:]).reshape(-1, 1)
    near, far, first = (
        xp.moveaxis(xp.stack(_powers(turn_less_one(flat, k * steps), n)), 2, 0)
        for k, n in ((1, size), (size, stage.points // size), (stage.points, stage.blocks))
    )
    return Powers(weight, loss, step, _flat(weight), near, far, first, part.start)


def _heavy(weight: Pair) -> slice:
    """The whole products of nodes, one after the other, beyond which no weight matters."""
    matters = np.flatnonzero(np.max(np.hypot(*weight), axis=(1, 2)) > NO_WEIGHT)
    if matters.size == 0:
        return slice(0, None)
    nodes = int(matters[-1]) + 1 - int(matters[0])
    nodes = nodes if nodes < INNER else -(-nodes // INNER) * INNER
    first = max(min(int(matters[0]), len(weight[0]) - nodes), 0)
    return slice(first, first + nodes)


def transform(powers: Powers, points: int, block: Index | int) -> Pair:
    """The sums of a block (points, phases, lanes)."""
    if powers.near is None or powers.far is None or powers.first is None or powers.flat is None:
        return _one_by_one(powers.weight, turn_less_one(powers.loss, powers.step), points)
    # e^(i k h l) - 1 = (1 + first) (1 + far) (1 + near) - 1, of the block and within it.
    first = powers.first[:, :, block][:, :, None]
    weight = [x[:, None] for x in powers.flat]
    turn = _joined((first[:, 0], first[:, 1]), (powers.far[:, 0], powers.far[:, 1]))
    moved = _times(weight, turn)
    rows = [x + y for x, y in zip(weight, moved, strict=True)]
    near = powers.near.reshape(powers.near.shape[0], -1, powers.near.shape[-1])
    (re, im), near, moved = lax.optimization_barrier((rows, near, moved))
    (re, im), (across, up) = (
        [x.reshape(*x.shape[:2], 2, -1)[:, :, i] for i in (0, 1)]
        for x in (_product(re, near), _product(im, near))
    )
    still = [xp.sum(x, -1)[..., None] for x in moved]
    shape = (points, *powers.weight[0].shape[1:])
    sums = re - up + still[0], im + across + still[1]
    re, im = (x.reshape(-1, points).T.reshape(shape) for x in sums)
    return re, im


def adjoint(powers: Powers, factors: Pair, block: Index | int) -> Pair:
    """The sums over k of factors_k e^(i k h l_j) at every node, k the points of a block.

    Factors are arrays (points, phases, lanes).
    """
    points = factors[0].shape[0]
    if powers.near is None or powers.far is None or powers.first is None:
        turn = turn_less_one(powers.loss, powers.step)
        c, s = 1.0 + turn[0], turn[1]
        re = im = xp.zeros_like(c)
        for x, y in zip(factors[0][::-1], factors[1][::-1], strict=True):
            re, im = re * c - im * s + x, re * s + im * c + y
        return re, im
    near, far, first = powers.near, powers.far, powers.first[:, :, block]
    re, im = (x.reshape(points, -1).T.reshape(-1, far.shape[2], near.shape[2]) for x in factors)
    # One more than the powers, which are less one.
    (c, s), (p, q) = ((x[:, 0] + 1.0, x[:, 1]) for x in (near, far))
    across = _product(re, c.swapaxes(-1, -2)) - _product(im, s.swapaxes(-1, -2))
    up = _product(re, s.swapaxes(-1, -2)) + _product(im, c.swapaxes(-1, -2))
    total = xp.sum(across * p - up * q, 1), xp.sum(across * q + up * p, 1)
    total = _times(total, (1.0 + first[:, 0], first[:, 1]))
    re, im = (x.T.reshape(powers.loss[0].shape) for x in total)
    return re, im


def _product(rows: Reals, columns: Reals) -> Reals:
    inner = rows.shape[-1]
    if inner > INNER and inner % INNER == 0:
        rows, columns = (
            x.reshape(*x.shape[:-1], -1, INNER).swapaxes(-2, -3) for x in (rows, columns)
        )
        return xp.sum(_product(rows, columns), -3)
    return xp.matmul(rows, columns.swapaxes(-1, -2))


def _times(a, b) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _joined(a, b) -> Pair:
    """(1 + a) (1 + b) - 1."""
    both = _times(a, b)
    return a[0] + b[0] + both[0], a[1] + b[1] + both[1]


def rounding(points: int) -> float:
    """Error of a sum over k h sum |W_j l_j|."""
    steps = points if points <= AT_ONCE else _near(points) + points // _near(points)
    return ULP * (PRODUCT + steps + BLOCK_PRODUCTS)


def turn_less_one(loss: Pair, step: Reals) -> Pair:
    """e^(i step loss) - 1."""
    across, up = loss
    half, shrunk = xp.sin(0.5 * step * across), xp.exp(-step * up)
    return xp.expm1(-step * up) - 2.0 * shrunk * half * half, shrunk * xp.sin(step * across)


def _near(points: int) -> int:
    """Number of points that share a far power: a power of two near the root."""
    return 1 << ((points.bit_length() - 1) // 2)


def _flat(pair: Pair) -> Pair:
    """The pair as one array each (phases and lanes, nodes)."""
    re, im = (x.reshape(x.shape[0], -1).T for x in pair)
    return re, im


def _one_by_one(weight: Pair, turn: Pair, points: int) -> Pair:
    """The sums of few points, which the host alone evaluates."""
    (re, im), (c, s) = weight, turn
    a = b = xp.zeros_like(re)
    sums = []
    for _ in range(points):
        sums.append((xp.sum(a, 0), xp.sum(b, 0)))
        more, turned = a + re, b + im
        a, b = a + (more * c - turned * s), b + (more * s + turned * c)
    real, imag = zip(*sums, strict=True)
    return xp.stack(real), xp.stack(imag)


def _powers(turn: Pair, count: int) -> Pair:
    """(1 + turn)^k - 1, k < count, by a scan: XLA would rebuild doubled tables for each half."""
    c, s = turn

    def step(state: Pair, _: None) -> tuple[Pair, Pair]:
        a, b = state
        return (a + (c + (a * c - b * s)), b + (s + (a * s + b * c))), state

    zero = xp.zeros_like(c), xp.zeros_like(s)
    return lax.scan(step, zero, None, length=count, unroll=_UNROLLED)[1]
