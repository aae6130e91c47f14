"""Targets of a calibration that are attack risks: `Advantage` and `Rate`.

`dp.calibrate` takes them in place of a budget, and `dp.dpsgd.noise_multiplier` as keywords. The
risks themselves are `dp.advantage`, `dp.tpr_at_fpr` and `dp.bayes_risk`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.guarantee.base import Budget

__all__ = ["Advantage", "Rate"]

# Epsilons tried at once. chosen: the interval around the best shrinks to a quarter each time
_POINTS = 9
# Rounds of them. derived: 4^-5 of the interval, and the parameter is flat around its least value
_ROUNDS = 5
# Share of the interval that is searched. chosen: at its end delta is 0 and no noise is enough
_INSIDE = 0.98


@final
@in_float64
@pytree
class Advantage:
    """Target of a calibration: no membership test has an advantage above `value`.

    The advantage is the true-positive rate less the false-positive rate, at most delta(0): the
    target is the budget epsilon = 0, delta = `value`.

    >>> import jaxdp as dp
    >>> target = dp.risk.Advantage(0.1)
    >>> scale = dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), target)
    >>> print(f"{scale:.4f}")
    3.9789
    """

    value: Reals

    def __init__(self, value: ArrayLike):
        assign(self, value=checks.probability("advantage", value))

    def solved(self, least: Callable[[Budget], Reals], largest: bool = False) -> Reals:
        """The parameter that `least` finds for the budget."""
        del largest
        return least(Budget(xp.zeros_like(self.value), self.value))


@final
@in_float64
@pytree
class Rate:
    """Target of a calibration: at false-positive rate `fpr` no test has more than `tpr`.

    Args:
        tpr, fpr: rates in (0, 1) with fpr < tpr; they broadcast.

    A trade-off function f lies above each line 1 - delta(epsilon) - e^epsilon x and, by symmetry,
    e^-epsilon (1 - delta(epsilon) - x). If one of them reaches 1 - tpr at x = fpr, the target is
    met: the target is the weakest of the budgets

        delta(epsilon) <= tpr - e^epsilon fpr   or   delta(epsilon) <= 1 - fpr - e^epsilon (1 - tpr)

    over epsilon >= 0. Every epsilon gives a safe parameter; the best is found to about 1e-6.
    `ValueError` unless tpr > fpr.
    Source: Dong, Roth & Su, JRSS-B 84, 2022, proposition 2.13.

    >>> import jaxdp as dp
    >>> target = dp.risk.Rate(tpr=0.05, fpr=0.01)
    >>> scale = dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), target)
    >>> print(f"{scale:.4f}")
    1.4674
    """

    tpr: Reals
    fpr: Reals

    def __init__(self, tpr: ArrayLike, fpr: ArrayLike):
        tpr, fpr = checks.probability("tpr", tpr), checks.probability("fpr", fpr)
        is_ordered = (fpr > 0) & (tpr < 1) & (fpr < tpr)
        if checks.all_concrete(tpr, fpr) and not bool(xp.all(is_ordered)):
            raise ValueError(f"tpr must lie above fpr, both in (0, 1), got {tpr} and {fpr}")
        tpr, fpr = (xp.where(is_ordered, x, xp.nan) for x in (tpr, fpr))
        assign(self, tpr=tpr, fpr=fpr)

    def solved(self, least: Callable[[Budget], Reals], largest: bool = False) -> Reals:
        """The best parameter that `least` finds for one of the budgets."""
        tpr, fpr = xp.broadcast_arrays(self.tpr, self.fpr)
        # Both lines as delta <= high - e^epsilon low, in a first axis.
        high = xp.stack([tpr, 1.0 - fpr])[:, None] * (1.0 - ULP)
        low = xp.stack([fpr, 1.0 - tpr])[:, None] * (1.0 + ULP)
        shares = xp.linspace(0.0, 1.0, _POINTS).reshape(1, -1, *(1,) * tpr.ndim)
        start, end = xp.zeros_like(high), _INSIDE * xp.log(high / low)
        side = -1.0 if largest else 1.0
        best = xp.asarray(xp.inf)
        for _ in range(_ROUNDS):
            epsilon = start + (end - start) * shares
            delta = high - xp.exp(epsilon) * low * (1.0 + 4.0 * ULP)
            found = side * least(Budget(epsilon, xp.clip(delta, 0.0, 1.0)))
            # An unknown parameter is the safe end: infinite noise, or nothing at all.
            found = xp.where(xp.isnan(found), 0.0 if largest else xp.inf, found)
            best = xp.minimum(best, xp.min(found, axis=(0, 1)))
            line = xp.argmin(xp.min(found, axis=1), axis=0)[None, None]
            epsilon, high, low = (xp.broadcast_to(x, found.shape) for x in (epsilon, high, low))
            found, epsilon, high, low = (
                xp.take_along_axis(x, line, axis=0) for x in (found, epsilon, high, low)
            )
            top = xp.argmin(found, axis=1)[:, None]
            sides = xp.maximum(top - 1, 0), xp.minimum(top + 1, _POINTS - 1)
            start, end = (xp.take_along_axis(epsilon, at, axis=1) for at in sides)
            high, low = high[:, :1], low[:, :1]
        return side * best
