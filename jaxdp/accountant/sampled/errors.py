"""Error bounds of a contour's sum, on either side.

* quadrature: of a transform on nodes dx apart at a height y, e^(-2 pi (y - d) / dx) of the moduli
  at a height d below it and as much from above; what an end cuts off, its modulus;
* truncation: |phi(t)| <= sum |W_j| e^(-t Im l_j) at any height falls in t and bounds what is left;
* rounding of phi, n |phi|^(n - 1) times, and of its power's turn;
* aliased terms, by Chernoff's bounds at other tilts; losses that no node stands for.

Source: Trefethen & Weideman, SIAM Review 56, 2014.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1p
from jaxdp.accountant.sampled import top, transform
from jaxdp.accountant.sampled.contour import LARGEST_LOG, Block, Held, Line
from jaxdp.accountant.sampled.cumulant import CUMULANT, Bounds
from jaxdp.accountant.sampled.law import Nodes, Releases, Stage, log_beyond_ends, loss_above
from jaxdp.accountant.sampled.plan import Plan

STRIP = 0.95  # of the height up to which the loss is analytic. chosen
LOWEST = 0.02  # height of a bulk's nodes, at least. chosen
HIGHEST = 1.9  # and of its bound on truncation, at most. chosen: e^(1.9^2 / 2) = 6
BELOW = 1.5  # height of a bulk's bound on quadrature below the real axis. measured
ABOVE = (1.0, 3.0)  # and above: beyond the contour, and at least. measured
# Heights of bounds of a smooth law above its line, in nodes, and of its truncation, in parts of
# those that serve a Gaussian body best.
RISES = (2.0, 3.5, 5.0, 6.5)
FALLS = (0.3, 1.0, 3.0)
MOST_FALL = 2.0  # nodes, up to which those may lie. chosen
OF_ALL = 4.0  # quadrature of psi and 1 on both lines, in parts of one. derived
TURN = 40.0  # ulps of an angle and a modulus. derived


class Errors(NamedTuple):
    """Errors of a contour's sum in its unit, at the epsilon of its terms (lanes,)."""

    log_scale: Reals
    noise: Reals  # of either side, but for e^log_scale
    lost: Reals  # above, at every epsilon
    tilted_lost: Reals  # above, falling with e^(-tilt epsilon)
    bounds: Bounds
    period: Reals
    relative: Reals  # of delta: public coins whose probabilities are a little off


def height_of(stage: Stage, releases: Releases, plan: Plan, nodes: Nodes) -> Reals:
    """Height of a contour's nodes (phases, lanes); NaN where none is inside the strip."""
    if stage.smooth:
        height = stage.height * nodes.spacing
        return jnp.where(height < STRIP * releases.strip, height, jnp.nan)
    return jnp.minimum(_height_of_fall(stage, releases, plan), 0.5 * releases.strip)


def _height_of_fall(stage: Stage, releases: Releases, plan: Plan) -> Reals:
    end = 2.0 * jnp.pi * stage.points / plan.period  # of one block
    most = jnp.minimum(HIGHEST, 0.9 * releases.strip)
    return jnp.clip(end * plan.spread, LOWEST, jnp.maximum(most, LOWEST))


class Parts(NamedTuple):
    """Parts of the errors that all points share."""

    of_phi: Reals  # error of phi that does not depend on t (phases, lanes)
    quadrature: Reals  # of phi (phases, lanes)
    of_turn: Reals  # or over |p + i t| (phases, lanes)
    wander: Reals  # sum |W l| (phases, lanes)
    turning: Reals  # relative error of the scale (lanes,)
    truncation: Reals  # (lanes,)


