"""The cumulant of a composition: K(z) = log E exp(z L) of the total loss, a sum of terms."""

from typing import final

import jax
import jax.numpy as jnp

from jaxdp._pytree import assign, pytree
from jaxdp._types import Reals, RealsOrComplexes, Shape
from jaxdp.noise.base import Noise


@final
@pytree
class Term:
    """`count` releases of `noise` at `shift`: arrays of one shape, whose last axis composes."""

    noise: Noise
    shift: Reals
    count: Reals

    def __init__(self, noise: Noise, shift: Reals, count: Reals):
        shape = jnp.broadcast_shapes(shift.shape, count.shape, *(x.shape for x in leaves(noise)))
        term = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (noise, shift, count))
        assign(self, noise=term[0], shift=term[1], count=term[2])

    @property
    def shape(self) -> Shape:
        """The batch; the last axis, which composes, is left out."""
        return self.shift.shape[:-1]

    def parts(self) -> tuple[Noise, Reals, Reals]:
        """noise, shift, count."""
        return self.noise, self.shift, self.count

    def broadcast(self, shape: Shape) -> "Term":
        """The same term in a batch of `shape`."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, x.shape[-1])), self)

    def cgf(self, z: RealsOrComplexes) -> RealsOrComplexes:
        """K at z of shape (*batch, points)."""
        noise, shift, count = jax.tree.map(
            lambda x: x[..., None], (self.noise, self.shift, self.count)
        )
        each = noise.cgf(shift, z[..., None, :])
        # A count of 0 is no release, whatever its loss.
        return jnp.sum(jnp.where(count == 0, 0.0, count * each), axis=-2)

    def pure_epsilon(self) -> Reals:
        """The largest loss: infinite where it is not bounded."""
        each = self.noise.pure_epsilon(self.shift)
        return jnp.sum(jnp.where(self.count == 0, 0.0, self.count * each), axis=-1)


Terms = tuple[Term, ...]


def leaves(noise: Noise) -> list[Reals]:
    """The parameters of a noise, as arrays."""
    return [jnp.asarray(x) for x in jax.tree.leaves(noise)]


def cumulant(terms: Terms, z: RealsOrComplexes) -> RealsOrComplexes:
    """K(z) of the composition of all terms; z of shape (*batch, points)."""
    total = terms[0].cgf(z)
    for term in terms[1:]:
        total = total + term.cgf(z)
    return total


def largest_loss(terms: Terms) -> Reals:
    """The epsilon from which on delta is 0."""
    total = terms[0].pure_epsilon()
    for term in terms[1:]:
        total = total + term.pure_epsilon()
    return total
