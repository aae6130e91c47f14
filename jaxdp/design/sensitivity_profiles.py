"""Sensitivity profiles: how unequal the coordinates of a query are."""

from __future__ import annotations

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals, Vector

# Names, see `sensitivity_profile`.
PROFILES = ("uniform", "linear", "quadratic", "exponential", "one_hot")


def sensitivity_profile(name: str, count: int, norm: ArrayLike | None = None) -> Vector:
    """Sensitivities of the coordinates of a query, as unequal as a named profile says.

    Args:
        name: "uniform", "linear", "quadratic", "exponential" or "one_hot": 1, i, i^2, exp(-i) or
            (1, 0, ...), i = 1..count.
        count: how many coordinates, at least 1.
        norm: Euclidean norm that they are scaled to; not scaled if None.

    Returns:
        The sensitivities, (count,).

    Source: Muthukrishnan & Kalyani, section V; the base of its exponential profile is taken as e.

    >>> from jaxdp.design.sensitivity_profiles import sensitivity_profile
    >>> print(sensitivity_profile("linear", 4))
    [1. 2. 3. 4.]
    """
    checks.one_of("name", name, PROFILES)
    count = checks.positive_integer("count", count)
    index = xp.arange(1.0, count + 1.0)
    profile = {
        "uniform": xp.ones_like(index),
        "linear": index,
        "quadratic": index**2,
        "exponential": xp.exp(-index),
        "one_hot": xp.where(index == 1.0, 1.0, 0.0),
    }[name]
    if norm is None:
        return profile
    return profile * (checks.nonnegative("norm", norm) / xp.linalg.norm(profile))


def gini(sensitivities: ArrayLike) -> Reals:
    """The Gini coefficient of sensitivities: 0 for equal ones, 1 - 1/K where all but one are 0.

    Args:
        sensitivities: (..., K), 0 or more.

    Returns:
        The coefficient over the last axis; NaN where all are zero.

    2 sum_i i l_(i) / (K sum l) - (K + 1) / K, l_(1) <= ... <= l_(K).

    >>> from jaxdp.design.sensitivity_profiles import gini
    >>> float(gini([1.0, 2.0, 3.0, 4.0]))
    0.25
    """
    ordered = xp.sort(checks.nonnegative("sensitivities", sensitivities), axis=-1)
    count = ordered.shape[-1]
    rank = xp.broadcast_to(xp.arange(1.0, count + 1.0), ordered.shape)
    return xp.sum((2.0 * rank - count - 1.0) * ordered, axis=-1) / (
        count * xp.sum(ordered, axis=-1)
    )
