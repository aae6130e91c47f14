"""The best member of a noise family for a budget: least error, from the safe side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.types import ArrayLike, Index, Reals
from jaxdp._numeric.bracket import last_feasible_quick
from jaxdp._numeric.elementary import log1p, round_up
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import Term
from jaxdp.design.families import FAMILIES, MEMBERS
from jaxdp.design.flipped_huber_conditions import sufficient_log_delta
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.dominating_pair.additive import Additive
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, excess_log_delta
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.laplace_sum import largest_laplace_ratio
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import Noise
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.staircase import Staircase, staircase_split

OBJECTIVES = ("variance", "mean_absolute")
ACCOUNTING = ("exact", "zcdp", "sufficient")
# Points of the grid while a shape is searched. chosen: its bound is smooth, if not near
_SEARCH_POINTS = 2**11
_SEARCH_CLOSE = 1e-7
_CLOSE = 5e-12
# Shapes of a round; the next one lies between the neighbours of the best.
_SHAPES = 16
_ROUNDS = 4
_SLACK = 4e-12
# Deviation at which a search begins, over the larger of the Gaussian's and the Laplace's scale.
# chosen: no closed form or conversion needs more
_FAR = 1e3
# The same where a composition is exact. derived: its best member needs at most sqrt(2), the
# Laplace's deviation over its scale; far beyond, a grid knows no delta
_NEAR = 2.0


def fit_noise(
    family: str,
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
            "subbotin", "staircase", "discrete_gaussian" or "discrete_laplace".
        budget: a `Budget` or (epsilon, delta) of all releases together, epsilon in nats; batched.
        sensitivity: of one release, which makes `count` coordinates a box; or a `JointSensitivity`,
            where the better of its dominating directions is taken (the Gaussian sees l2 only).
            Lattice noises need whole numbers.
        count: whole number of releases.
        objective: "variance" or "mean_absolute", E T^2 or E |T| of one coordinate.
        accounting: "exact" meets the composed delta as `PrivacyLoss` bounds it; "zcdp" the sum of
            `noise.zcdp`, converted; "sufficient" the published K-dimensional condition of the
            flipped Huber.

    Returns:
        The noise, batched over all arguments. Infinite scale where nothing meets the budget (delta
        = 0 for a Gaussian tail or a truncated noise).

    For a family with a shape (alpha / gamma of the flipped Huber, offset / scale, power - 1 of the
    Subbotin, bound / scale) the least scale is found for every shape of a grid, then on finer grids
    around the best; the flipped Huber also on its curve count alpha sensitivity = gamma^2 epsilon,
    where its loss has a plateau exactly at epsilon, as one scalar root. The staircase meets epsilon
    at delta = 0 with `staircase_split`. Call it under `jax.jit` in a loop. Arguments that do not go
    together: `ValueError`.

    >>> import jaxdp as dp
    >>> print(f"{dp.fit_noise('laplace', (1.0, 1e-5), 2.0).scale:.4f}")
    2.0000
    """
    budget = as_budget(budget)
    checks.one_of("family", family, FAMILIES)
    checks.one_of("objective", objective, OBJECTIVES)
    checks.one_of("accounting", accounting, ACCOUNTING)
    if accounting == "sufficient" and family != "flipped_huber":
        raise ValueError(f"accounting 'sufficient' is of the flipped_huber, got {family!r}")
    once = checks.is_concrete(count) and bool(np.all(np.asarray(count) == 1))
    count = checks.whole("count", count, 1.0)
    if isinstance(sensitivity, JointSensitivity):
        joint = sensitivity
    else:
        joint = None
        sensitivity = checks.positive("sensitivity", sensitivity)
        if MEMBERS[family].lattice:
            sensitivity = checks.whole("sensitivity", sensitivity)
        if accounting == "sufficient":
            joint = JointSensitivity(count, linf=sensitivity)
            count = jnp.ones_like(count)
    if joint is not None and accounting == "sufficient":
        if checks.is_concrete(count) and bool(jnp.any(count != 1)):
            raise ValueError(f"count must be 1 with a joint sensitivity here, got {count}")
        return _fit_sufficient(objective, budget, joint)
    if joint is None:
        return _fit(family, objective, accounting, budget, sensitivity, count, once)
    if not MEMBERS[family].log_concave:
        raise ValueError(f"a joint sensitivity needs log-concave noise, which {family} is not")
    if family == "gaussian":
        size = joint.tightened().l2
        return _fit(family, objective, accounting, budget, size, count, once)
    shifts, counts = joint.dominating()
    budget = Budget(budget.epsilon[..., None], budget.delta[..., None])
    every = _fit(family, objective, accounting, budget, shifts, counts * count[..., None], False)
    return _least(every, getattr(every, objective)(), -1)


