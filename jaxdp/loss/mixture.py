"""A release over a Poisson sample, of any noise whose loss rises with the answer."""

from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp import _check
from jaxdp._numeric.elementary import log1m, log1p, round_up
from jaxdp._pytree import assign, pytree, static
from jaxdp._types import Bools, Complexes, RealLike, Reals, RealsOrComplexes
from jaxdp.loss.atom_nodes import atom_nodes, atoms_in
from jaxdp.loss.node_moments import log_moment
from jaxdp.loss.piece_paths import tilted_around
from jaxdp.loss.pieces import Nodes, Pieces, log_mixed
from jaxdp.loss.profile_cumulant import POINTS, sampled_cumulant
from jaxdp.loss.replaced_profile import replaced_log_delta
from jaxdp.loss.sampled_kinds import ATOMIC
from jaxdp.loss.sampled_profile import both_ways, sampled_log_delta, sampled_pure_epsilon
from jaxdp.loss.tilted_nodes import TiltedNodes
from jaxdp.noise.base import NEXT_ORDER, Loss, LossPair, Noise, Points
from jaxdp.noise.truncated_laplace import TruncatedLaplace

# Units in the last place by which a bound may be off.
_ROUNDED = 64


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
        """Not of the truncated Laplace: a grid bounds its compositions."""
        return not isinstance(self.noise, TruncatedLaplace)

    @property
    def gridded(self) -> bool:
        """Yes: few releases have wide lines."""
        return True

    @property
    def lowered(self) -> bool:
        """Losses of few hits are large, and there is little of them."""
        return True

    @property
    def scattered(self) -> bool:
        """On a lattice the noise's own losses are whole multiples, those of the sample are not."""
        return isinstance(self.noise, ATOMIC)

    @property
    def summed(self) -> int:
        """Points of the sum."""
        if isinstance(self.noise, ATOMIC):
            return atoms_in(self.noise)
        return self.pieces(jnp.zeros(())).size if self.contoured else 2 * POINTS

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
        that is less. Of noise that is not log-concave on the reals `sampled_cumulant`, real z only.
        Complex z: see `piece_paths`; exp(K(z) - K(Re z)) to 1e-12, NaN where it is not resolved.
        """
        shift = _check.nonnegative("shift", shift)
        if not self.contoured:
            z = _check.real("z", z)
            return sampled_cumulant(self.noise, self.sampling_prob, self.added, shift, z)
        argument = _check.argument("z", z)
        if not jnp.iscomplexobj(argument):
            return _cgf(self, shift, argument)[0]
        return _cgf_off_axis(self, shift, argument)

    def rough_and_above(self, shift: Reals, z: Reals) -> tuple[Reals, Reals]:
        """Infinitely far above where it is a bound by convexity, or from the profile."""
        if not self.contoured:
            return self.rough_cgf(shift, z), jnp.full(
                jnp.broadcast_shapes(shift.shape, z.shape), jnp.inf
            )
        return _cgf(self, shift, z)

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

    def loss_pair(self, shift: Reals) -> LossPair:
        """Of the noise's atoms; of a record that is replaced where both densities have theirs."""
        r = self.noise.loss_atom(shift)[0]
        log_mass = self.noise.loss_atom(2.0 * shift if self.replaced else shift)[1]
        r, q, log_mass, added = jnp.broadcast_arrays(r, self.sampling_prob, log_mass, self.added)
        high, low = log_mixed(r, q), log_mixed(-r, q)
        # Under g0; under the mixture A+ times that.
        log_high, log_low = log_mass - r, log_mass - r if self.replaced else log_mass
        pair = high, low, log_high + high, log_low + low
        if self.replaced:
            pair = high - low, low - high, *pair[2:]
        back = (added > 0) & (not self.replaced)
        exchanged = -low, -high, log_low, log_high
        high, low, *masses = (jnp.where(back, x, y) for x, y in zip(exchanged, pair, strict=True))
        return LossPair(high, low, *(jnp.where((q > 0) & (r > 0), x, -jnp.inf) for x in masses))

    def atoms(self, shift: Reals) -> tuple[Reals, Reals, Bools]:
        """log masses and losses, along a new last axis, and whether these are all."""
        nodes = self.on_axis(shift, (jnp.ones_like(shift),))
        log, added = nodes.logs[0], self.added[..., None] > 0
        # The weights are those where the record is not.
        log_mass = jnp.where(added, nodes.log_weight, nodes.log_weight + log)
        return log_mass, jnp.where(added, -log, log), nodes.resolved

    def recurrence(self, shift: Reals) -> Reals:
        """2 pi over the distance of the atoms; of many atoms `scattered` tells."""
        pair = self.loss_pair(shift)
        atoms = (pair.log_high > -jnp.inf) & (pair.high > pair.low)
        height = 2.0 * jnp.pi / jnp.where(atoms, pair.high - pair.low, 1.0)
        none = (pair.log_high == -jnp.inf) | self.scattered
        return jnp.where(atoms, height, jnp.where(none, jnp.inf, jnp.nan))

    def fall(self, shift: Reals, theta: Reals, heights: Reals, far: bool) -> Reals:
        """From one set of nodes."""
        del far
        mixture, shift, theta = self.aligned(shift, theta)
        line = mixture.on_line(shift, theta, jnp.ones_like(theta))
        return jnp.real(log1p(line.excess_above(heights)))

    def on_line(self, shift: Reals, theta: Reals, step: Reals) -> TiltedNodes:
        """The law tilted by theta, on nodes."""
        mixture, shift, theta, step = self.aligned(shift, theta, step)
        rising, powers = (1.0, -1.0) if self.replaced else (1.0,), mixture.powers(theta)
        if isinstance(self.noise, ATOMIC):
            return TiltedNodes.on_axis(mixture.on_axis(shift, powers), powers, rising, step)
        return tilted_around(mixture.pieces(shift), powers, rising, step)

    def rise(self, shift: Reals, points: Points, known: TiltedNodes) -> Complexes:
        """All points from one set of nodes."""
        risen = log1p(known.excess(points.indices))
        falling = self.aligned(shift, points.theta)[0].falling_loss[..., None]
        return jnp.where(falling, jnp.conj(risen), risen)

    @property
    def falling_loss(self) -> Bools:
        """Where the loss falls with the answer: -log A+."""
        return (self.added > 0) & (not self.replaced)

    def pieces(self, shift: Reals) -> Pieces:
        """What the integrands are made of."""
        return Pieces(
            self.noise, shift, self.sampling_prob, (1.0, -1.0) if self.replaced else (1.0,)
        )

    def on_axis(self, shift: Reals, powers: tuple[Reals, ...]) -> Nodes:
        """Of g0 A+^u A-^v on the real axis."""
        if isinstance(self.noise, ATOMIC):
            return atom_nodes(self.noise, shift, self.sampling_prob, powers)
        return self.pieces(shift).nodes(powers)

    def powers(self, z: Reals) -> tuple[Reals, ...]:
        """u, and v where a record is replaced: the cumulant is log E_g0[A+^u A-^v]."""
        if self.replaced:
            return 1.0 + z, -z
        return (jnp.where(self.added > 0, -z, 1.0 + z),)

    def aligned(self, *values: RealsOrComplexes) -> Any:
        """This and the values, of one shape."""
        shape = jnp.broadcast_shapes(*(x.shape for x in (*jax.tree.leaves(self), *values)))
        # XLA takes long chains of operations on what is broadcast for a stuck rewrite.
        return lax.optimization_barrier(
            jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (self, *values))
        )


