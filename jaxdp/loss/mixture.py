"""A release over a Poisson sample, for compositions on a grid and by orders."""

from typing import final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._numeric.elementary import ULP, expm1_minus, log1m, log1p, round_up
from jaxdp._pytree import assign, pytree, static
from jaxdp._types import Bools, RealLike, Reals, RealsOrComplexes
from jaxdp.loss.pieces import Pieces, dot, halved, log_mixed
from jaxdp.loss.profile_cumulant import POINTS, sampled_cumulant
from jaxdp.loss.replaced_profile import replaced_log_delta
from jaxdp.loss.sampled_profile import both_ways, sampled_log_delta, sampled_pure_epsilon
from jaxdp.noise.base import Loss, Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.staircase import Staircase
from jaxdp.noise.subbotin import Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace

_LOG_CONCAVE = (Gaussian, Laplace, FlippedHuber, OffsetGaussian, Subbotin)
_COMPOSABLE = (*_LOG_CONCAVE, TruncatedLaplace, Staircase, DiscreteGaussian, DiscreteLaplace)

# Of the sum over all points and over every second one: to the power 1.5 it is added.
_AGREED = 1e-7
# Nats within which moments are sums of what differs from 1.
_NEAR = 25.0
# Units in the last place by which terms may be off, besides what their logarithms are.
_ROUNDED = 64


def require_log_concave(noise: Loss) -> None:
    """ValueError unless `noise` has a log-concave density on all reals."""
    _require(noise, _LOG_CONCAVE, "where sampled records are replaced")


def require_composable(noise: Loss) -> None:
    """ValueError unless sampled releases of `noise` compose: its losses rise with the answer."""
    _require(noise, _COMPOSABLE, "to compose sampled releases")


def _require(noise: Loss, kinds: tuple[type[Loss], ...], where: str) -> None:
    if not isinstance(noise, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"noise must be one of {names} {where}, got {type(noise).__name__}")


@final
@pytree
class Mixture(Loss):
    """The pair that dominates a Poisson-sampled release.

    A record that is added or removed: as `Sampled`, of any noise. A record that is `replaced`, of
    log-concave noise on the reals (`require_log_concave`): P and Q are
    (1 - q) P0 + q P1 and (1 - q) P0 + q P-1, its contribution at the shift and at its opposite.
    They dominate: of the tests that P0 passes with some probability, one on a half-line is passed
    with the largest probability by P1 and with the least by P-1, over all contributions that
    large; for the Gaussian in any dimension. Proof: ours, by that remark.
    """

    noise: Noise
    sampling_prob: Reals
    added: Reals
    replaced: bool = static()

    def __init__(
        self, noise: Noise, sampling_prob: RealLike, added: RealLike, replaced: bool = False
    ):
        assign(
            self,
            noise=noise,
            sampling_prob=_check.probability("sampling_prob", sampling_prob),
            added=_check.probability("added", added),
            replaced=replaced,
        )

    @property
    def symmetric(self) -> bool:
        """A replacement is."""
        return self.replaced

    @property
    def contoured(self) -> bool:
        """No: compositions are bounded on a grid, from `log_delta`."""
        return False

    @property
    def summed(self) -> int:
        """Points of the sum."""
        if isinstance(self.noise, _LOG_CONCAVE):
            return self.pieces(jnp.zeros(())).size
        return 2 * POINTS

    def reversed(self, where: Bools) -> "Mixture":
        """`added` exchanged."""
        added = jnp.where(where, 1.0 - self.added, self.added)
        return Mixture(self.noise, self.sampling_prob, added, self.replaced)

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """See `sampled_log_delta` and `replaced_log_delta`."""
        shift = _check.nonnegative("shift", shift)
        epsilon = _check.real("epsilon", epsilon)
        if self.replaced:
            return replaced_log_delta(self.noise, self.sampling_prob, shift, epsilon)
        return sampled_log_delta(self.noise, self.sampling_prob, self.added, shift, epsilon)

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """log E_g0[A+^(1 + z)] removed, E[A+^-z] added, E[A+^(1 + z) A-^-z] replaced.

        See `pieces`. An upper bound: where the points do not resolve it (scales far below the
        shift) log(1 - q + q M), M of the whole release, by convexity, and added -z log(1 - q) where
        that is less. Of noise that is not log-concave on the reals `sampled_cumulant`. Real z only.
        """
        z, shift = _check.real("z", z), _check.nonnegative("shift", shift)
        if isinstance(self.noise, _LOG_CONCAVE):
            return _cgf(self, shift, z)
        return sampled_cumulant(self.noise, self.sampling_prob, self.added, shift, z)

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """As `Sampled`; the sum of both directions' where a record is replaced."""
        most = self.noise.pure_epsilon(shift)
        if not self.replaced:
            return sampled_pure_epsilon(most, self.sampling_prob, self.added)
        return both_ways(most, self.sampling_prob)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """No pair at +-r, even where the noise's loss has one."""
        r, log_mass = self.noise.loss_atom(shift)
        r, q, log_mass = jnp.broadcast_arrays(r, self.sampling_prob, log_mass)
        continuous = (log_mass == -jnp.inf) & (q > 0)
        return jnp.zeros_like(r), jnp.where(continuous, -jnp.inf, jnp.nan)

    def pieces(self, shift: Reals) -> Pieces:
        """What the integrands are made of."""
        return Pieces(
            self.noise, shift, self.sampling_prob, (1.0, -1.0) if self.replaced else (1.0,)
        )

    def powers(self, z: Reals) -> tuple[Reals, ...]:
        """u, and v where a record is replaced: the cumulant is log E_g0[A+^u A-^v]."""
        if self.replaced:
            return 1.0 + z, -z
        return (jnp.where(self.added > 0, -z, 1.0 + z),)


