"""Bounds on delta and epsilon of any composition, from masses on one grid of losses.

Identity: every release becomes its chord law on a uniform grid (`masses`), tilted to the saddle
(`window`), and one FFT multiplies them (`convolution`). Infinite losses, of probability p each, add
1 - prod (1 - p)^n.

Error: the bracket. The upper bound is the chord law's delta; its excess falls like the step
squared. The lower bound comes from the coupling of a chord law with the loss itself. Losses on one
lattice are exact. The derivatives are the derivatives of the masses with the plan fixed, with an
error of the order of the step squared.

Chosen where no characteristic function falls (few or equal releases with atoms), where every loss
lies on one lattice, and wherever another engine's bracket stays wide. The grid needs the privacy
profile of every release; the law's nodes only place the grid.

Sources: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PETS 2022 (chords); Gopi, Lee & Wutschitz,
NeurIPS 2021 (one FFT, and a coupling of a discretised loss).
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.namespace import lax, xp
from jaxdp._core.namespace import slope as slope_of
from jaxdp._core.types import Bools, Index, Reals
from jaxdp._numeric.elementary import conversion_entropy, log_add
from jaxdp._numeric.search import falling_root, zoom
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.convolution import Profile, Total, finite_lower, finite_upper, total_of
from jaxdp.accountant.masses import Grid, Values, values_of
from jaxdp.accountant.tables import Table
from jaxdp.accountant.window import LOG_TILTS, Plan, cumulants, plan_of, total
from jaxdp.dominating_pair.base import (
    DominatingPair,
    log_of_infinite,
    rounding_of_infinite,
)

POINTS = 2**16  # of the grid. chosen: 1e-5 of log delta for a few releases
TRIED, ROUNDS = 24, 6  # of a search for the best tilt. chosen: each round is 11 times finer
STEPS = 40  # of a search for epsilon, at most. measured: 8 to 14 converge to 1e-12
SLACK = 3e-7  # of log delta at epsilon. measured: upper bounds of two plans differ by 1e-7
LATTICE_SLACK = 2e-10  # the same on a lattice. measured: 1e-11
LEAST = -1e4  # log delta in place of log 0. chosen: below the logarithm of any double
LARGEST_STEP = 500.0  # nats, of a lattice. measured: above 600 masses overflow
BACK = 8  # half octaves below a feasible epsilon. chosen: the bracket changes little
FAR = 30.0  # limit of |log delta - target| in a search. chosen: steps nearly halve there


class Lane(NamedTuple):
    """Data of one composition at a plan, from which its delta at any epsilon follows."""

    total: Total
    drift: Reals
    largest: Reals  # largest finite total, not rounded up
    log_infinite: Reals  # log of the probability of an infinite loss
    rounding: Reals  # of it

    def upper(self, epsilon: Reals) -> Reals:
        """Upper bound on log delta at epsilon >= 0."""
        finite = finite_upper(self.total, epsilon - self.drift)
        return self.with_infinite(xp.where(self.too_coarse(), 0.0, finite), 1.0)

    def lower(self, epsilon: Reals) -> Reals:
        """Lower bound on log delta at epsilon >= 0."""
        finite = finite_lower(self.total, epsilon - self.drift)
        return self.with_infinite(xp.where(self.too_coarse(), -xp.inf, finite), -1.0)

    @property
    def slack(self) -> Reals:
        """Slack of log delta at an epsilon: a user evaluates it there with another plan."""
        return xp.where(self.total.sums.coupled > 0, SLACK, LATTICE_SLACK)

    @property
    def end(self) -> Reals:
        """An epsilon >= 0 at the end of the losses, or of the window."""
        end = self.drift + self.total.plan.high
        return xp.maximum(xp.where(self.largest < xp.inf, self.largest, end), 0.0)

    def too_coarse(self) -> Bools:
        """True if the grid only shows delta <= 1 up to the largest loss."""
        return self.total.plan.step > LARGEST_STEP

    def with_infinite(self, finite: Reals, side: float) -> Reals:
        """log delta with infinite losses, rounded up (`side` = 1) or down (`side` = -1)."""
        return xp.minimum(log_add(finite, self.log_infinite + side * self.rounding), 0.0)


def log_bounds(terms: Terms, table: Table, epsilon: Reals, points: int = POINTS) -> LogBounds:
    """Bounds on log delta at epsilon >= 0 in one lane, with parameters of shape (F,)."""
    return log_bounds_at(lane_at(terms, table, epsilon, points), table, epsilon)


def log_bounds_at(lane: Lane, table: Table, epsilon: Reals) -> LogBounds:
    """Bounds on log delta at an epsilon >= 0, best near the epsilon of the lane's plan."""
    lower, upper = lane.lower(epsilon), lane.upper(epsilon)
    lower = xp.where(xp.isnan(lower), -xp.inf, lower)
    upper = xp.where(xp.isnan(upper), 0.0, upper)
    bad = is_bad(table) | xp.isnan(epsilon)
    return LogBounds(*(xp.where(bad, xp.nan, x) for x in (lower, upper)))


def epsilon_bounds(terms: Terms, table: Table, delta: Reals, points: int = POINTS) -> LogBounds:
    """Bounds on the least epsilon >= 0 with delta(epsilon) <= delta in one lane; feasible above."""
    guess = chernoff_epsilon(table, delta)
    bounds = _solved(lane_at(terms, table, guess, points), guess, delta)
    bad = is_bad(table) | xp.isnan(delta)
    return LogBounds(*(xp.where(bad, xp.nan, x) for x in bounds))


