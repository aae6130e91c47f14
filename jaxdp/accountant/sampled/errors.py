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

from typing import NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1p
from jaxdp.accountant.sampled import cutoff, transform
from jaxdp.accountant.sampled.contour import LARGEST_LOG, Block, FrozenContour, Line
from jaxdp.accountant.sampled.cumulant import CUMULANT, Bounds
from jaxdp.accountant.sampled.law import Nodes, Releases, Stage, log_beyond_ends, loss_above
from jaxdp.accountant.sampled.plan import Plan

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
TURN = 40.0  # ulps of an angle and a modulus. derived


class Errors(NamedTuple):
    """Errors of a contour's sum in its unit, at the epsilon of its terms (lanes,)."""

    log_scale: Reals
    noise: Reals  # error on either side, over e^log_scale
    lost: Reals  # deficit of the sum at every epsilon
    tilted_lost: Reals  # deficit that falls with e^(-tilt epsilon)
    bounds: Bounds
    period: Reals
    relative: Reals  # relative error of delta from errors of public coins' probabilities


def height_of(stage: Stage, releases: Releases, plan: Plan, nodes: Nodes) -> Reals:
    """Height of a contour's nodes (phases, lanes); NaN where none is inside the strip."""
    if stage.smooth:
        height = stage.height * nodes.spacing
        return xp.where(height < STRIP * releases.strip, height, xp.nan)
    return xp.minimum(_height_of_fall(stage, releases, plan), 0.5 * releases.strip)


def _height_of_fall(stage: Stage, releases: Releases, plan: Plan) -> Reals:
    end = 2.0 * xp.pi * stage.points / plan.period  # height at the end of one block
    most = xp.minimum(HIGHEST, 0.9 * releases.strip)
    return xp.clip(end * plan.spread, LOWEST, xp.maximum(most, LOWEST))


class Parts(NamedTuple):
    """Parts of the errors that all points share."""

    of_phi: Reals  # error of phi that does not depend on t (phases, lanes)
    quadrature: Reals  # of phi (phases, lanes)
    of_turn: Reals  # error of phi over |p + i t| (phases, lanes)
    wander: Reals  # sum |W l| (phases, lanes)
    turning: Reals  # relative error of the scale (lanes,)
    truncation: Reals  # (lanes,)


def parts(
    stage: Stage, releases: Releases, nodes: Nodes, plan: Plan, frozen: FrozenContour, line: Line
) -> Parts:
    """The errors of a contour that do not depend on its points."""
    end = frozen.step * stage.points * frozen.blocks
    of_stage = _of_smooth if stage.smooth else _of_bulk
    above, of_turn, truncated, edge = of_stage(stage, releases, nodes, plan, frozen, line, end)
    wander = xp.sum(xp.hypot(*line.powers.weight) * xp.hypot(*line.powers.loss), 0)
    psi = xp.abs(line.log_psi)
    moved = CUMULANT * ULP * xp.minimum(psi, 1.0) + 4.0 * ULP * psi
    scaled = xp.sum(releases.number * psi, 0) + frozen.tilt * frozen.epsilon
    scaled = scaled + releases.variance * frozen.tilt * (frozen.tilt + 1.0)
    truncated = truncated - (0.5 * releases.variance * end * end)
    points = stage.points * frozen.blocks - 1.0
    truncation = xp.exp(xp.minimum(truncated, LARGEST_LOG)) / (xp.pi * frozen.step * points)
    return Parts(edge + moved, above, of_turn, wander, 4.0 * ULP * scaled, truncation)


def noise_of(
    stage: Stage, releases: Releases, frozen: FrozenContour, common: Parts, block: Block
) -> Reals:
    """Quadrature and rounding errors of the terms of a block (lanes,)."""
    slope = transform.rounding(stage.points) * common.wander
    t = block.t[:, None]
    of_turn = (xp.abs(releases.power(frozen.tilt)) + t) * common.of_turn
    quadrature = xp.minimum(common.quadrature, of_turn)
    of_phi = common.of_phi + quadrature + slope * t + 16.0 * ULP * block.size
    lost_power = xp.sum(releases.number * log1p(of_phi * xp.exp(-block.log_modulus)), 1)
    turning = ULP * (4.0 * block.turned + 4.0 * xp.abs(block.log_power) + TURN) + common.turning
    turning = turning + 4.0 * ULP * block.t * (
        frozen.epsilon + releases.variance * (frozen.tilt + 1.0)
    )
    power = xp.exp(xp.maximum(block.log_power, -690.0))
    each = xp.expm1(xp.minimum(lost_power + turning, LARGEST_LOG))
    return xp.sum(block.weight * power * each, 0)


class Row(NamedTuple):
    """Sums of moduli of tilted weights along a curve above the real axis (phases, lanes)."""

    total: Reals
    turns: Reals  # bound on sum |w (e^(z l) - 1)| over |z|
    damped: Reals  # sum of moduli damped by e^(-t Im l) at the end of the contour
    ends: Reals  # moduli of the outermost nodes


