"""Every family fitted to one budget, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.progress import shown
from jaxdp._core.types import ArrayLike
from jaxdp.design.allocate_exact import allocate_exact
from jaxdp.design.families import FAMILIES, MEMBERS
from jaxdp.design.fit import fit_noise
from jaxdp.design.lower_bounds import lower_bound
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# For answers that are whole numbers.
_INTEGERS = tuple(name for name in FAMILIES if MEMBERS[name].lattice)


class Row(NamedTuple):
    """Best member of one family; errors of one coordinate, averaged over a profile."""

    family: str
    parameters: dict[str, float | list[float]]
    variance: float
    mean_absolute: float
    ratio_to_gaussian: float
    ratio_to_bound: float
    guarantee: str  # how it was obtained
    support: str  # "reals" or "integers"


@in_float64
def compare(
    budget: BudgetLike,
    sensitivity: ArrayLike | JointSensitivity,
    count: ArrayLike = 1,
    families: Sequence[str] | None = None,
    objective: str = "variance",
    *,
    integers: bool = False,
    progress: bool | None = None,
) -> tuple[Row, ...]:
    """The best member of every family of noise for one budget, the least error first.

    Args:
        budget: one `Budget` or (epsilon, delta), epsilon in nats.
        sensitivity: a number, released `count` times (`count` coordinates that can all reach it); a
            vector, one a coordinate, where every family gets i.n.i.d. scales under exact accounting
            (`allocate_exact`; of the families with a shape, the members of the fit to the largest
            sensitivity); or a `JointSensitivity`.
        count: whole number of releases; 1 with a vector.
        families: their names, as in `fit_noise`; all of real numbers that apply if None.
        objective: "variance" or "mean_absolute", of one coordinate, averaged over a vector.
        integers: those on the integers too, for answers and a sensitivity that are whole numbers.
        progress: a bar on stderr, one step a family, of tqdm where that is installed; if None where
            stderr is a terminal.

    Returns:
        Rows, the least error first, without families that cannot meet the budget. In each,
        ratio_to_gaussian: of variances. ratio_to_bound: variance over the least variance of any
        unbiased mechanism whose single coordinate moves by its sensitivity (`lower_bound` of
        ApproxDP). guarantee: "exact" (the composed delta, as `PrivacyLoss.log_delta` bounds it),
        "pure" (a bound on the loss) or "dominated" (exact for a direction that dominates the set).
        support: "reals" or "integers".

    A batch of budgets, and a vector with a lattice noise or the staircase: `ValueError`.

    >>> import jaxdp as dp
    >>> table = dp.compare((1.0, 1e-5), 1.0, families=["laplace", "gaussian"])
    >>> [(row.family, round(row.variance, 3)) for row in table]
    [('laplace', 2.0), ('gaussian', 13.918)]
    """
    budget = as_budget(budget)
    if budget.epsilon.ndim or budget.delta.ndim:
        raise ValueError("budget must be one budget: compare one at a time")
    largest, profile = sensitivity, False
    if not isinstance(sensitivity, JointSensitivity):
        sensitivity = checks.positive("sensitivity", sensitivity)
        largest, profile = xp.max(sensitivity), sensitivity.ndim > 0
    names = _usable(largest, count, profile) if families is None else list(families)
    names = names + ([name for name in _INTEGERS if integers and name not in names])
    _check_families(names, count, profile)
    _check_integers(names, largest)
    rows = []
    for family in shown(names, "families", progress):
        noise = fit_noise(family, budget, largest, count, objective)
        scales = None
        if profile and not isinstance(sensitivity, JointSensitivity):
            scales = allocate_exact(_unit(noise), sensitivity, budget)
            noise = _unit(noise)
        rows.append(_row(family, noise, scales, budget, sensitivity))
    return tuple(sorted(_beside_gaussian(rows), key=lambda row: getattr(row, objective)))


def _check_families(names: Sequence[str], count: ArrayLike, profile: bool) -> None:
    for name in names:
        checks.one_of("families", name, FAMILIES)
        if profile and name in (*_INTEGERS, "staircase"):
            raise ValueError(f"a profile scales its noise, which {name} does not allow")
    if profile and not bool(np.all(np.asarray(count) == 1)):
        raise ValueError(f"count must be 1 with a profile, got {count}: list its coordinates")


def _check_integers(names: Sequence[str], largest: ArrayLike | JointSensitivity) -> None:
    whole = not isinstance(largest, JointSensitivity) and float(xp.asarray(largest)).is_integer()
    for name in names:
        if name in _INTEGERS and not whole:
            raise ValueError(
                f"sensitivity must be a whole number for {name}, got {largest}: noise on the "
                "integers is for answers that are whole numbers"
            )


def _beside_gaussian(rows: Sequence[Row]) -> list[Row]:
    """The rows that meet the budget, their variances over the Gaussian's."""
    rows = [row for row in rows if np.isfinite(row.variance)]
    gaussian = next((row.variance for row in rows if row.family == "gaussian"), float("nan"))
    return [row._replace(ratio_to_gaussian=row.variance / gaussian) for row in rows]


def _usable(largest: ArrayLike | JointSensitivity, count: ArrayLike, profile: bool) -> list[str]:
    names = [n for n in FAMILIES if n not in (*_INTEGERS, "truncated_laplace", "staircase")]
    if isinstance(largest, JointSensitivity) or profile:
        return names
    names.append("staircase")
    if bool(np.all(np.asarray(count) == 1)):
        names.append("truncated_laplace")
    return names


def _unit(noise: Noise) -> Noise:
    """The Gaussian and the Laplace at scale 1, so that the factors are their scales."""
    return type(noise)(1.0) if isinstance(noise, Gaussian | Laplace) else noise


def _row(
    family: str,
    noise: Noise,
    scales: xp.ndarray | None,
    budget: Budget,
    sensitivity: ArrayLike | JointSensitivity,
) -> Row:
    factor = xp.ones(()) if scales is None else scales
    variance = float(xp.mean(noise.variance() * factor**2))
    if isinstance(sensitivity, JointSensitivity):
        move, exact = sensitivity.tightened().linf, "dominated"
    else:
        move, exact = xp.asarray(sensitivity), "exact"
    if family == "gaussian":
        exact = "exact"
    bound = float(xp.mean(lower_bound(ApproxDP(budget.epsilon, budget.delta), move)))
    parameters: dict[str, float | list[float]] = {k: float(v) for k, v in vars(noise).items()}
    if scales is not None:
        parameters["factors"] = [float(s) for s in scales]
    return Row(
        family,
        parameters,
        variance,
        float(xp.mean(noise.mean_absolute() * factor)),
        float("nan"),
        variance / bound,
        "pure" if family == "staircase" else exact,
        "integers" if family in _INTEGERS else "reals",
    )
