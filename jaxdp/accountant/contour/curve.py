"""Bounds on delta, or on epsilon, of a batch from one stage: contour, errors, inverse, slopes.

Errors of a contour's sum, on either side:

* rounding: of phi, times n |phi|^(n - 1), and of the angle of its power;
* quadrature and truncation, bounded by the rows of the law (`mixtures`, `laws`);
* aliasing: Chernoff's bounds at other tilts;
* smoothing: a Gaussian of variance s beside the losses raises delta by at most s e^(s / 8) f_s,
  f_s the density of the total. Proof: the heat equation, and m f_m e^(m^2 / 8) rises with m, as
  e^(-y^2 / (2 m^2)) does, m^2 the variance;
* the probability of losses beyond the nodes.

Slopes are the derivatives of the sum S on a fixed contour. With T_k the terms of S at points z_k,

    d log delta = Re sum_k (T_k / S) sum_f n_f d psi_f(z_k) / psi_f(z_k) + ...,

and d psi(z) is a sum over the nodes. The adjoint of the transform, one sum over the points for each
node, gives the slopes in the log mass and the loss of the node. The rows convert them to slopes in
the parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant import inverse
from jaxdp.accountant.contour import plan, terms
from jaxdp.accountant.contour.nodes import (
    LARGEST_LOG,
    LEAST_LOG,
    Bounds,
    FrozenContour,
    LawErrors,
    Nodes,
    Pair,
    Plan,
    Rows,
    Stage,
    chernoff,
    least_epsilon,
    log_least_delta,
)
from jaxdp.accountant.contour.terms import Block, Line
from jaxdp.accountant.inverse import Reading
from jaxdp.accountant.steps import LogBounds

FARTHEST = 1e3  # largest epsilon searched, over Chernoff's. chosen: it misses the mass that is lost
# log delta for which a first law is cut, if only epsilon is given. chosen: two rounds correct it
FIRST_LOG_DELTA = -30.0
LEAST = 1e-300  # least upper bound in its unit. derived: still a normal number
TURN = 40.0  # ulps of an angle and a modulus. derived
ROUGH_ROUNDS = 2  # of a law and its delta, in turn. measured
CHERNOFF_SLACK = 2.5  # nats by which Chernoff's bound exceeds delta. measured: 2 to 3


class Errors(NamedTuple):
    """Errors of a contour's sum in its unit, at the epsilon of its terms (lanes,)."""

    log_scale: Reals
    noise: Pair  # errors of delta and of the density on either side, over e^log_scale
    lost: Reals  # deficit of the sum at every epsilon
    tilted_lost: Reals  # deficit that falls with e^(-tilt epsilon)
    bounds: Bounds
    period: Reals
    relative: Reals  # relative error of the scale, and from errors of the law's probabilities
    truncation: Reals  # part of the first noise


class Curve(NamedTuple):
    """delta near an epsilon, in the unit of its contour."""

    stage: Stage
    pairs: tuple[Pair, ...]  # terms of delta, its slope, maybe its density (blocks, points, lanes)
    errors: Errors
    frozen: FrozenContour

    def at(self, epsilon: Reals) -> Reals:
        """The sum, minus its slope, and the density where the total is smoothed (3, lanes)."""
        turn = self.frozen.step * (epsilon - self.frozen.epsilon)

        def of_block(index: Index | int, sums: Reals) -> Reals:
            first = self.stage.points * index * turn
            pairs = [(re[index], im[index]) for re, im in self.pairs]
            re, im = terms.turned_sums(self.stage, pairs, turn)
            return sums + re * xp.cos(first) + im * xp.sin(first)

        none = xp.zeros((len(self.pairs), *turn.shape))
        sums = terms.over_blocks(self.stage, self.frozen.blocks, of_block, none)
        return xp.concatenate([sums, xp.zeros((3 - len(self.pairs), *turn.shape))])

    def read(self, epsilon: Reals) -> Reading:
        """Bounds on log delta at an epsilon: of the sum with its errors, or Chernoff's."""
        return read(self.errors, self.frozen, epsilon, self.at(epsilon))


