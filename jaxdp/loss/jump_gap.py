"""Large losses that are told apart from small ones: how their number recurs in |phi|.

Where a hit is far beyond its own spread the total is nearly on a lattice: |phi| falls, and comes
back up where all large losses are in phase.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.jump_law import JumpLaw
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.jump_parts import Parts, Releases, Window, tilted
from jaxdp.loss.line import log_pole

# Of a density beside the highest values on both sides: where that is less, losses are told apart;
# and the mass that there must be on either side.
_GAP, _NEGLIGIBLE = 0.5, 1e-13
# Of losses: nodes that are nearer lie all at the least one.
_LEAST = 1e-200
# In half turns of their distance: before that nothing recurs.
_FIRST = 1.5
# Tilts that bound what small losses add up to, times a loss in the gap, as logarithms.
_LOG_TILTS, _TILTS = (-2.0, 6.0), 17
# Of |F|, as a logarithm: what is negligible beside the value.
_LITTLE = -40.0


class Recurring(NamedTuple):
    """Where large losses are told apart from small ones their number recurs in |phi|.

    |A| <= |A of small losses| + |A of large ones|, which both fall for good.
    """

    loss: Reals
    large: Reals  # the tilted law of the large losses, (*lanes, m, nodes)
    first: Reals  # a height before which nothing recurs, (*lanes, m)

    @staticmethod
    def of(law: JumpLaw, kept: Reals) -> "Recurring":
        """`kept`: the tilted law of A, (*lanes, m, nodes)."""
        large = jnp.where(_told_apart(law, kept), kept, 0.0)
        share = jnp.sum(large, axis=-1)
        mean_large, mean = (jnp.sum(x * law.loss, axis=-1) for x in (large, kept))
        small = jnp.maximum(1.0 - share, 0.0)
        # From the mean of the small losses to that of the large ones.
        distance = jnp.where(share > 0, mean_large - share * mean, 0.0)
        distance = jnp.where(distance > 0, distance, jnp.inf) / (share * small)
        return Recurring(law.loss, large, _FIRST * jnp.pi / distance)

    def bound(self, height: Reals, fallen: Complexes) -> Reals:
        """On every |A| from a height (*lanes,) on, where A - 1 is `fallen`, (*lanes, m)."""
        height = height[..., None]

        def of_large(height: Reals) -> Complexes:
            sine, cosine = sine_cosine(height[..., None] * self.loss)
            return lax.complex(*(jnp.sum(self.large * x, axis=-1) for x in (cosine, sine)))

        small = jnp.abs(1.0 + fallen - of_large(height))
        return small + jnp.abs(of_large(jnp.maximum(height, self.first)))


def without_small(
    releases: Releases, window: Window, theta: Reals, whole: Bools, epsilon: Reals
) -> tuple[Window, Bools, Reals]:
    """The `whole` rest as one more window above a gap, where there is one.

    And where it still is the whole rest, and log of a bound on what is without a large loss: that
    is as likely at any height of the line, and far below epsilon.
    """

    def parted() -> tuple[Window, Bools, Reals]:
        law, column = releases.law, theta[..., None]
        parts = Parts.of(releases, window, column, whole)
        large = _told_apart(law, tilted(law, theta, window.below, parts.below))
        above = Window(
            jnp.where(large, 0.0, window.below),
            jnp.where(large, -jnp.inf, window.log_below),
            jnp.where(large, 1.0, window.cut),
            jnp.where(large, window.below, 0.0),
        )
        highest = jnp.max(jnp.where(large, -jnp.inf, law.loss), axis=(-2, -1))[..., None]
        tilts = jnp.exp(jnp.linspace(*_LOG_TILTS, _TILTS))[(None,) * theta.ndim] / highest
        bounds = (
            Parts.of(releases, above, tilts, ~whole).exponents()[0] - tilts * epsilon[..., None]
        )
        left = jnp.min(jnp.where(jnp.isnan(bounds), jnp.inf, bounds), axis=-1)
        size = parts.log_difference()[..., 0] - theta * epsilon - log_pole(theta)
        can = whole & (left < size + _LITTLE)
        some = can[..., None, None]
        now = Window(*(jnp.where(some, x, y) for x, y in zip(above, window, strict=True)))
        return now, whole & ~can, jnp.where(can, left, -jnp.inf)

    nothing = jnp.full_like(theta, -jnp.inf)
    return lax.cond(jnp.any(whole), parted, lambda: (window, whole, nothing))


def _told_apart(law: JumpLaw, mass: Reals) -> Bools:
    """The nodes above the deepest gap of the density of a `mass` on them; none without a gap."""
    density = mass / jnp.maximum(law.spacing, _LEAST)
    axis = density.ndim - 1
    highest = [lax.cummax(density, axis=axis, reverse=back) for back in (False, True)]
    masses = [lax.cumsum(mass, axis=axis, reverse=back) for back in (False, True)]
    between = jnp.minimum(*masses) > _NEGLIGIBLE
    depth = jnp.where(between, density / jnp.minimum(*highest), 1.0)
    gap = jnp.argmin(depth, axis=-1)[..., None]
    deep = jnp.take_along_axis(depth, gap, axis=-1) < _GAP
    return deep & (jnp.arange(density.shape[-1])[(None,) * axis] >= gap)