def _rows(stage, releases, nodes, frozen, line, curves: tuple[Reals, Reals]) -> Row:
    """Sums along some curves: heights and slopes (rows, nodes or 1, phases, lanes)."""
    stride = 2 if stage.smooth else 1
    x, power = nodes.x[::stride], releases.power(frozen.tilt)
    end = frozen.step * stage.points * frozen.blocks
    spacing = nodes.spacing
    common = xp.log(stride * spacing) - line.log_psi - 0.5 * x * x - LOG_SQRT_2PI
    common = (releases.log_coin[:, None] + common).reshape(-1, *common.shape[1:])

    def each(curve: tuple[Reals, Reals]) -> Row:
        height, leaning = curve
        across, up = loss_above(releases, x, height)
        grown = 0.5 * height * height
        if stage.smooth:
            grown = grown + _cutoff_bound(stage, height / spacing, stride)
        log = common + releases.on_all(grown) + power * across
        leaning = releases.on_all(xp.sqrt(1.0 + leaning * leaning))
        modulus = xp.exp(xp.minimum(log, LARGEST_LOG)) * leaning
        # Each |e^(z l) - 1| is at most |z l| times the larger of 1 and |e^(z l)|.
        untilted = xp.exp(xp.clip(-power * across, 0.0, LARGEST_LOG))
        turns = xp.sum(modulus * xp.hypot(across, up) * untilted, 0)
        damped = xp.sum(modulus * xp.exp(xp.minimum(-end * up, LARGEST_LOG)), 0)
        # An unknown angle has an infinite bound.
        turns, damped = (xp.where(xp.isnan(x), xp.inf, x) for x in (turns, damped))
        ends = releases.by_mixture(modulus)[:, xp.asarray([0, -1])]
        return Row(xp.sum(modulus, 0), turns, damped, xp.sum(ends, (0, 1)))

    return lax.map(each, curves)


def _of_bulk(stage, releases, nodes, plan, frozen, line, end):
    """Quadrature, truncation and ends of a law that ends sharply."""
    strip, spacing = releases.strip, nodes.spacing
    fall = _height_of_fall(stage, releases, plan)
    rise = xp.minimum(STRIP * strip, xp.maximum(frozen.height + ABOVE, LEAST_ABOVE))
    down = -xp.minimum(BELOW, 0.75 * strip)
    heights = xp.stack([rise, down, fall])[:, None]
    row = _rows(stage, releases, nodes, frozen, line, (heights, xp.zeros_like(heights)))
    above = xp.exp(-2.0 * xp.pi * (rise - frozen.height) / spacing) * row.total[0]
    above = above + xp.exp(-2.0 * xp.pi * (frozen.height - down) / spacing) * row.damped[1]
    main = xp.hypot(*line.powers.weight)
    of_main = xp.sum(main * xp.exp(-end * line.powers.loss[1]), 0)
    falls = xp.log(xp.minimum(of_main, row.damped[2]))
    main = releases.by_mixture(main)
    edge = xp.maximum(xp.max(row.ends, 0), xp.sum(main[:, 0] + main[:, -1], 0))
    edge = edge * (4.0 + 2.0 * frozen.height / spacing)
    never = xp.full_like(above, xp.inf)
    return OF_ALL * above, never, xp.sum(releases.number * falls, 0), edge


def _of_smooth(stage, releases, nodes, plan, frozen, line, end):
    """Quadrature, truncation and ends of a law with a smooth cutoff, from every other node."""
    spacing, strip = nodes.spacing, STRIP * releases.strip
    rises = stage.height + xp.asarray((*RISES, -stage.height))[:, None, None]
    heights = rises * spacing  # the last is the real axis, below the contour
    inside = heights < strip
    flat = xp.where(inside, heights, 0.5 * strip)[:, None]
    flat = xp.broadcast_to(flat, (len(rises), *nodes.x[::2].shape))
    rising = _rising(releases, nodes, end)
    curves = xp.concatenate([flat, rising[0]]), xp.concatenate([0.0 * flat, rising[1]])
    row = _rows(stage, releases, nodes, frozen, line, curves)
    count = len(RISES)
    share = 2.0 * np.exp(-2.0 * np.pi * np.asarray(RISES))[:, None, None]
    below = np.exp(-2.0 * np.pi * stage.height)
    found = []
    for sums in (row.total, row.turns):
        best = xp.min(xp.where(inside[:count], share * sums[:count], xp.inf), 0)
        found.append(OF_ALL * (best + below * sums[count]))
    main = xp.hypot(*line.powers.weight)
    falls = xp.log(xp.sum(main * xp.exp(-end * line.powers.loss[1]), 0))
    truncated = xp.sum(releases.number * falls, 0)
    others = xp.sum(releases.number * xp.log(row.damped[count + 1 :]), 1)
    truncated = xp.minimum(truncated, xp.min(others, 0))
    # The law goes on beyond its last node; where it does not fall there, it ends sharply.
    main = releases.by_mixture(main)
    does_fall = (main[:, -1] <= 0.5 * main[:, -2]) & (main[:, 0] <= 0.5 * main[:, 1])
    does_fall, last = xp.all(does_fall, 0), xp.sum(main[:, 0] + main[:, -1], 0)
    ends = xp.max(xp.where(inside[:count], row.ends[:count], 0.0), 0)
    sharp = (4.0 + 2.0 * (stage.height + RISES[-1])) * xp.maximum(ends, last)
    edge = xp.where(does_fall, xp.minimum(4.0 * last, sharp), sharp)
    return *found, truncated, edge