def parts(
    stage: Stage, releases: Releases, nodes: Nodes, plan: Plan, held: Held, line: Line
) -> Parts:
    """The errors of a contour that do not depend on its points."""
    end = held.step * stage.points * held.blocks
    of_stage = _of_smooth if stage.smooth else _of_bulk
    above, of_turn, truncated, edge = of_stage(stage, releases, nodes, plan, held, line, end)
    wander = jnp.sum(jnp.hypot(*line.powers.weight) * jnp.hypot(*line.powers.loss), 0)
    psi = jnp.abs(line.log_psi)
    moved = CUMULANT * ULP * jnp.minimum(psi, 1.0) + 4.0 * ULP * psi
    scaled = jnp.sum(releases.number * psi, 0) + held.tilt * held.epsilon
    scaled += releases.variance * held.tilt * (held.tilt + 1.0)
    truncated -= 0.5 * releases.variance * end * end
    points = stage.points * held.blocks - 1.0
    truncation = jnp.exp(jnp.minimum(truncated, LARGEST_LOG)) / (jnp.pi * held.step * points)
    return Parts(edge + moved, above, of_turn, wander, 4.0 * ULP * scaled, truncation)


def noise_of(stage: Stage, releases: Releases, held: Held, common: Parts, block: Block) -> Reals:
    """Quadrature and rounding of the terms of a block (lanes,)."""
    slope = transform.rounding(stage.points) * common.wander
    t = block.t[:, None]
    of_turn = (jnp.abs(releases.power(held.tilt)) + t) * common.of_turn
    quadrature = jnp.minimum(common.quadrature, of_turn)
    of_phi = common.of_phi + quadrature + slope * t + 16.0 * ULP * block.size
    lost_power = jnp.sum(releases.number * log1p(of_phi * jnp.exp(-block.log_modulus)), 1)
    turning = ULP * (4.0 * block.turned + 4.0 * jnp.abs(block.log_power) + TURN) + common.turning
    turning += 4.0 * ULP * block.t * (held.epsilon + releases.variance * (held.tilt + 1.0))
    power = jnp.exp(jnp.maximum(block.log_power, -690.0))
    each = jnp.expm1(jnp.minimum(lost_power + turning, LARGEST_LOG))
    return jnp.sum(block.weight * power * each, 0)


class Row(NamedTuple):
    """Sums of moduli of tilted weights along a curve above the real axis (phases, lanes)."""

    total: Reals
    turns: Reals  # bound on sum |w (e^(z l) - 1)| over |z|
    damped: Reals  # with e^(-t Im l) at the end of the contour
    ends: Reals  # the outermost


def _rows(stage, releases, nodes, held, line, curves: tuple[Reals, Reals]) -> Row:
    """Rows of some curves: heights and slopes (rows, nodes or 1, phases, lanes)."""
    stride = 2 if stage.smooth else 1
    x, power = nodes.x[::stride], releases.power(held.tilt)
    end = held.step * stage.points * held.blocks
    spacing = nodes.spacing
    common = jnp.log(stride * spacing) - line.log_psi - 0.5 * x * x - LOG_SQRT_2PI
    common = (releases.log_coin[:, None] + common).reshape(-1, *common.shape[1:])

    def each(curve: tuple[Reals, Reals]) -> Row:
        height, leaning = curve
        across, up = loss_above(releases, x, height)
        grown = 0.5 * height * height
        if stage.smooth:
            grown = grown + _top_bound(stage, height / spacing, stride)
        log = common + releases.on_all(grown) + power * across
        leaning = releases.on_all(jnp.sqrt(1.0 + leaning * leaning))
        modulus = jnp.exp(jnp.minimum(log, LARGEST_LOG)) * leaning
        # Each |e^(z l) - 1| is at most |z l| times the larger of 1 and |e^(z l)|.
        untilted = jnp.exp(jnp.clip(-power * across, 0.0, LARGEST_LOG))
        turns = jnp.sum(modulus * jnp.hypot(across, up) * untilted, 0)
        damped = jnp.sum(modulus * jnp.exp(jnp.minimum(-end * up, LARGEST_LOG)), 0)
        # Of an angle that is not known nothing is.
        turns, damped = (jnp.where(jnp.isnan(x), jnp.inf, x) for x in (turns, damped))
        ends = releases.by_mixture(modulus)[:, jnp.asarray([0, -1])]
        return Row(jnp.sum(modulus, 0), turns, damped, jnp.sum(ends, (0, 1)))

    return lax.map(each, curves)


