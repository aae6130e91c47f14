"""Fixed quadrature rules, and sums over their nodes with one node in memory at a time.

Nodes and weights are NumPy constants, built on first use. A sum runs over the nodes in a loop, so
its memory is proportional to the points, not to points times nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from jaxdp._core.namespace import lax, special, xp
from jaxdp._core.types import Reals

Sums = TypeVar("Sums")
# Nodes of `accumulate_exponentials` at a time. chosen: with fewer, loops take most of the time
_TOGETHER = 16
# Terms of a `power_sum` before its tail. measured: with them no sum is off by more than 3e-14
_TERMS = 128
# B_2k / (2k)!, k = 1, ..., 10, of the Euler-Maclaurin formula. derived
BERNOULLI = (
    *(0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07),
    *(2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11),
    *(-3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16),
)
# Those of the tail of a `power_sum`. chosen: its relative error is 3e-14
_OF_TAIL = BERNOULLI[:6]
# step (_TERMS + offset) beyond which the tail is 0. derived: e^-600 of the first term
_FAR = 600.0


class Rule(NamedTuple):
    """A quadrature rule: the integral of f is close to the sum of weights times f(nodes)."""

    nodes: np.ndarray
    weights: np.ndarray


@functools.cache
def gauss_legendre(count: int) -> Rule:
    """Gauss-Legendre on [0, 1]: exact for polynomials of degree 2 count - 1.

    Newton's method in the widest available float refines NumPy's nodes, whose weights have errors
    of 1e-14 at 200 nodes.
    """
    x = np.polynomial.legendre.leggauss(count)[0].astype(np.longdouble)

    def value_and_slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before, value = np.ones_like(x), x
        for k in range(2, count + 1):
            before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
        return value, count * (x * value - before) / (x * x - 1)

    for _ in range(2):
        value, slope = value_and_slope(x)
        x = x - value / slope
    slope = value_and_slope(x)[1]
    weights = 2 / ((1 - x * x) * slope * slope)
    return Rule((0.5 * (1 + x)).astype(np.float64), (weights / weights.sum()).astype(np.float64))


@functools.cache
def graded_gauss_legendre(count: int) -> Rule:
    """Gauss-Legendre in y on [0, 1], x = y^4 (5 - 4 y): for a weak singularity at 0."""
    y, weights = gauss_legendre(count)
    return Rule(y**4 * (5.0 - 4.0 * y), weights * 20.0 * y**3 * (1.0 - y))


def exponential_decay(step: float) -> Rule:
    """The trapezoid rule in x for int_0^inf exp(-q) f(q) dq, q = exp(x - exp(-x)).

    Source: Takahasi & Mori, Publ. RIMS 9, 1974. With step 1/4 (30 nodes) its relative error is
    5e-16 for f(q) = (a + q)^-b, a >= 1, 0 <= b <= 2.
    """
    x = step * np.arange(-64, 65)
    nodes = np.exp(x - np.exp(-x))
    weights = step * nodes * (1.0 + np.exp(-x)) * np.exp(-nodes)
    is_kept = weights > 1e-18
    return Rule(nodes[is_kept], weights[is_kept])


def accumulate(rule: Rule, term: Callable[[Reals, Reals], Sums], start: Sums) -> Sums:
    """start + the sum over the rule of term(node, weight), a tree of arrays like `start`."""

    def add(total: Sums, point: tuple[Reals, Reals]) -> tuple[Sums, None]:
        return jax.tree.map(xp.add, total, term(*point)), None

    points = (xp.asarray(rule.nodes), xp.asarray(rule.weights))
    return lax.scan(add, start, points)[0]


def accumulate_exponentials(
    rule: Rule, term: Callable[[Reals], tuple[Reals, Reals]], like: Reals
) -> tuple[Reals, Reals]:
    """(m, s) with exp(m) s = the sum of weight exp(e) f, arrays like `like`.

    (e, f) = term(nodes), with 16 nodes at a time along a new first axis. m is the largest e so far,
    so large exponents do not overflow.
    """

    def add(state: tuple[Reals, Reals], points: tuple[Reals, Reals]):
        nodes, weights = points
        exponents, factors = term(nodes)
        largest = xp.maximum(state[0], xp.max(exponents, axis=0))
        terms = weights * xp.exp(exponents - largest[None]) * factors
        return (largest, state[1] * xp.exp(state[0] - largest) + xp.sum(terms, axis=0)), None

    # The start is below every exponent, so that the exponential of its difference is 0.
    start = xp.full_like(like, xp.finfo(xp.float64).min), xp.zeros_like(like)
    shape = -1, _TOGETHER, *(1,) * like.ndim
    chunks = xp.asarray(rule.nodes).reshape(shape), xp.asarray(rule.weights).reshape(shape)
    return lax.scan(add, start, chunks)[0]


def power_sum(step: Reals, offset: Reals, power: Reals, log_factor: Reals) -> Reals:
    """The sum over k >= 0 of e^(log_factor - step k) (k + offset)^power, step > 0.

    For offset in (0, 1] and power in (0, 17], arrays of one shape. The first terms one by one, the
    others by the Euler-Maclaurin formula. Relative error: 3e-14.
    """

    def terms(at: Reals) -> Reals:
        logs = xp.log(at + offset[None])
        return xp.exp((log_factor[None] - step[None] * at) + power[None] * logs)

    first = xp.arange(_TERMS, dtype=xp.float64).reshape((-1,) + (1,) * power.ndim)

    start = _TERMS + offset
    near = step * start < _FAR
    gamma = special.gammaincc(power + 1.0, xp.where(near, step * start, _FAR))
    log_gamma = xp.log(xp.where(gamma > 0, gamma, 1.0)) + special.gammaln(power + 1.0)
    log_gamma = log_gamma + (log_factor + step * offset - (power + 1.0) * xp.log(step))
    integral = xp.where(near & (gamma > 0), xp.exp(log_gamma), 0.0)
    # Derivatives of x^power e^(-step x) over itself, by Leibniz, at the start of the tail.
    falling = [xp.ones_like(power)]
    for i in range(2 * len(_OF_TAIL) - 1):
        falling.append(falling[-1] * (power - i) / start)
    correction = 0.5 * xp.ones_like(power)
    for i, coefficient in enumerate(_OF_TAIL):
        order, derivative, binomial = 2 * i + 1, xp.zeros_like(power), 1.0
        for j in range(order + 1):
            derivative = derivative + binomial * falling[j] * (-step) ** (order - j)
            binomial = binomial * ((order - j) / (j + 1))
        correction = correction - coefficient * derivative
    next_term = terms(xp.full_like(power[None], _TERMS))[0]
    tail = integral + xp.where(near, next_term * correction, 0.0)
    return xp.sum(terms(first), axis=0) + tail