def plan_at(table: Table, epsilon: Reals, points: int) -> Plan:
    """The plan for an epsilon that includes the drifts."""
    return plan_of(table, epsilon - total(table.number, table.drift), points)


def lane_at(terms: Terms, table: Table, epsilon: Reals, points: int) -> Lane:
    """The total at the plan for an epsilon, in one lane."""
    plan = plan_at(table, epsilon, points)
    total_loss = total_of(_profiles(terms, points), table, plan, points)
    drift, largest, log_finite = (
        total(table.number, x) for x in (table.drift, table.largest, table.log_finite)
    )
    infinite = log_of_infinite(log_finite)
    return Lane(total_loss, drift, largest, infinite, rounding_of_infinite(infinite, table.used))


def _profiles(terms: Terms, points: int) -> tuple[Profile, ...]:
    """The pairs themselves, whose profile is evaluated where it is used."""

    def values(pair: DominatingPair, facts: Table, grid: Grid) -> Values:
        return values_of(pair, facts, grid, points)

    return tuple((term.pair, values) for term in terms)


def is_bad(facts: Table) -> Bools:
    """True where a parameter of some release is NaN: delta is then not small but NaN."""
    parameters = facts.number, facts.largest, facts.smallest, facts.log_finite, facts.drift
    is_unused = facts.number == 0
    return xp.any(xp.stack([xp.isnan(x) & ~is_unused for x in parameters]))


def chernoff_epsilon(facts: Table, delta: Reals) -> Reals:
    """Chernoff's bound on epsilon, at least 0, from the nodes of the laws.

    For finite losses delta <= e^(K(z) - z epsilon) z^z / (1 + z)^(1 + z) at every z > 0.
    """
    infinite = xp.exp(log_of_infinite(total(facts.number, facts.log_finite)))
    log_delta = xp.log(xp.maximum(delta - infinite, 1e-300))

    def height(z: Reals) -> Reals:
        return (total(facts.number, cumulants(facts, z)) - conversion_entropy(z) - log_delta) / z

    def finite_height(log_tilts: Reals) -> Reals:
        heights = height(xp.exp(log_tilts))
        return xp.where(xp.isfinite(heights), heights, xp.inf)

    low, high = map(xp.asarray, LOG_TILTS)
    least = zoom(finite_height, low, high, TRIED, ROUNDS)[1]
    bound = least + total(facts.number, facts.drift)
    bound = xp.minimum(bound, total(facts.number, facts.largest))
    return lax.stop_gradient(xp.where(xp.isfinite(bound), xp.maximum(bound, 0.0), 0.0 * bound))


def limited(gap: Reals) -> Reals:
    """A distance of log delta from its target, for a search."""
    return xp.where(xp.isnan(gap), FAR, xp.clip(gap, -FAR, FAR))


def _infeasible(lane: Lane, upper: Reals, log_delta: Reals) -> Reals:
    """Largest epsilon tried, at most `upper`, whose lower bound exceeds delta; 0 if none."""
    gap = log_delta - lane.lower(upper)
    slope = slope_of(lane.upper, upper)
    width = xp.clip(gap, 1e-13, 1.0) / xp.maximum(-slope, 1e-300)

    def back(k: Index | int, lower: Reals) -> Reals:
        epsilon = xp.maximum(upper - 1.02 * width * xp.exp2(0.5 * k), 0.0)
        is_better = (lane.lower(epsilon) > log_delta) & (epsilon > lower)
        return xp.where(is_better, epsilon, lower)

    lower = lax.fori_loop(0, BACK, back, xp.zeros(()))
    return xp.where(gap < 0, upper, lower)


def _solved(lane: Lane, guess: Reals, delta: Reals) -> LogBounds:
    """The epsilons at which the upper and the lower bound on delta equal delta."""
    fixed_lane, log_delta = lax.stop_gradient((lane, xp.maximum(xp.log(delta), LEAST)))
    zero = xp.zeros(())

    slack, end = fixed_lane.slack, fixed_lane.end

    def gap(epsilon: Reals) -> Reals:
        return limited(fixed_lane.upper(epsilon) - log_delta + slack)

    guess_end = xp.minimum(guess * (1.0 + 1e-9) + fixed_lane.total.plan.step, end)
    high = xp.where(gap(guess_end) <= 0, guess_end, end)
    feasible = gap(high) <= 0
    upper = xp.where(feasible, falling_root(gap, zero, high, STEPS)[1], xp.inf)
    upper = xp.where(gap(zero) <= 0, 0.0, upper)

    largest_tried = xp.where(xp.isfinite(upper), upper, end)
    lower = _infeasible(fixed_lane, largest_tried, log_delta)
    # A Newton step of value 0 carries the derivatives.
    inside = (upper > 0) & (upper < fixed_lane.largest) & xp.isfinite(upper)
    place = xp.where(inside, upper, 0.5 * end)
    slope = slope_of(fixed_lane.upper, place)
    moving = lane.upper(place) - xp.log(delta)
    newton = -(moving - lax.stop_gradient(moving)) / xp.where(slope < 0, slope, -xp.inf)
    upper = xp.where(inside, upper + newton, upper)
    return LogBounds(lower, upper)
