"""Error bounds of a contour's sum, on either side.

* quadrature: a transform on nodes dx apart at a height y has an error of e^(-2 pi (y - d) / dx)
  times the sum of moduli at a height d below it, and the same from above; an end of the nodes adds
  its modulus;
* truncation: |phi(t)| <= sum |W_j| e^(-t Im l_j), which falls in t, bounds the remainder at any
  height;
* rounding: of phi, times n |phi|^(n - 1), and of the angle of its power;
* aliasing: Chernoff's bounds at other tilts; and the probability of losses beyond the nodes.

Source: Trefethen & Weideman, SIAM Review 56, 2014.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP
from jaxdp.accountant.contour.mixture_law import (
    WIDTH,
    Components,
    Place,
    cutoff,
    log_beyond_ends,
    loss_above,
)
from jaxdp.accountant.contour.nodes import (
    LARGEST_LOG,
    FrozenContour,
    LawErrors,
    LineNodes,
    Pair,
    Plan,
    Stage,
)

STRIP = 0.95  # share of the height up to which the loss is analytic. chosen
LOWEST = 0.02  # least height of a bulk's nodes. chosen
HIGHEST = 1.9  # largest height of a bulk's truncation bound. chosen: e^(1.9^2 / 2) = 6
BELOW = 1.5  # height of a bulk's quadrature bound below the real axis. measured
ABOVE = 1.0  # height of the bound above the real axis, over the contour. measured
LEAST_ABOVE = 3.0  # the same over the real axis, at least. measured
RISES = (2.0, 3.5, 5.0, 6.5)  # heights of a smooth law's bounds above its line, in nodes. chosen
FALLS = (0.3, 1.0, 3.0)  # heights of its truncation bounds, over a Gaussian body's best. chosen
MOST_FALL = 2.0  # largest height of the truncation bounds, in nodes. chosen
OF_ALL = 4.0  # quadrature errors of psi and of 1, on both lines, over one. derived
RESOLVED = 1e-9  # distance of a sum of weights from 1. chosen: far above its rounding
CUMULANT = 64.0  # ulps of a sum of weights. derived: the sum, and exp of arguments from -37


def height(of: Components, stage: Stage, place: Any, plan: Plan) -> Reals:
    """Height of a contour's nodes (phases, lanes); NaN where none is inside the strip."""
    if stage.height > 0:
        found = stage.height * place.spacing
        return xp.where(found < STRIP * of.strip, found, xp.nan)
    return xp.minimum(_height_of_fall(stage, of, plan), 0.5 * of.strip)


def _height_of_fall(stage: Stage, of: Components, plan: Plan) -> Reals:
    end = 2.0 * xp.pi * stage.points / plan.period  # height at the end of one block
    most = xp.minimum(HIGHEST, 0.9 * of.strip)
    return xp.clip(end * plan.spread, LOWEST, xp.maximum(most, LOWEST))


class ByHeight(NamedTuple):
    """Quadrature error of phi, and a bound on it over |p + i t| (phases, lanes)."""

    quadrature: Reals
    of_turn: Reals


class At(NamedTuple):
    """A contour and what its errors are computed from."""

    stage: Stage
    of: Components
    plan: Plan
    frozen: FrozenContour
    line: LineNodes
    log_psi: Reals

    @property
    def end(self) -> Reals:
        """Height of the contour's last point (lanes,)."""
        return self.frozen.step * self.stage.points * self.frozen.blocks


def errors(
    of: Components, stage: Stage, plan: Plan, frozen: FrozenContour, line: LineNodes, logs: Pair
) -> LawErrors:
    """The errors of a contour on the nodes of mixtures."""
    at, psi = At(stage, of, plan, frozen, line, logs[0]), xp.abs(logs[0])
    above, of_turn, truncated, edge = _of_smooth(at) if at.stage.height > 0 else _of_bulk(at)
    moved = CUMULANT * ULP * xp.minimum(psi, 1.0) + 4.0 * ULP * psi
    # On the contour the weights add up to phi(0) = 1, or its nodes end before the tilted law does.
    re, im = (xp.sum(x, 0) for x in at.line.weight)
    is_resolved = xp.hypot(re - 1.0, im) <= RESOLVED + above + edge
    edge = xp.where(is_resolved, edge, xp.inf)
    truncated = truncated - (0.5 * of.variance * at.end**2)
    points = at.stage.points * at.frozen.blocks - 1.0
    truncation = xp.exp(xp.minimum(truncated, LARGEST_LOG)) / (xp.pi * at.frozen.step * points)
    return LawErrors(edge + moved, ByHeight(above, of_turn), truncation)


