"""True-positive rates that a guarantee allows a membership test, and the Gaussian that allows them.

Each (epsilon, delta) that holds in both directions bounds the rates twice: tpr <= delta + e^epsilon
fpr, and 1 - fpr <= delta + e^epsilon (1 - tpr). The least over some of them is a bound as well.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jaxdp._core import checks
from jaxdp._core.functions import special
from jaxdp._numeric.elementary import ULP
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.guarantee.base import Guarantee

# Epsilons that are looked at. measured: Gaussians of mu .05 to 8 have their rates to 6e-4
_POINTS = 512
# The delta whose epsilon is the last of them, above the probability of an infinite loss. chosen:
# far below the false-positive rates of the estimate
_LEAST = 1e-18
# False-positive rates of the estimate. chosen: those of dp_accounting
_RATES = np.logspace(-12.0, np.log10(0.5), 500)

Guaranteed: TypeAlias = PrivacyLoss | Guarantee


def true_positive_rates(budget: Guaranteed, rates: np.ndarray, deltas: Any = None) -> np.ndarray:
    """Upper bounds on the true-positive rates at false-positive ones."""
    return _rates(budget, rates, deltas)[0]


def gdp_estimate(budget: Guaranteed, rates: Any = None, deltas: Any = None) -> float:
    """The least mu of Gaussian DP that allows the true-positive rates at false-positive ones."""
    name = "false_positive_rates"
    fpr = _RATES if rates is None else np.asarray(checks.probability(name, rates))
    if fpr.size == 0 or not ((fpr > 0) & (fpr < 1)).all():
        raise ValueError(f"{name} must lie in (0, 1), one or more, got {rates}")
    if _delta_at_infinity(budget) > fpr.min():
        return float(np.inf)
    tpr, fnr = _rates(budget, fpr, deltas)
    # The smaller of the two, which has all its digits.
    reached = np.where(tpr < 0.5, np.asarray(special.ndtri(tpr)), -np.asarray(special.ndtri(fnr)))
    return max(float(np.max(reached - np.asarray(special.ndtri(fpr)))), 0.0)


def _rates(budget: Guaranteed, rates: np.ndarray, deltas: Any) -> tuple[np.ndarray, np.ndarray]:
    """True-positive rates from above, false-negative ones from below."""
    epsilon, delta = _pairs(budget, deltas)
    fpr = rates[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        cost = np.exp(epsilon) * fpr
    # Without a false alarm delta is all there is, however large the factor.
    from_tpr = np.where(fpr == 0, delta, delta + cost) * (1.0 + 16.0 * ULP)
    from_fnr = np.exp(-epsilon) * ((1.0 - fpr) * (1.0 - ULP) - delta) * (1.0 - 16.0 * ULP)
    fnr = np.maximum((1.0 - from_tpr) * (1.0 - ULP), from_fnr).max(axis=-1, initial=0.0)
    tpr = np.minimum(from_tpr.min(axis=-1, initial=1.0), (1.0 - fnr) * (1.0 + 2.0 * ULP))
    bounded = np.clip(tpr, rates, 1.0), np.clip(fnr, 0.0, 1.0 - rates)
    return np.asarray(bounded[0]), np.asarray(bounded[1])


def _pairs(budget: Guaranteed, deltas: Any) -> tuple[np.ndarray, np.ndarray]:
    """Finite epsilons, and a delta at each."""
    if deltas is not None:
        delta = np.ravel(np.asarray(checks.probability("deltas", deltas)))
        epsilon = np.asarray(budget.epsilon(delta))
        return epsilon[np.isfinite(epsilon)], delta[np.isfinite(epsilon)]
    delta_at_infinity = _delta_at_infinity(budget) * (1.0 + 1e-9)
    largest_epsilon = float(budget.epsilon(min(delta_at_infinity + _LEAST, 1.0)))
    epsilon = np.linspace(0.0, largest_epsilon if np.isfinite(largest_epsilon) else 0.0, _POINTS)
    return epsilon, np.asarray(budget.delta(epsilon))


def _delta_at_infinity(budget: Guaranteed) -> float:
    """The delta of every epsilon: the probability of an infinite loss."""
    return float(budget.delta(np.inf))