def read(
    errors: Errors, frozen: FrozenContour, epsilon: Reals, sums: Reals, turned: Any = None
) -> Reading:
    """Bounds on log delta from `Curve.at`; `turned` is sum |term| t of sums that have no own error.

    The error of these sums is the rounding of a turn by more than their own epsilon.
    """
    move, unit = epsilon - frozen.epsilon, frozen.log_unit
    fall = frozen.tilt * move
    log_scale = errors.log_scale - fall
    scale = xp.exp(xp.minimum(log_scale, LARGEST_LOG))
    scale = xp.where(log_scale > LARGEST_LOG, xp.inf, scale)
    found = xp.where(log_scale < LEAST_LOG, 0.0, scale) * sums
    lost = errors.lost + errors.tilted_lost * xp.exp(xp.minimum(-fall, LARGEST_LOG))
    noise, of_density = scale * errors.noise[0], scale * errors.noise[1]
    smoothed = frozen.smoothed * (found[2] + of_density) + scale * errors.truncation
    is_smoothed = frozen.smoothed > 0
    smoothed = xp.where(is_smoothed, smoothed * xp.exp(0.125 * frozen.smoothed), 0.0)
    gap = errors.bounds.tilts - frozen.tilt
    excess = errors.bounds.log - errors.bounds.tilts * epsilon - unit
    turns = xp.abs(gap) * errors.period
    images = excess - turns - log1p(-xp.exp(-xp.maximum(turns, 1e-300)))
    apart = 1e-9 * frozen.tilt
    above = xp.min(xp.where(gap > apart, images, xp.inf), 0)
    below = xp.min(xp.where(gap < -apart, images, xp.inf), 0)
    aliased = xp.exp(xp.minimum(above, LARGEST_LOG)) + xp.exp(xp.minimum(below, LARGEST_LOG))
    grown = xp.where(errors.relative > 0, (xp.abs(found[0]) + noise) * errors.relative, 0.0)
    noise = noise + grown
    # Bounds on excess and deficit of the sum, in the contour's unit.
    high, low = noise + (aliased + smoothed), noise + lost
    if turned is not None:
        rounded = scale * turned + frozen.tilt * (xp.abs(found[0]) + high)
        rounded = 4.0 * ULP * xp.abs(move) * rounded
        high, low = high + rounded, low + rounded
    least, best = log_least_delta(errors.bounds, epsilon)
    least = xp.exp(least - unit) + lost
    upper = xp.minimum(_or(found[0] + low, xp.inf), _or(least, xp.inf))
    # A sum that underflows is not 0.
    rounded = 4.0 * ULP * (1.0 + xp.abs(unit))
    upper = xp.minimum(unit + xp.log(xp.maximum(upper, LEAST)) + rounded, 0.0)
    lower = _or(xp.minimum(unit + _log(found[0] - high) - rounded, upper), -xp.inf)
    is_sum = (found[1] > 0) & (found[0] + low <= least)
    falls = xp.where(is_sum, unit + _log(found[1]), upper + xp.log(best))
    return Reading(lower, upper, falls)


def log_delta_bounds(
    stage: Stage, rows: Rows, epsilon: Reals, estimate: Reals, blocks: Index | int
) -> tuple[LogBounds, FrozenContour]:
    """Bounds on log delta at epsilons >= 0, and the contour; `estimate` may be NaN."""
    log_delta = _or(estimate, rough_log_delta(stage, rows, epsilon))
    log_delta = xp.clip(log_delta, rows.least_unit, -0.05)
    place, planned = contour_for(stage, rows, blocks, log_delta, epsilon)
    curve = curve_of(stage, rows, place, planned._replace(epsilon=epsilon), blocks)
    lower, upper, _ = curve.read(epsilon)
    return LogBounds(lower, upper), curve.frozen


def rough_log_delta(stage: Stage, rows: Rows, epsilon: Reals) -> Reals:
    """Estimates of log delta at epsilons >= 0."""

    def rougher(_: Index | int, log_delta: Reals) -> Reals:
        bounds = _law(stage, rows, log_delta)[2]
        found = log_least_delta(bounds, epsilon)[0] - CHERNOFF_SLACK
        return xp.clip(found, rows.least_unit, -0.05)

    return lax.fori_loop(0, ROUGH_ROUNDS, rougher, xp.full_like(epsilon, FIRST_LOG_DELTA))


