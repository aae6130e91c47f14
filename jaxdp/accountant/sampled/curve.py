"""Bounds on delta, or on epsilon, of a batch from one stage: plan, contour, errors, inverse."""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import lax, updated, xp
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.sampled import contour, errors, guess, plan
from jaxdp.accountant.sampled.contour import FrozenContour
from jaxdp.accountant.sampled.cumulant import every_other, least_epsilon, log_least_delta
from jaxdp.accountant.sampled.errors import Errors
from jaxdp.accountant.sampled.guess import Parts
from jaxdp.accountant.sampled.law import Nodes, Releases, Stage, on_nodes, placed
from jaxdp.accountant.sampled.plan import Plan
from jaxdp.accountant.sampled.transform import Pair

ROUNDS = 12  # of Newton's method, at most. measured: 3 from a saddle
CLOSE = 1e-9  # its tolerance, over epsilon + 1 / tilt. chosen: the next step is exact
STEP_BEYOND = 1e-3  # share of a step added to it, so that its end is safe. chosen
SMALLEST = -200.0  # log delta of a first law, if only epsilon is given. chosen: its cutoff is high
LEAST = 1e-300  # least upper bound in its unit. derived: still a normal number
GOOD = 0.5  # largest relative error of a value that serves as a guess. chosen
ROUGH_ROUNDS = 2  # of a law and its delta, in turn. measured


class Answer(NamedTuple):
    """Bounds (lanes,), a value between them (NaN if unknown), and the contour for derivatives."""

    lower: Reals
    upper: Reals
    guess: Reals
    frozen: FrozenContour


class _Curve(NamedTuple):
    """delta near an epsilon, in the unit of its contour."""

    stage: Stage
    value: Pair  # terms of all blocks (blocks, points, lanes)
    slope: Pair
    errors: Errors
    frozen: FrozenContour

    def at(self, epsilon: Reals) -> tuple[Reals, Reals]:
        """The sum, and minus its slope."""
        turn = self.frozen.step * (epsilon - self.frozen.epsilon)

        def of_block(index: Index | int, sums: Reals) -> Reals:
            first = self.stage.points * index * turn
            c, s = xp.cos(first), xp.sin(first)
            for i, pair in enumerate((self.value, self.slope)):
                of_index = pair[0][index], pair[1][index]
                re, im = contour.turned_sum(self.stage, of_index, turn)
                sums = updated(sums, i, sums[i] + re * c + im * s)
            return sums

        sums = contour.over_blocks(
            self.stage, self.frozen.blocks, of_block, xp.zeros((2, *turn.shape))
        )
        log_scale = self.errors.log_scale - self.frozen.tilt * (epsilon - self.frozen.epsilon)
        scale = xp.exp(xp.minimum(log_scale, contour.LARGEST_LOG))
        scale = xp.where(log_scale > contour.LARGEST_LOG, xp.inf, scale)
        scale = xp.where(log_scale < contour.LEAST_LOG, 0.0, scale)
        return scale * sums[0], scale * sums[1]

    def errors_at(self, epsilon: Reals, value: Reals) -> tuple[Reals, Reals]:
        """Errors of the sum `value`: bounds on its excess and on its deficit."""
        return errors.bounds_of_sum(self.errors, self.frozen, epsilon, value)


def log_delta_bounds(
    stage: Stage, releases: Releases, epsilon: Reals, estimate: Reals, blocks: Index | int
) -> Answer:
    """Bounds on log delta at epsilons >= 0; `estimate` is an estimate, or NaN."""

    def rougher(_: Index | int, log_delta: Reals) -> Reals:
        found = _law(stage, releases, log_delta)[1].log_delta(epsilon)
        return xp.clip(found, plan.LEAST_UNIT, -0.05)

    log_delta = lax.fori_loop(0, ROUGH_ROUNDS, rougher, xp.full_like(epsilon, SMALLEST))
    log_delta = xp.clip(_or(estimate, log_delta), plan.LEAST_UNIT, -0.05)
    nodes, planned = _planned(stage, releases, blocks, log_delta, epsilon)
    curve = _curve(stage, releases, nodes, planned._replace(epsilon=epsilon), blocks)
    value, _ = curve.at(epsilon)
    high, low = curve.errors_at(epsilon, value)
    unit = planned.log_unit
    lost = curve.errors.lost + curve.errors.tilted_lost
    least = xp.exp(log_least_delta(planned.bounds, epsilon) - unit) + lost
    upper = xp.minimum(_or(value + low, xp.inf), _or(least, xp.inf))
    # A sum that underflows is not 0.
    upper = xp.minimum(unit + xp.log(xp.maximum(upper, LEAST)), 0.0)
    lower = xp.minimum(unit + _log(value - high), upper)
    found = xp.where(low < GOOD * value, unit + _log(value), xp.nan)
    return Answer(_or(lower, -xp.inf), upper, found, curve.frozen)


