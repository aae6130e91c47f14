"""What every noise offers. A distribution is final: nothing here is overridden."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._numeric.elementary import ULP, lifted, log1m, round_up
from jaxdp._numeric.loss_edges import FarEdges, LossEdges
from jaxdp._types import Bools, Complexes, Indices, Key, RealLike, Reals, RealsOrComplexes, Shape

NEXT_ORDER = 2.0**-30  # less 1, of the order that bounds order 1. chosen: K / s keeps all digits


class Points(NamedTuple):
    """Points theta + i step index of a vertical line: theta, step, limit of one shape."""

    theta: Reals
    step: Reals
    limit: Reals  # of the index; what lies beyond is not looked at
    indices: Indices  # consecutive, (points,)
    far: bool = False  # whether `cgf` is asked where `near_cgf` knows nothing

    def heights(self) -> Reals:
        """step index, along a new last axis; 0 beyond the limit."""
        indices = self.indices[(None,) * self.step.ndim]
        return self.step[..., None] * jnp.where(indices < self.limit[..., None], indices, 0)


class LossPair(NamedTuple):
    """The two atoms of a loss, and the logarithms of their masses: -inf where there are none."""

    high: Reals
    low: Reals
    log_high: Reals
    log_low: Reals


class Loss(abc.ABC):
    """The privacy loss of one release, as a composition needs it. `shift` may mean nothing."""

    @abc.abstractmethod
    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """log of the least delta at `epsilon` for a sensitivity `shift`: an upper bound.

        delta = sup over |m| <= shift of E[(1 - exp(epsilon - L_m))_+], every real epsilon.
        Rounding is included: the value returned is never below the true one.
        """

    @abc.abstractmethod
    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """K(z) = log E[exp(z L)] of the privacy loss at `shift`; z real or complex."""

    @abc.abstractmethod
    def pure_epsilon(self, shift: RealLike) -> Reals:
        """The least epsilon with delta = 0: infinite where there is none."""

    @abc.abstractmethod
    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """(r, log p): the loss equals r >= 0 with probability p, -r with e^-r p, no other atom.

        p = 0 where the loss has a density throughout; NaN where it has atoms of another kind.
        """

    def loss_pair(self, shift: Reals) -> LossPair:
        """Where the loss has two atoms and no other; else masses of 0 or NaN."""
        r, log_mass = self.loss_atom(shift)
        return LossPair(r, -r, log_mass, log_mass - r)

    def edges(self, shift: Reals) -> LossEdges | None:
        """Where the loss is two atoms and a density of exponent 1/2 between; None: it is not."""
        del shift
        return None

    def far_height(self, shift: Reals) -> Reals | None:
        """The height from which on `far_edges` are all there is; None: there are no such."""
        edges = self.edges(shift)
        return None if edges is None else jnp.zeros_like(edges.height)

    def far_edges(self, shift: Reals, z: Complexes) -> FarEdges:
        """Of the loss at z (*shape, points), Im z >= `far_height`."""
        edges = self.edges(shift)
        assert edges is not None
        return edges.far(z)

    def beyond(self, shift: Reals, theta: Reals, height: Reals) -> tuple[Reals, Reals]:
        """Bounds on the parts of |M(theta + it)| / M(theta) from t = height on: atoms, density."""
        del shift
        return 0.0 * theta, 1.0 + 0.0 * height

    @property
    def symmetric(self) -> bool:
        """Whether exchanging the two inputs leaves the loss as it is."""
        return True

    @property
    def recurs(self) -> bool:
        """Whether |E exp((theta + it) L)| may come back up at large t, as with (near) atoms."""
        return True

    @property
    def summed(self) -> int:
        """The nodes of the sum that `cgf` is the log of; 0 where it has a closed form."""
        return 0

    @property
    def rough(self) -> bool:
        """Whether `rough_cgf` is more than `cgf`."""
        return False

    @property
    def scattered(self) -> bool:
        """Whether there are many atoms on no lattice: they nearly recur at heights nobody knows."""
        return False

    @property
    def lowered(self) -> bool:
        """Whether a line far below the saddle, where atoms fade less, takes fewer points."""
        return False

    @property
    def contoured(self) -> bool:
        """Whether `cgf` takes complex arguments."""
        return True

    @property
    def gridded(self) -> bool:
        """Whether the grid may say more than a line that is wide."""
        return False

    def lattice(self, shift: Reals) -> tuple[Reals, Reals] | None:
        """(unit, odd) where every finite loss is a whole multiple of a unit, plus odd / 2 units.

        odd is 0 or 1; a unit of 0: the loss is 0. None where it is of no such kind.
        """
        del shift
        return None

    @property
    def falls(self) -> bool:
        """Whether |E exp((theta + it) L)| falls from t = 0 to half a period of the lattice."""
        return False

    def recurrence(self, shift: Reals) -> Reals:
        """The t at which a pair of atoms is in phase again: inf without atoms, NaN if unknown."""
        r, log_mass = self.loss_atom(shift)
        paired = (log_mass > -jnp.inf) & (r > 0)
        height = jnp.where(paired, jnp.pi / jnp.where(paired, r, 1.0), jnp.inf)
        return jnp.where(paired | (log_mass == -jnp.inf), height, jnp.nan)

    def reversed(self, where: Bools) -> "Loss":
        """With the two inputs exchanged, in some places: K(z) becomes K(-1 - z)."""
        del where
        return self

    def rough_cgf(self, shift: Reals, z: Reals) -> Reals:
        """K at real z, good enough to choose a line by, and never too low."""
        return cast(Reals, self.cgf(shift, z))

    def rough_and_above(self, shift: Reals, z: Reals) -> tuple[Reals, Reals]:
        """`rough_cgf`, and how far it may be above K, but for the rounding of a sum."""
        rough = self.rough_cgf(shift, z)
        return rough, jnp.zeros_like(rough)

    def rough_rounding(self, shift: Reals, z: Reals) -> Reals:
        """How many times 64 ulp `rough_cgf` may round by where it is a sum, absolutely."""
        del shift
        return (1.0 + jnp.abs(z)) * float(self.summed > 0)

    def loose_cgf(self, shift: Reals, z: Reals) -> Reals:
        """K at real z, to a part in a hundred or so: where a search may begin."""
        return self.rough_cgf(shift, z)

    def near_cgf(self, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
        """`cgf`, or NaN where that costs much more than on the real axis."""
        return self.cgf(shift, z)

    def fall(self, shift: Reals, theta: Reals, heights: Reals, far: bool) -> Reals:
        """log |M(theta + it)| / M(theta) at heights (*shift.shape, points); NaN: not resolved.

        `far`: whether `cgf` is asked where `near_cgf` knows nothing.
        """
        noise, shift, theta = jax.tree.map(lambda x: x[..., None], (self, shift, theta))
        evaluate = noise.cgf if far else noise.near_cgf
        return jnp.real(evaluate(shift, theta + 1j * heights)) - noise.cgf(shift, theta)

    def nodes(self, shift: Reals, theta: Reals) -> Reals:
        """About how many terms a point of the line through theta takes, where that differs."""
        del shift
        return jnp.zeros_like(theta)

    def on_line(self, shift: Reals, theta: Reals, step: Reals) -> Any:
        """What `rise` needs at every point theta + i k step, computed once: here K(theta)."""
        del step
        return self.cgf(shift, theta)

    def rise(self, shift: Reals, points: Points, known: Any) -> Complexes:
        """K(theta + it) - K(theta), points along a new last axis; NaN where it is not resolved.

        `known` is `on_line` there.
        """
        noise, shift, theta = jax.tree.map(lambda x: x[..., None], (self, shift, points.theta))
        z = theta + 1j * points.heights()
        evaluate = noise.cgf if points.far else noise.near_cgf
        return cast(Complexes, evaluate(shift, z) - known[..., None])

    def falling(self, shift: Reals, theta: Reals, height: Reals, risen: Complexes) -> Reals:
        """log of a bound on |M(theta + it)| / M(theta) from t = height on; `risen`: `rise` there.

        Where it does not recur: it falls.
        """
        del shift, theta, height
        return jnp.real(risen)

    def log_finite(self, shift: Reals) -> Reals:
        """log of the probability that the loss is finite; `cgf` is of that part."""
        return jnp.zeros_like(shift)

    def largest_finite(self, shift: RealLike) -> Reals:
        """The least epsilon that no finite loss exceeds: infinite where there is none."""
        return self.pure_epsilon(shift)

    def drift(self, shift: Reals) -> Reals:
        """The l with E[e^(l - L); L < inf] = P[L < inf]: below 0 where only one loss is infinite.

        Of the pair that is left, and its exchange.
        """
        return jnp.zeros_like(shift)


class Noise(Loss):
    """A symmetric scalar distribution that is added to a query's answer.

    Parameters are arrays; parameters and arguments broadcast like NumPy. `scale`, `shift` and
    `x` are in the query's unit; epsilon and privacy losses in nats; delta is a probability.
    Bad concrete input raises `ValueError`; bad traced input gives NaN, never a small delta.

    With g the density, the privacy loss at a shift m > 0 is L = log g(X) / g(X - m), X = m + T
    or, what is the same by symmetry, log g(T) / g(T + m) with T drawn from g.
    """

    @abc.abstractmethod
    def log_density(self, x: RealLike) -> Reals:
        """log g(x)."""

    @abc.abstractmethod
    def log_survival(self, x: RealLike) -> Reals:
        """log P[T > x], accurate in both tails."""

    @abc.abstractmethod
    def quantile(self, u: RealLike) -> Reals:
        """The x with P[T <= x] = u, for u in [0, 1]."""

    @abc.abstractmethod
    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """Draws of shape `shape` (parameters broadcast to it), for simulation and training.

        Floating-point draws leak through their rounding (Mironov, CCS 2012): what leaves the
        house must come from a lattice.
        """

    @abc.abstractmethod
    def absolute_moment(self, power: RealLike) -> Reals:
        """E|T|^power, power > -1."""

    @abc.abstractmethod
    def fisher_information(self) -> Reals:
        """E[(d log g / dx)^2], in one over the query's unit squared."""

    @abc.abstractmethod
    def zcdp(self, shift: RealLike) -> tuple[Reals, Reals]:
        """(xi, rho) with Renyi divergence of every order a > 1 at most xi + a rho."""

    @abc.abstractmethod
    def sub_gaussian_proxy(self) -> Reals:
        """An s^2 with E exp(t T) <= exp(s^2 t^2 / 2) for every t: infinite where there is none."""

    def continued(self, at: Reals, x: Complexes, shift: Reals) -> tuple[Complexes, Complexes]:
        """log g(x) but for a constant, and log g(x - shift) / g(x), complex x.

        Both as they are around the point `at` of the axis. NaN where g is not analytic.
        """
        del at
        return jnp.nan * x, jnp.nan * (x - shift)

    @property
    def log_concave(self) -> bool:
        """True if log g is concave on all reals."""
        return False

    @property
    def on_integers(self) -> bool:
        """True if the noise is a whole number."""
        return False

    def kinks(self) -> tuple[Reals, ...]:
        """Where log g is not smooth: in the middle."""
        return (jnp.zeros(()),)

    def variance(self) -> Reals:
        """E T^2, in the query's unit squared."""
        return self.absolute_moment(2.0)

    def mean_absolute(self) -> Reals:
        """E |T|, in the query's unit."""
        return self.absolute_moment(1.0)

    def delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up; see `log_delta`."""
        return exp_up(self.log_delta(shift, epsilon))

    def renyi(self, shift: RealLike, order: RealLike) -> Reals:
        """The Renyi divergence of an order >= 1: cgf(shift, order - 1) / (order - 1).

        Of order 1 the Kullback-Leibler divergence, the slope of the cgf at 0; of infinite order
        `pure_epsilon`.
        """
        s = order_excess(order)
        value = jnp.real(renyi_of_cgf(lambda z: self.cgf(shift, z), s))
        largest = jnp.broadcast_to(self.pure_epsilon(shift), value.shape)
        value = jnp.where(jnp.broadcast_to(s == jnp.inf, value.shape), largest, value)
        return lifted(value, largest > 0)


def order_excess(order: RealLike) -> Reals:
    """An order of a Renyi divergence, from 1 on, less 1."""
    return _check.real("order", order, 1.0) - 1.0


def may_be_zero(excess: Reals) -> bool:
    """Whether the order 1 is among them, so that a slope has to be compiled."""
    return not _check.is_concrete(excess) or bool(np.any(np.asarray(excess) == 0))


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


def guarded(scale: Reals) -> Reals:
    """A scale as it may have come through a transformation: NaN unless positive."""
    return jnp.where(scale > 0, scale, jnp.nan)


@jax.jit
def ratio_of(shift: Reals, scale: Reals) -> Reals:
    """shift / scale; a positive ratio that underflows becomes 9e-308, not 0."""
    shift, scale = jnp.broadcast_arrays(shift, guarded(scale))
    ratio = shift / scale
    lost = (ratio == 0) & (shift > 0) & jnp.isfinite(scale)
    return jnp.where(lost, 4.0 * jnp.finfo(jnp.float64).tiny, ratio)
