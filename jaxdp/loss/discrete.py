"""Losses that no noise is added for: pure and approximate privacy, a bounded range.

Each is the worst pair of what is known of a mechanism, so that adaptive compositions are bounded
by the composition of the pairs (Zhu, Dong & Wang, AISTATS 2022). `shift` means nothing to them.
"""

import math
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import expm1, log1m, log1p, round_up
from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._numeric.pure import (
    log_delta_of_approximate,
    log_delta_of_pure,
    log_delta_of_range,
)
from jaxdp._pytree import assign, pytree
from jaxdp._types import Bools, Complexes, RealLike, Reals, RealsOrComplexes
from jaxdp.loss.infinite import LEAST_FINITE
from jaxdp.noise.base import Loss, Points

# Of sinh(x) / x in x^2; |x| <= 2.
_SINHC_SERIES = tuple(1.0 / math.factorial(2 * k + 1) for k in range(15))


@final
@pytree
class PureLoss(Loss):
    """Randomised response: the loss is +-epsilon, up with probability p = 1 / (1 + e^-epsilon).

    The worst pair of epsilon-differential privacy. epsilon: nats, infinite for no protection; bad
    concrete values raise, bad traced ones become NaN.
    Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    epsilon: Reals

    def __init__(self, epsilon: RealLike):
        assign(self, epsilon=_check.nonnegative("epsilon", epsilon))

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """`PureDP.log_delta`."""
        return _log_delta_pure(self.epsilon, _any(shift), _check.real("epsilon", epsilon))

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """K(z) = log(p e^(z epsilon) + (1 - p) e^(-z epsilon)).

        Relative error 1e-14 for real z > 0, absolute 1e-14 (1 + |z| epsilon) elsewhere.
        """
        return _cgf_pure(self.epsilon, _any(shift), _check.argument("z", z))

    def rise(self, shift: Reals, points: Points, known: Any) -> Complexes:
        """log(cos(t epsilon) + i tanh((theta + 1/2) epsilon) sin(t epsilon))."""
        del known
        return _rise_pure(self.epsilon, _any(shift), points)

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """epsilon, rounded up."""
        return round_up(_check.guard(self.epsilon) + 0.0 * _any(shift), 2)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """(epsilon, log p)."""
        return _atom(self.epsilon, _any(shift))

    def edges(self, shift: Reals) -> LossEdges:
        """No density."""
        return _atoms_alone(*self.loss_atom(shift))

    def lattice(self, shift: Reals) -> tuple[Reals, Reals]:
        """(2 epsilon, 1)."""
        unit = 2.0 * _check.guard(self.epsilon) + _any(shift)
        return unit, jnp.ones_like(unit)

    @property
    def falls(self) -> bool:
        """Yes: |p e^(ix) + q e^(-ix)|."""
        return True


@final
@pytree
class ApproxLoss(Loss):
    """Infinite with probability delta, else that of randomised response, +-epsilon.

    The worst pair of (epsilon, delta)-differential privacy. Bad input: as `PureLoss`.
    Source: Kairouz, Oh & Viswanath, ICML 2015.
    """

    epsilon: Reals
    delta: Reals

    def __init__(self, epsilon: RealLike, delta: RealLike):
        assign(
            self,
            epsilon=_check.nonnegative("epsilon", epsilon),
            delta=_check.probability("delta", delta),
        )

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """`ApproxDP.log_delta`."""
        return _log_delta_approximate(
            self.epsilon, self.delta, _any(shift), _check.real("epsilon", epsilon)
        )

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """log(1 - delta) + K(z) of `PureLoss`: of the finite part."""
        z = _check.argument("z", z)
        return _cgf_pure(self.epsilon, _any(shift), z) + self._log_rest()

    def rise(self, shift: Reals, points: Points, known: Any) -> Complexes:
        """As `PureLoss`."""
        del known
        return _rise_pure(self.epsilon, _any(shift), points)

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """Infinite, unless delta = 0."""
        largest = self.largest_finite(shift)
        delta = _check.guard(self.delta, 1.0)
        return jnp.where(delta > 0, jnp.inf, largest + delta)

    def largest_finite(self, shift: RealLike) -> Reals:
        """epsilon, rounded up."""
        return round_up(_check.guard(self.epsilon) + 0.0 * _any(shift), 2)

    def log_finite(self, shift: Reals) -> Reals:
        """log(1 - delta)."""
        return self._log_rest() + 0.0 * shift

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """(epsilon, log((1 - delta) p))."""
        r, log_mass = _atom(self.epsilon, _any(shift))
        return r, log_mass + self._log_rest()

    def edges(self, shift: Reals) -> LossEdges:
        """No density."""
        return _atoms_alone(*self.loss_atom(shift))

    def lattice(self, shift: Reals) -> tuple[Reals, Reals]:
        """(2 epsilon, 1)."""
        unit = 2.0 * _check.guard(self.epsilon) + _any(shift)
        return unit, jnp.ones_like(unit)

    @property
    def falls(self) -> bool:
        """Yes: |p e^(ix) + q e^(-ix)|."""
        return True

    def _log_rest(self) -> Reals:
        return jnp.maximum(log1m(_check.guard(self.delta, 1.0)), LEAST_FINITE)


@final
@pytree
class RangeLoss(Loss):
    """The worst pair of a mechanism of bounded range epsilon: density ~ e^(l / 2), |l| <= epsilon.

    Bounded range: the losses of two outputs differ by epsilon at most, as those of the exponential
    mechanism. What it can do is tell apart the pairs of losses t and t - epsilon, 0 <= t <= epsilon
    (Durfee & Rogers, NeurIPS 2019). The largest of their profiles, delta(e) = (e^(epsilon / 2) -
    e^(e / 2))^2 / (e^epsilon - 1) at |e| <= epsilon, is convex in e^e: a profile, of the density
    e^((epsilon + l) / 2) / (2 (e^epsilon - 1)) of the loss. t may be chosen anew at every step,
    which costs: of many releases at a fixed t the loss has 3/4 of the variance of this one, and
    the best bound for releases fixed beforehand is smaller (Dong, Durfee & Rogers, ICML 2020).
    Bad input: as `PureLoss`.
    """

    epsilon: Reals

    def __init__(self, epsilon: RealLike):
        assign(self, epsilon=_check.nonnegative("epsilon", epsilon))

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """log of (e^(b / 2) - e^(e / 2))^2 / (e^b - 1) at |e| <= b, b the `epsilon` of this.

        0 above, 1 - e^e below. To full relative accuracy of delta near b; rounded up.
        """
        return _log_delta_range(self.epsilon, _any(shift), _check.real("epsilon", epsilon))

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """K(z) = log[sinh((z + 1/2) b) / ((2 z + 1) sinh(b / 2))], b the `epsilon` of this.

        The point z = -1/2 is removed. Absolute error: 1e-14 (1 + |z| b); relative error 1e-14
        where |z + 1/2| b <= 2, b <= 4 and z > 0.
        """
        return _cgf_range(self.epsilon, _any(shift), _check.argument("z", z))

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """epsilon, rounded up."""
        return round_up(_check.guard(self.epsilon) + 0.0 * _any(shift), 2)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """None; at epsilon = 0 two halves at 0, and at infinity one of another kind."""
        b = _check.guard(self.epsilon) + 0.0 * _any(shift)
        ends = jnp.where(b == 0, -math.log(2.0), jnp.nan)
        return jnp.zeros_like(b), jnp.where((b > 0) & (b < jnp.inf), -jnp.inf, ends)

    def edges(self, shift: Reals) -> LossEdges:
        """No atoms, but at epsilon = 0; a = 1 / (2 (1 - e^-b))."""
        b = _check.guard(self.epsilon) + _any(shift)
        some = b > 0
        log_density = -jnp.log(-jnp.expm1(-jnp.where(some, b, 1.0))) - math.log(2.0)
        density = jnp.where(some, log_density, jnp.where(b == 0, -jnp.inf, jnp.nan))
        return LossEdges(b, self.loss_atom(shift)[1], density)


def _any(shift: RealLike) -> Reals:
    """A shift that means nothing but its shape, and NaN."""
    return jnp.minimum(_check.nonnegative("shift", shift), 0.0)


def _atoms_alone(height: Reals, log_atom: Reals) -> LossEdges:
    return LossEdges(height, log_atom, jnp.full_like(height, -jnp.inf))


def _atom(epsilon: Reals, shift: Reals) -> tuple[Reals, Reals]:
    r = _check.guard(epsilon) + shift
    return r, jnp.where(jnp.isinf(r), jnp.nan, -log1p(jnp.exp(-r)))


@jax.jit
def _log_delta_pure(bound: Reals, shift: Reals, epsilon: Reals) -> Reals:
    bound, shift, epsilon = jnp.broadcast_arrays(bound, shift, epsilon)
    return log_delta_of_pure(bound + shift, epsilon)


@jax.jit
def _log_delta_approximate(bound: Reals, failure: Reals, shift: Reals, epsilon: Reals) -> Reals:
    bound, failure, shift, epsilon = jnp.broadcast_arrays(bound, failure, shift, epsilon)
    return log_delta_of_approximate(bound + shift, failure, epsilon)


@jax.jit
def _log_delta_range(bound: Reals, shift: Reals, epsilon: Reals) -> Reals:
    bound, shift, epsilon = jnp.broadcast_arrays(bound, shift, epsilon)
    return log_delta_of_range(bound + shift, epsilon)


def _unbounded(real: Reals) -> Reals:
    """K of a loss that is infinite."""
    inner = jnp.where(real == 0, 0.0, -jnp.inf)
    return jnp.where(real > 0, jnp.inf, jnp.where(jnp.isnan(real), jnp.nan, inner))


def _upper_half(
    epsilon: Reals, shift: Reals, z: RealsOrComplexes
) -> tuple[Reals, RealsOrComplexes, Bools]:
    """epsilon (1 where infinite), z or -1 - z with real part >= -1/2, whether it is infinite."""
    epsilon, z = jnp.broadcast_arrays(_check.guard(epsilon) + shift, z)
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)
    endless = jnp.isinf(epsilon)
    return jnp.where(endless, 1.0, epsilon), z, endless


@jax.jit
def _cgf_pure(epsilon: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    epsilon, z, endless = _upper_half(epsilon, shift, z)
    growing = jnp.abs(z) * epsilon > 1.0
    low = jnp.where(growing, 0.0, epsilon)
    # M - 1 is a product.
    excess = -expm1(z * low) * expm1(-(1.0 + z) * low) / (1.0 + jnp.exp(-low))
    large = z * epsilon + log1p(jnp.exp(-(2.0 * z + 1.0) * epsilon)) - log1p(jnp.exp(-epsilon))
    value = jnp.where(growing, large, log1p(excess))
    return jnp.where(endless, _unbounded(jnp.real(z)), value)


def _rise_pure(epsilon: Reals, shift: Reals, points: Points) -> Complexes:
    epsilon = jnp.broadcast_to(_check.guard(epsilon) + shift, points.theta.shape)
    odds = jnp.exp(-(2.0 * points.theta + 1.0) * epsilon)[..., None]
    lean = jnp.tanh((points.theta + 0.5) * epsilon)[..., None]
    sine, cosine = sine_cosine(epsilon[..., None] * points.heights())
    fall = 0.5 * log1p(-4.0 * odds / (1.0 + odds) ** 2 * sine * sine)
    return lax.complex(fall, jnp.arctan2(lean * sine, cosine))


@jax.jit
def _cgf_range(epsilon: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    epsilon, z, endless = _upper_half(epsilon, shift, z)
    s = z + 0.5
    near = (jnp.abs(s) * epsilon <= 2.0) & (epsilon <= 4.0)
    low = jnp.where(near, epsilon, 0.0)
    # sinhc(x) - sinhc(y) by divided differences in x^2 and y^2, whose difference is z (z + 1) b^2.
    square, base = (s * low) ** 2, (0.5 * low) ** 2
    slope = jnp.full_like(square, _SINHC_SERIES[-1])
    value = base * _SINHC_SERIES[-1] + _SINHC_SERIES[-2]
    for coefficient in _SINHC_SERIES[-3::-1]:
        slope = slope * square + value
        value = value * base + coefficient
    small = log1p(z * (z + 1.0) * low * low * slope / value)
    wide = jnp.where(near, 1.0, epsilon)
    far = jnp.where(near, 1.0, s)
    turn = 2.0 * far * wide
    still = jnp.abs(turn) < 1e-8
    fall = jnp.where(still, 1.0 - 0.5 * turn, -expm1(-turn) / jnp.where(still, 1.0, turn))
    large = jnp.where(near, 0.0, z) * wide + jnp.log(fall) + jnp.log(wide / -jnp.expm1(-wide))
    return jnp.where(endless, _unbounded(jnp.real(z)), jnp.where(near, small, large))