@jax.jit
def _cgf(mixture: Mixture, shift: Reals, z: Reals) -> tuple[Reals, Reals]:
    mixture, shift, z = mixture.aligned(shift, z)
    powers = mixture.powers(z)
    # At 0 the integrand is nothing, but its slope is something.
    nodes = mixture.on_axis(shift, mixture.powers(jnp.where(z == 0, NEXT_ORDER, z)))
    value, above = log_moment(nodes, powers, mixture.sampling_prob)
    moves = 2.0 if mixture.replaced else 1.0
    whole = mixture.noise.cgf(moves * shift, z)
    convex = round_up(log_mixed(whole, mixture.sampling_prob), _ROUNDED)
    convex = jnp.where((z >= -1.0) & (z < 0.0), 0.0, convex)
    if not mixture.replaced:
        largest = jnp.where(z > 0, round_up(-z * log1m(mixture.sampling_prob), _ROUNDED), jnp.inf)
        convex = jnp.where(mixture.added > 0, jnp.minimum(convex, largest), convex)
    nothing, at_zero = (mixture.sampling_prob == 0) | (shift == 0), z == 0
    exact = (value <= convex) | (at_zero & jnp.isfinite(value))
    value = jnp.where(nothing, 0.0, jnp.where(exact, value, convex))
    # 0 there, with the slope that is the divergence of order 1.
    value = jnp.where(at_zero, value - lax.stop_gradient(value), value)
    above = jnp.where(nothing | at_zero, 0.0, jnp.where(exact, above, jnp.inf))
    return jnp.where(jnp.isnan(whole + mixture.sampling_prob + z), jnp.nan, value), above


@jax.jit
def _cgf_off_axis(mixture: Mixture, shift: Reals, z: Complexes) -> Complexes:
    mixture, shift, z = mixture.aligned(shift, z)
    theta, height = jnp.real(z), jnp.imag(z)
    line = mixture.on_line(shift, theta, jnp.abs(height))
    risen = log1p(line.excess(jnp.ones(1, int))[..., 0])
    risen = jnp.where((height < 0) != mixture.falling_loss, jnp.conj(risen), risen)
    return _cgf(mixture, shift, theta)[0] + risen
