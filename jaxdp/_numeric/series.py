"""Power series, summed from their last term, for use in several modules."""

from __future__ import annotations

import math

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals

# Taylor coefficients of (sinh(x) / x - 1) / x^2 in x^2. derived: the error at |x| = 2 is below an
# ulp
_SINHC = tuple(1.0 / math.factorial(2 * k + 1) for k in range(1, 16))
# Largest |x| of the normal integral's series. derived: 14 terms have an error below an ulp
NORMAL_REACH = 0.75
# Coefficients 1 / (2k + 1)!! of x^2k in it. derived
_NORMAL = tuple(1.0 / math.prod(range(1, 2 * k + 2, 2)) for k in range(14))


def horner(coefficients: tuple[float, ...], x: Reals) -> Reals:
    """Sum of coefficients[k] x^k."""
    value = xp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def sinhc_excess(x: Reals) -> Reals:
    """sinh(x) / x - 1 for |x| <= 2. Relative error: 4 ulp."""
    square = x * x
    return square * horner(_SINHC, square)


def normal_integral_over_density(x: Reals) -> Reals:
    """The integral of exp((x^2 - t^2) / 2) over t in [0, x], for |x| <= 0.75, clipped there.

    It is x sum_k x^(2k) / (2k + 1)!!, all terms positive. Relative error: 4 ulp.
    """
    x = xp.minimum(x, NORMAL_REACH)
    return x * horner(_NORMAL, x * x)


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
