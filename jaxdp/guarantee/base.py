"""Base of every guarantee, and the budget that is asked of it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Index, Reals
from jaxdp._numeric.bracket import last_feasible, least_value
from jaxdp._numeric.elementary import ULP, log1m, log1p, round_up
from jaxdp.noise.base import exp_up

G = TypeVar("G", bound="Guarantee")
# Ends of the search for epsilon, nats. chosen: no release lies beyond
_LEAST_EPSILON = 1e-30
_LARGEST_EPSILON = 1e30
# Ends of the search for a Renyi order, less 1. chosen: no release has its best order beyond
_LEAST_ORDER_EXCESS = 1e-30
_LARGEST_ORDER_EXCESS = 1e30


class Guarantee(abc.ABC):
    """A bound on what an adversary can learn. Kinds never mix: convert first (`to_gdp`, ...).

    Parameters are arrays and broadcast; epsilon is in nats; bad input: `ValueError` when
    concrete, NaN when traced.
    """

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

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`; inf where there is none."""
        return _epsilon(self, checks.probability("delta", delta))


@final
@pytree
class Budget:
    """Target of a calibration: delta(epsilon) <= delta, with epsilon >= 0, delta in [0, 1].

    A subnormal number is met as 0. Wherever one is taken, the pair (epsilon, delta) may stand
    for it.
    """

    epsilon: Reals
    delta: Reals

    def __init__(self, epsilon: ArrayLike, delta: ArrayLike):
        assign(
            self,
            epsilon=checks.real("epsilon", epsilon, 0.0),
            delta=checks.probability("delta", delta),
        )


BudgetLike: TypeAlias = Budget | tuple[ArrayLike, ArrayLike]


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


def require_both_directions(source: object) -> None:
    """ValueError where `source` knows what one of "add" and "remove" owes, and not the other."""
    if getattr(source, "relation", None) in ("add", "remove"):
        raise ValueError(
            f"relation must be 'add_remove' here, got {getattr(source, 'relation', None)!r}: what "
            "a test can do depends on both directions"
        )


def repeated(name: str, count: Reals, value: Reals) -> Reals:
    """count value, of one guarantee's parameter; 0 times infinity is not known: `ValueError`."""
    if checks.all_concrete(count, value):
        known, held = np.broadcast_arrays(np.asarray(count), np.asarray(value))
        if np.any(((known == 0) & np.isinf(held)) | (np.isinf(known) & (held == 0))):
            raise ValueError(
                f"count must not be 0 where {name} is infinite, nor infinite where {name} is 0: "
                f"that product means nothing; got count {count} and {name} {value}"
            )
    return count * value


@jax.jit
def excess_log_delta(log_delta: Reals, target_delta: Reals) -> Reals:
    """log_delta - log(target), with delta = 0 meeting the target 0 and NaN meeting nothing."""
    gap = log_delta - jnp.log(checks.guard(target_delta, 1.0))
    return jnp.where(log_delta == -jnp.inf, -jnp.inf, gap)


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
        return excess_log_delta(log_delta(epsilon), delta)

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


def tradeoff_of_pure(bound: Reals, failure: ArrayLike, fpr: Reals) -> Reals:
    """max(0, 1 - failure - e^bound fpr, e^-bound (1 - failure - fpr)), rounded down.

    0 at an infinite bound, where a loss may tell everything.
    """
    bound, failure, fpr = jnp.broadcast_arrays(
        checks.guard(bound), checks.guard(jnp.asarray(failure), 1.0), fpr
    )
    power = 1.0 - failure
    power = jnp.where(failure == 0, power, round_up(power, -1))
    cost = jnp.where(fpr == 0, jnp.where(jnp.isinf(bound), jnp.inf, 0.0), jnp.exp(bound) * fpr)
    falling = power - round_up(cost, 8)
    falling = jnp.where(cost == 0, falling, falling - ULP)
    flat = jnp.exp(-bound) * (power - fpr) * (1.0 - 8.0 * ULP)
    return jnp.maximum(jnp.maximum(falling, flat), 0.0)


