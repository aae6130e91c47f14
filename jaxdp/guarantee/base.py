"""What every guarantee offers, and the budget that is asked of it."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, final

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.bracket import excess, last_feasible, least_value
from jaxdp._numeric.elementary import ULP, log1m, log1p
from jaxdp._pytree import assign, pytree
from jaxdp._types import Bools, Index, RealLike, Reals
from jaxdp.noise.base import exp_up

G = TypeVar("G", bound="Guarantee")
_LEAST_EPSILON = 1e-30
_LARGEST_EPSILON = 1e30
_LEAST_ORDER_EXCESS = 1e-30
_LARGEST_ORDER_EXCESS = 1e30


class Guarantee(abc.ABC):
    """A bound on what an adversary can learn. Kinds never mix: convert first (`to_gdp`, ...).

    Parameters are arrays and broadcast; epsilon is in nats; bad input: `ValueError` when
    concrete, NaN when traced.
    """

    @abc.abstractmethod
    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of an upper bound on delta at `epsilon`, rounding included."""

    @abc.abstractmethod
    def tradeoff(self, fpr: RealLike) -> Reals:
        """A lower bound on the false-negative rate of any test with false-positive rate `fpr`."""

    # An array of counts is no array of guarantees: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @abc.abstractmethod
    def composed(self, other: Any) -> "Guarantee":
        """The guarantee of an adaptive composition of this and another of its kind."""

    @abc.abstractmethod
    def __rmul__(self, count: RealLike) -> "Guarantee":
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
    def __mul__(self: G, count: RealLike) -> G:
        """`count` adaptive repetitions."""
        return cast(G, self.__rmul__(count))

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: RealLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`; inf where there is none."""
        return _epsilon(self, _check.probability("delta", delta))


@final
@pytree
class Budget:
    """What a calibration must meet: delta(epsilon) <= delta, with epsilon >= 0, delta in [0, 1].

    Wherever one is taken, the pair (epsilon, delta) may stand for it.
    """

    epsilon: Reals
    delta: Reals

    def __init__(self, epsilon: RealLike, delta: RealLike):
        assign(
            self,
            epsilon=_check.nonnegative("epsilon", epsilon),
            delta=_check.probability("delta", delta),
        )


BudgetLike: TypeAlias = Budget | tuple[RealLike, RealLike]


def as_budget(budget: object) -> Budget:
    """The `Budget` of a pair (epsilon, delta), which is checked as one; a `Budget` as it is."""
    if isinstance(budget, Budget):
        return budget
    if not isinstance(budget, tuple) or len(budget) != 2:
        raise ValueError(f"budget must be a Budget or a pair (epsilon, delta), got {budget!r}")
    return Budget(*budget)


def is_no_release(other: object) -> bool:
    """True if `other` is the 0 with which `sum` begins."""
    return isinstance(other, int) and other == 0


def rounding_slack(target_delta: Reals) -> Reals:
    """The rounding of log delta at a target, in two compilations and one exponential."""
    return 8.0 * ULP * (1.0 + jnp.abs(jnp.log(target_delta)))


@jax.jit
def _epsilon(guarantee: Guarantee, delta: Reals) -> Reals:
    return epsilon_of(guarantee.log_delta, delta)


def epsilon_of(log_delta: Callable[[Reals], Reals], delta: Reals) -> Reals:
    """The least epsilon >= 0 with log_delta(epsilon) <= log(delta), for decreasing `log_delta`."""
    shape = jnp.broadcast_shapes(delta.shape, jax.eval_shape(log_delta, delta).shape)
    delta = jnp.broadcast_to(delta, shape)

    def residual(epsilon: Reals) -> Reals:
        return excess(log_delta(epsilon), delta)

    # A zero known only at run time: XLA takes long chains of constants for a stuck rewrite.
    zero = jnp.minimum(delta, 0.0)
    found = last_feasible(
        residual, zero + _LARGEST_EPSILON, zero + _LEAST_EPSILON, rounding_slack(delta)
    )
    return jnp.where(residual(zero) <= 0, zero, found)


def log_delta_of_cgf(cgf: Callable[[Reals], Reals], epsilon: Reals) -> Reals:
    """log delta <= min over s > 0 of K(s) - s epsilon - log(1 + s) - s log(1 + 1/s).

    K(s) = s times the Renyi divergence of order 1 + s, elementwise in the shape of `epsilon`.
    Every s gives a bound, so the minimisation need not be exact to be safe.
    Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
    """

    def bound(s: Reals) -> Reals:
        gain, cost = cgf(s), s * epsilon
        entropy = log1p(s) + s * log1p(1.0 / s)
        return gain - cost - entropy + 4.0 * ULP * (jnp.abs(gain) + jnp.abs(cost) + entropy)

    start = jnp.full(epsilon.shape, _LEAST_ORDER_EXCESS)
    stop = jnp.full(epsilon.shape, _LARGEST_ORDER_EXCESS)
    return jnp.minimum(least_value(bound, start, stop), 0.0)


def tradeoff_of_pure(bound: Reals, failure: RealLike, fpr: Reals) -> Reals:
    """max(0, 1 - failure - e^bound fpr, e^-bound (1 - failure - fpr)), rounded down."""
    bound, failure, fpr = jnp.broadcast_arrays(
        _check.guard(bound), _check.guard(jnp.asarray(failure), 1.0), fpr
    )
    falling = 1.0 - failure - jnp.where(fpr == 0, 0.0, jnp.exp(bound) * fpr + 4.0 * ULP)
    flat = jnp.exp(-bound) * (1.0 - failure - fpr) * (1.0 - 4.0 * ULP)
    return jnp.maximum(jnp.maximum(falling, flat), 0.0)


def tradeoff_of_renyi(s: Reals, value: Reals, fpr: Reals) -> Reals:
    """The least fnr with D(p || q) and D(q || p) <= `value` at the orders 1 + `s`, rounded down.

    p and q are the laws of a test's answer, two points with p = 1 - fnr and q = fpr. `s` and
    `value` have one more axis than `fpr`, the orders. The rates that obey an order form a convex
    set that contains fnr = 1 - fpr, so that a bisection finds its edge. NaN in, NaN out.
    """
    tiny = jnp.finfo(jnp.float64).tiny
    # A rate moved up only lowers the fnr that is left to it.
    log_q = jnp.log(jnp.maximum(fpr, tiny))[..., None]
    log_not_q = log1m(fpr)[..., None]

    def breaks_an_order(fnr: Reals) -> Bools:
        log_p, log_not_p = log1m(fnr)[..., None], jnp.log(fnr)[..., None]
        size = (1.0 + s) * (abs(log_p) + abs(log_not_p) + abs(log_q) + abs(log_not_q))
        allowed = s * value + 16.0 * ULP * (1.0 + s * value + size)
        forth = _log_moment(s, log_p, log_not_p, log_q, log_not_q)
        back = _log_moment(s, log_q, log_not_q, log_p, log_not_p)
        return jnp.any(jnp.maximum(forth, back) > allowed, axis=-1)

    def halve(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        low, high = ends
        middle = jnp.sqrt(low) * jnp.sqrt(high)
        broken = breaks_an_order(middle)
        return jnp.where(broken, middle, low), jnp.where(broken, high, middle)

    least = jnp.full_like(fpr, tiny)
    fnr = jax.lax.fori_loop(0, 60, halve, (least, jnp.maximum(1.0 - fpr, least)))[0]
    fnr = jnp.where(fnr <= tiny, 0.0, fnr)
    fnr = jnp.where((fpr == 0) & jnp.any(jnp.isfinite(value), axis=-1), 1.0, fnr)
    return jnp.where(jnp.isnan(jnp.sum(s + value, axis=-1) + fpr), jnp.nan, fnr)


def _log_moment(s: Reals, log_p: Reals, log_not_p: Reals, log_q: Reals, log_not_q: Reals) -> Reals:
    """log(p^(1 + s) q^-s + (1 - p)^(1 + s) (1 - q)^-s): s times the divergence of two points."""
    first = (1.0 + s) * log_p - s * log_q
    return jnp.logaddexp(first, (1.0 + s) * log_not_p - s * log_not_q)
