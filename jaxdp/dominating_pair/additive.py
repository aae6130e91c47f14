"""The pair of additive noise, for an answer that neighbouring inputs move by `shift`."""

from __future__ import annotations

from typing import cast, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import log1m, log_probability
from jaxdp.dominating_pair.base import (
    LEAST_FINITE,
    DominatingPair,
    Law,
    Support,
    atoms,
    law_on,
    log_of_infinite,
)
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import along_last, expanded, of_law, on_integers
from jaxdp.noise.structure import Lattice, Singularities

# Multiples of a staircase's unit on either side of 0. chosen: shifts of 64 sensitivities
_MULTIPLES = 64


@final
@pytree
class Additive(DominatingPair):
    """P is the law of the noise, Q the law of the noise moved by `shift`; any `Noise`, not sampled.

    The exchanged pair is the same, because the noise is symmetric.
    """

    noise: Noise
    shift: Reals

    def __init__(self, noise: Noise, shift: ArrayLike):
        assign(self, noise=noise, shift=checks.nonnegative("shift", shift))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """`Noise.log_delta`."""
        return self.noise.log_delta(self.shift, epsilon)

    def law(self) -> Law:
        """Law of the loss by the density between its kinks, or by the atoms of integer noise."""
        shift = _full_shift(self)
        endless = shift == xp.inf
        return _certain_where(endless, self._law(xp.where(endless, 1.0, shift)))

    def support(self) -> Support:
        """Largest loss of the noise, and the probability of an infinite one."""
        shift = _full_shift(self)
        endless = shift == xp.inf
        _, log_finite, largest = self.noise.structure(xp.where(endless, 1.0, shift))
        return Support(largest, xp.where(endless, 0.0, log_of_infinite(log_finite)))

    def _law(self, shift: Reals) -> Law:
        singularities, log_finite, largest = self.noise.structure(shift)
        log_infinite = log_of_infinite(log_finite)
        whole = self.noise.on_integers
        if isinstance(singularities, Lattice) and not whole:
            return _law_of_levels(self, shift, singularities.unit, largest, log_infinite)
        shifts = xp.zeros_like(shift), shift
        nodes = on_integers(self.noise, shifts) if whole else of_law(self.noise, shifts)
        noise, shift = cast(tuple[Noise, Reals], expanded((self.noise, shift)))

        def loss_at(x: Reals) -> tuple[Reals, Reals]:
            log_p, log_q = noise.log_density(x), noise.log_density(x - shift)
            finite = (log_p > -xp.inf) & (log_q > -xp.inf)
            return xp.where(finite, log_p - log_q, 0.0), xp.where(finite, log_p, -xp.inf)

        loss, log_density = loss_at(nodes.x)
        slope = xp.zeros_like(loss)
        if not whole:
            ahead, behind = (noise.log_density_slope(x) for x in (nodes.x, nodes.x - shift))
            slope = xp.where(log_density > -xp.inf, ahead - behind, 0.0)
        return law_on(nodes, loss, log_density, slope, log_infinite, largest)

    def singularities(self) -> Singularities:
        """Singularities of the noise: on a lattice, with a pair of atoms, or smooth."""
        return self.noise.structure(self.shift).singularities

    def reversed(self) -> Additive:
        """The same pair: the noise is symmetric."""
        return self

    @property
    def is_gaussian(self) -> bool:
        """True for Gaussian noise."""
        return isinstance(self.noise, Gaussian)

    def mean_distance(self) -> Reals | None:
        """Shift over scale of Gaussian noise."""
        return gaussian_ratio(self.noise, self.shift)

    def renyi(self, order: ArrayLike) -> Reals:
        """`Noise.renyi`."""
        return self.noise.renyi(self.shift, order)


def gaussian_ratio(noise: Noise, shift: Reals) -> Reals | None:
    """Shift over scale of Gaussian noise; None for another noise."""
    return ratio_of(shift, noise.scale) if isinstance(noise, Gaussian) else None


def _certain_where(endless: Bools, law: Law) -> Law:
    """The law, or a certain infinite loss where the shift is infinite."""

    def choose(value: float, x: Reals) -> Reals:
        return xp.where(endless[..., None] if x.ndim > endless.ndim else endless, value, x)

    loss, log_mass = law.check
    return Law(
        law.loss,
        choose(-xp.inf, law.log_mass),
        law.log_density,
        (loss, choose(-xp.inf, log_mass)),
        choose(-xp.inf, law.log_left_out),
        choose(0.0, law.log_infinite),
        law.largest,
    )


def _full_shift(pair: Additive) -> Reals:
    shapes = (xp.shape(x) for x in jax.tree.leaves(pair))
    return xp.broadcast_to(pair.shift, xp.broadcast_shapes(*shapes))


def _law_of_levels(
    pair: Additive, shift: Reals, unit: Reals, largest: Reals, log_infinite: Reals
) -> Law:
    """Law of losses on multiples of a unit: second differences of the profile in e^epsilon."""
    unit = unit[..., None]
    columns = cast(Additive, expanded(pair))
    multiple = along_last(np.arange(_MULTIPLES + 2.0), shift.ndim)
    delta = xp.exp(columns.log_delta(unit * multiple))
    # Tails of e^-L under Q: the chord from one level to the next has the slope -Q[L above it].
    tails = (delta[..., :-1] - delta[..., 1:]) / (
        xp.exp(unit * multiple[..., :-1]) * xp.expm1(xp.where(unit > 0, unit, 1.0))
    )
    under_q = xp.maximum(tails[..., :-1] - tails[..., 1:], 0.0)  # Q of the levels 1, 2, ...
    losses = unit * multiple[..., 1:-1]
    log_up = xp.maximum(xp.log(under_q) + losses, LEAST_FINITE)
    log_down = log_up - losses
    # The levels beyond the last: P of the levels above is delta there plus their Q, which equals P
    # of the levels below.
    last_tail = tails[..., -1:]
    # Without mass beyond, the product with an overflowing exponential must be 0.
    grown = xp.exp(xp.where(last_tail > 0, unit, 0.0) * _MULTIPLES)
    left_out = delta[..., -2:-1] + last_tail * (1.0 + grown)
    level = 1.0 - xp.sum(xp.exp(log_up) + xp.exp(log_down), axis=-1, keepdims=True) - left_out
    log_level = log1m(xp.clip(1.0 - level, 0.0, 1.0))
    law = atoms(
        xp.concatenate([-losses[..., ::-1], xp.zeros_like(unit), losses], axis=-1),
        xp.concatenate([log_down[..., ::-1], log_level, log_up], axis=-1),
        log_infinite,
        largest,
    )
    return law._replace(log_left_out=log_probability(xp.clip(left_out[..., 0], 0.0, 1.0)))
