"""A sampled Gaussian whose record is replaced, for compositions on a line."""

from typing import final

import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric import replaced_gaussian, sampled_line
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.replaced_gaussian import TiltedPair
from jaxdp._pytree import assign, pytree
from jaxdp._types import Complexes, RealLike, Reals, RealsOrComplexes
from jaxdp.loss.replaced_profile import replaced_log_delta
from jaxdp.loss.sampled_profile import both_ways
from jaxdp.noise.base import Loss, Points, ratio_of
from jaxdp.noise.gaussian import Gaussian


@final
@pytree
class ReplacedGaussian(Loss):
    """The pair of `Mixture` for a Gaussian and a replaced record: exchanged it is the same.

    Where few samples hold the record its line is wide: the grid's bound is reported there.
    """

    noise: Gaussian
    sampling_prob: Reals

    def __init__(self, noise: Gaussian, sampling_prob: RealLike):
        q = _check.probability("sampling_prob", sampling_prob)
        assign(self, noise=noise, sampling_prob=q)

    @property
    def recurs(self) -> bool:
        """Only where hits are told apart: see `falling`."""
        return False

    @property
    def gridded(self) -> bool:
        """Yes."""
        return True

    @property
    def summed(self) -> int:
        """Usually, on a line."""
        return 64

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """See `replaced_log_delta`."""
        shift = _check.nonnegative("shift", shift)
        at = shift, _check.real("epsilon", epsilon)
        return replaced_log_delta(self.noise, self.sampling_prob, *at)

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """Infinite, unless nothing moves."""
        return both_ways(self.noise.pure_epsilon(shift), self.sampling_prob)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """None; nothing where nothing moves."""
        r, q = self._parts(_check.nonnegative("shift", shift))
        return jnp.zeros_like(r), jnp.where((q == 0) | (r == 0), jnp.nan, -jnp.inf)

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """log E[A+^(1 + z) A-^-z], see `_numeric.replaced_gaussian`.

        Within 1e-13 relatively at q >= 1e-3; at real z an upper bound where it is not resolved,
        NaN at such complex z.
        """
        argument, shift = _check.argument("z", z), _check.nonnegative("shift", shift)
        r, q, argument = jnp.broadcast_arrays(*self._parts(shift), argument)
        theta = jnp.real(argument)
        value = replaced_gaussian.log_moment(r, q, theta)
        if not jnp.iscomplexobj(argument):
            return value
        each, height = ReplacedGaussian(Gaussian(jnp.ones_like(q)), q), jnp.imag(argument)
        # Exchanged and conjugated, where the line is one that is summed.
        back = theta < -0.5
        line = each.on_line(r, jnp.where(back, -1.0 - theta, theta), jnp.abs(height))
        excess = line.excess(jnp.ones(1, int))[..., 0]
        risen = log1p(excess)
        return value + jnp.where((height < 0) != back, jnp.conj(risen), risen)

    def on_line(self, shift: Reals, theta: Reals, step: Reals) -> TiltedPair:
        """The law tilted by theta, on nodes."""
        r, q, theta, step = jnp.broadcast_arrays(*self._parts(shift), theta, step)
        nothing = (q == 0) | (r == 0)
        q = jnp.where(nothing, 0.0, q)
        return TiltedPair.of(jnp.where(nothing, 1.0, r), q, theta, step)

    def rise(self, shift: Reals, points: Points, known: TiltedPair) -> Complexes:
        """All points from one set of nodes."""
        del shift
        return log1p(known.excess(points.indices))

    def falling(self, shift: Reals, theta: Reals, height: Reals, risen: Complexes) -> Reals:
        """As of a record that is removed: where hits are told apart A- is 1 - q."""
        r, q = self._parts(shift)
        return sampled_line.falling(r, q, 1.0 + theta, height, risen)

    def _parts(self, shift: Reals) -> tuple[Reals, Reals]:
        """shift over scale, and the sampling probability."""
        r, q = jnp.broadcast_arrays(ratio_of(shift, self.noise.scale), self.sampling_prob)
        return r, q