def _rising(releases: Releases, nodes: Nodes, end: Reals) -> tuple[Reals, Reals]:
    """Heights and slopes of curves that rise like the loss, so that small losses are damped most.

    The height is end times the mean of a m e^u, a = 1 / (1 + m^2), and shares of it (`FALLS`), up
    to `MOST_FALL` nodes. To first order the curve keeps a body's exponent at the variance of l.
    """
    x, most = nodes.x[::2], MOST_FALL * nodes.spacing
    mean, share = releases.mean, releases.coin * releases.share
    u = xp.minimum(mean[:, :, None] * x - 0.5 * (mean * mean)[:, :, None], 300.0)
    risen = xp.sum((share * mean / (1.0 + mean * mean))[:, :, None] * xp.exp(u), (0, 1))
    ratio = xp.asarray(FALLS)[:, None, None, None] * end * risen / most
    height = most * ratio / (1.0 + ratio)
    return height, height / (1.0 + ratio) * releases.largest_mean


def _cutoff_bound(stage: Stage, rise: Reals, stride: int) -> Reals:
    """log of a bound on the share that a smooth cutoff keeps, at a height of `rise` nodes."""
    tables = cutoff.tables(stage.nodes, stage.height)
    below, above = (xp.asarray(x[::stride])[:, None, None] for x in (tables.below, tables.above))
    square = (rise / cutoff.WIDTH) ** 2
    return xp.minimum(square + below, xp.logaddexp(0.0, square + above))


def lost(
    stage: Stage, releases: Releases, nodes: Nodes, plan: Plan, line: Line
) -> tuple[Reals, Reals]:
    """Mass beyond the nodes, in the unit: untilted, and tilted at the plan's epsilon."""
    log_number = xp.log(xp.maximum(releases.number, 1e-300))
    ends = []
    for tilt in (xp.zeros_like(plan.tilt), plan.tilt):
        ends.append(xp.stack(log_beyond_ends(stage, releases, nodes, tilt)) + log_number)
    tilted = ends[1] - line.log_psi
    # (A + R)^n - A^n <= n R A^(n - 1) e^(n R / A).
    tilted = tilted + xp.exp(xp.minimum(tilted, 5.0))
    log = plan.bounds.log - plan.bounds.tilts * plan.epsilon
    nearest = xp.argmin(xp.abs(plan.bounds.tilts - plan.tilt), 0)[None]
    bound = xp.take_along_axis(log, nearest, 0)[0] + 1.0
    tilted, plain = tilted + bound - plan.log_unit, ends[0] - plan.log_unit
    is_tilted = tilted < plain
    falls = [xp.where(is_tilted, -xp.inf, plain), xp.where(is_tilted, tilted, -xp.inf)]
    used = releases.number > 0
    plain, tilted = (xp.sum(xp.where(used, xp.exp(x), 0.0), (0, 1)) for x in falls)
    return plain, tilted


def bounds_of_sum(
    errors: Errors, frozen: FrozenContour, epsilon: Reals, value: Reals
) -> tuple[Reals, Reals]:
    """Bounds on excess and deficit of the sum `value` at an epsilon, in the contour's unit."""
    move = epsilon - frozen.epsilon
    log_scale = errors.log_scale - frozen.tilt * move
    scale = xp.exp(xp.minimum(log_scale, LARGEST_LOG))
    noise = xp.where(log_scale > LARGEST_LOG, xp.inf, scale * errors.noise)
    gap = errors.bounds.tilts - frozen.tilt
    excess = errors.bounds.log - errors.bounds.tilts * epsilon - frozen.log_unit
    turns = xp.abs(gap) * errors.period
    images = excess - turns - log1p(-xp.exp(-xp.maximum(turns, 1e-300)))
    apart = 1e-9 * frozen.tilt
    above = xp.min(xp.where(gap > apart, images, xp.inf), 0)
    below = xp.min(xp.where(gap < -apart, images, xp.inf), 0)
    aliased = xp.exp(xp.minimum(above, LARGEST_LOG)) + xp.exp(xp.minimum(below, LARGEST_LOG))
    lost = errors.lost + errors.tilted_lost * xp.exp(xp.minimum(-frozen.tilt * move, LARGEST_LOG))
    noise = noise + xp.abs(value) * errors.relative
    return noise + aliased, noise + lost
