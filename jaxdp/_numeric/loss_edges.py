"""Where the law of a privacy loss jumps or has atoms: what its transform is far up a line."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.elementary import LOG_2
from jaxdp._types import Bools, Complexes, Reals


class FarEdges(NamedTuple):
    """Far up a line M(z) = sum_j e^(z at_j) A_j(z), each A_j falling and analytic."""

    at: Reals  # (*batch, edges)
    log_part: Complexes  # log A_j, -inf where there is no such edge: (*batch, edges, points)


class LossEdges(NamedTuple):
    """Atoms at +-height, of masses p and e^-height p, and a density a e^((l - height) / 2) between.

    With s = z + 1/2: M(z) = 2 e^(-height / 2) (p cosh(s height) + a sinh(s height) / s).
    """

    height: Reals
    log_atom: Reals  # log p
    log_density: Reals  # log a

    def log_mass(self) -> Reals:
        """log p, or log a where there are no atoms."""
        return jnp.where(self.log_atom == -jnp.inf, self.log_density, self.log_atom)

    def is_nothing(self) -> Bools:
        """Whether the loss is 0."""
        return (self.height == 0) & (self.log_atom == -LOG_2)

    def far(self, z: Complexes) -> FarEdges:
        """The same at z (*batch, points), away from s = 0: A = p + a / s above, p - a / s below."""
        atom, density = (jnp.exp(x)[..., None] for x in (self.log_atom, self.log_density))
        share = density / (z + 0.5)
        below = jnp.log(atom - share) - self.height[..., None]
        at = jnp.stack([self.height, -self.height], axis=-1)
        return FarEdges(at, jnp.stack([jnp.log(atom + share), below], axis=-2))
