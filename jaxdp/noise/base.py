"""Base class of every noise, and what noises share."""

from __future__ import annotations

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import ULP, lifted, log1m, round_up


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
    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log E[exp(s L)] / s of the loss at a positive `shift`, 0 <= s = `excess` < inf.

        At s = 0 its limit, E[L].
        """

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
        """The Renyi divergence log E[exp((a - 1) L)] / (a - 1) of an order a >= 1.

        Of order 1 the Kullback-Leibler divergence E[L]; of infinite order `pure_epsilon`. Relative
        error: 1e-13, where the noise does not say another.
        """
        order = checks.real("order", order, 1.0)
        return _renyi(self, self.pure_epsilon(shift), checks.real("shift", shift), order)


@jax.jit
def _renyi(noise: Noise, largest: Reals, shift: Reals, order: Reals) -> Reals:
    largest, shift, excess = jnp.broadcast_arrays(largest, shift, order - 1.0)
    usual = (largest > 0) & (shift < jnp.inf) & (excess < jnp.inf)
    value = noise._divergence(jnp.where(usual, shift, 1.0), jnp.where(usual, excess, 1.0))
    # No shift has no divergence of any order; an infinite order or shift has the largest loss.
    value = jnp.where(usual, jnp.minimum(value, largest), largest)
    return lifted(jnp.where(jnp.isnan(excess), jnp.nan, value), largest > 0)


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
