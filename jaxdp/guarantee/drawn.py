"""Guarantees of samplers that are nearly exact: delta includes their total variation.

If the law of a release is within eta in total variation of a law that satisfies (epsilon, delta),
for all records, then P'(S) <= P(S) + eta <= e^epsilon Q(S) + delta + eta <= e^epsilon Q'(S)
+ delta + (1 + e^epsilon) eta. The etas of several releases add up. A guarantee of delta = 0 becomes
one of delta > 0.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log_add, round_up
from jaxdp.guarantee.base import Budget, is_no_release, repeated, stated
from jaxdp.noise.base import exp_up

# Relative, of a delta that is parted and added up again. chosen: above the rounding of both
_ROUNDING = 1e-13
# Share of delta of the exact draws where half is not enough. chosen: 1e-22 (1 + e^epsilon) fits
_ALL_BUT_LITTLE = 1.0 - 2.0**-20


@final
@in_float64
@pytree
class Drawn:
    """A guarantee with the sampling error of its noise, which `log_delta` and `epsilon` include.

    exact: the guarantee, mechanism or `PrivacyLoss` of an exact sampler. sampling_error: total
    variation between the drawn and the exact law; 1 if it is unknown. `a + b` composes (b may be a
    guarantee of an exact sampler), `n * a` repeats: exact parts compose, errors add.
    """

    exact: Any
    sampling_error: Reals

    def __init__(self, exact: Any, sampling_error: ArrayLike = 0.0):
        error = xp.minimum(checks.nonnegative("sampling_error", sampling_error), 1.0)
        assign(self, exact=exact, sampling_error=error)

    def __repr__(self) -> str:
        return f"Drawn({self.exact!r}, +{float(self.sampling_error):.1g})"

    # An array of counts is no array of guarantees: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @property
    def stated(self) -> tuple[Reals, Reals]:
        """The epsilon that the exact guarantee states, and the delta there."""
        epsilon, _ = stated(self.exact)
        return epsilon, self.delta(epsilon)

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of delta + (1 + e^epsilon) sampling_error, rounded up, and at most 0."""
        epsilon = checks.real("epsilon", epsilon)
        error = checks.guard(self.sampling_error)
        safe = xp.where(error == 0, 1.0, error)
        extra = xp.where(error == 0, -xp.inf, xp.log(safe) + xp.logaddexp(0.0, epsilon))
        return xp.minimum(round_up(log_add(self.exact.log_delta(epsilon), extra), 4), 0.0)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """An epsilon with delta(epsilon) <= `delta`; infinite where the draws' error forbids it."""
        delta = checks.probability("delta", delta)
        found = self._epsilon_of(delta, 0.5)
        if not checks.all_concrete(found) or np.all(np.isfinite(np.asarray(found))):
            return found
        # Exact draws whose loss is infinite with a probability above half of delta need more of it.
        return xp.minimum(found, self._epsilon_of(delta, _ALL_BUT_LITTLE))

    def _epsilon_of(self, delta: Reals, share: float) -> Reals:
        """Epsilon with at least this share of delta for exact draws, infinite if less is left."""
        largest = self.exact.epsilon(share * delta)
        sampling_delta = round_up((1.0 + xp.exp(largest)) * self.sampling_error, 4)
        is_exact = self.sampling_error == 0
        spare = xp.where(is_exact, delta, delta * (1.0 - 1e-15) - sampling_delta)
        exact_epsilon = self.exact.epsilon(xp.maximum(spare, 0.0))
        return xp.where(is_exact | ((spare >= share * delta) & (spare > 0)), exact_epsilon, xp.inf)

    def __add__(self, other: Any) -> Drawn:
        if is_no_release(other):
            return self
        other = as_drawn(other)
        error = round_up(self.sampling_error + other.sampling_error, 2)
        return Drawn(self.exact + other.exact, error)

    def __radd__(self, other: Any) -> Drawn:
        """`other` is a guarantee of exact draws, or the 0 with which `sum` begins."""
        return self + other

    def __rmul__(self, count: ArrayLike) -> Drawn:
        times = checks.whole("count", count)
        error = repeated("sampling_error", times, self.sampling_error)
        return Drawn(count * self.exact, error)

    def __mul__(self, count: ArrayLike) -> Drawn:
        return self.__rmul__(count)


def as_drawn(guarantee: Any) -> Drawn:
    """The guarantee, with a sampling error of 0 unless it has its own."""
    return guarantee if isinstance(guarantee, Drawn) else Drawn(guarantee)


@np.errstate(all="ignore")  # an epsilon of 1e6 is none
def left_for_exact(budget: Budget, sampling_error: ArrayLike) -> Budget:
    """The budget that remains for an exact sampler.

    delta - (1 + e^epsilon) sampling_error, rounded down. `ValueError` (traced: NaN) if that takes
    more than half of delta. Unchanged are budgets with delta = 0, which only an exact sampler
    satisfies, with an infinite epsilon, and for an error of 1 or more (floating point).
    """
    error = xp.asarray(sampling_error)
    epsilon, delta = budget.epsilon, budget.delta
    sampling_delta = xp.where(error == 0, 0.0, round_up((1.0 + xp.exp(epsilon)) * error, 8))
    unchanged = (delta == 0) | (epsilon == xp.inf) | (error >= 1.0)
    suffices = 2.0 * sampling_delta <= delta
    if checks.all_concrete(unchanged, suffices) and not bool(xp.all(unchanged | suffices)):
        raise ValueError(
            f"budget must have a delta of at least 2 (1 + e^epsilon) {float(xp.max(error)):.1e}, "
            "to cover the sampling error (total variation): take a smaller epsilon (for a fit "
            "without privacy, estimators take epsilon=inf), got epsilon "
            f"{epsilon} and delta {delta}"
        )
    remaining = xp.where(suffices, delta * (1.0 - _ROUNDING) - sampling_delta, xp.nan)
    return Budget(epsilon, xp.where(unchanged, delta, remaining))
