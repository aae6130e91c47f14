"""What is proved of composed Laplaces, until their exact privacy loss is composed."""

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp._types import Reals
from jaxdp.guarantee.base import Budget, log_delta_of_cgf
from jaxdp.noise.laplace import Laplace

_LARGEST_RATIO = 1e15


def log_delta_of_laplaces(ratios: Reals, counts: Reals, epsilon: Reals) -> Reals:
    """log of a bound on delta for `counts[..., j]` Laplaces of shift / scale = `ratios[..., j]`.

    Two bounds hold and the lower is taken. (a) One shift by the sum dominates the composition:
    for log-concave noise f_d1 (x) f_d2 >= f_(d1 + d2) (triangle inequality of trade-offs), so
    delta <= 1 - exp((epsilon - sum counts ratios) / 2). It is exact for a single Laplace, and
    below the i.n.i.d. paper's corollary 6, 1 - exp(epsilon - sum). (b) Renyi divergences add.
    Shapes: `epsilon` has the shape of the result, `ratios` and `counts` one more axis at the end.
    """
    unit = Laplace(1.0)
    total = jnp.sum(counts * ratios, axis=-1) * (1.0 + 1e-15 * ratios.shape[-1])

    def cgf(s: Reals) -> Reals:
        each = unit.cgf(ratios, jnp.broadcast_to(s[..., None], ratios.shape))
        return jnp.sum(counts * each, axis=-1) * (1.0 + 1e-14)

    return jnp.minimum(unit.log_delta(total, epsilon), log_delta_of_cgf(cgf, epsilon))


def largest_laplace_ratio(budget: Budget) -> Reals:
    """The largest shift / scale of one Laplace: epsilon - 2 log(1 - delta), and at most 1e15.

    Rounded down so that the delta which `Laplace.log_delta` reports is inside the budget.
    """
    epsilon, delta = jnp.broadcast_arrays(budget.epsilon, budget.delta)
    reported_ulps = 16.0 + 10.0 * jnp.abs(jnp.log(jnp.where(delta == 0, 1.0, delta)))
    allowance = -2.0 * log1m(delta) * (1.0 - reported_ulps * ULP)
    return jnp.minimum(round_up(epsilon + allowance, -8), _LARGEST_RATIO)