def tradeoff_of_renyi(s: Reals, value: Reals, fpr: Reals) -> Reals:
    """The least fnr with D(p || q) and D(q || p) <= `value` at the orders 1 + `s`, rounded down.

    s >= 0; at s = 0 D is the Kullback-Leibler divergence. p and q are the laws of a test's answer,
    two points with p = 1 - fnr and q = fpr. `s` and `value` have one more axis than `fpr`, the
    orders. The rates that obey an order form a convex set that contains fnr = 1 - fpr, so that a
    bisection finds its edge. Relative error: 1e-10. NaN in, NaN out.
    """
    # A rate moved up only lowers the fnr that is left to it.
    rate = jnp.maximum(fpr, checks.LEAST_NORMAL)[..., None]
    rest = 1.0 - fpr[..., None]
    log_q = jnp.log(rate), log1m(fpr)[..., None]
    allowed = round_up(value, 4)

    def breaks_an_order(fnr: Reals) -> Bools:
        fnr = fnr[..., None]
        log_p, moved = (log1m(fnr), jnp.log(fnr)), rest - fnr
        forth = (
            _log_ratio(moved / rate, log_p[0] - log_q[0]),
            _log_ratio(-moved / rest, log_p[1] - log_q[1]),
        )
        back = -forth[0], -forth[1]
        least = jnp.maximum(_divergence(s, log_p, forth), _divergence(s, log_q, back))
        return jnp.any(least > allowed, axis=-1)

    def halve(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        low, high = ends
        middle = jnp.sqrt(low) * jnp.sqrt(high)
        broken = breaks_an_order(middle)
        return jnp.where(broken, middle, low), jnp.where(broken, high, middle)

    least = jnp.full_like(fpr, checks.LEAST_NORMAL)
    fnr = jax.lax.fori_loop(0, 60, halve, (least, jnp.maximum(1.0 - fpr, least)))[0]
    fnr = jnp.where(fnr <= least, 0.0, fnr)
    fnr = jnp.where((fpr == 0) & jnp.any(jnp.isfinite(value), axis=-1), 1.0, fnr)
    return jnp.where(jnp.isnan(jnp.sum(s + value, axis=-1) + fpr), jnp.nan, fnr)


def _log_ratio(excess: Reals, difference: Reals) -> Reals:
    """log(1 + excess), where that is far from 0 as the difference of two logarithms."""
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, log1p(jnp.where(near, excess, 0.0)), difference)


def _divergence(s: Reals, logs: tuple[Reals, Reals], losses: tuple[Reals, Reals]) -> Reals:
    """The divergence of order 1 + s of two points, rounded down: log masses, and their losses l.

    log(sum of p e^(s l)) / s; where s l is small log(1 + s m) / s, m = sum of p (e^(s l) - 1) / s.
    """
    top = jnp.maximum(jnp.abs(losses[0]), jnp.abs(losses[1]))
    near = s * top < 1.0
    low, high = jnp.where(near, s, 0.0), jnp.where(near, 1.0, s)
    first, second = (
        jnp.exp(log) * loss * _mean_growth(low * loss)
        for log, loss in zip(logs, losses, strict=True)
    )
    mean = first + second
    small = mean * _mean_log(low * mean)
    large = jnp.logaddexp(logs[0] + high * losses[0], logs[1] + high * losses[1]) / high
    rounding = jnp.where(near, jnp.abs(first) + jnp.abs(second), 2.0 * top)
    return jnp.where(near, small, large) - 32.0 * ULP * rounding


def _mean_growth(y: Reals) -> Reals:
    """(e^y - 1) / y."""
    return jnp.where(y == 0, 1.0, jnp.expm1(y) / jnp.where(y == 0, 1.0, y))


def _mean_log(y: Reals) -> Reals:
    """log(1 + y) / y."""
    return jnp.where(y == 0, 1.0, log1p(y) / jnp.where(y == 0, 1.0, y))
