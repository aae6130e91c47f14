"""Base class of every noise, and what noises share."""

from __future__ import annotations

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, RealsOrComplexes, Shape
from jaxdp._numeric.elementary import ULP, lifted, log1m, round_up

NEXT_ORDER = 2.0**-30  # less 1, of the order that bounds order 1. chosen: K / s keeps all digits


@in_float64
class Noise(abc.ABC):
    """A symmetric scalar distribution that is added to a query's answer.

    Parameters are arrays; parameters and arguments broadcast like NumPy. `scale`, `shift` and
    `x` are in the query's unit; epsilon and privacy losses in nats; delta is a probability.
    Bad concrete input raises `ValueError`; bad traced input gives NaN, never a small delta.

    With g the density, the privacy loss at a shift m > 0 is L = log g(X) / g(X - m), X = m + T
    or, what is the same by symmetry, log g(T) / g(T + m) with T drawn from g.
    """

    def __init_subclass__(cls) -> None:
        in_float64(cls)

    @abc.abstractmethod
    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of the least delta at `epsilon` for a sensitivity `shift`: an upper bound.

        delta = sup over |m| <= shift of E[(1 - exp(epsilon - L_m))_+], every real epsilon.
        Rounding is included: the value returned is never below the true one.
        """

    @abc.abstractmethod
    def cgf(self, shift: ArrayLike, z: ArrayLike) -> RealsOrComplexes:
        """K(z) = log E[exp(z L)] of the privacy loss at `shift`; z real or complex."""

    @abc.abstractmethod
    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """The least epsilon with delta = 0: infinite where there is none."""

    @abc.abstractmethod
    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(r, log p): the loss equals r >= 0 with probability p, -r with e^-r p, no other atom.

        p = 0 where the loss has a density throughout; NaN where it has atoms of another kind.
        """

    @abc.abstractmethod
    def log_density(self, x: ArrayLike) -> Reals:
        """log g(x)."""

    @abc.abstractmethod
    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x], accurate in both tails."""

    @abc.abstractmethod
    def quantile(self, u: ArrayLike) -> Reals:
        """The x with P[T <= x] = u, for u in [0, 1]."""

    @abc.abstractmethod
    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """Draws of shape `shape` (parameters broadcast to it), for simulation and training.

        Floating-point draws leak through their rounding (Mironov, CCS 2012): what leaves the
        house must come from a lattice, as `dp.release` and solvers draw.
        """

    @abc.abstractmethod
    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^power, power > -1."""

    @abc.abstractmethod
    def fisher_information(self) -> Reals:
        """E[(d log g / dx)^2], in one over the query's unit squared."""

    @abc.abstractmethod
    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(xi, rho) with Renyi divergence of every order a > 1 at most xi + a rho."""

    @abc.abstractmethod
    def sub_gaussian_proxy(self) -> Reals:
        """An s^2 with E exp(t T) <= exp(s^2 t^2 / 2) for every t: infinite where there is none."""

    def lattice(self, shift: Reals) -> tuple[Reals, Reals] | None:
        """(unit, odd) where every finite loss is a whole multiple of a unit, plus odd / 2 units.

        odd is 0 or 1; a unit of 0: the loss is 0. None where it is of no such kind.
        """
        del shift
        return None

    def log_finite(self, shift: Reals) -> Reals:
        """log of the probability that the loss is finite."""
        return jnp.zeros_like(shift)

    def largest_finite(self, shift: ArrayLike) -> Reals:
        """The least epsilon that no finite loss exceeds: infinite where there is none."""
        return self.pure_epsilon(shift)

    @property
    def log_concave(self) -> bool:
        """True if log g is concave on all reals."""
        return False

    @property
    def on_integers(self) -> bool:
        """True if the noise is a whole number."""
        return False

    def kinks(self) -> tuple[Reals, ...]:
        """Points where log g is not smooth: the middle."""
        return (jnp.zeros(()),)

    def is_consistent(self) -> Bools:
        """True where the density and its tails agree: laws are NaN elsewhere, or a ValueError."""
        return jnp.ones((), bool)

    def variance(self) -> Reals:
        """E T^2, in the query's unit squared."""
        return self.absolute_moment(2.0)

    def mean_absolute(self) -> Reals:
        """E |T|, in the query's unit."""
        return self.absolute_moment(1.0)

    def delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up; see `log_delta`."""
        return exp_up(self.log_delta(shift, epsilon))

    def renyi(self, shift: ArrayLike, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1: cgf(shift, order - 1) / (order - 1).

        Of order 1 the Kullback-Leibler divergence, the slope of the cgf at 0; of infinite order
        `pure_epsilon`.
        """
        s = order_excess(order)
        value = jnp.real(renyi_of_cgf(lambda z: self.cgf(shift, z), s))
        largest = jnp.broadcast_to(self.pure_epsilon(shift), value.shape)
        value = jnp.where(jnp.broadcast_to(s == jnp.inf, value.shape), largest, value)
        return lifted(value, largest > 0)


