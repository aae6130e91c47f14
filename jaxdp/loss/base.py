"""The cumulant of a composition: K(z) = log E exp(z L) of the total loss, a sum of terms."""

from typing import final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._pytree import assign, pytree
from jaxdp._types import Reals, RealsOrComplexes, Shape
from jaxdp.noise.base import Noise

# Between two points that were looked at |phi| may be a little higher.
_MISSED = 0.9


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

    def log_decay(self, theta: Reals, heights: Reals) -> Reals:
        """log of the largest |M(theta + it)| / M(theta) over t >= each of `heights`, increasing.

        Of every release on its own, then multiplied. A pair of atoms at +-r recurs at pi / r
        exactly, which is looked at as well; other atoms may recur anywhere. Shape of `heights`.
        """
        noise, shift, count = jax.tree.map(
            lambda x: x[..., None], (self.noise, self.shift, self.count)
        )
        r, log_mass = noise.loss_atom(shift)
        paired = (log_mass > -jnp.inf) & (r > 0)
        recurrence = jnp.pi / jnp.where(paired, r, jnp.pi)
        shape = (*self.shift.shape, heights.shape[-1])
        points = jnp.concatenate([jnp.broadcast_to(heights[..., None, :], shape), recurrence], -1)
        real = jnp.broadcast_to(theta[..., None, None], points.shape)
        fall = jnp.real(noise.cgf(shift, real + 1j * points)) - noise.cgf(shift, real)
        # What the quadrature of a cumulant does not resolve says nothing.
        fall = jnp.where(jnp.isnan(fall), -jnp.inf, jnp.minimum(_MISSED * fall, 0.0))
        last = jnp.where(paired, fall[..., -1:], jnp.where(log_mass == -jnp.inf, -jnp.inf, 0.0))
        largest = lax.cummax(fall[..., :-1], axis=fall.ndim - 1, reverse=True)
        each = jnp.maximum(largest, last)
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