def epsilon_bounds(
    stage: Stage, rows: Rows, delta: Reals, estimate: Reals, blocks: Index | int
) -> tuple[LogBounds, FrozenContour]:
    """Bounds on the least epsilon >= 0 at each delta, and the contour; `estimate` may be NaN."""
    log_delta = xp.log(delta)
    place, planned = contour_for(stage, rows, blocks, log_delta, None, estimate)
    curve = curve_of(stage, rows, place, planned, blocks)
    most = least_epsilon(planned.bounds, log_delta)
    start = xp.minimum(curve.frozen.epsilon, most)
    found = inverse.epsilon_bounds(curve.read, log_delta, start, FARTHEST * (1.0 + most))
    return found, curve.frozen._replace(epsilon=found.upper)


def _law(stage: Stage, rows: Rows, log_delta: Reals) -> tuple[Any, Nodes, Bounds]:
    """Place and nodes of the law at a log delta, and Chernoff's bounds on them."""
    place = rows.placed(stage, log_delta)
    nodes = rows.fewer(rows.on_axis(stage, place))
    tilts = xp.asarray(rows.candidates)[:, None]
    tilts = xp.broadcast_to(tilts, (len(tilts), *log_delta.shape))
    return place, nodes, chernoff(rows, place, nodes, tilts)


def contour_for(
    stage: Stage,
    rows: Rows,
    blocks: Index | int,
    log_delta: Reals,
    epsilon: Reals | None,
    estimate: Reals | None = None,
) -> tuple[Any, Plan]:
    """Place and contour for log delta at an epsilon, or at the saddle's epsilon if None."""
    if stage.is_bulk:
        place = rows.placed(stage, log_delta)
        return place, plan.saddle(rows, place, rows.on_axis(stage, place), log_delta)
    place, nodes, bounds = _law(stage, rows, log_delta)
    is_guess = epsilon is None
    if epsilon is None:
        start = least_epsilon(bounds, log_delta + CHERNOFF_SLACK)
        epsilon = start if estimate is None else _or(estimate, start)
    unit = xp.clip(log_delta, rows.least_unit, 0.0)
    points, coarse = stage.points * blocks, rows.coarse(nodes)
    found = plan.search(stage, rows, coarse, bounds, points, epsilon, unit)
    if not rows.refines:
        return place, found
    near = chernoff(rows, place, nodes, found.tilt * xp.asarray(plan.NEAR_TILTS)[:, None])
    bounds = Bounds(*(xp.concatenate(x) for x in zip(bounds, near, strict=True)))
    if is_guess:
        epsilon = xp.minimum(epsilon, least_epsilon(bounds, log_delta))
    else:
        least = xp.minimum(unit, log_least_delta(bounds, epsilon)[0])
        # In a unit farther below what the law leaves out, the bound would overflow.
        least = xp.maximum(least, rows.log_lost(place) - LARGEST_LOG)
        unit = xp.clip(least, rows.least_unit, 0.0)
    return place, plan.search(stage, rows, coarse, bounds, points, epsilon, unit)


def curve_of(stage: Stage, rows: Rows, place: Any, planned: Plan, blocks: Index | int) -> Curve:
    """The sum of a contour, for epsilons near the one of its plan."""
    step = 2.0 * xp.pi / planned.period
    # Without an end, and not smoothed, so far.
    frozen = FrozenContour(
        place=place,
        height=rows.height(stage, place, planned),
        tilt=planned.tilt,
        step=step,
        epsilon=planned.epsilon,
        log_unit=planned.log_unit,
        blocks=blocks,
        end=xp.full_like(step, xp.inf),
        smoothed=xp.zeros_like(step),
    )
    line = terms.line(stage, rows, frozen)
    of_law = rows.errors(stage, planned, frozen, line.nodes, (line.log_psi, line.log_scale))
    smoothed = of_law.smoothed + xp.zeros_like(step)
    frozen = frozen._replace(end=of_law.end + xp.zeros_like(step), smoothed=smoothed)
    # The cumulant of the Gaussian that makes psi fall.
    smoothing = 0.5 * frozen.smoothed * planned.tilt * (planned.tilt + 1.0)
    line = line._replace(log_scale=line.log_scale + smoothing)
    count = 3 if rows.smooths else 2  # delta, its slope, and its density

    def add_block(index: Index | int, sums: Any) -> Any:
        block = terms.block(stage, rows, frozen, line, index)
        noise = noise_of(stage, rows, frozen, of_law, line, block)
        kinds = block.terms, terms.slope_of(frozen, block), terms.density_of(frozen, block)
        pairs = tuple(
            tuple(updated(x, index, y) for x, y in zip(old, kind, strict=True))
            for old, kind in zip(sums[0], kinds[:count], strict=True)
        )
        return pairs, tuple(x + y for x, y in zip(sums[1], noise, strict=True))

    empty = xp.zeros((stage.blocks, stage.points, *step.shape))
    start = ((empty, empty),) * count, (of_law.truncation, xp.zeros_like(step))
    pairs, noise = terms.over_blocks(stage, blocks, add_block, start)
    lost, tilted_lost = rows.lost(stage, planned, place, line.log_psi)
    sum_errors = Errors(
        log_scale=line.log_scale,
        noise=noise,
        lost=lost,
        tilted_lost=tilted_lost,
        bounds=planned.bounds,
        period=planned.period,
        relative=xp.expm1(xp.minimum(rows.relative_error + of_law.of_scale, LARGEST_LOG)),
        truncation=of_law.truncation,
    )
    return Curve(stage, pairs, sum_errors, frozen)