def order_excess(order: ArrayLike) -> Reals:
    """An order of a Renyi divergence, from 1 on, less 1."""
    return checks.real("order", order, 1.0) - 1.0


def may_be_zero(excess: Reals) -> bool:
    """True if the order 1 may be among them (excess 0), so that a slope has to be compiled."""
    return not checks.is_concrete(excess) or bool(np.any(np.asarray(excess) == 0))


def renyi_of_cgf(
    cgf: Callable[[Reals], RealsOrComplexes], s: Reals, sloped: bool | None = None
) -> Reals:
    """K(s) / s; at s = 0 the slope of K; at an infinite s anything. Elementwise in s.

    The slope is that of the finite part of a loss. Divergences grow with the order, so that it is
    infinite where the next one is. `sloped`: see `may_be_zero`, which decides if it is left out.
    """
    at_zero = s == 0
    safe = jnp.where(at_zero, NEXT_ORDER, jnp.where(s == jnp.inf, 1.0, s))
    value = jnp.real(cgf(safe)) / safe
    if not (may_be_zero(s) if sloped is None else sloped):
        return value
    still = jnp.zeros_like(safe)
    slope = jax.jvp(lambda z: jnp.real(cgf(z)), (still,), (jnp.ones_like(safe),))[1]
    return jnp.where(at_zero & (value < jnp.inf), slope, value)


def exp_up(log_delta: Reals) -> Reals:
    """exp, rounded up by 4 ulp and to the least normal number where it would underflow to 0."""
    tiny = jnp.finfo(jnp.float64).tiny
    value = jnp.minimum(round_up(jnp.exp(log_delta), 4), 1.0)
    return jnp.where(log_delta > -jnp.inf, jnp.maximum(value, tiny), value)


def exp_down(log_delta: Reals) -> Reals:
    """exp, rounded down by 4 ulp."""
    return jnp.exp(log_delta) * (1.0 - 4.0 * jnp.finfo(jnp.float64).eps)


def mirrored_log_delta(log_delta: Reals, size: Reals, side: float) -> Reals:
    """log of delta(-size) = 1 - e^-size + e^-size delta(size), rounded to one side (1 or -1)."""
    mixture = -jnp.expm1(-size) + jnp.exp(-size + log_delta)
    near_one = mixture > 0.5
    large = log1m(jnp.where(near_one, -jnp.expm1(log_delta) * jnp.exp(-size), 0.0))
    value = jnp.where(near_one, large, jnp.log(jnp.where(near_one, 1.0, mixture)))
    return jnp.minimum(value + side * 16.0 * ULP * jnp.abs(value), 0.0)


def drawn_by_inversion(
    upper_quantile: Callable[..., Reals], parameters: tuple[Reals, ...], key: Key, shape: Shape
) -> Reals:
    """Draws from 53 uniform bits and a sign; `upper_quantile` of parameters, p <= 1/2, 1/2 - p."""
    shape = jnp.broadcast_shapes(shape, *(jnp.shape(p) for p in parameters))
    sign_key, size_key = jax.random.split(key)
    uniform = jax.random.uniform(size_key, shape, dtype=jnp.float64)
    size = upper_quantile(*parameters, 0.5 - 0.5 * uniform, 0.5 * uniform)
    return size * jax.random.rademacher(sign_key, shape, dtype=jnp.float64)


def guarded(scale: Reals) -> Reals:
    """A scale as it may have come through a transformation: NaN unless positive."""
    return jnp.where(scale > 0, scale, jnp.nan)


def epsilon_at(shift: Reals, epsilon: Reals) -> Reals:
    """`epsilon`; 0 at an infinite shift, where delta is 1 whatever epsilon is, infinite or not."""
    shift, epsilon = jnp.broadcast_arrays(shift, epsilon)
    return jnp.where((shift == jnp.inf) & ~jnp.isnan(epsilon), 0.0, epsilon)


@jax.jit
def ratio_of(shift: Reals, scale: Reals) -> Reals:
    """shift / scale; a positive ratio that underflows becomes 9e-308, not 0."""
    shift, scale = jnp.broadcast_arrays(shift, guarded(scale))
    ratio = shift / scale
    lost = (ratio == 0) & (shift > 0) & jnp.isfinite(scale)
    return jnp.where(lost, 4.0 * jnp.finfo(jnp.float64).tiny, ratio)
