"""Truncated Laplace noise over a Poisson sample: a removed record may be seen for certain."""

from typing import final

import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric import sampled_truncated
from jaxdp._numeric.elementary import log1m
from jaxdp._pytree import assign, pytree
from jaxdp._types import Bools, RealLike, Reals
from jaxdp.loss.sampled_profile import sampled_log_delta, sampled_pure_epsilon
from jaxdp.loss.truncated import TruncatedLoss
from jaxdp.noise.base import Loss, guarded, ratio_of
from jaxdp.noise.truncated_laplace import TruncatedLaplace


@final
@pytree
class SampledTruncated(Loss):
    """The pair (1 - q) P0 + q P1 and P0 of `Sampled`, for a truncated Laplace and q < 1.

    Removed (added = 0) the loss is infinite with q times the probability of the noise's own: where
    P0 has nothing. Added, no loss is. Compositions are bounded on a grid. q = 1 is NaN here.
    """

    noise: TruncatedLaplace
    sampling_prob: Reals
    added: Reals

    def __init__(self, noise: TruncatedLaplace, sampling_prob: RealLike, added: RealLike):
        q = _check.probability("sampling_prob", sampling_prob)
        if _check.is_concrete(q) and bool(jnp.any(q == 1)):
            raise ValueError(
                "sampling_prob must lie in [0, 1) for every TruncatedLaplace that is sampled, got "
                "1: compose those releases without sampling"
            )
        assign(
            self,
            noise=noise,
            sampling_prob=jnp.where(q < 1, q, jnp.nan),
            added=_check.probability("added", added),
        )

    @property
    def symmetric(self) -> bool:
        """No: adding a record and removing it differ."""
        return False

    @property
    def contoured(self) -> bool:
        """No: compositions are bounded on a grid, from `log_delta`."""
        return False

    @property
    def summed(self) -> int:
        """Two atoms of the Laplace between, one where it is missed, and nodes."""
        return 131

    def reversed(self, where: Bools) -> "SampledTruncated":
        """`added` exchanged."""
        added = jnp.where(where, 1.0 - self.added, self.added)
        return SampledTruncated(self.noise, self.sampling_prob, added)

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """See `sampled_log_delta`."""
        return sampled_log_delta(
            self.noise,
            self.sampling_prob,
            self.added,
            _check.nonnegative("shift", shift),
            _check.real("epsilon", epsilon),
        )

    def cgf(self, shift: RealLike, z: RealLike) -> Reals:
        """log E[e^(z L); L < inf], real z: log G(1 + z) removed, log G(-z) added.

        See `_numeric.sampled_truncated`.
        """
        shift, z = _check.nonnegative("shift", shift), _check.real("z", z)
        scale, bound = guarded(self.noise.scale), guarded(self.noise.bound)
        w = jnp.where(self.added > 0, -z, 1.0 + z)
        r, x = ratio_of(shift, scale), ratio_of(bound, scale)
        return sampled_truncated.log_moment(*jnp.broadcast_arrays(r, x, self.sampling_prob, w))

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """Infinite removed, unless nothing moves; -log(1 - q) added; rounded up."""
        most = self.noise.pure_epsilon(shift)
        return sampled_pure_epsilon(most, self.sampling_prob, self.added)

    def largest_finite(self, shift: RealLike) -> Reals:
        """log(1 - q + q e^h) removed, h the noise's own; -log(1 - q) added; rounded up."""
        most = jnp.where(
            self.added > 0,
            self.noise.pure_epsilon(shift),
            TruncatedLoss(self.noise).largest_finite(shift),
        )
        return sampled_pure_epsilon(most, self.sampling_prob, self.added)

    def log_finite(self, shift: Reals) -> Reals:
        """log(1 - q P[T > bound - shift]) removed."""
        infinite = -jnp.expm1(TruncatedLoss(self.noise).log_finite(shift))
        return jnp.where(self.added > 0, 0.0 * infinite, log1m(self.sampling_prob * infinite))

    def drift(self, shift: Reals) -> Reals:
        """That: given that it is finite, the removed loss is of P over that, and all of P0."""
        return self.log_finite(shift)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """Not a pair at +-r."""
        r = ratio_of(_check.nonnegative("shift", shift), guarded(self.noise.scale))
        return jnp.zeros_like(r), jnp.full_like(r, jnp.nan)
