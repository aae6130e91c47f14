"""Base class of guarantees, and budgets."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar, cast, final, runtime_checkable

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import lax, xp
from jaxdp._core.neighbours import ONE_DIRECTION
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import product_up
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._numeric.search import last_feasible
from jaxdp.noise.base import Noise, exp_up

G = TypeVar("G", bound="Guarantee")
# Ends of the search for epsilon, nats. chosen: no release lies beyond
_LEAST_EPSILON = 1e-30
_LARGEST_EPSILON = 1e30


@in_float64
class Guarantee(abc.ABC):
    """A bound on an adversary's knowledge. To combine different kinds, convert (`to_gdp`, ...).

    Parameters are arrays and broadcast; epsilon is in nats. Bad concrete input raises `ValueError`,
    bad traced input gives NaN.
    """

    def __init_subclass__(cls) -> None:
        in_float64(cls)

    @abc.abstractmethod
    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of an upper bound on delta at `epsilon`, rounding included."""

    @abc.abstractmethod
    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """A lower bound on the false-negative rate of any test with false-positive rate `fpr`."""

    # An array of counts is no array of guarantees: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @abc.abstractmethod
    def composed(self, other: Any) -> Guarantee:
        """The guarantee of an adaptive composition of this and another of its kind."""

    @abc.abstractmethod
    def __rmul__(self, count: ArrayLike) -> Guarantee:
        """The guarantee of `count` adaptive repetitions; `count` may be traced."""

    @final
    def __add__(self: G, other: Any) -> G:
        """The guarantee of an adaptive composition of the two: one kind, else `TypeError`."""
        if not isinstance(other, Guarantee):
            return NotImplemented
        if type(self) is not type(other):
            names = type(self).__name__, type(other).__name__
            raise TypeError(f"cannot compose {names[0]} with {names[1]}: convert one first")
        return cast(G, self.composed(other))

    @final
    def __radd__(self: G, other: object) -> G:
        """The guarantee itself where `sum` begins with 0."""
        if is_no_release(other):
            return self
        return NotImplemented

    @final
    def __mul__(self: G, count: ArrayLike) -> G:
        """`count` adaptive repetitions."""
        return cast(G, self.__rmul__(count))

    def __truediv__(self: G, parts: ArrayLike) -> G:
        """One of `parts` equal parts, which compose to this guarantee at most; rounded down."""
        raise TypeError(
            f"{type(self).__name__} has no equal parts: divide a PureDP, ZCDP, RDP, GDP"
        )

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`; inf where there is none."""
        return _epsilon(self, checks.probability("delta", delta))


@final
@in_float64
@pytree
class Budget:
    """Target of a calibration: delta(epsilon) <= delta, with epsilon >= 0, delta in [0, 1].

    A subnormal number is met as 0. Functions that take one also take the pair (epsilon, delta), and
    a guarantee, mechanism or privacy loss that has one epsilon: see `as_budget`.
    """

    epsilon: Reals
    delta: Reals

    def __init__(self, epsilon: ArrayLike, delta: ArrayLike):
        assign(
            self,
            epsilon=checks.real("epsilon", epsilon, 0.0),
            delta=checks.probability("delta", delta),
        )

    def __truediv__(self, parts: ArrayLike) -> Budget:
        """One of `parts` equal parts: their epsilons and deltas add up to these at most."""
        return Budget(part_of(self.epsilon, parts), part_of(self.delta, parts))


def part_of(value: Reals, parts: ArrayLike) -> Reals:
    """value / parts, rounded down: the sum of as many is at most `value`, without rounding."""
    return round_up(value / checks.whole("parts", parts, 1.0), -4)


@runtime_checkable
class HasEpsilon(Protocol):
    """A guarantee, a mechanism or a privacy loss."""

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon at `delta`."""
        ...

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of delta at `epsilon`."""
        ...


BudgetLike: TypeAlias = Budget | tuple[ArrayLike, ArrayLike] | HasEpsilon


def as_budget(budget: object, name: str = "budget", delta: ArrayLike | None = None) -> Budget:
    """The `Budget` that an argument stands for.

    Args:
        budget: a `Budget` or a pair (epsilon, delta), as it is; or a guarantee, mechanism or
            privacy loss of both directions, at `delta`.
        name: of the argument, in errors.
        delta: of a guarantee; None: the delta that it states, as an `ApproxDP` does, else 0.

    Anything else, and no finite epsilon at that delta: `ValueError`, or NaN where traced.
    """
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, tuple) and len(budget) == 2:
        return Budget(*budget)
    if isinstance(budget, Noise | type) or not isinstance(budget, HasEpsilon):
        raise ValueError(
            f"{name} must be a Budget or a pair (epsilon, delta), or a guarantee, mechanism or "
            f"privacy loss with a finite epsilon, got {budget!r}"
        )
    require_both_directions(budget)
    epsilon, at = stated(budget) if delta is None else (budget.epsilon(delta), delta)
    if checks.all_concrete(epsilon) and not np.all(np.isfinite(np.asarray(epsilon))):
        raise ValueError(
            f"{name} must be a Budget or a pair (epsilon, delta), or have a finite epsilon at "
            f"delta {at}, got {budget!r}: choose a delta above 0"
        )
    return Budget(xp.where(xp.isfinite(epsilon), epsilon, xp.nan), at)


def stated(guarantee: HasEpsilon) -> tuple[Reals, Reals]:
    """The (epsilon, delta) that a guarantee states, or its epsilon at delta 0."""
    own = getattr(guarantee, "stated", None)
    return (guarantee.epsilon(0.0), xp.asarray(0.0)) if own is None else own


def is_no_release(other: object) -> bool:
    """True if `other` is the 0 with which `sum` begins."""
    return isinstance(other, int) and other == 0


def require_profile(name: str, source: object) -> None:
    """`TypeError` unless `source` has `log_delta(epsilon)`."""
    if isinstance(source, Noise) or not callable(getattr(source, "log_delta", None)):
        raise TypeError(
            f"{name} must be a guarantee, a mechanism or a privacy loss, got "
            f"{type(source).__name__}: dp.Mechanism(noise, sensitivity) is the release of a noise"
        )


def require_both_directions(
    source: object, reason: str = "the risk of a test depends on both directions"
) -> None:
    """`ValueError` if `source` covers one direction: "add", "remove", or a pair's own."""
    relation, reverse = (getattr(source, name, None) for name in ("relation", "reversed"))
    if relation in ONE_DIRECTION:
        raise ValueError(f"relation must be 'add_remove' here, got {relation!r}: {reason}")
    if callable(reverse) and reverse() is not source:
        raise ValueError(
            f"{type(source).__name__} is a pair in one direction, and {reason}: write "
            "dp.privacy_loss(pair)"
        )


def repeated(name: str, count: Reals, value: Reals) -> Reals:
    """count value, of one guarantee's parameter, rounded up; 0 times infinity: `ValueError`."""
    if checks.all_concrete(count, value):
        counts, values = np.broadcast_arrays(np.asarray(count), np.asarray(value))
        if np.any(((counts == 0) & np.isinf(values)) | (np.isinf(counts) & (values == 0))):
            raise ValueError(
                f"count must not be 0 where {name} is infinite, nor infinite where {name} is 0: "
                f"that product means nothing; got count {count} and {name} {value}"
            )
    return product_up(*xp.broadcast_arrays(count, value))


@jitted
def excess_log_delta(log_delta: Reals, target_delta: Reals) -> Reals:
    """log_delta - log(target), with delta = 0 meeting the target 0 and NaN meeting nothing."""
    gap = log_delta - xp.log(checks.guard(target_delta, 1.0))
    return xp.where(log_delta == -xp.inf, -xp.inf, gap)


def rounding_slack(target_delta: Reals) -> Reals:
    """The rounding of log delta at a target, in two compilations and one exponential."""
    return 8.0 * ULP * (1.0 + xp.abs(xp.log(target_delta)))


# Ends of searches for mu, rho or a divergence. chosen: nothing is released with so much or so
# little noise
_LEAST_PARAMETER = 1e-300
_LARGEST_PARAMETER = 1e15


def largest_within(
    log_delta: Callable[[Reals, Reals], Reals], epsilon: Reals, delta: Reals
) -> Reals:
    """The largest x with log_delta(x, epsilon) <= log(delta), for increasing `log_delta`; else 0.

    Rounded down by a few ulps, and differentiable by the implicit function theorem.
    """
    epsilon, delta = xp.broadcast_arrays(epsilon, delta)

    def residual(parameter: Reals) -> Reals:
        return excess_log_delta(log_delta(parameter, epsilon), delta)

    # A zero known only at run time: XLA takes long chains of constants for a stuck rewrite.
    zero = xp.minimum(delta, 0.0)
    ends = zero + _LEAST_PARAMETER, zero + _LARGEST_PARAMETER
    return last_feasible(residual, *ends, rounding_slack(delta), 0.0)


@jitted
def _epsilon(guarantee: Guarantee, delta: Reals) -> Reals:
    return epsilon_of(guarantee.log_delta, delta)


def epsilon_of(log_delta: Callable[[Reals], Reals], delta: Reals) -> Reals:
    """The least epsilon >= 0 with log_delta(epsilon) <= log(delta), for decreasing `log_delta`.

    A delta that no epsilon goes below is met at the first one that reaches it, but for the rounding
    of both: 5 `rounding_slack`.
    """
    at_end = log_delta(xp.minimum(delta, 0.0) + _LARGEST_EPSILON)
    delta = xp.broadcast_to(delta, xp.broadcast_shapes(delta.shape, at_end.shape))
    # A zero known only at run time: XLA takes long chains of constants for a stuck rewrite.
    zero, slack = xp.minimum(delta, 0.0), rounding_slack(delta)

    def excess(epsilon: Reals) -> Reals:
        return excess_log_delta(log_delta(epsilon), delta)

    excess_at_end = lax.stop_gradient(excess_log_delta(at_end, delta))
    is_floor = xp.isfinite(slack) & (xp.abs(excess_at_end) <= 3.0 * slack)
    allowance = xp.where(is_floor, excess_at_end + 2.0 * slack, 0.0)

    def residual(epsilon: Reals) -> Reals:
        return excess(epsilon) - allowance

    found = last_feasible(residual, zero + _LARGEST_EPSILON, zero + _LEAST_EPSILON, slack)
    found = xp.where(residual(zero) <= 0, zero, found)
    return xp.where(xp.isnan(delta), xp.nan, found)