def _of_bulk(stage, releases, nodes, plan, held, line, end):
    """Quadrature, truncation and ends of a law that ends sharply."""
    strip, spacing = releases.strip, nodes.spacing
    fall = _height_of_fall(stage, releases, plan)
    rise = jnp.minimum(STRIP * strip, jnp.maximum(held.height + ABOVE[0], ABOVE[1]))
    down = -jnp.minimum(BELOW, 0.75 * strip)
    heights = jnp.stack([rise, down, fall])[:, None]
    row = _rows(stage, releases, nodes, held, line, (heights, jnp.zeros_like(heights)))
    above = jnp.exp(-2.0 * jnp.pi * (rise - held.height) / spacing) * row.total[0]
    above += jnp.exp(-2.0 * jnp.pi * (held.height - down) / spacing) * row.damped[1]
    main = jnp.hypot(*line.powers.weight)
    of_main = jnp.sum(main * jnp.exp(-end * line.powers.loss[1]), 0)
    falls = jnp.log(jnp.minimum(of_main, row.damped[2]))
    main = releases.by_mixture(main)
    edge = jnp.maximum(jnp.max(row.ends, 0), jnp.sum(main[:, 0] + main[:, -1], 0))
    edge *= 4.0 + 2.0 * held.height / spacing
    never = jnp.full_like(above, jnp.inf)
    return OF_ALL * above, never, jnp.sum(releases.number * falls, 0), edge


def _of_smooth(stage, releases, nodes, plan, held, line, end):
    """The same of a law with a smooth top, by bounds on every other node."""
    spacing, strip = nodes.spacing, STRIP * releases.strip
    rises = stage.height + jnp.asarray((*RISES, -stage.height))[:, None, None]
    heights = rises * spacing  # the last is the real axis, below the contour
    inside = heights < strip
    flat = jnp.where(inside, heights, 0.5 * strip)[:, None]
    flat = jnp.broadcast_to(flat, (len(rises), *nodes.x[::2].shape))
    rising = _rising(releases, nodes, end)
    curves = jnp.concatenate([flat, rising[0]]), jnp.concatenate([0.0 * flat, rising[1]])
    row = _rows(stage, releases, nodes, held, line, curves)
    count = len(RISES)
    share = 2.0 * np.exp(-2.0 * np.pi * np.asarray(RISES))[:, None, None]
    below = np.exp(-2.0 * np.pi * stage.height)
    found = []
    for sums in (row.total, row.turns):
        best = jnp.min(jnp.where(inside[:count], share * sums[:count], jnp.inf), 0)
        found.append(OF_ALL * (best + below * sums[count]))
    main = jnp.hypot(*line.powers.weight)
    falls = jnp.log(jnp.sum(main * jnp.exp(-end * line.powers.loss[1]), 0))
    truncated = jnp.sum(releases.number * falls, 0)
    others = jnp.sum(releases.number * jnp.log(row.damped[count + 1 :]), 1)
    truncated = jnp.minimum(truncated, jnp.min(others, 0))
    # The law goes on beyond its last node, or where it does not fall there, ends sharply.
    main = releases.by_mixture(main)
    does_fall = (main[:, -1] <= 0.5 * main[:, -2]) & (main[:, 0] <= 0.5 * main[:, 1])
    does_fall, last = jnp.all(does_fall, 0), jnp.sum(main[:, 0] + main[:, -1], 0)
    ends = jnp.max(jnp.where(inside[:count], row.ends[:count], 0.0), 0)
    sharp = (4.0 + 2.0 * (stage.height + RISES[-1])) * jnp.maximum(ends, last)
    edge = jnp.where(does_fall, jnp.minimum(4.0 * last, sharp), sharp)
    return *found, truncated, edge