def phi_error(of: Components, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
    """Quadrature error of phi at heights t (points, 1, lanes)."""
    of_turn = (xp.abs(of.power(frozen.tilt)) + t) * by_height.of_turn
    return xp.minimum(by_height.quadrature, of_turn)


class Row(NamedTuple):
    """Sums of moduli of tilted weights along a curve above the real axis (phases, lanes)."""

    total: Reals
    turns: Reals  # bound on sum |w (e^(z l) - 1)| over |z|
    damped: Reals  # sum of moduli damped by e^(-t Im l) at the end of the contour
    ends: Reals  # moduli of the outermost nodes


def _rows(at: At, curves: tuple[Reals, Reals]) -> Row:
    """Sums along some curves: heights and slopes (rows, nodes or 1, phases, lanes)."""
    stage, of, place = at.stage, at.of, at.frozen.place
    stride = 2 if stage.height > 0 else 1
    x, power, spacing = place.x[::stride], of.power(at.frozen.tilt), place.spacing
    common = xp.log(stride * spacing) - at.log_psi - 0.5 * x * x - LOG_SQRT_2PI
    common = (of.log_coin[:, None] + common).reshape(-1, *common.shape[1:])

    def each(curve: tuple[Reals, Reals]) -> Row:
        height, leaning = curve
        across, up = loss_above(of, x, height)
        grown = 0.5 * height * height
        if stage.height > 0:
            grown = grown + _cutoff_bound(stage, height / spacing, stride)
        log = common + of.on_all(grown) + power * across
        leaning = of.on_all(xp.sqrt(1.0 + leaning * leaning))
        modulus = xp.exp(xp.minimum(log, LARGEST_LOG)) * leaning
        # Each |e^(z l) - 1| is at most |z l| times the larger of 1 and |e^(z l)|.
        untilted = xp.exp(xp.clip(-power * across, 0.0, LARGEST_LOG))
        turns = xp.sum(modulus * xp.hypot(across, up) * untilted, 0)
        damped = xp.sum(modulus * xp.exp(xp.minimum(-at.end * up, LARGEST_LOG)), 0)
        # An unknown angle has an infinite bound.
        turns, damped = (xp.where(xp.isnan(x), xp.inf, x) for x in (turns, damped))
        ends = of.by_mixture(modulus)[:, xp.asarray([0, -1])]
        return Row(xp.sum(modulus, 0), turns, damped, xp.sum(ends, (0, 1)))

    return lax.map(each, curves)


def _of_bulk(at: At) -> tuple[Reals, ...]:
    """Quadrature, truncation and ends of a law that ends sharply."""
    of, frozen, line = at.of, at.frozen, at.line
    strip, spacing = of.strip, frozen.place.spacing
    fall = _height_of_fall(at.stage, of, at.plan)
    rise = xp.minimum(STRIP * strip, xp.maximum(frozen.height + ABOVE, LEAST_ABOVE))
    down = -xp.minimum(BELOW, 0.75 * strip)
    heights = xp.stack([rise, down, fall])[:, None]
    row = _rows(at, (heights, xp.zeros_like(heights)))
    above = xp.exp(-2.0 * xp.pi * (rise - frozen.height) / spacing) * row.total[0]
    above = above + xp.exp(-2.0 * xp.pi * (frozen.height - down) / spacing) * row.damped[1]
    main = xp.hypot(*line.weight)
    of_main = xp.sum(main * xp.exp(-at.end * line.loss[1]), 0)
    falls = xp.log(xp.minimum(of_main, row.damped[2]))
    main = of.by_mixture(main)
    edge = xp.maximum(xp.max(row.ends, 0), xp.sum(main[:, 0] + main[:, -1], 0))
    edge = edge * (4.0 + 2.0 * frozen.height / spacing)
    never = xp.full_like(above, xp.inf)
    return OF_ALL * above, never, xp.sum(of.number * falls, 0), edge


def _of_smooth(at: At) -> tuple[Reals, ...]:
    """Quadrature, truncation and ends of a law with a smooth cutoff, from every other node."""
    place, height = at.frozen.place, at.stage.height
    # Lines `RISES` nodes above the contour, the real axis, and curves that rise like the loss.
    heights = (height + xp.asarray((*RISES, -height))[:, None, None]) * place.spacing
    is_inside = heights < STRIP * at.of.strip
    flat = xp.where(is_inside, heights, 0.5 * STRIP * at.of.strip)[:, None]
    flat = xp.broadcast_to(flat, (len(heights), *place.x[::2].shape))
    curves, slopes = _rising(at.of, place, at.end)
    rows = _rows(at, (xp.concatenate([flat, curves]), xp.concatenate([0.0 * flat, slopes])))
    n = len(RISES)
    above, axis = Row(*(x[:n] for x in rows)), Row(*(x[n] for x in rows))
    is_inside, damped = is_inside[:n], rows.damped[n + 1 :]
    share = 2.0 * np.exp(-2.0 * np.pi * np.asarray(RISES))[:, None, None]

    def quadrature(above: Reals, axis: Reals) -> Reals:
        """From above at the best rise, and from below."""
        from_above = xp.where(is_inside, share * above, xp.inf)
        return OF_ALL * (xp.min(from_above, 0) + np.exp(-2.0 * np.pi * height) * axis)

    # log of the best bound on |phi|^n at the end: on the contour's line, or on a rising curve.
    modulus = xp.hypot(*at.line.weight)
    on_line = xp.sum(modulus * xp.exp(-at.end * at.line.loss[1]), 0)
    on_curves = xp.min(xp.sum(at.of.number * xp.log(damped), 1), 0)
    truncation = xp.minimum(xp.sum(at.of.number * xp.log(on_line), 0), on_curves)
    # Mass beyond the last nodes; where the law does not fall there, it ends sharply.
    modulus = at.of.by_mixture(modulus)
    falls = (modulus[:, -1] <= 0.5 * modulus[:, -2]) & (modulus[:, 0] <= 0.5 * modulus[:, 1])
    last = xp.sum(modulus[:, 0] + modulus[:, -1], 0)
    ends = xp.max(xp.where(is_inside, above.ends, 0.0), 0)
    sharp = (4.0 + 2.0 * (height + RISES[-1])) * xp.maximum(ends, last)
    edge = xp.where(xp.all(falls, 0), xp.minimum(4.0 * last, sharp), sharp)
    of_turn = quadrature(above.turns, axis.turns)
    return quadrature(above.total, axis.total), of_turn, truncation, edge


def _rising(of: Components, place: Place, end: Reals) -> tuple[Reals, Reals]:
    """Heights and slopes of curves that rise like the loss, so that small losses are damped most.

    The height is end times the mean of a m e^u, a = 1 / (1 + m^2), and shares of it (`FALLS`), up
    to `MOST_FALL` nodes. To first order the curve keeps a body's exponent at the variance of l.
    """
    x, most = place.x[::2], MOST_FALL * place.spacing
    mean, share = of.mean, of.coin * of.share
    u = xp.minimum(mean[:, :, None] * x - 0.5 * (mean * mean)[:, :, None], 300.0)
    risen = xp.sum((share * mean / (1.0 + mean * mean))[:, :, None] * xp.exp(u), (0, 1))
    ratio = xp.asarray(FALLS)[:, None, None, None] * end * risen / most
    height = most * ratio / (1.0 + ratio)
    return height, height / (1.0 + ratio) * of.largest_mean


def _cutoff_bound(stage: Stage, rise: Reals, stride: int) -> Reals:
    """log of a bound on the share that a smooth cutoff keeps, at a height of `rise` nodes.

    |erfc(a + i b)| <= e^(b^2) erfc(a), by the integral of e^(-(s + i b)^2).
    """
    tables = cutoff(stage.nodes, stage.height)
    below, above = (xp.asarray(x[::stride])[:, None, None] for x in (tables.below, tables.above))
    square = (rise / WIDTH) ** 2
    return xp.minimum(square + below, xp.logaddexp(0.0, square + above))


def lost(
    of: Components, stage: Stage, plan: Plan, place: Any, log_psi: Reals
) -> tuple[Reals, Reals]:
    """Mass beyond the nodes, in the unit: untilted, and tilted at the plan's epsilon."""
    log_number = xp.log(xp.maximum(of.number, 1e-300))
    nodes = of.on_axis(stage, place)
    ends = [
        xp.stack(log_beyond_ends(stage, of, place, nodes, tilt)) + log_number
        for tilt in (xp.zeros_like(plan.tilt), plan.tilt)
    ]
    tilted = ends[1] - log_psi
    # (A + R)^n - A^n <= n R A^(n - 1) e^(n R / A).
    tilted = tilted + xp.exp(xp.minimum(tilted, 5.0))
    log = plan.bounds.log - plan.bounds.tilts * plan.epsilon
    nearest = xp.argmin(xp.abs(plan.bounds.tilts - plan.tilt), 0)[None]
    bound = xp.take_along_axis(log, nearest, 0)[0] + 1.0
    tilted, plain = tilted + bound - plan.log_unit, ends[0] - plan.log_unit
    is_tilted = tilted < plain
    falls = [xp.where(is_tilted, -xp.inf, plain), xp.where(is_tilted, tilted, -xp.inf)]
    used = of.number > 0
    plain, tilted = (xp.sum(xp.where(used, xp.exp(x), 0.0), (0, 1)) for x in falls)
    return plain, tilted
