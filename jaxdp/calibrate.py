"""The least noise that meets a budget, found from the safe side."""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.bracket import last_feasible
from jaxdp._types import RealLike, Reals
from jaxdp.guarantee.base import Budget, excess, rounding_slack


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
