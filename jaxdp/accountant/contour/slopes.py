"""Slopes of log delta in the parameters of a batch: of the contour's sum, its contour fixed.

With T_k the terms of the sum S, and phi_k of one release at z_k,

    d log delta = Re sum_k (T_k / S) sum_f n_f d psi_f(z_k) / psi_f(z_k) + ...,

and d psi(z) is a sum over the nodes, so that one sum over the points for every node, the adjoint of
the transform, gives the slopes in its log mass and its loss. A row turns them into the slopes in
its parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Index, Reals
from jaxdp.accountant.contour import terms
from jaxdp.accountant.contour.nodes import FrozenContour, Pair, Rows, Stage


class _Sums(NamedTuple):
    """Sums over all points, with T_k the terms of delta."""

    total: Reals  # of T (lanes,)
    of_epsilon: Reals  # of z T
    of_variance: Reals  # of z (z + 1) T
    of_number: Reals  # of T log phi (phases, lanes)
    of_mass: Pair  # of T e^(z l) / phi (nodes, phases, lanes)
    of_loss: Pair  # of p T e^(z l) / phi


def log_delta_slopes(stage: Stage, rows: Rows, frozen: FrozenContour) -> tuple[Any, Reals]:
    """Slopes of log delta in every parameter, and in epsilon, at the centre of the terms."""
    line = terms.line(stage, rows, frozen)
    power = rows.power(frozen.tilt)

    def of_block(index: Index | int, sums: _Sums) -> _Sums:
        found = terms.block(stage, rows, frozen, line, index)
        # psi of an added record is at the conjugate power.
        (re, im), (modulus, angle) = found.terms, found.log_phi
        re, im, t = re[:, None], rows.sign * im[:, None], found.t[:, None]
        of_number = re * modulus - im * (angle + t * line.nodes.mean)
        inverse, c, s = xp.exp(-modulus), xp.cos(angle), xp.sin(angle)
        factors = inverse * (re * c + im * s), inverse * (im * c - re * s)
        turned = power * factors[0] - t * factors[1], power * factors[1] + t * factors[0]
        return _Sums(
            sums.total + xp.sum(found.terms[0], 0),
            sums.of_epsilon + xp.sum(terms.slope_of(frozen, found)[0], 0),
            sums.of_variance + xp.sum(terms.density_of(frozen, found)[0], 0),
            sums.of_number + xp.sum(of_number, 0),
            _plus(sums.of_mass, terms.adjoint(line.powers, factors, index)),
            _plus(sums.of_loss, terms.adjoint(line.powers, turned, index)),
        )

    lane, phase, node = (xp.zeros_like(x) for x in (frozen.tilt, power, line.powers.loss[0]))
    start = _Sums(lane, lane, lane, phase, (node, node), (node, node))
    sums = terms.over_blocks(stage, frozen.blocks, of_block, start)
    known = sums.total > 0
    share = xp.where(known, 1.0 / xp.where(known, sums.total, 1.0), 0.0)

    def on_all(x: Reals) -> Reals:
        before, nodes = line.powers.skipped, line.nodes.weight[0].shape[0]
        return xp.pad(x, [(before, nodes - before - x.shape[0]), (0, 0), (0, 0)])

    def at_nodes(pair: Pair) -> Pair:
        (re, im), (c, s) = map(on_all, pair), line.nodes.weight
        scale = rows.number * share
        return scale * (re * c - im * s), scale * (re * s + im * c)

    of_rows = rows.slopes(stage, frozen, at_nodes(sums.of_mass), at_nodes(sums.of_loss))
    of_number = xp.where(rows.number == 0, 0.0, line.log_psi + share * sums.of_number)
    of_rows = of_rows._replace(
        number=xp.where(known, of_number, 0.0), variance=0.5 * share * sums.of_variance
    )
    return of_rows, -share * sums.of_epsilon


def _plus(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]