def noise_of(
    stage: Stage, rows: Rows, frozen: FrozenContour, common: LawErrors, line: Line, block: Block
) -> tuple[Reals, Reals]:
    """Quadrature and rounding errors of the terms of a block: of delta, of the density (lanes,)."""
    slope, t = terms.rounding(stage.points) * line.wander, block.t[:, None]
    of_phi = common.of_phi + rows.phi_error(common.by_height, frozen, t)
    of_phi = of_phi + slope * t + 16.0 * ULP * block.size
    lost_power = rows.number * log1p(of_phi * xp.exp(-block.log_phi[0]))
    lost_power = xp.sum(xp.where(rows.number == 0, 0.0, lost_power), 1)
    turning = ULP * (4.0 * block.turned + 4.0 * xp.abs(block.log_power) + TURN)
    # Relative rounding error of the contour's scale.
    scaled = xp.where(rows.number == 0, 0.0, rows.number * xp.abs(line.log_psi))
    scaled = xp.sum(scaled, 0) + frozen.tilt * frozen.epsilon
    scaled = scaled + rows.variance * frozen.tilt * (frozen.tilt + 1.0)
    turning = turning + 4.0 * ULP * scaled
    angle = frozen.epsilon + xp.abs(line.drift) + rows.variance * (frozen.tilt + 1.0)
    turning = turning + 4.0 * ULP * block.t * angle
    power = xp.exp(xp.maximum(block.log_power, -690.0))
    each = xp.expm1(xp.minimum(lost_power + turning, LARGEST_LOG))
    each = xp.where(block.weight > 0, block.weight * power * each, 0.0)
    poles = xp.sqrt((frozen.tilt**2 + block.t**2) * ((frozen.tilt + 1.0) ** 2 + block.t**2))
    return xp.sum(each, 0), xp.sum(poles * each, 0)


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

    def add_block(index: Index | int, sums: _Sums) -> _Sums:
        block = terms.block(stage, rows, frozen, line, index)
        # psi of an added record is at the conjugate power.
        (re, im), (modulus, angle) = block.terms, block.log_phi
        re, im, t = re[:, None], rows.sign * im[:, None], block.t[:, None]
        of_number = re * modulus - im * (angle + t * line.nodes.mean)
        inverse, c, s = xp.exp(-modulus), xp.cos(angle), xp.sin(angle)
        factors = inverse * (re * c + im * s), inverse * (im * c - re * s)
        turned = power * factors[0] - t * factors[1], power * factors[1] + t * factors[0]
        of_block = _Sums(
            xp.sum(block.terms[0], 0),
            xp.sum(terms.slope_of(frozen, block)[0], 0),
            xp.sum(terms.density_of(frozen, block)[0], 0),
            xp.sum(of_number, 0),
            terms.adjoint(line.powers, factors, index),
            terms.adjoint(line.powers, turned, index),
        )
        return jax.tree.map(xp.add, sums, of_block)

    lane, phase, node = (xp.zeros_like(x) for x in (frozen.tilt, power, line.powers.loss[0]))
    start = _Sums(lane, lane, lane, phase, (node, node), (node, node))
    sums = terms.over_blocks(stage, frozen.blocks, add_block, start)
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


def _log(value: Reals) -> Reals:
    return xp.where(value > 0, xp.log(xp.where(value > 0, value, 1.0)), -xp.inf)


def _or(value: Reals, other: Reals | float) -> Reals:
    return xp.where(xp.isnan(value), other, value)
