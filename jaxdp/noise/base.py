"""Base class of every noise, and what noises share."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import for_traces, xp
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import LEAST_NORMAL, ULP, log1m, round_up
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.divergence import renyi_of
from jaxdp.noise.structure import LossAtoms, Singularities, Structure

T = TypeVar("T")


@in_float64
class Noise(abc.ABC):
    """A symmetric scalar distribution that is added to a query's answer.

    Parameters and arguments are arrays that broadcast. `scale`, `shift` and `x` are in the query's
    unit, losses in nats. Bad concrete input raises `ValueError`; bad traced input gives NaN.

    With g the density, the privacy loss at a shift m > 0 is L = log g(X) / g(X - m), X = m + T or,
    by symmetry, log g(T) / g(T + m) with T drawn from g.

    The public methods check their arguments, broadcast them with the parameters and compile the
    formulas. A noise writes the formulas only: `_log_delta` for `log_delta` and so on, for arrays
    of one shape, with NaN parameters where `_in_range` is False. Each noise states its errors.
    """

    _is_compiled = True  # False where formulas read known values and compile their parts
    log_concave: ClassVar[bool] = False  # True if log g is concave on all reals
    on_integers: ClassVar[bool] = False  # True if the noise is whole: shifts must be whole
    norm: ClassVar[int] = 0  # of vectors that the noise covers: l1, l2, or 0 for numbers alone
    on_reals: ClassVar[type[Noise] | None] = None  # the noise that one on the integers tends to
    # Of exact draws on a lattice; "concave": by the log density.
    whole_kind: ClassVar[whole_draws.Kind] = "concave"
    name: ClassVar[str] = "noise"  # as plans name the family: that of the class, in lower case
    shapes: ClassVar[tuple[float, float]] = (1.0, 1.0)  # ends of the shapes that a fit searches

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        in_float64(cls)

    @classmethod
    def _of_shape(cls, shape: Reals, scale: Reals) -> Noise:
        """The member of a shape at a scale; by default of noises with no other parameter."""
        return cls(scale)  # pyright: ignore[reportCallIssue]

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> Noise:
        """The member of a shape and a standard deviation."""
        one = xp.ones_like(shape + deviation)
        unit = cls._of_shape(shape * one, one)
        return cls._of_shape(shape, deviation / xp.sqrt(unit.variance()))

    @abc.abstractmethod
    def _in_range(self) -> Bools | bool:
        """True where the parameters are legal."""

    @abc.abstractmethod
    def _log_density(self, x: Reals) -> Reals: ...

    def _log_density_slope(self, x: Reals) -> Reals:
        """d log g / dx; where there is a kink any number."""
        with for_traces():
            return jax.jvp(self._log_density, (x,), (xp.ones_like(x),))[1]

    @abc.abstractmethod
    def _log_survival(self, x: Reals) -> Reals: ...

    @abc.abstractmethod
    def _quantile(self, u: Reals) -> Reals: ...

    @abc.abstractmethod
    def _sample(self, key: Key, shape: Shape) -> Reals:
        """Draws of a shape, which parameters have or are single numbers. Not compiled."""

    @abc.abstractmethod
    def _absolute_moment(self, power: Reals) -> Reals: ...

    def _fisher_information(self) -> Reals:
        """Infinite: there is no density whose location could move, or it jumps."""
        return xp.where(self._in_range(), xp.inf, xp.nan)

    def _sub_gaussian_proxy(self) -> Reals:
        """Infinite: no bound is known, or the tails are exponential."""
        return xp.where(self._in_range(), xp.inf, xp.nan)

    @abc.abstractmethod
    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals: ...

    @abc.abstractmethod
    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log E[exp(s L)] / s at a positive `shift`, 0 <= s = `excess` < inf; at s = 0 E[L]."""

    @abc.abstractmethod
    def _pure_epsilon(self, shift: Reals) -> Reals: ...

    @abc.abstractmethod
    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]: ...

    @abc.abstractmethod
    def _singularities(self, shift: Reals) -> Singularities: ...

    def _lattice_unit(self) -> Reals:
        """The smallest length over which the density changes: see `released`."""
        by_density = self.whole_kind == "concave"
        return self.fisher_information() ** -0.5 if by_density else vars(self)["scale"]

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        """Draws at multiples of `fine`, in these: see `released`."""
        return whole_draws.draw(key, whole_draws.law_of(self, self.whole_kind, fine), shape)

    def _loss_atoms(self, shift: Reals) -> LossAtoms | None:
        return None

    def _finite_loss(self, shift: Reals) -> tuple[Reals, Reals]:
        return xp.zeros_like(shift), self._pure_epsilon(shift)

    def _structure(self, shift: Reals) -> Structure:
        return Structure(self._singularities(shift), *self._finite_loss(shift))

    def kinks(self) -> tuple[Reals, ...]:
        """Points where log g is not smooth: the middle."""
        return (xp.zeros(()),)

    def is_consistent(self) -> Bools | bool:
        """True where the density and its tails agree: laws are NaN elsewhere, or a ValueError."""
        return True

    @final
    def log_density(self, x: ArrayLike) -> Reals:
        """log g(x)."""
        return self._evaluate(type(self)._log_density, checks.real("x", x))

    @final
    def log_density_slope(self, x: ArrayLike) -> Reals:
        """d log g / dx; 0 or either side's at a kink."""
        return self._evaluate(type(self)._log_density_slope, checks.real("x", x))

    @final
    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x], accurate in both tails."""
        return self._evaluate(type(self)._log_survival, checks.real("x", x))

    @final
    def quantile(self, u: ArrayLike) -> Reals:
        """The x with P[T <= x] = u, for u in [0, 1]; the least with >= on the integers."""
        return self._evaluate(type(self)._quantile, checks.probability("u", u))

    @final
    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """Draws of shape `shape` (parameters broadcast to it), for simulation and training.

        Floating-point draws leak through their rounding (Mironov, CCS 2012): see `dp.release`.
        """
        shape = xp.broadcast_shapes(shape, _shape_of(self))
        noise = jax.tree.map(lambda x: xp.broadcast_to(x, shape) if xp.ndim(x) else x, self)
        return _guarded(noise)._sample(checked_key(key), shape)

    @final
    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^power, power > -1."""
        power = checks.real("power", power, -1.0, open_lower=True)
        return self._evaluate(type(self)._absolute_moment, power)

    @final
    def variance(self) -> Reals:
        """E T^2, in the query's unit squared."""
        return self.absolute_moment(2.0)

    @final
    def mean_absolute(self) -> Reals:
        """E |T|, in the query's unit."""
        return self.absolute_moment(1.0)

    @final
    def fisher_information(self) -> Reals:
        """E[(d log g / dx)^2], in one over the query's unit squared."""
        return self._evaluate(type(self)._fisher_information)

    @final
    def sub_gaussian_proxy(self) -> Reals:
        """An s^2 with E exp(t T) <= exp(s^2 t^2 / 2) for every t: infinite where there is none."""
        return self._evaluate(type(self)._sub_gaussian_proxy)

    @final
    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of the least delta at `epsilon` for a sensitivity `shift`, rounded up.

        delta = sup over |m| <= shift of E[(1 - exp(epsilon - L_m))_+], every real epsilon.
        """
        epsilon = checks.real("epsilon", epsilon)
        return self._evaluate(_log_delta, self._checked_shift(shift), epsilon)

    @final
    def delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up; see `log_delta`."""
        return exp_up(self.log_delta(shift, epsilon))

    @final
    def renyi(self, shift: ArrayLike, order: ArrayLike) -> Reals:
        """The Renyi divergence log E[exp((a - 1) L)] / (a - 1) of an order a >= 1; E[L] at a = 1.

        Of infinite order it is `pure_epsilon`. Relative error: 1e-13, if no other is stated.
        """
        order = checks.real("order", order, 1.0)
        return self._evaluate(renyi_of, self._checked_shift(shift), order)

    @final
    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """The least epsilon with delta = 0: infinite where there is none."""
        return self._evaluate(type(self)._pure_epsilon, self._checked_shift(shift))

    @final
    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(xi, rho) with Renyi divergence of every order a > 1 at most xi + a rho."""
        return self._evaluate(type(self)._zcdp, self._checked_shift(shift))

    @final
    def structure(self, shift: ArrayLike) -> Structure:
        """Atoms of the loss, or its lattice, and which losses are finite."""
        return self._evaluate(type(self)._structure, self._checked_shift(shift))

    @final
    def loss_atoms(self, shift: ArrayLike) -> LossAtoms | None:
        """All atoms of a loss with few values; None for any other loss."""
        return self._evaluate(type(self)._loss_atoms, self._checked_shift(shift))

    def _checked_shift(self, shift: ArrayLike) -> Reals:
        self.is_consistent()
        return checks.distance("shift", shift, self.on_integers)

    def _evaluate(self, formula: Callable[..., T], *arguments: Reals) -> T:
        return (_compiled if self._is_compiled else _applied)(formula, self, *arguments)


def _shape_of(*trees: object) -> Shape:
    """The shape that all leaves broadcast to."""
    return xp.broadcast_shapes(*(xp.shape(x) for x in jax.tree.leaves(trees)))


def expanded(tree: object) -> object:
    """Every array with a new last axis, for nodes."""
    return jax.tree.map(lambda x: xp.asarray(x)[..., None], tree)


def _guarded(noise: Noise) -> Noise:
    """The noise, with NaN for parameters that came out of their range in a transformation."""
    legal = noise._in_range()
    return noise if legal is True else jax.tree.map(lambda x: xp.where(legal, x, xp.nan), noise)


def _applied(formula: Callable[..., Any], noise: Noise, *arguments: Reals) -> Any:
    """A formula of parameters and arguments of one shape."""
    shape = _shape_of(noise, arguments)
    noise, arguments = jax.tree.map(lambda x: xp.broadcast_to(x, shape), (noise, arguments))
    return formula(_guarded(noise), *arguments)


_compiled = jitted(_applied, static_argnums=0)


def _log_delta(noise: Noise, shift: Reals, epsilon: Reals) -> Reals:
    # At an infinite shift delta is 1, whatever epsilon is.
    endless = (shift == xp.inf) & ~xp.isnan(epsilon)
    value = noise._log_delta(shift, xp.where(endless, 0.0, epsilon))
    # A subnormal number's last place exceeds the rounding that was added.
    return xp.where((value > -LEAST_NORMAL) & (value < 0), 0.0, value)


@jitted
def exp_up(log_delta: Reals) -> Reals:
    """exp, rounded up by 4 ulp and to the least normal number where it would underflow to 0."""
    tiny = xp.finfo(xp.float64).tiny
    value = xp.minimum(round_up(xp.exp(log_delta), 4), 1.0)
    return xp.where(log_delta > -xp.inf, xp.maximum(value, tiny), value)


def mirrored_log_delta(log_delta: Reals, size: Reals, side: float) -> Reals:
    """log of delta(-size) = 1 - e^-size + e^-size delta(size), rounded to one side (1 or -1)."""
    mixture = -xp.expm1(-size) + xp.exp(-size + log_delta)
    near_one = mixture > 0.5
    large = log1m(xp.where(near_one, -xp.expm1(log_delta) * xp.exp(-size), 0.0))
    value = xp.where(near_one, large, xp.log(xp.where(near_one, 1.0, mixture)))
    return xp.minimum(value + side * 16.0 * ULP * xp.abs(value), 0.0)


@jitted
def ratio_of(shift: Reals, scale: Reals) -> Reals:
    """shift / scale; a positive ratio that underflows becomes 9e-308, not 0."""
    shift, scale = xp.broadcast_arrays(shift, xp.where(scale > 0, scale, xp.nan))
    ratio = shift / scale
    lost = (ratio == 0) & (shift > 0) & xp.isfinite(scale)
    return xp.where(lost, 4.0 * xp.finfo(xp.float64).tiny, ratio)
