"""What infinite losses add to the delta of finite ones."""

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Reals
from jaxdp.loss.base import Term, Terms, add_up


def with_infinite(terms: Terms, log_delta: Reals) -> Reals:
    """log(delta + the probability of an infinite loss), rounded up."""
    finite = add_up(terms, Term.log_finite)
    some = finite < 0
    infinite = log1mexp(jnp.where(some, -finite, 1.0)) + 32.0 * ULP
    return jnp.where(some, jnp.logaddexp(log_delta, infinite), log_delta)
