"""The best member of a noise family for a budget: least error, from the safe side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import lax, xp
from jaxdp._core.precision import callers_are_wide
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import log1p, round_up
from jaxdp._numeric.search import secant_bracket, secants, zoom
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import Term
from jaxdp.design.calibrate import SLOPE, straightened
from jaxdp.design.families import Family, kind_of, known, least_of, name_of
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, excess_log_delta
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.noise.base import Noise
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.staircase import Staircase, staircase_split

# Errors of one coordinate that a fit minimises, and kinds of accounting.
OBJECTIVES = ("variance", "mean_absolute")
ACCOUNTING = ("exact", "zcdp")
# Points of the grid while a shape is searched. chosen: its bound is smooth, if not near
_SEARCH_POINTS = 2**11
# Share of a sensitivity that counts for the rounding of scale and shape to float32. derived: the
# truncated Laplace's delta moves by |log delta| 2^-23 of itself, 700 of them; others need less
_ROUNDED = 2.0**-13


@in_float64
def fit_noise(
    family: Family,
    budget: BudgetLike,
    sensitivity: ArrayLike | JointSensitivity,
    count: ArrayLike = 1,
    objective: str = "variance",
    *,
    accounting: str = "exact",
) -> Noise:
    """The member of a family of noises with the least error that meets a budget.

    Args:
        family: "gaussian", "laplace", "truncated_laplace", "flipped_huber", "offset_gaussian",
            "subbotin", "staircase", "discrete_gaussian" or "discrete_laplace"; or the class of your
            own noise of one scale.
        budget: a `Budget` or (epsilon, delta) of all releases together, epsilon in nats; batched.
        sensitivity: of one release, which makes `count` coordinates a box; or a `JointSensitivity`,
            where the better of its dominating directions is taken (the Gaussian sees l2 only).
            Noises on the integers need whole numbers.
        count: whole number of releases.
        objective: "variance" or "mean_absolute", E T^2 or E |T| of one coordinate.
        accounting: "exact" meets the composed delta as `PrivacyLoss` bounds it; "zcdp" the sum of
            `noise.zcdp`, converted.

    Returns:
        The noise, batched over all arguments. Infinite scale where nothing meets the budget (delta
        = 0 for a Gaussian tail or a truncated noise). A discrete Gaussian keeps it as it is found:
        of small ones delta does not always fall as the scale grows.

    For a family with a shape (alpha / gamma of the flipped Huber, offset / scale, power - 1 of the
    Subbotin, bound / scale) the least scale is found for every shape of a grid, then on finer grids
    around the best; the flipped Huber also on its curve count alpha sensitivity = gamma^2 epsilon,
    where its loss has a plateau exactly at epsilon, as one scalar root. The staircase meets epsilon
    at delta = 0 with `staircase_split`. Call it under `jax.jit` in a loop; where JAX has no float64
    there, scale and shape are rounded to float32, so the member is that of a sensitivity larger by
    1.3e-4 of itself, except on the integers. Arguments that do not go together: `ValueError`.

    >>> import jaxdp as dp
    >>> print(f"{dp.fit_noise('laplace', (1.0, 1e-5), 2.0).scale:.4f}")
    2.0000
    """
    budget = as_budget(budget)
    family = known("family", family)
    checks.one_of("objective", objective, OBJECTIVES)
    checks.one_of("accounting", accounting, ACCOUNTING)
    once = checks.is_concrete(count) and bool(np.all(np.asarray(count) == 1))
    count = checks.whole("count", count, 1.0)
    if not isinstance(sensitivity, JointSensitivity):
        sensitivity = checks.positive("sensitivity", sensitivity)
        sensitivity = _counted(family, sensitivity, (budget, sensitivity, count))
        return _fit(family, objective, accounting, budget, sensitivity, count, once)
    return _fit_joint(family, objective, accounting, budget, sensitivity, count, once)


def _counted(family: Family, sensitivity: Reals, arguments: Any) -> Reals:
    """The sensitivity that a fit meets: larger where the caller rounds its result to float32."""
    if kind_of(family).on_integers:
        return checks.whole("sensitivity", sensitivity)
    is_kept = callers_are_wide() or checks.all_concrete(arguments)
    return sensitivity if is_kept else sensitivity * (1.0 + _ROUNDED)


def _fit_joint(
    family: Family,
    objective: str,
    accounting: str,
    budget: Budget,
    joint: JointSensitivity,
    count: Reals,
    once: bool,
) -> Noise:
    """The better of the members for the dominating directions of `joint`."""
    if family == "staircase" or not (isinstance(family, str) or family.log_concave):
        name = name_of(family)
        raise ValueError(f"a joint sensitivity needs log-concave noise, which {name} is not")
    if family == "gaussian":
        size = _counted(family, joint.tightened().l2, (budget, joint, count))
        return _fit(family, objective, accounting, budget, size, count, once)
    shifts, counts = joint.dominating()
    shifts = _counted(family, shifts, (budget, joint, count))
    budget = Budget(budget.epsilon[..., None], budget.delta[..., None])
    every = _fit(family, objective, accounting, budget, shifts, counts * count[..., None], False)
    return least_of(every, getattr(every, objective)(), -1)


def _fitted(
    family: Family,
    objective: str,
    accounting: str,
    budget: Budget,
    shift: Reals,
    count: Reals,
    once: bool,
) -> Noise:
    lanes = Lanes(*xp.broadcast_arrays(budget.epsilon, budget.delta, shift, count))
    if family == "staircase":
        return _fit_staircase(objective, lanes)
    if family == "gaussian" and accounting == "exact":
        mu = largest_gdp(Budget(lanes.epsilon, lanes.delta)).mu
        return Gaussian(round_up(lanes.shift * xp.sqrt(lanes.fold) / mu, 4))
    if family == "laplace" and accounting == "exact" and once:
        ratio = largest_laplace_ratio(Budget(lanes.epsilon, lanes.delta))
        return Laplace(round_up(lanes.shift / ratio, 4))

    def log_delta(noise: Noise, lanes: Lanes, final: bool) -> Reals:
        if accounting == "zcdp":
            xi, rho = noise.zcdp(lanes.shift)
            total = ZCDP(checks.guard(xi * lanes.fold), checks.guard(rho * lanes.fold))
            return total.log_delta(lanes.epsilon)
        if once:
            return noise.log_delta(lanes.shift, lanes.epsilon)
        noise, shift, count = jax.tree.map(lambda x: x[..., None], (noise, lanes.shift, lanes.fold))
        terms = (Term(Additive(noise, shift), count),)
        if final:
            return evaluate.log_delta(terms, lanes.epsilon, False).upper
        return evaluate.log_bounds(terms, lanes.epsilon, False, _SEARCH_POINTS).upper

    return least_error(
        family, objective, lanes, log_delta, FAR if once or accounting == "zcdp" else NEAR
    )


_fit = compiled(_fitted, (0, 1, 2, 6))


def _fit_staircase(objective: str, lanes: Lanes) -> Noise:
    """Pure: the loss of `count` releases is at most epsilon."""
    epsilon = lanes.epsilon / lanes.fold * (1.0 - 4e-16)
    usable = epsilon > 0
    epsilon = xp.where(usable, epsilon, 1.0)
    shift = xp.where(usable, lanes.shift, xp.inf)
    return Staircase(epsilon, shift, staircase_split(epsilon, objective))


# How near a scale is found, in its logarithm, while a shape is searched. chosen: it only ranks
# shapes, and is never returned
_SEARCH_CLOSE = 1e-5
# The same for the result. chosen: near its rounding
_CLOSE = 5e-12
# Shapes of a round; the next one lies between the neighbours of the best. chosen: with the rounds
# a shape is known to (2 / 15)^4 of its range, in logarithms
_SHAPES = 16
_ROUNDS = 4
# Relative slack of a search in log delta. chosen: above the rounding of log delta
_SLACK = 4e-12
# Safe end of a search, over the larger of the Gaussian's and the Laplace's scale. chosen: no closed
# form or conversion needs more
FAR = 1e3
# The same where a composition is exact. derived: its best member needs at most sqrt(2), the
# Laplace's deviation over its scale; far beyond, a grid knows no delta
NEAR = 2.0


class Lanes(NamedTuple):
    """Requirements that every fit of the batch must meet, arrays of one shape."""

    epsilon: Reals
    delta: Reals
    shift: Reals
    fold: Reals


# log delta of a noise for each lane; True on the last look, which may cost more.
LogDelta: TypeAlias = Callable[[Noise, Lanes, bool], Reals]


def least_error(
    family: Family, objective: str, lanes: Lanes, log_delta: LogDelta, reach: float = FAR
) -> Noise:
    """The member of `family` with the least error whose `log_delta` meets the budget."""
    build, shapes = kind_of(family)._member, kind_of(family).shapes

    def least(shape: Reals, lanes: Lanes, final: bool) -> Noise:
        """The least member of `shape` inside the budget."""

        def residual(shape: Reals, deviation: Reals, lanes: Lanes) -> Reals:
            return _excess(log_delta(build(shape, deviation), lanes, final), lanes.delta)

        def of_others(deviation: Reals, done: Bools) -> Reals:
            value: Any = np.full(done.shape, np.nan)
            value[~done] = residual(*jax.tree.map(lambda x: x[~done], (shape, deviation, lanes)))
            return value

        safe, unsafe, guess = _bracket(lanes, reach)
        close = _CLOSE if final else _SEARCH_CLOSE
        if checks.all_concrete(shape, lanes):
            found = secants(of_others, safe, unsafe, guess, SLOPE, close).found
            return build(shape, xp.where(xp.isnan(found), xp.inf, found))
        of_all = partial(residual, shape, lanes=lanes)
        return build(shape, secant_bracket(of_all, safe, unsafe, close, guess, SLOPE))

    def error(shape: Reals, lanes: Lanes) -> Reals:
        value = getattr(least(shape, lanes, False), objective)()
        return xp.where(xp.isnan(value), xp.inf, value)

    start = xp.zeros_like(lanes.shift) + shapes[0]
    if shapes[0] == shapes[1]:
        return least(start, lanes, True)
    tall = jax.tree.map(lambda x: xp.broadcast_to(x, (_SHAPES, *x.shape)), lanes)

    ends = xp.log(start), xp.log(start * (shapes[1] / shapes[0]))
    shape = xp.exp(zoom(lambda x: error(xp.exp(x), tall), *ends, _SHAPES, _ROUNDS)[0])
    if family == "truncated_laplace":
        shape = xp.stack([shape, _designed_bound(lanes)])
        # XLA takes long chains of operations on broadcast arrays for a stuck rewrite.
        lanes = lax.optimization_barrier(
            jax.tree.map(lambda x: xp.broadcast_to(x, shape.shape), lanes)
        )
    solution = least(shape, lanes, True)
    if family == "flipped_huber":
        candidates = (solution, _on_plateau(lanes, log_delta))
        solution = jax.tree.map(lambda *x: xp.stack(x), *candidates)
    elif family != "truncated_laplace":
        return solution
    return least_of(solution, getattr(solution, objective)(), 0)


def _designed_bound(lanes: Lanes) -> Reals:
    """bound / scale of the truncated Laplace of Geng et al.: its loss is epsilon, or infinite."""
    epsilon = lanes.epsilon / lanes.fold
    return log1p(xp.expm1(epsilon) / xp.maximum(2.0 * lanes.delta, 1e-300))


def _bracket(lanes: Lanes, reach: float) -> tuple[Reals, Reals, Reals]:
    """Standard deviations that are enough for the best member of any family, surely not, likely."""
    budget = Budget(lanes.epsilon, lanes.delta)
    gaussian = xp.sqrt(lanes.fold) * lanes.shift / largest_gdp(budget).mu
    laplace = lanes.fold * lanes.shift / largest_laplace_ratio(budget)
    finite = xp.where(xp.isfinite(gaussian), gaussian, 0.0)
    safe = reach * xp.maximum(finite, xp.where(xp.isfinite(laplace), laplace, 0.0))
    safe = xp.where(safe > 0, safe, 1e30 * lanes.shift)
    unsafe = 1e-3 * xp.minimum(xp.minimum(gaussian, laplace), lanes.shift * 1e3)
    return safe, unsafe, xp.minimum(gaussian, laplace)


def _on_plateau(lanes: Lanes, log_delta: LogDelta) -> Noise:
    """The flipped Huber with count alpha shift = gamma^2 epsilon: a root in alpha / gamma."""

    def member(shape: Reals) -> Noise:
        gamma = shape * lanes.fold * lanes.shift / xp.maximum(lanes.epsilon, 1e-6)
        return FlippedHuber(shape * gamma, gamma)

    def residual(shape: Reals) -> Reals:
        return _excess(log_delta(member(shape), lanes, True), lanes.delta)

    zero = xp.zeros_like(lanes.shift)
    return member(secant_bracket(residual, zero + 60.0, zero + 1e-2))


def _excess(log_delta: Reals, delta: Reals) -> Reals:
    """Excess of log delta: at most 0 where the budget is met with a slack for rounding."""
    log_target = xp.log(xp.where(delta == 0, 1.0, delta))
    slack = _SLACK * (1.0 + xp.abs(log_target))
    return straightened(excess_log_delta(log_delta, delta), slack, delta)
