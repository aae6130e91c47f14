"""Bounds on delta and epsilon of any composition, on both sides, from masses on one grid of losses.

Chosen where no characteristic function falls (few or equal releases with atoms), where every loss
lies on one lattice, and wherever another engine does not settle: it needs the privacy profile of
every release, its law's nodes only to place the grid.

Identity: every release becomes its chord law on a uniform grid (`masses`), tilted to the saddle
(`window`), and one FFT multiplies them (`convolution`): an upper bound whose excess falls like the
step squared, and a lower bound by the coupling of a chord law with the loss itself. Losses on one
lattice are exact. Infinite losses, of probability p each, add 1 - prod (1 - p)^n. The bracket is
the error; derivatives are those of the masses, with the plan held, right to the step squared.
Sources: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PETS 2022 (chords); Gopi, Lee & Wutschitz,
NeurIPS 2021 (one FFT, and a coupling of a discretised loss).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Bools, Index, Reals
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.convolution import Total, finite_lower, finite_upper, total_of
from jaxdp.accountant.masses import selected
from jaxdp.accountant.window import LOG_TILTS, Laws, Releases, cumulants, plan_of, releases, total

POINTS = 2**16  # of the grid. chosen: 1e-5 of log delta for a few releases; a lattice needs few
TRIED, ROUNDS = 65, 4  # tilts of Chernoff's epsilon, and finer grids around the best. chosen
STEPS = 18  # of a search for epsilon. measured: 8 to 14 settle to 1e-12
LEAST = -1e4  # log delta in place of log 0. chosen: below every number's
BACK = 8  # half octaves back from a feasible epsilon. chosen: the bracket changes little there
FAR = 30.0  # of log delta, more than which a search does not see. chosen: nearly halves there

T = TypeVar("T", bound=tuple[Reals, ...])


class _Lane(NamedTuple):
    """One composition at a plan: all that its delta at any epsilon takes."""

    total: Total
    drift: Reals
    largest: Reals  # finite total
    log_finite: Reals

    def upper(self, epsilon: Reals) -> Reals:
        """Above log delta at epsilon >= 0."""
        return self._whole(finite_upper(self.total, epsilon - self.drift), epsilon, 32.0 * ULP)

    def lower(self, epsilon: Reals) -> Reals:
        """Below log delta at epsilon >= 0."""
        return self._whole(finite_lower(self.total, epsilon - self.drift), epsilon, -32.0 * ULP)

    def _whole(self, finite: Reals, epsilon: Reals, rounded: float) -> Reals:
        """With the probability of an infinite loss."""
        finite = jnp.where(epsilon >= self.largest, -jnp.inf, finite)
        infinite = jnp.where(self.log_finite < 0, _log_infinite(self.log_finite), -jnp.inf)
        return jnp.minimum(_log_add(finite, infinite + rounded), 0.0)


def _log_infinite(log_finite: Reals) -> Reals:
    return log1mexp(jnp.where(log_finite < 0, -log_finite, 1.0))


def _log_add(a: Reals, b: Reals) -> Reals:
    """log(e^a + e^b), whose derivative is a number where one of them, or both, are 0."""
    some = (a > -jnp.inf) & (b > -jnp.inf)
    both = jnp.logaddexp(jnp.where(some, a, 0.0), jnp.where(some, b, 0.0))
    return jnp.where(some, both, jnp.where(b > -jnp.inf, b, a))


def _lane(terms: Terms, laws: Laws, facts: Releases, epsilon: Reals, points: int) -> _Lane:
    """Of parameters of shape (n,), planned for one epsilon."""
    drift = total(facts.number, facts.drift)
    plan = plan_of(laws, facts, epsilon - drift, points)
    whole = total_of(terms, facts, plan, points)
    largest = total(facts.number, facts.largest)
    return _Lane(whole, drift, largest, total(facts.number, facts.log_finite))


def log_bounds(terms: Terms, epsilon: Reals, points: int = POINTS) -> LogBounds:
    """Bounds on log delta at every real epsilon (*batch,), of terms (*batch, n)."""

    def one(terms: Terms, epsilon: Reals) -> LogBounds:
        size = jnp.abs(epsilon)
        terms = tuple(
            Term(selected(epsilon < 0, t.pair, t.pair.reversed()), t.count) for t in terms
        )
        facts, laws = releases(terms)
        lane = _lane(terms, laws, facts, size, points)
        found = LogBounds(lane.lower(size), lane.upper(size)).mirrored(epsilon < 0, size)
        bad = _bad(facts) | jnp.isnan(epsilon)
        lower = jnp.where(jnp.isnan(found.lower), -jnp.inf, found.lower)
        upper = jnp.where(jnp.isnan(found.upper), 0.0, found.upper)
        return LogBounds(*(jnp.where(bad, jnp.nan, x) for x in (lower, upper)))

    return _by_lanes(one, terms, epsilon)


def epsilon_bounds(terms: Terms, delta: Reals, points: int = POINTS) -> LogBounds:
    """Bounds on the least epsilon >= 0 with delta(epsilon) <= delta (*batch,), feasible above."""

    def one(terms: Terms, delta: Reals) -> LogBounds:
        facts, laws = releases(terms)
        guess = lax.stop_gradient(_chernoff(laws, facts, delta))
        lane = _lane(terms, laws, facts, guess, points)
        bad = _bad(facts) | jnp.isnan(delta)
        return LogBounds(*(jnp.where(bad, jnp.nan, x) for x in _solved(lane, guess, delta)))

    return _by_lanes(one, terms, delta)


def _bad(facts: Releases) -> Bools:
    """True where some release has a parameter that is not a number: never a small delta."""
    given = facts.number, facts.largest, facts.smallest, facts.log_finite, facts.drift
    unused = facts.number == 0
    return jnp.any(jnp.stack([jnp.isnan(x) & ~unused for x in given]))


def _by_lanes(function: Callable[[Terms, Reals], T], terms: Terms, values: Reals) -> T:
    """The lanes of a batch, one after the other."""

    def flat(x: Reals) -> Reals:
        return x.reshape(values.size, *x.shape[values.ndim :])

    lanes = jax.tree.map(flat, (terms, values))
    found = lax.map(lambda lane: function(*lane), lanes)
    return jax.tree.map(lambda x: x.reshape(values.shape), found)


def _chernoff(laws: Laws, facts: Releases, delta: Reals) -> Reals:
    """Chernoff's bound on epsilon, from the nodes of the laws: at least 0.

    delta <= e^(K(z) - z epsilon) z^z / (1 + z)^(1 + z) at every z > 0, of finite losses.
    """
    log_finite = total(facts.number, facts.log_finite)
    infinite = jnp.where(log_finite < 0, jnp.exp(_log_infinite(log_finite)), 0.0)
    log_delta = jnp.log(jnp.maximum(delta - infinite, 1e-300))

    def narrow(_: Index | int, state: tuple[Reals, Reals, Reals]) -> tuple[Reals, Reals, Reals]:
        tried = jnp.linspace(state[0], state[1], TRIED)
        z = jnp.exp(tried)
        height = total(facts.number, cumulants(laws, facts.drift, z))
        found = (height - jnp.log1p(z) - z * jnp.log1p(1.0 / z) - log_delta) / z
        found = jnp.where(jnp.isfinite(found), found, jnp.inf)
        best = jnp.argmin(found)
        low, high = tried[jnp.maximum(best - 1, 0)], tried[jnp.minimum(best + 1, TRIED - 1)]
        return low, high, found[best]

    low, high = (jnp.asarray(x) for x in LOG_TILTS)
    found = lax.fori_loop(0, ROUNDS, narrow, (low, high, low))[2]
    found = jnp.minimum(
        found + total(facts.number, facts.drift), total(facts.number, facts.largest)
    )
    return jnp.where(jnp.isfinite(found), jnp.maximum(found, 0.0), 0.0 * found)


def _search(function: Callable[[Reals], Reals], low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """The ends around the zero of a function that falls, by regula falsi (Illinois)."""

    def value(x: Reals) -> Reals:
        found = function(x)
        return jnp.where(jnp.isnan(found), FAR, jnp.clip(found, -FAR, FAR))

    def step(_: Index | int, state: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, above, below, last = state
        share = jnp.clip(above / (above - below), 0.0, 1.0)
        x = low + jnp.where(jnp.isnan(share), 0.5, share) * (high - low)
        now = value(x)
        over = now > 0
        # An end that stays twice counts half.
        above = jnp.where(over, now, jnp.where(last < 0, 0.5, 1.0) * above)
        below = jnp.where(over, jnp.where(last > 0, 0.5, 1.0) * below, now)
        side = jnp.where(over, 1.0, -1.0)
        return jnp.where(over, x, low), jnp.where(over, high, x), above, below, side

    state = low, high, value(low), value(high), jnp.zeros(())
    return lax.fori_loop(0, STEPS, step, state)[:2]


def _infeasible(lane: _Lane, upper: Reals, log_delta: Reals) -> Reals:
    """The largest epsilon tried, from `upper` on down, whose lower bound exceeds delta; else 0."""
    gap = log_delta - lane.lower(upper)
    slope = jax.jvp(lane.upper, (upper,), (jnp.ones(()),))[1]
    width = jnp.clip(gap, 1e-13, 1.0) / jnp.maximum(-slope, 1e-300)

    def back(k: Index | int, lower: Reals) -> Reals:
        tried = jnp.maximum(upper - 1.02 * width * jnp.exp2(0.5 * k), 0.0)
        better = (lane.lower(tried) > log_delta) & (tried > lower)
        return jnp.where(better, tried, lower)

    lower = lax.fori_loop(0, BACK, back, jnp.zeros(()))
    return jnp.where(gap < 0, upper, lower)


def _solved(lane: _Lane, guess: Reals, delta: Reals) -> LogBounds:
    """The epsilons at which the upper and the lower bound on delta meet delta."""
    held, log_delta = lax.stop_gradient((lane, jnp.maximum(jnp.log(delta), LEAST)))
    zero = jnp.zeros(())

    def above(epsilon: Reals) -> Reals:
        return held.upper(epsilon) - log_delta

    end = held.drift + held.total.plan.high
    end = jnp.maximum(jnp.where(held.largest < jnp.inf, held.largest, end), 0.0)
    near = jnp.minimum(guess * (1.0 + 1e-9) + held.total.plan.step, end)
    high = jnp.where(above(near) <= 0, near, end)
    feasible = above(high) <= 0
    upper = jnp.where(feasible, _search(above, zero, high)[1], jnp.inf)
    upper = jnp.where(above(zero) <= 0, 0.0, upper)

    last = jnp.where(jnp.isfinite(upper), upper, end)
    lower = _infeasible(held, last, log_delta)
    # A step of Newton's that is 0 carries the derivatives.
    inside = (upper > 0) & (upper < held.largest) & jnp.isfinite(upper)
    at = jnp.where(inside, upper, 0.5 * end)
    slope = jax.jvp(held.upper, (at,), (jnp.ones(()),))[1]
    moving = lane.upper(at) - jnp.log(delta)
    newton = -(moving - lax.stop_gradient(moving)) / jnp.where(slope < 0, slope, -jnp.inf)
    upper = jnp.where(inside, upper + newton, upper)
    return LogBounds(lower, upper)