def _rising(releases: Releases, nodes: Nodes, end: Reals) -> tuple[Reals, Reals]:
    """Heights and slopes of curves that rise like the loss, which damps small ones most.

    Their height is end times the mean of a m e^u, a = 1 / (1 + m^2) and parts of it, up to
    `MOST_FALL` nodes: to first order a body's exponent is left what the variance of l has.
    """
    x, most = nodes.x[::2], MOST_FALL * nodes.spacing
    mean, share = releases.mean, releases.coin * releases.share
    u = jnp.minimum(mean[:, :, None] * x - 0.5 * (mean * mean)[:, :, None], 300.0)
    risen = jnp.sum((share * mean / (1.0 + mean * mean))[:, :, None] * jnp.exp(u), (0, 1))
    ratio = jnp.asarray(FALLS)[:, None, None, None] * end * risen / most
    height = most * ratio / (1.0 + ratio)
    return height, height / (1.0 + ratio) * releases.largest_mean


def _top_bound(stage: Stage, rise: Reals, stride: int) -> Reals:
    """log of a bound on the share that a smooth top keeps, at a height of so many nodes."""
    tables = top.tables(stage.nodes, stage.height)
    below, above = (jnp.asarray(x[::stride])[:, None, None] for x in (tables.below, tables.above))
    square = (rise / top.WIDTH) ** 2
    return jnp.minimum(square + below, jnp.logaddexp(0.0, square + above))


def lost(
    stage: Stage, releases: Releases, nodes: Nodes, plan: Plan, line: Line
) -> tuple[Reals, Reals]:
    """Mass beyond the nodes, in the unit: as it is, and tilted at the plan's epsilon."""
    log_number = jnp.log(jnp.maximum(releases.number, 1e-300))
    ends = []
    for tilt in (jnp.zeros_like(plan.tilt), plan.tilt):
        ends.append(jnp.stack(log_beyond_ends(stage, releases, nodes, tilt)) + log_number)
    tilted = ends[1] - line.log_psi
    # (A + R)^n - A^n <= n R A^(n - 1) e^(n R / A).
    tilted += jnp.exp(jnp.minimum(tilted, 5.0))
    log = plan.bounds.log - plan.bounds.tilts * plan.epsilon
    nearest = jnp.argmin(jnp.abs(plan.bounds.tilts - plan.tilt), 0)[None]
    bound = jnp.take_along_axis(log, nearest, 0)[0] + 1.0
    tilted, plain = tilted + bound - plan.log_unit, ends[0] - plan.log_unit
    is_tilted = tilted < plain
    falls = [jnp.where(is_tilted, -jnp.inf, plain), jnp.where(is_tilted, tilted, -jnp.inf)]
    used = releases.number > 0
    plain, tilted = (jnp.sum(jnp.where(used, jnp.exp(x), 0.0), (0, 1)) for x in falls)
    return plain, tilted


def bounds_of_sum(errors: Errors, held: Held, epsilon: Reals, value: Reals) -> tuple[Reals, Reals]:
    """Errors of the sum `value` at an epsilon, in the contour's unit: too high, too low by."""
    move = epsilon - held.epsilon
    log_scale = errors.log_scale - held.tilt * move
    scale = jnp.exp(jnp.minimum(log_scale, LARGEST_LOG))
    noise = jnp.where(log_scale > LARGEST_LOG, jnp.inf, scale * errors.noise)
    gap = errors.bounds.tilts - held.tilt
    excess = errors.bounds.log - errors.bounds.tilts * epsilon - held.log_unit
    turns = jnp.abs(gap) * errors.period
    images = excess - turns - log1p(-jnp.exp(-jnp.maximum(turns, 1e-300)))
    apart = 1e-9 * held.tilt
    above = jnp.min(jnp.where(gap > apart, images, jnp.inf), 0)
    below = jnp.min(jnp.where(gap < -apart, images, jnp.inf), 0)
    aliased = jnp.exp(jnp.minimum(above, LARGEST_LOG)) + jnp.exp(jnp.minimum(below, LARGEST_LOG))
    lost = errors.lost + errors.tilted_lost * jnp.exp(jnp.minimum(-held.tilt * move, LARGEST_LOG))
    noise = noise + jnp.abs(value) * errors.relative
    return noise + aliased, noise + lost
