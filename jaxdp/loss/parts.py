"""What of a line's sum is known explicitly: around atoms, over edges, or along rays."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._types import Bools, Reals
from jaxdp.loss.atoms import Atoms, atoms_of
from jaxdp.loss.base import Terms
from jaxdp.loss.edges import Edges, edges_of
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.loss.rays import Rays, rays_of


class Parts(NamedTuple):
    """One of these in every lane, or none; None: in no lane."""

    atoms: Atoms | Edges | None = None
    rays: Rays | None = None

    @staticmethod
    def of(terms: Terms, line: Line, lattice: Lattice | None) -> "Parts":
        """Over edges where all have them, along rays, or around one pair of atoms."""
        edges = edges_of(terms, line, lattice)
        if edges is not None:
            return Parts(edges)
        rays = rays_of(terms, line, lattice)
        settled = jnp.zeros(line.theta.shape, bool) if rays is None else rays.split
        return Parts(atoms_of(terms, lattice, settled), rays)

    @property
    def nothing(self) -> bool:
        """Whether there is none in any lane."""
        return self.atoms is None and self.rays is None

    def split(self, like: Reals) -> Bools:
        """Where there is one."""
        found = jnp.zeros(like.shape, bool)
        for part in (self.atoms, self.rays):
            if part is not None:
                found |= part.split
        return found

    def reach(self, like: Reals) -> Reals:
        """The largest sum of losses: positions are rounded by parts of it."""
        found = jnp.zeros_like(like)
        for part in (self.atoms, self.rays):
            if part is not None:
                found += jnp.where(part.split, part.reach, 0.0)
        return found

    def apart(self, like: Reals) -> Reals:
        """A distance that is small for atoms: 0 where nothing is split."""
        found = jnp.zeros_like(like)
        if self.atoms is not None:
            found += self.atoms.apart
        if self.rays is not None:
            found += jnp.where(self.rays.split, self.rays.reach, 0.0)
        return found

    def explicit_part(self, terms: Terms, epsilon: Reals, line: Line) -> tuple[Reals, Reals]:
        """What the points do not sum, over |F(theta)|; its error."""
        value, off = jnp.zeros_like(epsilon), jnp.zeros_like(epsilon)
        if self.atoms is not None:
            at = (line.theta, line.log_size, line.complement)
            value, off = self.atoms.explicit_part(terms, epsilon, *at)
        if self.rays is not None:
            more, error = self.rays.far_part(epsilon, line)
            value, off = value + more, off + error
        return value, off