def epsilon_bounds(
    stage: Stage, releases: Releases, delta: Reals, estimate: Reals, blocks: Index | int
) -> Answer:
    """Bounds on the least epsilon >= 0 at each delta; `estimate` is an estimate, or NaN."""
    log_delta = xp.log(delta)
    nodes, planned = _planned(stage, releases, blocks, log_delta, None, estimate)
    curve = _curve(stage, releases, nodes, planned, blocks)
    goal = xp.exp(log_delta - planned.log_unit)
    most = _chernoff_epsilon(curve, planned, log_delta, goal)
    root, lower, upper, deficit = _root_and_ends(curve, goal, most)
    upper = xp.minimum(_or(upper, xp.inf), most)
    lower = xp.minimum(_or(lower, 0.0), upper)
    found = xp.where(deficit < GOOD * goal, root, xp.nan)
    return Answer(lower, upper, found, curve.frozen._replace(epsilon=root))


def _chernoff_epsilon(curve: _Curve, planned: Plan, log_delta: Reals, goal: Reals) -> Reals:
    """Chernoff's epsilon at delta less the mass beyond the nodes, which falls with epsilon."""
    first = least_epsilon(planned.bounds, log_delta)
    sum_errors = curve.errors
    tilted = xp.exp(xp.minimum(curve.frozen.tilt * (curve.frozen.epsilon - first), 600.0))
    share = (sum_errors.lost + sum_errors.tilted_lost * tilted) / goal
    kept = xp.where(share < 0.5, log1p(-xp.minimum(share, 0.5)), -xp.inf)
    return least_epsilon(planned.bounds, log_delta + kept)


def _law(stage: Stage, releases: Releases, log_delta: Reals) -> tuple[Nodes, Parts]:
    nodes = on_nodes(stage, releases, *placed(stage, releases, log_delta))
    half = every_other(nodes)
    return nodes, guess.parts(releases, half, plan.fixed_tilts(log_delta))


def _planned(
    stage: Stage,
    releases: Releases,
    blocks: Index | int,
    log_delta: Reals,
    epsilon: Reals | None,
    estimate: Reals | None = None,
) -> tuple[Nodes, Plan]:
    """Nodes and contour for log delta at an epsilon, or at the saddle's epsilon if None."""
    if not stage.smooth:
        nodes = on_nodes(stage, releases, *placed(stage, releases, log_delta))
        return nodes, plan.saddle(releases, nodes, log_delta)
    nodes, parts = _law(stage, releases, log_delta)
    if epsilon is None:
        start = xp.minimum(parts.epsilon(log_delta), least_epsilon(parts.whole, log_delta))
        epsilon = start if estimate is None else _or(estimate, start)
    unit = xp.clip(log_delta, plan.LEAST_UNIT, 0.0)
    target = plan.Target(stage.points * blocks, epsilon, unit)
    return nodes, plan.search(stage, releases, every_other(nodes), parts.whole, target)