class _Lanes(NamedTuple):
    """Requirements that every fit of the batch must meet, arrays of one shape."""

    epsilon: Reals
    delta: Reals
    shift: Reals
    fold: Reals


def _fitted(
    family: str,
    objective: str,
    accounting: str,
    budget: Budget,
    shift: Reals,
    count: Reals,
    once: bool,
) -> Noise:
    lanes = _Lanes(*jnp.broadcast_arrays(budget.epsilon, budget.delta, shift, count))
    if family == "staircase":
        return _fit_staircase(objective, lanes)
    if family == "gaussian" and accounting == "exact":
        mu = largest_gdp(Budget(lanes.epsilon, lanes.delta)).mu
        return Gaussian(round_up(lanes.shift * jnp.sqrt(lanes.fold) / mu, 4))
    if family == "laplace" and accounting == "exact" and once:
        ratio = largest_laplace_ratio(Budget(lanes.epsilon, lanes.delta))
        return Laplace(round_up(lanes.shift / ratio, 4))

    def log_delta(noise: Noise, lanes: _Lanes, final: bool) -> Reals:
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

    return _search(
        family, objective, lanes, log_delta, _FAR if once or accounting == "zcdp" else _NEAR
    )


_fit = compiled(_fitted, (0, 1, 2, 6))


@partial(jax.jit, static_argnums=0)
def _fit_sufficient(objective: str, budget: Budget, joint: JointSensitivity) -> Noise:
    size = joint.tightened()
    lanes = _Lanes(*jnp.broadcast_arrays(budget.epsilon, budget.delta, size.linf, size.dimension))
    norms = [jnp.broadcast_to(n, lanes.shift.shape) for n in (size.l1, size.l2)]

    def log_delta(noise: Noise, lanes: _Lanes, final: bool) -> Reals:
        del final
        assert isinstance(noise, FlippedHuber)
        l1, l2 = (jnp.broadcast_to(n, lanes.shift.shape) for n in norms)
        here = JointSensitivity(lanes.fold, l1=l1, l2=l2, linf=lanes.shift)
        return sufficient_log_delta(noise, here, lanes.epsilon)

    return _search("flipped_huber", objective, lanes, log_delta)


_LogDelta = Callable[[Noise, _Lanes, bool], Reals]


def _search(
    family: str, objective: str, lanes: _Lanes, log_delta: _LogDelta, reach: float = _FAR
) -> Noise:
    build, shapes = MEMBERS[family].build, MEMBERS[family].shapes

    def least(shape: Reals, lanes: _Lanes, final: bool) -> Noise:
        """The least member of `shape` inside the budget."""

        def residual(deviation: Reals) -> Reals:
            return excess_log_delta(log_delta(build(shape, deviation), lanes, final), lanes.delta)

        safe, unsafe = _bracket(lanes, reach)
        slack = _SLACK * (1.0 + jnp.abs(jnp.log(jnp.where(lanes.delta == 0, 1.0, lanes.delta))))
        close = _CLOSE if final else _SEARCH_CLOSE
        return build(shape, last_feasible_quick(residual, safe, unsafe, slack, close=close))

    def error(shape: Reals, lanes: _Lanes) -> Reals:
        value = getattr(least(shape, lanes, False), objective)()
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    start = jnp.zeros_like(lanes.shift) + shapes[0]
    if shapes[0] == shapes[1]:
        return least(start, lanes, True)
    column = (-1, *(1,) * lanes.shift.ndim)
    shares = jnp.linspace(0.0, 1.0, _SHAPES).reshape(column)
    tall = jax.tree.map(lambda x: jnp.broadcast_to(x, (_SHAPES, *x.shape)), lanes)

    def zoom(_: Index, ends: tuple[Reals, ...]) -> tuple[Reals, ...]:
        low, high, best, lowest = ends
        shape = jnp.exp(low[None] + shares * (high - low)[None])
        errors = error(shape, tall)
        index = jnp.argmin(errors, axis=0)[None]
        near = (jnp.clip(index + offset, 0, _SHAPES - 1) for offset in (-1, 1, 0))
        below, above, found = (jnp.take_along_axis(shape, i, 0)[0] for i in near)
        value = jnp.take_along_axis(errors, index, 0)[0]
        best = jnp.where(value < lowest, found, best)
        return jnp.log(below), jnp.log(above), best, jnp.minimum(value, lowest)

    ends = (start, start * (shapes[1] / shapes[0]))
    first = (*map(jnp.log, ends), start, jnp.full_like(start, jnp.inf))
    shape = lax.fori_loop(0, _ROUNDS, zoom, first)[2]
    if family == "truncated_laplace":
        shape = jnp.stack([shape, _designed_bound(lanes)])
        # XLA takes long chains of operations on what is broadcast for a stuck rewrite.
        lanes = lax.optimization_barrier(
            jax.tree.map(lambda x: jnp.broadcast_to(x, shape.shape), lanes)
        )
    found = least(shape, lanes, True)
    if family == "flipped_huber":
        both = (found, _on_plateau(lanes, log_delta))
        found = jax.tree.map(lambda *x: jnp.stack(x), *both)
    elif family != "truncated_laplace":
        return found
    return _least(found, getattr(found, objective)(), 0)


