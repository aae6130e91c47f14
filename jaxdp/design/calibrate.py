"""The least noise that meets a budget, found from the safe side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import ArrayLike, Bools, Reals, Shape
from jaxdp._numeric.search import last_feasible, secant_bracket, secants, with_slopes_of_root
from jaxdp.accountant import evaluate
from jaxdp.accountant.primitive import searched
from jaxdp.accountant.steps import LogBounds
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.guarantee.base import (
    Budget,
    BudgetLike,
    as_budget,
    excess_log_delta,
    require_profile,
    rounding_slack,
)
from jaxdp.guarantee.conversions import HasZCDP, to_zcdp
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.risk import HasProfile, Rate

T = TypeVar("T")
# Ends that are tried where none is given. chosen: beyond all scales and numbers of steps
LOWER, UPPER = 1e-9, 1e12
# Halvings of log(parameter) to an end of what it may be. derived: to the last place
_HALVINGS = 70


def bracket_of(
    build: Callable[[Reals], object], lower: ArrayLike | None, upper: ArrayLike | None
) -> tuple[Reals, Reals]:
    """Both ends; where one is None, the last parameter that `build` takes on that side."""
    lower, upper = (
        None if end is None else checks.positive(name, end)
        for name, end in (("lower", lower), ("upper", upper))
    )
    given = [x for x in (lower, upper) if x is not None and checks.is_concrete(x)]
    inside = [float(y) for x in given for y in np.ravel(np.asarray(x))]
    outwards = (10.0**k for size in range(1, 10) for k in (size, -size))
    start = next((x for x in (*inside, 1.0, *outwards) if _takes(build, x)), None)

    def last(default: float) -> Reals:
        return xp.asarray(default if start is None else _end(build, start, default))

    low, high = last(LOWER) if lower is None else lower, last(UPPER) if upper is None else upper
    if checks.all_concrete((low, high)) and not bool(xp.all(low < high)):
        raise ValueError(f"lower must lie below upper, got {low} and {high}")
    return low, high


def _takes(build: Callable[[Reals], object], parameter: float) -> bool:
    try:
        build(xp.asarray(parameter))
    except ValueError:
        return False
    return True


def _end(build: Callable[[Reals], object], good: float, bad: float) -> float:
    """`bad`, or the last parameter on the way to it that `build` takes."""
    if _takes(build, bad):
        return bad
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(good) * np.sqrt(bad))
        good, bad = (middle, bad) if _takes(build, middle) else (good, middle)
    return good


# Relative slack of log delta. measured: two compilations of a composition differ by less
_COMPOSED = 1e-12
# Tolerance of log(parameter). chosen: log delta to 1e-9
_CLOSE = 1e-10
# Slope of `straightened` in log(parameter), at first. chosen: right for noise; secants improve it
SLOPE = -2.0
# Relative distance of log delta at which a rough value suffices. chosen: far above _CLOSE
_MARGIN = 1e-6
# Largest width of its bracket over that distance. chosen: the first slopes are as far off
_ROUGH = 0.1
# Fewest entries of a batch of which some are solved first. chosen
_FEWEST = 16
# Every so many entries, in the order of the guess, are solved first. measured: 4 is as good
_APART = 8
# log delta nearer to 0 is not straightened. chosen: powers do not fit there
_LEAST_LOG = -1e-2


@in_float64(side=lambda largest=False, **_: -1.0 if largest else 1.0)
def calibrate(
    build: Callable[[Reals], HasProfile | HasZCDP],
    budget: BudgetLike | Rate | ZCDP,
    *,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    largest: bool = False,
    whole: bool = False,
) -> Reals:
    """The least parameter, such as a noise scale, whose release meets a budget.

    Args:
        build: maps an array of parameters, elementwise, to what has `log_delta`: a mechanism, a
            privacy loss or a guarantee, whose delta falls as the parameter grows. It may close over
            traced values.
        budget: a `Budget` or (epsilon, delta), epsilon in nats; a guarantee with one epsilon; a
            `risk.Rate`; or a `ZCDP`, if `build` returns what `to_zcdp` takes. Batched.
        lower, upper: ends of the bracket that is searched, above 0; they broadcast. None: 1e-9 and
            1e12, or the last parameters that `build` takes without a `ValueError`.
        largest: find the greatest parameter, where delta grows with it (a sampling probability).
        whole: find the least whole number, or with `largest` the greatest (of steps: `lambda n: n *
            loss`); `build` gets whole numbers only.

    Returns:
        The parameter, in the common shape of budget, bracket and built objects, never on the unsafe
        side: log_delta(result) <= log(budget.delta), with a slack for rounding, checked after the
        search; under a `ZCDP`, xi + a rho is at most the budget's at every order a. inf (0 with
        `largest`) where nothing in the bracket passes, bad traced input included.

    64 geometric bisections: relative error log(upper / lower) 2^-64, at least 2e-15; for the least
    parameter of a composition about a dozen secants, to 1e-10 of the parameter. Derivatives by the
    implicit function theorem, through the budget and all that `build` closes over, where something
    is traced. Concrete values are searched by NumPy. Inside `jax.jit` a composition is a loop that
    calls the host about five times. lower >= upper: `ValueError`.

    >>> import jaxdp as dp
    >>> scale = dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), (1.0, 1e-5))
    >>> print(f"{scale:.4f}")
    3.7306
    """
    if isinstance(budget, Rate):
        options: Any = {"lower": lower, "upper": upper, "largest": largest, "whole": whole}
        return budget.solved(lambda budget: calibrate(build, budget, **options), largest)
    budget = budget if isinstance(budget, ZCDP) else as_budget(budget)
    to_whole = xp.floor if largest else xp.ceil
    tried = (lambda parameter: build(to_whole(parameter))) if whole else build
    lower, upper = bracket_of(tried, lower, upper)
    safe, unsafe = (lower, upper) if largest else (upper, lower)
    search = _begun(tried, budget, safe, unsafe)
    if whole or largest:
        return _by_halvings(search, whole, largest)
    return _least_parameter(search)


@in_float64
def calibrate_from(
    guess: tuple[Reals, Reals] | None,
    build: Callable[[Reals], HasProfile],
    budget: BudgetLike,
    *,
    lower: ArrayLike = LOWER,
    upper: ArrayLike = UPPER,
) -> Reals:
    """`calibrate` of a known composition from a guess and the slope of `straightened` there.

    Both have shapes that broadcast to the result's. None: the middle of the bracket.
    """
    search = _begun(build, as_budget(budget), *bracket_of(build, lower, upper)[::-1])
    return _least_parameter(search, guess)


def least_of_composition(
    least: Callable[[Budget, T], Reals],
    build: Callable[[Reals, T], PrivacyLoss],
    budget: Budget,
    numbers: T,
    shape: Shape,
    trailing: int = 0,
) -> Reals:
    """least(budget, numbers), the least parameter with which build(parameter, numbers) meets it.

    Traced numbers go to the host in one call, with the slopes of the implicit function theorem.
    `shape` is that of the result; leaves of `numbers` have `trailing` more axes.
    """
    if checks.all_concrete(budget, numbers):
        return least(budget, numbers)

    def spread(tree: Any, axes: int) -> Any:
        return jax.tree.map(lambda x: xp.broadcast_to(x, (*shape, *x.shape[x.ndim - axes :])), tree)

    given = spread(budget, 0), spread(numbers, trailing)
    leaves, structure = jax.tree.flatten(given)
    is_known = [checks.is_concrete(x) for x in leaves]

    def residual(parameter: Reals, traced: Any) -> Reals:
        """Known numbers do not move: some have no slopes, as whole sensitivities."""
        rest = iter(traced)
        every = [x if known else next(rest) for x, known in zip(leaves, is_known, strict=True)]
        budget, numbers = jax.tree.unflatten(structure, every)
        log_delta = build(parameter, numbers).log_delta(budget.epsilon)
        slack = _composed_slack(budget.delta, parameter)
        return straightened(excess_log_delta(log_delta, budget.delta), slack, budget.delta)

    (found,) = searched(lambda given: (least(*given),), 1, given, shape)
    found = xp.where(xp.isnan(found), xp.inf, found)
    traced = [x for x, known in zip(leaves, is_known, strict=True) if not known]
    return with_slopes_of_root(residual, lambda x, _: x, found, traced, found)


class _Search(NamedTuple):
    """Function and bracket of a search, in the shape of its result."""

    residual: Callable[[Reals], Reals]  # log delta over the budget's: feasible up to 0
    build: Callable[[Reals], Any]
    budget: Any
    delta: Reals  # of the budget; the rho of a zCDP
    safe: Reals  # the end of the bracket with the least delta
    unsafe: Reals
    safest: Any  # built there
    composed: bool  # whether that is a `PrivacyLoss`
    known: bool  # composed, and nothing is traced


def _begun(
    build: Callable[[Reals], Any], budget: Budget | ZCDP, safe: Reals, unsafe: Reals
) -> _Search:
    def residual(parameter: Reals) -> Reals:
        if isinstance(budget, ZCDP):
            return to_zcdp(build(parameter)).excess(budget)
        return excess_log_delta(build(parameter).log_delta(budget.epsilon), budget.delta)

    first, delta = jax.tree.leaves(budget)
    common = xp.broadcast_arrays(first, delta, safe, unsafe)[0]
    built = jax.eval_shape(build, common)
    if isinstance(budget, Budget):
        require_profile("the result of build", built)
    composed = isinstance(built, PrivacyLoss) and isinstance(budget, Budget)
    shapes = built.shape if composed else jax.eval_shape(residual, common).shape
    shape = xp.broadcast_shapes(common.shape, shapes)
    ends = safe, unsafe
    delta, safe, unsafe = (xp.broadcast_to(a, shape) for a in (delta, *ends))
    # Known compositions are searched by calls of the programs of all compositions.
    safest = build(safe)
    is_known = composed and checks.all_concrete(budget, ends, safest)
    if is_known:  # The residual reads numbers: the search must not trace it.
        delta, safe, unsafe = jax.tree.map(np.asarray, (delta, safe, unsafe))
    else:
        # Zeros known only at run time: XLA takes long chains of constants for a stuck rewrite.
        zero = xp.minimum(delta, 0.0)
        safe, unsafe = safe + zero, unsafe + zero
    return _Search(residual, build, budget, delta, safe, unsafe, safest, composed, is_known)


def _rough_excess(search: _Search, parameter: Any, done: np.ndarray, share: float = np.inf) -> Any:
    """Excess of a known composition's log delta over the budget's; NaN in entries that are done.

    No further engine runs if the bracket's distance from the target exceeds its width / `share`.
    """
    loss, shape, lanes = search.build(parameter), done.shape, np.flatnonzero(~done)
    leaves, tree = jax.tree.flatten(loss.terms)
    flat = [np.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]) for x in leaves]
    terms = tree.unflatten([x[lanes] for x in flat])
    budgets = np.broadcast_arrays(*jax.tree.leaves(search.budget), np.empty(shape))[:2]
    epsilon, delta = (xp.asarray(np.ravel(x)[lanes]) for x in budgets)
    with np.errstate(divide="ignore"):
        target = np.log(delta)
    margin = np.where(delta > 0, _MARGIN * (1.0 + np.abs(target)), 0.0)

    def stop_when(bounds: LogBounds) -> Any:
        distance = np.maximum(bounds.lower - target, target - margin - bounds.upper)
        return (distance > 0) & (bounds.upper - bounds.lower <= share * distance)

    found = evaluate.log_delta(terms, epsilon, loss.both, stop_when)
    lower, upper = (np.asarray(x) for x in found)
    above = lower > target
    value = np.where(above, 0.5 * (np.where(above, lower, 0.0) + upper), upper)
    excess = np.full(done.size, np.nan)
    excess[lanes] = excess_log_delta(value, delta)
    return excess.reshape(shape)


def _by_halvings(search: _Search, whole: bool, largest: bool) -> Reals:
    """The last parameter before the unsafe end that passes, or the last whole one."""
    slack = rounding_slack(search.delta) + _COMPOSED
    residual = search.residual
    if search.known:
        residual = partial(_rough_excess, search, done=np.zeros(search.delta.shape, bool))
    nothing = 0.0 if largest else np.inf
    parameter = last_feasible(residual, search.safe, search.unsafe, slack, nothing)
    if not whole:
        return parameter
    found, step = parameter != nothing, 1.0 if largest else -1.0
    near = lax.stop_gradient(xp.where(found, parameter, search.unsafe))
    near = xp.floor(near) if largest else xp.ceil(near)
    further = near + step
    is_inside = (further <= search.unsafe) if largest else (further >= xp.fmax(search.unsafe, 1.0))
    further = xp.where(is_inside, further, near)
    value = xp.where(search.residual(near) <= 0, near, nothing)
    passes = search.residual(further) <= -slack
    return xp.where(found, xp.where(passes, further, value), nothing)


def _least_parameter(search: _Search, guess: tuple[Reals, Reals] | None = None) -> Reals:
    """The least parameter that passes."""
    residual, delta, safe, unsafe = search.residual, search.delta, search.safe, search.unsafe
    if not search.composed:
        return last_feasible(residual, safe, unsafe, rounding_slack(delta))
    if search.known:
        return _least_of_known(search, guess)
    slack = _composed_slack(delta, safe)
    return secant_bracket(
        lambda x: straightened(residual(x), slack, delta), safe, unsafe, _CLOSE, SLOPE
    )


def _least_of_known(search: _Search, guess: tuple[Reals, Reals] | None) -> Reals:
    """The least parameters of known compositions: of some entries, then of those between them."""
    shape, ends = search.delta.shape, (search.delta, search.safe, search.unsafe)
    delta, safe, unsafe = (np.ravel(np.asarray(x)) for x in ends)
    slack = np.asarray(_composed_slack(search.delta, search.safe)).ravel()
    result: Any = np.full(safe.shape, np.inf)
    # A delta of 0 needs a largest loss of at most epsilon at the safe end.
    if not delta.any() and np.all(np.asarray(search.safest.renyi(xp.inf)) > search.budget.epsilon):
        return xp.asarray(result.reshape(shape))

    def searched(lanes: Any, start: Any, slope: Any) -> Any:
        def residual(x: Reals, done: Bools) -> Any:
            parameter, is_done = safe.copy(), np.ones(safe.shape, bool)
            parameter[lanes], is_done[lanes] = x, done
            at = parameter.reshape(shape), is_done.reshape(shape)
            excess = _rough_excess(search, *at, _ROUGH).ravel()[lanes]
            return straightened(excess, slack[lanes], delta[lanes])

        ends = xp.asarray(safe[lanes]), xp.asarray(unsafe[lanes])
        state = secants(residual, *ends, start, slope, _CLOSE)
        result[lanes] = np.where(np.isnan(state.found), np.inf, state.found)
        return state.slope

    like = (largest_gdp(search.budget).mu ** -1.0, SLOPE) if guess is None else guess
    key: Any = np.log(np.broadcast_to(like[0], shape)).ravel()
    slope: Any = np.broadcast_to(like[1], shape).ravel()
    slope = np.where(slope < 0, slope, SLOPE)
    order = np.argsort(key)
    is_first = np.arange(order.size) % (_APART if order.size >= _FEWEST else 1) == 0
    is_first[-1:] = True
    first, others = order[is_first], order[~is_first]
    slope = searched(first, None if guess is None else np.exp(key[first]), slope[first])
    if others.size:
        offset = _between(key[first], np.log(result[first]) - key[first], key[others])
        slope = _between(key[first], slope, key[others])
        searched(others, np.exp(key[others] + offset), np.where(slope < 0, slope, SLOPE))
    return xp.asarray(result.reshape(shape))


def _between(x: Any, y: Any, at: Any) -> Any:
    """Values on the straight lines between the finite y, at increasing x; NaN without any."""
    is_finite = np.isfinite(x + y)
    return np.interp(at, x[is_finite], y[is_finite]) if is_finite.any() else np.nan * at


@jitted
def _composed_slack(delta: Reals, parameters: Reals) -> Reals:
    log_delta = xp.log(xp.where(delta == 0, 1.0, delta))
    return xp.broadcast_to(_COMPOSED * (1.0 + xp.abs(log_delta)), parameters.shape)


@jitted
def straightened(excess: Reals, slack: Reals, delta: Reals) -> Reals:
    """Value with the sign of excess + slack, for a search by secants.

    Where delta is far from 1 it is nearly straight in log(parameter).
    """
    excess = excess + slack
    log_target = xp.log(xp.where(delta > 0, delta, 1.0))
    log_delta = excess + log_target
    far = (log_delta < _LEAST_LOG) & (log_target < _LEAST_LOG) & (log_delta > -xp.inf)
    ratio = xp.where(far, log_target, 1.0) / xp.where(far, log_delta, 1.0)
    return xp.where(far, xp.log(xp.where(far, ratio, 1.0)), excess)
