"""Every family fitted to one budget, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.progress import shown
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, round_up
from jaxdp.design.families import FAMILIES, MEMBERS, Family, kind_of, known, name_of
from jaxdp.design.fit import fit_noise
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.guarantee.base import Budget, BudgetLike, Guarantee, as_budget
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.noise.base import Noise


class Row(NamedTuple):
    """Best member of one family, and errors of one coordinate."""

    family: str
    parameters: dict[str, float]
    variance: float
    mean_absolute: float
    ratio_to_gaussian: float
    ratio_to_bound: float
    guarantee: str  # how it was obtained
    support: str  # "reals" or "integers"


class Comparison(tuple[Row, ...]):
    """Rows of `compare`, which print as a table."""

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [
            ("family", "variance", "mean |noise|", "/ Gaussian", "/ bound", "guarantee")
        ]
        for row in self:
            numbers = row.variance, row.mean_absolute, row.ratio_to_gaussian, row.ratio_to_bound
            lines.append((row.family, *(f"{x:.4g}" for x in numbers), row.guarantee))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                f"{x:{'<' if i in (0, 5) else '>'}{widths[i]}}" for i, x in enumerate(line)
            ).rstrip()
            for line in lines
        )


@in_float64
def compare(
    budget: BudgetLike,
    sensitivity: ArrayLike | JointSensitivity,
    count: ArrayLike = 1,
    families: Sequence[Family] | None = None,
    objective: str = "variance",
    *,
    progress: bool | None = None,
) -> Comparison:
    """The best member of every family of noise for one budget, the least error first.

    Args:
        budget: one `Budget` or (epsilon, delta), epsilon in nats.
        sensitivity: a number, released `count` times (`count` coordinates that can all reach it);
            or a `JointSensitivity`.
        count: whole number of releases.
        families: names or classes, as in `fit_noise`; all of real numbers that apply if None. Those
            on the integers are for answers and a sensitivity that are whole numbers.
        objective: "variance" or "mean_absolute", of one coordinate.
        progress: a bar on stderr, one step a family, of tqdm where that is installed; if None where
            stderr is a terminal.

    Returns:
        Rows, the least error first, without families that miss the budget, as a table. In each,
        ratio_to_gaussian: of variances. ratio_to_bound: variance over the least variance of any
        unbiased mechanism whose single coordinate moves by its sensitivity (`lower_bound` of
        ApproxDP). guarantee: "exact" (the composed delta, as `PrivacyLoss.log_delta` bounds it),
        "pure" (a bound on the loss) or "dominated" (exact for a direction that dominates the set).
        support: "reals" or "integers".

    A batch of budgets: `ValueError`. For a vector of sensitivities, see `allocate_exact`.

    >>> import jaxdp as dp
    >>> print(dp.compare((1.0, 1e-5), 1.0, families=["laplace", "gaussian"]))
    family    variance  mean |noise|  / Gaussian  / bound  guarantee
    laplace          2             1      0.1437    2.172  exact
    gaussian     13.92         2.977           1    15.12  exact
    """
    budget = as_budget(budget)
    if budget.epsilon.ndim or budget.delta.ndim:
        raise ValueError("budget must be one budget: compare one at a time")
    if not isinstance(sensitivity, JointSensitivity):
        sensitivity = checks.positive("sensitivity", sensitivity)
        if sensitivity.ndim:
            raise ValueError(f"sensitivity must be a number, got shape {sensitivity.shape}")
    names = _usable(sensitivity, count) if families is None else families
    names = [known("families", family) for family in names]
    for name in names:
        _require_whole(name, sensitivity)
    rows = []
    for family in shown(names, "families", progress):
        noise = fit_noise(family, budget, sensitivity, count, objective)
        rows.append(_row(family, noise, budget, sensitivity))
    return Comparison(sorted(_beside_gaussian(rows), key=lambda row: getattr(row, objective)))


def _require_whole(family: Family, sensitivity: Reals | JointSensitivity) -> None:
    """`ValueError` for noise on the integers at another sensitivity."""
    is_whole = not isinstance(sensitivity, JointSensitivity) and float(sensitivity).is_integer()
    if kind_of(family).on_integers and not is_whole:
        raise ValueError(
            f"sensitivity must be a whole number for {name_of(family)}, got {sensitivity}: noise "
            "on the integers is for answers that are whole numbers"
        )


def _beside_gaussian(rows: Sequence[Row]) -> list[Row]:
    """The rows that meet the budget, their variances over the Gaussian's."""
    rows = [row for row in rows if np.isfinite(row.variance)]
    gaussian = next((row.variance for row in rows if row.family == "gaussian"), float("nan"))
    return [row._replace(ratio_to_gaussian=row.variance / gaussian) for row in rows]


def _usable(sensitivity: Reals | JointSensitivity, count: ArrayLike) -> list[str]:
    names = [name for name in FAMILIES if MEMBERS[name].log_concave]
    if isinstance(sensitivity, JointSensitivity):
        return names
    names.append("staircase")
    if bool(np.all(np.asarray(count) == 1)):
        names.append("truncated_laplace")
    return names