def _designed_bound(lanes: _Lanes) -> Reals:
    """bound / scale of the truncated Laplace of Geng et al.: its loss is epsilon, or infinite."""
    epsilon = lanes.epsilon / lanes.fold
    return log1p(jnp.expm1(epsilon) / jnp.maximum(2.0 * lanes.delta, 1e-300))


def _bracket(lanes: _Lanes, reach: float) -> tuple[Reals, Reals]:
    """Standard deviations that are enough for the best member of any family, and surely not."""
    budget = Budget(lanes.epsilon, lanes.delta)
    gaussian = jnp.sqrt(lanes.fold) * lanes.shift / largest_gdp(budget).mu
    laplace = lanes.fold * lanes.shift / largest_laplace_ratio(budget)
    finite = jnp.where(jnp.isfinite(gaussian), gaussian, 0.0)
    safe = reach * jnp.maximum(finite, jnp.where(jnp.isfinite(laplace), laplace, 0.0))
    safe = jnp.where(safe > 0, safe, 1e30 * lanes.shift)
    return safe, 1e-3 * jnp.minimum(jnp.minimum(gaussian, laplace), lanes.shift * 1e3)


def _on_plateau(lanes: _Lanes, log_delta: _LogDelta) -> Noise:
    """The flipped Huber with count alpha shift = gamma^2 epsilon: a root in alpha / gamma."""

    def member(shape: Reals) -> Noise:
        gamma = shape * lanes.fold * lanes.shift / jnp.maximum(lanes.epsilon, 1e-6)
        return FlippedHuber(shape * gamma, gamma)

    def residual(shape: Reals) -> Reals:
        return excess_log_delta(log_delta(member(shape), lanes, True), lanes.delta)

    zero = jnp.zeros_like(lanes.shift)
    slack = _SLACK * (1.0 + jnp.abs(jnp.log(jnp.where(lanes.delta == 0, 1.0, lanes.delta))))
    return member(last_feasible_quick(residual, zero + 60.0, zero + 1e-2, slack))


def _least(noise: Noise, error: Reals, axis: int) -> Noise:
    """Along `axis`, the member with the least error; infinite error where it is NaN."""
    index = jnp.argmin(jnp.where(jnp.isnan(error), jnp.inf, error), axis=axis)
    index = jnp.expand_dims(index, axis)
    return jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis).squeeze(axis), noise)


def _fit_staircase(objective: str, lanes: _Lanes) -> Noise:
    """Pure: the loss of `count` releases is at most epsilon."""
    epsilon = lanes.epsilon / lanes.fold * (1.0 - 4e-16)
    usable = epsilon > 0
    epsilon = jnp.where(usable, epsilon, 1.0)
    shift = jnp.where(usable, lanes.shift, jnp.inf)
    return Staircase(epsilon, shift, staircase_split(epsilon, objective))
