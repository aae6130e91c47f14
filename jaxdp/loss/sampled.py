"""A release of the query over a Poisson sample: every record takes part with probability q."""

from typing import final

import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric import (
    sampled_gaussian,
    sampled_laplace,
    sampled_laplace_line,
    sampled_line,
    sampled_rough,
)
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.sampled_laplace_line import TiltedLaplace
from jaxdp._numeric.sampled_line import TiltedGaussian, nodes_needed
from jaxdp._pytree import assign, pytree
from jaxdp._types import Bools, Complexes, RealLike, Reals, RealsOrComplexes
from jaxdp.loss.sampled_profile import sampled_log_delta, sampled_pure_epsilon
from jaxdp.noise.base import Loss, LossPair, Points, ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

_LOOSE_NODES = 32
# That serve many real arguments.
_SHARED_NODES = 576


@final
@pytree
class Sampled(Loss):
    """The pair (1 - q) P0 + q P1 and P0 of a noise at no shift and at `shift`.

    added = 0: the mixture first ("remove": the record was there); added = 1: exchanged ("add").
    It dominates every neighbouring pair under Poisson sampling (Zhu, Dong & Wang, AISTATS 2022,
    theorem 11). delta of a release is the noise's own at another epsilon, hence exact for every
    noise; compositions are exact for the Gaussian and the Laplace.
    """

    noise: Gaussian | Laplace
    sampling_prob: Reals
    added: Reals

    def __init__(self, noise: Gaussian | Laplace, sampling_prob: RealLike, added: RealLike):
        assign(
            self,
            noise=noise,
            sampling_prob=_check.probability("sampling_prob", sampling_prob),
            added=_check.probability("added", added),
        )

    @property
    def symmetric(self) -> bool:
        """No: adding a record and removing it differ."""
        return False

    @property
    def recurs(self) -> bool:
        """The Gaussian's loss has at most one near-atom, log(1 - q); the Laplace's has two."""
        return isinstance(self.noise, Laplace)

    @property
    def summed(self) -> int:
        """Usually, on a line: 130 for the Laplace."""
        return 130 if isinstance(self.noise, Laplace) else 64

    @property
    def rough(self) -> bool:
        """The Gaussian's."""
        return isinstance(self.noise, Gaussian)

    def recurrence(self, shift: Reals) -> Reals:
        """2 pi over the distance of the Laplace's atoms."""
        r, q = jnp.broadcast_arrays(ratio_of(shift, self.noise.scale), self.sampling_prob)
        if not isinstance(self.noise, Laplace):
            return jnp.where(r >= 0, jnp.inf, r)
        distance = log1p(q * jnp.expm1(jnp.minimum(r, 700.0))) - log1p(q * jnp.expm1(-r))
        return jnp.where(distance > 0, 2.0 * jnp.pi / distance, jnp.nan)

    def reversed(self, where: Bools) -> "Sampled":
        """`added` exchanged."""
        added = jnp.where(where, 1.0 - self.added, self.added)
        return Sampled(self.noise, self.sampling_prob, added)

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """Removed: q delta_P1,P0(log(1 + (e^epsilon - 1) / q)), 1 - e^epsilon below log(1 - q).

        Added: (1 - (1 - q) e^epsilon) delta_P0,P1(log(q e^epsilon / (1 - (1 - q) e^epsilon))), 0
        from -log(1 - q) on. As exact as the noise's delta, rounded up.
        """
        return sampled_log_delta(
            self.noise,
            self.sampling_prob,
            self.added,
            _check.nonnegative("shift", shift),
            _check.real("epsilon", epsilon),
        )

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """log G(1 + z), added log G(-z), G(w) = E_P0[(1 - q + q P1 / P0)^w].

        See `_numeric.sampled_gaussian` and `_numeric.sampled_laplace`: within 1e-13 relatively
        at q >= 1e-3, at real z an upper bound where it is not resolved, NaN at such complex z.
        """
        argument = _check.argument("z", z)
        shift = _check.nonnegative("shift", shift)
        if not jnp.iscomplexobj(argument):
            return self._real_cgf(shift, argument)
        parameters = self.noise.scale, self.sampling_prob, self.added
        shift, scale, q, added, real, imaginary = jnp.broadcast_arrays(
            shift, *parameters, jnp.real(argument), jnp.imag(argument)
        )
        each = Sampled(type(self.noise)(scale), q, added)
        at, height = each._moment(shift, real), jnp.abs(imaginary)
        if isinstance(self.noise, Laplace):
            excess = sampled_laplace_line.excess(*at, height)
        else:
            excess = TiltedGaussian.of(*at, height).excess(jnp.ones(1, int))[..., 0]
        return each._real_cgf(shift, real) + _of_excess(excess, added, imaginary)

    def rough_cgf(self, shift: Reals, z: Reals) -> Reals:
        """A bound from fewer nodes for the Gaussian, with what they may miss."""
        if isinstance(self.noise, Laplace):
            return self._real_cgf(shift, z)
        return sampled_rough.rough_log_moment(*self._moment(shift, z))

    def rough_rounding(self, shift: Reals, z: Reals) -> Reals:
        """In proportion to the losses where the Gaussian's are small."""
        if isinstance(self.noise, Laplace):
            return super().rough_rounding(shift, z)
        return sampled_rough.rough_rounding(*self._moment(shift, z))

    def loose_cgf(self, shift: Reals, z: Reals) -> Reals:
        """With 32 nodes for the Gaussian, no bound."""
        if isinstance(self.noise, Laplace):
            return self._real_cgf(shift, z)
        return sampled_rough.loose_log_moment(*self._moment(shift, z), _LOOSE_NODES)

    def nodes(self, shift: Reals, theta: Reals) -> Reals:
        """Of the Laplace as many everywhere."""
        if isinstance(self.noise, Laplace):
            return jnp.zeros_like(theta)
        return nodes_needed(*self._moment(shift, theta))

    def on_line(self, shift: Reals, theta: Reals, step: Reals) -> TiltedGaussian | TiltedLaplace:
        """The law tilted by theta, on nodes."""
        tilted = TiltedLaplace if isinstance(self.noise, Laplace) else TiltedGaussian
        return tilted.of(*self._moment(shift, theta), step)

    def rise(
        self, shift: Reals, points: Points, known: TiltedGaussian | TiltedLaplace
    ) -> Complexes:
        """All points from one set of nodes, whose exponentials are products of two factors."""
        added = jnp.broadcast_to(self.added, points.theta.shape)
        excess, height = known.excess(points.indices), points.heights()
        return _of_excess(excess, added[..., None], height)

    def falling(self, shift: Reals, theta: Reals, height: Reals, risen: Complexes) -> Reals:
        """The Gaussian's |phi| comes back up where hits are told apart, and all in phase."""
        c, q, w = self._moment(shift, theta)
        return sampled_line.falling(c, jnp.where(self.added > 0, 0.0, q), w, height, risen)

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """log(1 - q + q e^e) removed, -log(1 - q + q e^-e) added, e the noise's own; rounded up."""
        return sampled_pure_epsilon(self.noise.pure_epsilon(shift), self.sampling_prob, self.added)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """None for the Gaussian; the Laplace's pair is not at +-r."""
        r, q = jnp.broadcast_arrays(
            ratio_of(_check.nonnegative("shift", shift), self.noise.scale), self.sampling_prob
        )
        kind = jnp.nan if isinstance(self.noise, Laplace) else -jnp.inf
        return jnp.zeros_like(r), jnp.where((q == 0) | (r == 0), jnp.nan, kind)

    def loss_pair(self, shift: Reals) -> LossPair:
        """The Laplace's, where it is sampled at all."""
        if not isinstance(self.noise, Laplace):
            return super().loss_pair(shift)
        r, q, _ = self._moment(shift, jnp.zeros_like(shift))
        high, low, log_high, log_low = sampled_laplace.loss_pair(r, q)
        added = self.added > 0
        some = (q > 0) & (r > 0)
        return LossPair(
            jnp.where(added, -low, high),
            jnp.where(added, -high, low),
            jnp.where(some, jnp.where(added, log_low, log_high + high), -jnp.inf),
            jnp.where(some, jnp.where(added, log_high, log_low + low), -jnp.inf),
        )

    def beyond(self, shift: Reals, theta: Reals, height: Reals) -> tuple[Reals, Reals]:
        """The Laplace's density varies monotonously on either side of its least value."""
        if not isinstance(self.noise, Laplace):
            return super().beyond(shift, theta, height)
        return sampled_laplace.beyond(*self._moment(shift, theta), height)

    def _real_cgf(self, shift: Reals, z: Reals) -> Reals:
        parameters = ratio_of(shift, self.noise.scale), self.sampling_prob, self.added
        r, q, added = jnp.broadcast_arrays(*parameters)
        if isinstance(self.noise, Laplace):
            return sampled_laplace.log_moment(*self._moment(shift, z))
        if r.ndim == z.ndim and r.shape[-1] < z.shape[-1]:
            w = jnp.where(added > 0, -z, 1.0 + z)
            return sampled_gaussian.log_moments(r, q, w, _SHARED_NODES)
        return sampled_gaussian.log_moment(*self._moment(shift, z))

    def _moment(self, shift: Reals, z: Reals) -> tuple[Reals, Reals, Reals]:
        """shift over scale, the sampling probability, and w with K(z) = log G(w), of one shape."""
        r = ratio_of(shift, self.noise.scale)
        r, q, added, z = jnp.broadcast_arrays(r, self.sampling_prob, self.added, z)
        return r, q, jnp.where(added > 0, -z, 1.0 + z)


def _of_excess(excess: Complexes, added: Reals, height: Reals) -> Complexes:
    """log(1 + excess); of w = -z the conjugate."""
    value = log1p(excess)
    return jnp.where((added > 0) == (height > 0), jnp.conj(value), value)
