"""What is released besides sampled Gaussians: a factor of the transforms in `loss.jumps`."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._numeric.elementary import ULP
from jaxdp._types import Complexes, Reals
from jaxdp.loss.base import Term, Terms, add_up, cumulant, on_line, rise
from jaxdp.noise.base import Points

# Tilts that bound how far below 0 the total may be, as logarithms, and what exceeds that.
_LOG_TILTS, _TILTS, _FARTHER = (-6.0, 10.0), 33, -35.0


class Rest(NamedTuple):
    """Releases of any kind, perhaps none: R(z) = E exp(z L) of their total."""

    terms: Terms

    def log_moment(self, tilts: Reals) -> Reals:
        """log R at real tilts (*lanes, tilts)."""
        if not self.terms:
            return jnp.zeros_like(tilts)
        return jnp.real(cumulant(self.terms, tilts))

    def log_moment_below(self, tilts: Reals) -> Reals:
        """log R at real tilts of 0, and of -1 or less, (*lanes, tilts); exact at both of these."""
        if not self.terms:
            return jnp.zeros_like(tilts)
        exchanged = self._exchanged()
        here, there = (add_up(x.terms, Term.log_finite)[..., None] for x in (self, exchanged))
        beyond = exchanged.log_moment(jnp.maximum(-1.0 - tilts, 0.0))
        return jnp.where(tilts == 0, here, jnp.where(tilts == -1.0, there, beyond))

    def _exchanged(self) -> "Rest":
        """Of the two inputs exchanged: R at -1 - z."""
        return Rest(tuple(t.reversed(jnp.ones(t.shape, dtype=bool)) for t in self.terms))

    def lowest(self, epsilon: Reals) -> Reals:
        """How far below 0 the total is but with a probability of e^-35, (*lanes,)."""
        if not self.terms:
            return jnp.zeros_like(epsilon)
        exchanged = self._exchanged()
        tilts = jnp.exp(jnp.linspace(*_LOG_TILTS, _TILTS))
        tilts = jnp.broadcast_to(tilts, (*epsilon.shape, _TILTS))
        reach = (exchanged.log_moment(tilts) - _FARTHER) / (1.0 + tilts)
        least = jnp.min(jnp.where(jnp.isnan(reach), jnp.inf, reach), axis=-1)
        return jnp.clip(least, 0.0, add_up(exchanged.terms, Term.largest_finite))

    def rise(self, points: Points, known: tuple) -> tuple[Complexes | float, Reals]:
        """log R(theta + it) / R(theta), and log of a bound on that from the last point on."""
        if not self.terms:
            return 0.0, jnp.zeros_like(points.theta)
        turn, falling, _ = rise(self.terms, points, known)
        last = points.heights()[..., -1]
        beyond = add_up(self.terms, lambda term: term.log_beyond(points.theta, last))
        return turn, jnp.minimum(falling, beyond)

    def on_line(self, theta: Reals, step: Reals) -> tuple:
        """What `rise` needs at all points."""
        return on_line(self.terms, theta, step)

    def rounding(self, theta: Reals, epsilon: Reals, absolute: Reals, moved: Reals) -> Reals:
        """Of sums of |F| and of t |F|: of sums over nodes, and of phases that cancel epsilon."""
        if not self.terms:
            return jnp.zeros_like(theta)
        summed = add_up(self.terms, Term.summed)
        gain = jnp.abs(self.log_moment(theta[..., None])[..., 0])
        return ULP * (16.0 * jnp.sqrt(summed * (1.0 + gain)) * absolute + 8.0 * epsilon * moved)