@jax.jit
def _cgf(mixture: Mixture, shift: Reals, z: Reals) -> Reals:
    shape = jnp.broadcast_shapes(shift.shape, z.shape, mixture.added.shape)
    mixture, shift, z = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (mixture, shift, z))
    value = _by_quadrature(mixture.pieces(shift), mixture.powers(z))
    moves = 2.0 if mixture.replaced else 1.0
    whole = mixture.noise.cgf(moves * shift, z)
    convex = round_up(log_mixed(whole, mixture.sampling_prob), _ROUNDED)
    convex = jnp.where((z >= -1.0) & (z <= 0.0), 0.0, convex)
    if not mixture.replaced:
        largest = jnp.where(z > 0, round_up(-z * log1m(mixture.sampling_prob), _ROUNDED), jnp.inf)
        convex = jnp.where(mixture.added > 0, jnp.minimum(convex, largest), convex)
    nothing = (mixture.sampling_prob == 0) | (shift == 0) | (z == 0)
    value = jnp.where(nothing, 0.0, jnp.where(value <= convex, value, convex))
    return jnp.where(jnp.isnan(whole + mixture.sampling_prob + z), jnp.nan, value)


def _by_quadrature(pieces: Pieces, powers: tuple[Reals, ...]) -> Reals:
    """log E_g0[A+^u A-^v] and the error of it; infinite or NaN where the points may miss some."""
    # Each is used often: else they are computed as often.
    x, weight, resolved = lax.optimization_barrier(lax.stop_gradient(pieces.points(powers)))
    centre, logs = lax.optimization_barrier(pieces.along().log_ratios(x))
    log_weight, exponent = centre + jnp.log(weight), dot(powers, logs)
    top = jnp.max(log_weight + exponent, axis=-1)
    near = top < _NEAR
    log_weight -= jnp.where(near, 0.0, top)[..., None]
    whole = jnp.exp(log_weight + exponent)
    # E_g0[A - 1] = 0: without it the terms are of second order, and round as such.
    bend, sizes = (_excess(log_weight, exponent),) * 2
    slope = jnp.zeros_like(exponent)
    for power, log in zip(powers, logs, strict=True):
        part = power[..., None] * _excess(log_weight, log)
        share = 1.0 - (1.0 - pieces.sampling_prob[..., None]) * jnp.exp(-log)
        mixed = jnp.where(near[..., None], jnp.exp(log_weight + log), 0.0)
        slope += jnp.abs(power[..., None] * share * (whole - mixed))
        bend, sizes = bend - part, sizes + jnp.abs(part)
    terms = jnp.where(near[..., None], bend, whole)
    # The density is as exact as its logarithm, and a loss as the logarithms whose difference it is.
    rounding = (_ROUNDED + 8.0 * jnp.abs(centre)) * jnp.where(near[..., None], sizes, whole)
    rounding += 8.0 * (1.0 + jnp.abs(centre)) * slope
    total = jnp.sum(terms, axis=-1)
    error = jnp.abs(total - halved(terms))
    agreed = resolved & (error <= _AGREED * jnp.abs(total))
    total += ULP * jnp.sum(rounding, axis=-1) + error * jnp.sqrt(error / jnp.abs(total))
    value = jnp.where(near, log1p(jnp.where(near, total, 0.0)), top + jnp.log(total))
    return jnp.where(agreed, value, jnp.inf)


def _excess(log_weight: Reals, y: Reals) -> Reals:
    """The weight times e^y - 1 - y."""
    near = jnp.abs(y) <= 1.0
    far = jnp.exp(log_weight + y) - jnp.exp(log_weight) * (1.0 + y)
    return jnp.where(near, jnp.exp(log_weight) * expm1_minus(jnp.where(near, y, 0.0)), far)