def _curve(
    stage: Stage, releases: Releases, nodes: Nodes, planned: Plan, blocks: Index | int
) -> _Curve:
    height = errors.height_of(stage, releases, planned, nodes)
    step, epsilon = 2.0 * xp.pi / planned.period, planned.epsilon
    place = nodes.x, nodes.spacing, height, planned.tilt, step, epsilon, planned.log_unit
    frozen = FrozenContour(*place, blocks)
    line = contour.line(stage, releases, frozen)
    common = errors.parts(stage, releases, nodes, planned, frozen, line)
    empty = xp.zeros((stage.blocks, stage.points, *epsilon.shape))

    def of_block(index: Index | int, state: tuple[Pair, Pair, Reals]) -> tuple[Pair, Pair, Reals]:
        found = contour.block(stage, releases, frozen, line, index)
        noise = errors.noise_of(stage, releases, frozen, common, found)
        value, slope = (
            (updated(old[0], index, new[0]), updated(old[1], index, new[1]))
            for old, new in ((state[0], found.terms), (state[1], contour.slope_of(frozen, found)))
        )
        return value, slope, state[2] + noise

    state = (empty, empty), (empty, empty), common.truncation
    value, slope, noise = contour.over_blocks(stage, blocks, of_block, state)
    lost = errors.lost(stage, releases, nodes, planned, line)
    relative = xp.expm1(xp.minimum(releases.log_coin_error, contour.LARGEST_LOG))
    sum_errors = Errors(line.log_scale, noise, *lost, planned.bounds, planned.period, relative)
    return _Curve(stage, value, slope, sum_errors, frozen)


class _Search(NamedTuple):
    """State of Newton's method for an epsilon at which the sum with its errors equals the goal."""

    at: Reals
    low: Reals
    high: Reals
    deficit: Reals  # bound on the deficit of the sum
    is_done: Bools
    rounds: Index | int


def _root_and_ends(curve: _Curve, goal: Reals, most: Reals) -> tuple[Reals, ...]:
    """Epsilon at which the sum equals the goal, safe ends around it, and the error there."""
    zero = xp.zeros_like(most)

    def solve(at: Reals, side: Reals) -> tuple[Reals, tuple[Reals, Bools, Reals]]:
        start = _Search(at, zero, most, zero, zero > 0, 0)
        found = lax.while_loop(
            lambda x: (x.rounds < ROUNDS) & ~xp.all(x.is_done),
            lambda x: _stepped(curve, goal, side, x),
            start,
        )
        return xp.where(side == 0, found.at, at), (found.at, found.is_done, found.deficit)

    start = xp.minimum(curve.frozen.epsilon, most)
    _, (at, done, deficit) = lax.scan(solve, start, xp.asarray([0.0, -1.0, 1.0]))
    lower, upper = xp.where(done[1], at[1], 0.0), xp.where(done[2], at[2], xp.inf)
    return at[0], lower, upper, deficit[0]


def _stepped(curve: _Curve, goal: Reals, side: Reals, state: _Search) -> _Search:
    """A step: on the logarithm within a bracket for the root, past the goal for an end."""
    at = state.at
    value, slope = curve.at(at)
    high, low = curve.errors_at(at, value)
    gap = value + xp.where(side == 0, 0.0, xp.where(side < 0, -high, low)) - goal
    # An end goes a little further, so that it is safe.
    beyond = STEP_BEYOND * xp.abs(gap / slope) + 1e-12 / curve.frozen.tilt + 4.0 * ULP * at
    end = xp.maximum(at + gap / slope + side * beyond, 0.0)
    is_low = value > goal
    low_end, high_end = xp.where(is_low, at, state.low), xp.where(is_low, state.high, at)
    valid = (value > 0) & (slope > 0)
    move = xp.log(xp.where(valid, value / goal, 1.0)) * value / xp.where(valid, slope, 1.0)
    middle = 0.5 * (low_end + high_end)
    root = xp.where(valid, at + move, middle)
    root = xp.where((root < low_end) | (root > high_end), middle, root)
    is_near = xp.abs(root - at) <= CLOSE * (at + 1.0 / curve.frozen.tilt)
    is_done = xp.where(side == 0, is_near, side * gap <= 0)
    next_ = xp.where(side == 0, root, xp.where(is_done, at, end))
    return _Search(next_, low_end, high_end, low, is_done, state.rounds + 1)


def _log(value: Reals) -> Reals:
    return xp.where(value > 0, xp.log(xp.where(value > 0, value, 1.0)), -xp.inf)


def _or(value: Reals, other: Reals | float) -> Reals:
    return xp.where(xp.isnan(value), other, value)
