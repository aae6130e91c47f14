"""The least noise that meets a budget, found from the safe side."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp import _check
from jaxdp._numeric.bracket import excess, last_feasible, last_feasible_near
from jaxdp._numeric.secants import secants
from jaxdp._types import Bools, RealLike, Reals
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, rounding_slack
from jaxdp.loss import reported
from jaxdp.privacy_loss import PrivacyLoss

# Two compilations of a composition differ by less than this in log delta, relatively.
_COMPOSED = 1e-12
# Of sums over nodes that do not settle, whose number depends on what is traced.
_UNSETTLED = 1e-4
# Of log(parameter): the line of a composition may change from one parameter to the next.
_CLOSE = 1e-10
# A guess is good to a percent, and no bound.
_NEAR, _GUESS_STEPS = 3e-3, 8
# What is not settled by one line after so many steps is left to repeated sums.
_QUICK_STEPS = 16
_MOST_STEPS = 100
# log delta nearer to 0 is taken for this by a guess.
_LEAST_LOG = -1e-2


class HasLogDelta(Protocol):
    """A mechanism, a privacy loss or a guarantee."""

    def log_delta(self, epsilon: RealLike) -> Reals: ...


def calibrate(
    build: Callable[[Reals], HasLogDelta],
    budget: BudgetLike,
    *,
    lower: RealLike = 1e-9,
    upper: RealLike = 1e12,
    largest: bool = False,
    whole: bool = False,
) -> Reals:
    """The least parameter in [lower, upper] whose build(parameter) meets the budget.

    `build` maps an array of parameters to something with `log_delta`, elementwise, whose delta
    falls as the parameter grows (a noise scale, say); it may close over traced values. With
    `largest` the greatest parameter, where delta grows with it (a sampling probability), and with
    `whole` too the greatest whole number (of steps: `lambda n: n * loss`), itself looked at, 0
    where none passes; `build` gets whole numbers only. The shape is the common one of the budget,
    the bracket and what is built. Never on the unsafe side: log_delta(result) <= log(budget.delta),
    with a slack for rounding, checked after the search. inf (0 with `largest`) where nothing in
    the bracket passes, bad traced input included.

    64 geometric bisections: relative error log(upper / lower) 2^-64, at least 2e-15; for the least
    parameter of a composition about 5 secants from where saddles have it: log delta to 1e-8 where
    one line settles it, else as near as what is reported (traced sampled Gaussians and Laplaces:
    1e-4).
    Derivatives by the implicit function theorem, through the budget and all that `build` closes
    over, where something is traced. Compositions of known parameters are searched by calls of what
    is compiled for all of them; of everything else wrap repeated calls in `jax.jit`.
    """
    budget = as_budget(budget)
    lower, upper = _check.positive("lower", lower), _check.positive("upper", upper)
    ends = lower, upper
    if _check.all_concrete(ends) and not bool(jnp.all(jnp.less(*ends))):
        raise ValueError(f"lower must lie below upper, got {lower} and {upper}")

    if whole:
        if not largest:
            raise ValueError("whole must come with largest=True, got largest=False")
        given, build = build, lambda parameter: given(jnp.floor(parameter))

    def residual(parameter: Reals) -> Reals:
        return excess(build(parameter).log_delta(budget.epsilon), budget.delta)

    common = jnp.broadcast_arrays(budget.epsilon, budget.delta, lower, upper)[0]
    built = jax.eval_shape(build, common)
    composed = isinstance(built, PrivacyLoss)
    shapes = built.shape if composed else jax.eval_shape(residual, common).shape
    shape = jnp.broadcast_shapes(common.shape, shapes)
    ends = (lower, upper) if largest else (upper, lower)
    delta, safe, unsafe = (jnp.broadcast_to(a, shape) for a in (budget.delta, *ends))
    # What is known now is searched by calls of what is compiled for every composition.
    safest = build(safe)
    known = composed and _check.all_concrete(budget, ends, safest)
    if known and isinstance(safest, PrivacyLoss) and not largest and _never(safest, budget):
        return jnp.full(shape, jnp.inf)
    if not known:
        # Zeros known only at run time: XLA takes long chains of constants for a stuck rewrite.
        zero = jnp.minimum(delta, 0.0)
        safe, unsafe = safe + zero, unsafe + zero
    if largest:
        slack = rounding_slack(delta) + _COMPOSED
        found = last_feasible(residual, safe, unsafe, slack, 0.0, compiled=not known)
        return _largest_whole(residual, found, upper, slack) if whole else found
    if not composed:
        return last_feasible(residual, safe, unsafe, rounding_slack(delta))
    return _least(build, residual, budget, safe, unsafe, known)


def _largest_whole(
    residual: Callable[[Reals], Reals], found: Reals, upper: Reals, slack: Reals
) -> Reals:
    """The larger of the two whole numbers next to `found` that passes; 0 where none does."""
    below = jnp.floor(lax.stop_gradient(found))
    above = below + 1.0
    below = jnp.where(residual(below) <= 0, below, 0.0)
    return jnp.where((above <= upper) & (residual(above) <= -slack), above, below)


def _never(safest: PrivacyLoss, budget: Budget) -> bool:
    """Whether every delta is 0 and every loss larger than epsilon, even there."""
    none = np.all(np.asarray(budget.delta) == 0)
    return bool(none) and bool(np.all(np.asarray(safest.renyi(jnp.inf)) > budget.epsilon))


def _least(
    build: Callable,
    residual: Callable[[Reals], Reals],
    budget: Budget,
    safe: Reals,
    unsafe: Reals,
    known: bool,
) -> Reals:
    slack = _composed_slack(budget.delta, safe)
    fixed = lax.stop_gradient((safe, unsafe))
    start = lax.stop_gradient(_start(build, budget, *fixed, compiled=not known))
    found, sure = _by_one_line(build, budget, *fixed, slack, start, compiled=not known)
    if known and np.all(sure):
        return found
    guess = jnp.where(jnp.isfinite(found), found, start.guess[0]), start.guess[1]
    if known:

        def reported_excess(x: Reals, done: Bools, _: None) -> tuple[Reals, Bools, None]:
            value = build(x).log_delta(jnp.where(done, jnp.inf, budget.epsilon))
            return excess(value, budget.delta), ~done, None

        slack = slack + reported.search_slack(build(safe).terms)
        args = *fixed, slack, guess, _CLOSE, _MOST_STEPS
        other = secants(reported_excess, *args, compiled=False)[0]
        return jnp.where(sure, found, jnp.where(jnp.isnan(other), jnp.inf, other))
    settled = lax.stop_gradient((found, sure))
    if any(term.noise.summed for term in jax.eval_shape(build, safe).terms):
        slack = slack + _UNSETTLED
    return last_feasible_near(residual, safe, unsafe, slack, guess, close=_CLOSE, known=settled)


@jax.jit
def _composed_slack(delta: Reals, parameters: Reals) -> Reals:
    log_delta = jnp.log(jnp.where(delta == 0, 1.0, delta))
    return jnp.broadcast_to(_COMPOSED * (1.0 + jnp.abs(log_delta)), parameters.shape)


class _Start(NamedTuple):
    """Where saddles alone would have the root."""

    guess: tuple[Reals, Reals]  # and the slope of log delta in log(parameter)
    slope: Reals  # of `_power_gap`
    nothing: Reals
    tilts: Reals  # of the saddle of each direction, (*batch, directions)


def _start(build: Callable, budget: Budget, safe: Reals, unsafe: Reals, compiled: bool) -> _Start:
    def residual(parameter: Reals, done: Bools, _: Reals) -> tuple[Reals, Bools, Reals]:
        loss = build(parameter)
        rough, tilts = reported.rough_log_delta(loss.terms, budget.epsilon, loss.both)
        return _power_gap(rough, budget.delta), ~done, tilts

    middle, falling, nothing = _middle(safe, unsafe)
    tilts = jnp.ones((*safe.shape, 2 if jax.eval_shape(build, safe).both else 1))
    args = safe, unsafe, nothing, (middle, falling), _NEAR, _GUESS_STEPS, compiled, tilts
    found, _, slope, tilts = secants(residual, *args)
    return _Start(_guessed(found, middle, slope, budget.delta), slope, nothing, tilts)


@jax.jit
def _power_gap(rough: Reals, delta: Reals) -> Reals:
    """Of tails as of powers: nearly straight in log(parameter)."""
    return jnp.log(_least_log(delta) / jnp.minimum(rough, _LEAST_LOG))


def _least_log(delta: Reals) -> Reals:
    return jnp.minimum(jnp.log(delta), _LEAST_LOG)


@jax.jit
def _middle(safe: Reals, unsafe: Reals) -> tuple[Reals, Reals, Reals]:
    """Of the bracket; a slope to begin with; no slack."""
    middle = jnp.sqrt(safe) * jnp.sqrt(unsafe)
    return middle, jnp.full_like(middle, -2.0), jnp.zeros_like(middle)


@jax.jit
def _guessed(found: Reals, middle: Reals, slope: Reals, delta: Reals) -> tuple[Reals, Reals]:
    guess = jnp.where(jnp.isfinite(found), found, middle)
    return guess, -_least_log(delta) * slope


def _by_one_line(
    build: Callable,
    budget: Budget,
    safe: Reals,
    unsafe: Reals,
    slack: Reals,
    start: _Start,
    compiled: bool,
) -> tuple[Reals, Bools]:
    """The root by bounds on delta that need one line, and where the one there is settled."""

    def residual(parameter: Reals, done: Bools, tilts: Reals) -> tuple[Reals, Bools, Reals]:
        loss = build(parameter)
        # At an infinite epsilon nothing is summed.
        at = loss.terms, jnp.where(done, jnp.inf, budget.epsilon), tilts, loss.both
        value, settled, found = reported.quick_log_delta(*at)
        tilts = jnp.where(done[..., None], tilts, found)
        return _straightened(value, slack, budget.delta), settled, tilts

    guess = start.guess[0], start.slope
    args = safe, unsafe, start.nothing, guess, _CLOSE, _QUICK_STEPS, compiled, start.tilts
    return secants(residual, *args)[:2]


@jax.jit
def _straightened(log_delta: Reals, slack: Reals, delta: Reals) -> Reals:
    """Of the sign of `excess` with the slack; far from 1 nearly straight in log(parameter)."""
    log_delta += slack
    far = (log_delta < _LEAST_LOG) & (jnp.log(delta) < _LEAST_LOG)
    far &= (log_delta > -jnp.inf) & (delta > 0)
    gap = _power_gap(jnp.where(far, log_delta, -1.0), jnp.where(far, delta, 0.5))
    return jnp.where(far, gap, excess(log_delta, delta))
