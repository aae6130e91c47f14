"""Equal releases of a Poisson-sampled Gaussian (DP-SGD): bounds on delta and on epsilon."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Reals
from jaxdp.accountant.sampled_gaussian_law import FULL, LIGHT
from jaxdp.accountant.sampled_gaussian_line import Line, line
from jaxdp.accountant.sampled_gaussian_plan import Plan, plan


def _lines(planned: Plan, kind: str, sigma, q, sign, n) -> list[Line]:
    at = (planned.epsilon, planned.size)
    args = (sigma, q, sign, n, planned.top)
    if kind == "plain":
        return [line(LIGHT, "plain", *args, planned.top, planned.tilt, *at)]
    return [
        line(FULL, "small", *args, planned.cut, planned.small_tilt, *at),
        line(FULL, "large", *args, planned.cut, planned.large_tilt, *at),
    ]


def _sum(lines: list[Line], epsilon, size):
    """Lower and upper bound of delta, in e^size; a line that says less than Chernoff gives way."""
    lower, upper = 0.0, 0.0
    for x in lines:
        value = x.value(epsilon, size)[0]
        short, excess, bound = lax.stop_gradient(x.errors(epsilon, size))
        lower += jnp.maximum(value - short, 0.0)
        upper += jnp.where(value + excess < bound, value + excess, bound)
    return lower, upper
