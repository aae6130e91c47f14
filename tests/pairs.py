"""Dominating pairs from the losses of noises, for tests of the engines."""

from typing import final

import jax
import jax.numpy as jnp

import jaxdp as dp
from jaxdp._pytree import pytree
from jaxdp._types import RealLike, Reals
from jaxdp.dominating_pair.base import DominatingPair, Kinks, Lattice, Law, Smooth, Term, Terms
from jaxdp.noise.base import Loss

NODES = 400  # on either side of a loss of 0


@final
@pytree
class LossPair(DominatingPair):
    """The pair of a noise's loss at a shift; its nodes are chord masses, good to 1e-4."""

    loss: Loss
    shift: Reals

    def log_delta(self, epsilon: RealLike) -> Reals:
        """The noise's own."""
        return self.loss.log_delta(self.shift, epsilon)

    def reversed(self) -> "LossPair":
        """The loss's own."""
        if self.loss.symmetric:
            return self
        return LossPair(self.loss.reversed(jnp.ones(self.shift.shape, bool)), self.shift)

    def singularities(self) -> Smooth | Lattice | Kinks:
        """A lattice, or a pair of atoms at most."""
        lattice = self.loss.lattice(self.shift)
        if lattice is not None:
            return Lattice(*lattice)
        r, log_mass = self.loss.loss_atom(self.shift)
        r = jnp.where(log_mass > -jnp.inf, r, jnp.nan)
        return Kinks((r, -r))

    def law(self) -> Law:
        """Chord masses on nodes that are denser near 0."""
        infinite = -jnp.expm1(self.loss.log_finite(self.shift))
        largest = self.loss.largest_finite(self.shift) + 0.0 * self.shift
        other = self.reversed()
        ends = [_end(pair) for pair in (self, other)]
        grid = jnp.sinh(jnp.linspace(0.0, 6.0, NODES)) / jnp.sinh(6.0)
        grid = grid[(None,) * self.shift.ndim]
        low, high = -ends[1][..., None] * grid[..., :0:-1], ends[0][..., None] * grid
        loss = jnp.concatenate([low, high], -1)
        wide = jax.tree.map(lambda x: x[..., None], (self, other))
        p, q = (x.loss.log_finite(x.shift) for x in wide)
        d = jnp.exp(wide[0].log_delta(loss)) - infinite[..., None]
        t = jnp.exp(wide[1].log_delta(-loss)) + jnp.expm1(q)
        t = jnp.exp(loss) * jnp.maximum(t, 0.0)
        d = jnp.where(loss < 0, t, d)
        slope = (d[..., :-1] - d[..., 1:]) / jnp.expm1(jnp.diff(loss))
        left = jnp.concatenate([-d[..., :1], slope * jnp.exp(jnp.diff(loss))], -1)
        right = jnp.concatenate([slope, 0.0 * d[..., :1]], -1)
        mass = left - right + jnp.where(loss == 0, jnp.exp(p), 0.0)
        some = infinite > 0
        log_infinite = jnp.where(some, jnp.log(jnp.where(some, infinite, 1.0)), -jnp.inf)
        return Law(loss, jnp.log(jnp.maximum(mass, 0.0)), log_infinite, largest)


def _end(pair: LossPair) -> Reals:
    """About where the finite losses end, or where no more than e^-300 is left of them."""
    largest = pair.loss.largest_finite(pair.shift)
    tried = jnp.exp2(jnp.linspace(-40.0, 20.0, 241))
    wide = jax.tree.map(lambda x: x[..., None], pair)
    infinite = jnp.log(-jnp.expm1(pair.loss.log_finite(pair.shift)))[..., None]
    tried = tried[(None,) * pair.shift.ndim]
    some = wide.log_delta(tried) > jnp.maximum(infinite + 1e-9, -300.0)
    end = tried.ravel()[jnp.sum(some, axis=-1)]
    return jnp.maximum(
        jnp.minimum(end, jnp.where(largest < jnp.inf, largest * 1.000001, end)), 1e-9
    )


def terms_of(loss: dp.PrivacyLoss) -> Terms:
    """Of a composition."""
    return tuple(Term(LossPair(t.noise, t.shift), t.count) for t in loss.terms)
