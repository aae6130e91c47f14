"""The pair of additive noise, for an answer that neighbouring inputs move by `shift`."""

from __future__ import annotations

from typing import Any, cast, final

import jax

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dominating_pair.base import (
    Law,
    Support,
    SymmetricPair,
    atoms,
    law_on,
    log_of_infinite,
    with_its_error,
)
from jaxdp.noise.base import Noise, expanded, ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import of_law, on_integers
from jaxdp.noise.structure import Singularities


@final
@pytree
class Additive(SymmetricPair):
    """P is the law of the noise, Q the law of the noise moved by `shift`; any `Noise`, not sampled.

    The exchanged pair is the same, because the noise is symmetric.
    """

    noise: Noise
    shift: Reals

    def __init__(self, noise: Noise, shift: ArrayLike):
        assign(self, noise=noise, shift=checks.distance("shift", shift, noise.on_integers))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """`Noise.log_delta`."""
        return self.noise.log_delta(self.shift, epsilon)

    def law(self) -> Law:
        """Law of the loss by the density between its kinks, or by the atoms of integer noise."""
        shift = full_shift(self)
        endless = shift == xp.inf
        law = self._finite_law(xp.where(endless, 1.0, shift))

        def finite(log_mass: Reals) -> Reals:
            return xp.where(endless[..., None], -xp.inf, log_mass)

        return law._replace(
            log_mass=finite(law.log_mass),
            check=(law.check[0], finite(law.check[1])),
            log_left_out=xp.where(endless, -xp.inf, law.log_left_out),
            log_infinite=xp.where(endless, 0.0, law.log_infinite),
        )

    def support(self) -> Support:
        """Largest loss of the noise, and the probability of an infinite one."""
        shift = full_shift(self)
        endless = shift == xp.inf
        largest, log_infinite = self._support(xp.where(endless, 1.0, shift))
        return Support(largest, xp.where(endless, 0.0, log_infinite))

    def _support(self, shift: Reals) -> Support:
        _, log_finite, largest = self.noise.structure(shift)
        return Support(largest, log_of_infinite(log_finite))

    def _finite_law(self, shift: Reals) -> Law:
        """The law at a finite shift."""
        largest, log_infinite = self._support(shift)
        found = self.noise.loss_atoms(shift)
        if found is not None:
            law = atoms(found.loss, found.log_mass, log_infinite, largest)
            law = law._replace(check=found.check, log_left_out=found.log_left_out)
            return with_its_error(law)
        whole = self.noise.on_integers
        shifts = xp.zeros_like(shift), shift
        nodes = on_integers(self.noise, shifts) if whole else of_law(self.noise, shifts)
        noise, shift = cast(tuple[Noise, Reals], expanded((self.noise, shift)))
        log_p, log_q = noise.log_density(nodes.x), noise.log_density(nodes.x - shift)
        finite = (log_p > -xp.inf) & (log_q > -xp.inf)
        loss, log_density = xp.where(finite, log_p - log_q, 0.0), xp.where(finite, log_p, -xp.inf)
        slope = xp.zeros_like(loss)
        if not whole:
            ahead, behind = (noise.log_density_slope(x) for x in (nodes.x, nodes.x - shift))
            slope = xp.where(log_density > -xp.inf, ahead - behind, 0.0)
        return law_on(nodes, loss, log_density, slope, log_infinite, largest)

    def singularities(self) -> Singularities:
        """Singularities of the noise: on a lattice, with a pair of atoms, or smooth."""
        return self.noise.structure(self.shift).singularities

    def mean_distance(self) -> Reals | None:
        """Shift over scale of Gaussian noise."""
        return ratio_of(self.shift, self.noise.scale) if isinstance(self.noise, Gaussian) else None

    def renyi(self, order: ArrayLike) -> Reals:
        """`Noise.renyi`."""
        return self.noise.renyi(self.shift, order)


def full_shift(pair: Any) -> Reals:
    """The `shift` of a pair, of the shape of all its parameters."""
    shapes = (xp.shape(x) for x in jax.tree.leaves(pair))
    return xp.broadcast_to(pair.shift, xp.broadcast_shapes(*shapes))