def _row(
    family: Family, noise: Noise, budget: Budget, sensitivity: Reals | JointSensitivity
) -> Row:
    variance, guarantee = float(noise.variance()), "exact"
    if isinstance(sensitivity, JointSensitivity):
        move = sensitivity.tightened().linf
        guarantee = "exact" if family == "gaussian" else "dominated"
    else:
        move = sensitivity
    bound = float(lower_bound(ApproxDP(budget.epsilon, budget.delta), move))
    return Row(
        name_of(family),
        {name: float(value) for name, value in vars(noise).items()},
        variance,
        float(noise.mean_absolute()),
        float("nan"),
        variance / bound,
        "pure" if family == "staircase" else guarantee,
        "integers" if kind_of(family).on_integers else "reals",
    )


# Nodes of the trapezoid over a standard normal. chosen: its error is below 1e-15 for every mu
_NODES = 801
# Deviations that it reaches on either side. chosen: beyond lies 1e-38
_REACH = 13.0
# Rounding of a bound, in ulp. chosen: above rounding and the trapezoid's error
_SAFETY_ULPS = -256


@in_float64(side=-1.0)
def lower_bound(guarantee: Guarantee, sensitivity: ArrayLike) -> Reals:
    """The least variance that an unbiased private answer can have.

    Args:
        guarantee: a PureDP, ApproxDP, GDP or ZCDP; batched.
        sensitivity: m, the difference of the answers at two inputs, in the query's unit;
            broadcasts.

    Returns:
        A bound on the larger variance at the two inputs, in the query's unit squared, rounded down
        by 1e-13.

      PureDP:   m^2 / (4 sinh^2(epsilon / 2)), attained by randomised response;
      ApproxDP: m^2 (1 - delta) / (4 (sinh^2(epsilon / 2) + delta)), attained;
      GDP:      (m^2 / 4)(1 / c - 1), c = (1/2) int (p - q)^2 / (p + q) for N(0, 1) and N(mu, 1):
                the form for every pair of laws, hence for every trade-off;
      ZCDP:     m^2 / (exp(xi + 2 rho) - 1), from the divergence of order 2.

    Proof: P and Q being symmetric about the middle of the two answers without loss, Cauchy-Schwarz
    on the mean difference int t (p - q) gives E t^2 >= (m / 2)^2 / c. Other guarantees:
    `TypeError`.
    Source: Hammersley-Chapman-Robbins for PureDP and ZCDP; the exact ApproxDP and GDP forms are
    ours.

    >>> import jaxdp as dp
    >>> print(f"{dp.optimal.lower_bound(dp.PureDP(1.0), 2.0):.4f}")
    3.6827
    """
    sensitivity = checks.nonnegative("sensitivity", sensitivity)
    per_unit = _unit_bound(guarantee)
    per_unit, sensitivity = xp.broadcast_arrays(per_unit, sensitivity)
    return round_up(per_unit * sensitivity**2, _SAFETY_ULPS)


def _unit_bound(guarantee: Guarantee) -> Reals:
    match guarantee:
        case PureDP(epsilon_bound=epsilon):
            return 0.25 / xp.sinh(0.5 * checks.guard(epsilon)) ** 2
        case ApproxDP(epsilon_bound=epsilon, delta_bound=delta):
            delta = checks.guard(delta, 1.0)
            return 0.25 * (1.0 - delta) / (xp.sinh(0.5 * checks.guard(epsilon)) ** 2 + delta)
        case ZCDP(xi=xi, rho=rho):
            return 1.0 / xp.expm1(checks.guard(xi) + 2.0 * checks.guard(rho))
        case GDP(mu=mu):
            return _unit_bound_of_gdp(checks.guard(mu))
        case _:
            raise TypeError(f"no lower bound is known from a {type(guarantee).__name__}")


@jitted
def _unit_bound_of_gdp(mu: Reals) -> Reals:
    """(1 - c) / (4 c), with 1 - c = exp(-mu^2/8) E sech(mu u / 2), u standard normal.

    Below mu = 2, c = exp(-mu^2/8) E sinh(mu u / 2) tanh(mu u / 2), whose terms are positive.
    """
    reach = _REACH * xp.minimum(1.0, 12.0 / mu)[..., None]
    u = reach * xp.linspace(-1.0, 1.0, _NODES)
    half = 0.5 * mu[..., None] * u
    weight = xp.exp(-0.5 * u * u - LOG_SQRT_2PI) * (2.0 * reach / (_NODES - 1))
    scale = xp.exp(-(mu**2) / 8.0)
    complement = scale * xp.sum(weight / xp.cosh(half), axis=-1)
    small = xp.where(mu[..., None] < 2.0, half, 0.0)
    near = scale * xp.sum(weight * xp.sinh(small) * xp.tanh(small), axis=-1)
    return 0.25 * complement / xp.where(mu < 2.0, near, 1.0 - complement)
