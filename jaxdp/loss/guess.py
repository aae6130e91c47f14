"""Where a search may begin: what saddles alone say of epsilon and of log delta. No bounds.

delta <= |F(theta)| / (a width) for every theta, so the least over theta of
(K(theta) - log(theta (1 + theta)) - log delta) / theta is near the epsilon sought, and the theta
that attains it near its saddle.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxdp._types import Reals
from jaxdp.loss.base import MORE_LANES, Terms, by_lanes, cumulant
from jaxdp.loss.line import LOG_TILTS, log_pole
from jaxdp.loss.saddle import Saddle, saddle_of


class Guess(NamedTuple):
    """Near the epsilon sought, and a tilt within a factor of two of its saddle: (*batch,)."""

    epsilon: Reals
    tilt: Reals


def guess_epsilon(terms: Terms, delta: Reals) -> Guess:
    """Of the middle of the deltas (*batch, m)."""

    def at_saddle(terms: Terms, log_delta: Reals) -> Guess:
        saddle = _saddle(terms, log_delta)
        # Of the least epsilon the second derivative is that of log |F| over theta.
        width = _log_width(saddle.bend * saddle.theta, saddle.theta)
        return Guess(saddle.least + width / saddle.theta, saddle.theta)

    return by_lanes(at_saddle, terms, middle(jnp.log(delta)), MORE_LANES)


def middle(wanted: Reals) -> Reals:
    """Of the least and the largest along the last axis."""
    return 0.5 * (jnp.min(wanted, axis=-1) + jnp.max(wanted, axis=-1))


def rough_log_delta(terms: Terms, epsilon: Reals) -> tuple[Reals, Reals]:
    """log delta to a few percent, where it is below -1, from the saddle alone; and its tilt."""

    def at_saddle(terms: Terms, epsilon: Reals) -> tuple[Reals, Reals]:
        def heights(tilts: Reals) -> tuple[Reals, Reals]:
            exponents = jnp.real(cumulant(terms, tilts, "loose")) - tilts * epsilon[..., None]
            return exponents, exponents - log_pole(tilts)

        found = saddle_of(heights, *_ends(epsilon))
        return found.least + _log_width(found.bend, found.theta), found.theta

    return by_lanes(at_saddle, terms, epsilon, MORE_LANES)


def _log_width(bend: Reals, theta: Reals) -> Reals:
    """log of delta over |F(theta)|, of the second derivative of log |F| in log theta."""
    return jnp.log(theta) - 0.5 * jnp.log(2.0 * jnp.pi * bend)


def _saddle(terms: Terms, log_target: Reals) -> Saddle:
    """The theta that gives the least epsilon."""

    def guesses(tilts: Reals) -> tuple[Reals, Reals]:
        values = jnp.real(cumulant(terms, tilts, "loose"))
        return values, (values - log_pole(tilts) - log_target[..., None]) / tilts

    return saddle_of(guesses, *_ends(log_target))


def _ends(lanes: Reals) -> tuple[Reals, Reals]:
    return jnp.full_like(lanes, LOG_TILTS[0]), jnp.full_like(lanes, LOG_TILTS[1])
