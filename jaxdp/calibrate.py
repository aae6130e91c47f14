"""The least noise that meets a budget, found from the safe side."""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.bracket import last_feasible
from jaxdp._numeric.elementary import round_up
from jaxdp._types import RealLike, Reals
from jaxdp.guarantee.base import Budget, excess, rounding_slack
from jaxdp.guarantee.gaussian_dp import largest_gdp
from jaxdp.guarantee.laplace_sum import largest_laplace_ratio, log_delta_of_laplaces
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

FAMILIES = ("gaussian", "laplace")
OBJECTIVES = ("variance", "mean_absolute")


class HasLogDelta(Protocol):
    """A mechanism, a privacy loss or a guarantee."""

    def log_delta(self, epsilon: RealLike) -> Reals: ...


def calibrate(
    build: Callable[[Reals], HasLogDelta],
    budget: Budget,
    *,
    lower: RealLike = 1e-9,
    upper: RealLike = 1e12,
) -> Reals:
    """The least parameter in [lower, upper] whose build(parameter) meets the budget.

    `build` maps an array of parameters to something with `log_delta`, elementwise, whose delta
    falls as the parameter grows (a noise scale, say); it may close over traced values. The shape
    is the common one of the budget, the bracket and what is built. Never on the unsafe side:
    log_delta(result) <= log(budget.delta), with a slack for rounding, checked after the search.
    inf where nothing in the bracket passes, bad traced input included.

    64 geometric bisections: relative error log(upper / lower) 2^-64, at least 2e-15. Derivatives
    by the implicit function theorem, through the budget and all that `build` closes over. Wrap
    repeated calls in `jax.jit`: each call from Python compiles anew.
    """
    lower, upper = _check.positive("lower", lower), _check.positive("upper", upper)
    ends = lower, upper
    if all(_check.is_concrete(end) for end in ends) and not bool(jnp.all(jnp.less(*ends))):
        raise ValueError(f"lower must lie below upper, got {lower} and {upper}")

    def residual(parameter: Reals) -> Reals:
        return excess(build(parameter).log_delta(budget.epsilon), budget.delta)

    common = jnp.broadcast_arrays(budget.epsilon, budget.delta, lower, upper)[0]
    shape = jnp.broadcast_shapes(common.shape, jax.eval_shape(residual, common).shape)
    delta, safe, unsafe = (jnp.broadcast_to(a, shape) for a in (budget.delta, upper, lower))
    # Zeros known only at run time: XLA takes long chains of constants for a stuck rewrite.
    zero = jnp.minimum(delta, 0.0)
    return last_feasible(residual, safe + zero, unsafe + zero, rounding_slack(delta))


def fit_noise(
    family: str,
    budget: Budget,
    sensitivity: RealLike,
    count: RealLike = 1,
    objective: str = "variance",
) -> Noise:
    """The member of `family` with the least error that meets the budget after `count` releases.

    "gaussian": scale = sensitivity sqrt(count) / mu, mu = `largest_gdp(budget)`; exact.
    "laplace": scale = sensitivity / (epsilon - 2 log(1 - delta)) for one release; exact. For more
    it meets the bound of `log_delta_of_laplaces`. Both have one parameter, so every objective
    ("variance", "mean_absolute") has the same best member. Batched over all arguments.
    """
    _check.one_of("family", family, FAMILIES)
    _check.one_of("objective", objective, OBJECTIVES)
    sensitivity = _check.positive("sensitivity", sensitivity)
    count = _check.whole("count", count, 1.0)
    fit = _fit_gaussian if family == "gaussian" else _fit_laplace
    return fit(budget, *jnp.broadcast_arrays(sensitivity, count))


@jax.jit
def _fit_gaussian(budget: Budget, sensitivity: Reals, count: Reals) -> Gaussian:
    mu = largest_gdp(budget).mu
    mu, sensitivity, count = jnp.broadcast_arrays(mu, sensitivity, count)
    return Gaussian(round_up(sensitivity * jnp.sqrt(count) / mu, 4))


@jax.jit
def _fit_laplace(budget: Budget, sensitivity: Reals, count: Reals) -> Laplace:
    single = largest_laplace_ratio(budget)
    single, sensitivity, count = jnp.broadcast_arrays(single, sensitivity, count)
    epsilon, delta = (jnp.broadcast_to(a, single.shape) for a in (budget.epsilon, budget.delta))

    def residual(ratio: Reals) -> Reals:
        return excess(log_delta_of_laplaces(ratio[..., None], count[..., None], epsilon), delta)

    # One shift by the sum is always feasible; the square root of it is beyond every bound.
    least = single / count
    zero = jnp.minimum(delta, 0.0)
    most = 1e6 * jnp.maximum(least, 1e-12) + zero
    search = last_feasible(residual, least, most, rounding_slack(delta), 0.0)
    ratio = jnp.where(count == 1, single, jnp.maximum(search, least))
    return Laplace(round_up(sensitivity / ratio, 4))
