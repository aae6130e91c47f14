"""What the line holds beyond the points that are summed.

|phi(t)| = |M(theta + it)| / M(theta) need not fall for good once it is small: where the loss of a
release has atoms, or nearly, it comes back up, at pi / r for a pair at +-r. Probes far beyond the
sum tell how high. Where that is too high for the points there are, the composition is released
together with one more Gaussian, so wide that it hardly matters: delta only grows (data
processing), and |phi| falls like exp(-mu^2 t^2 / 2) at last.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._types import Bools, Reals
from jaxdp.loss.base import Term, Terms, add_up
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.noise.gaussian import Gaussian

# Looser sums are of a search, where a dear cumulant is not worth its price.
ROUGH = 1e-8
# In points of the line, increasing by a constant ratio.
_NEAREST, _FARTHEST, _PROBES = 16.0, 2.0**30, 128
# log of as many atoms as hardly ever are in phase.
_MANY = float(np.log(2.0**20 + 1.0))
_RATIO = float(np.log(_FARTHEST / _NEAREST) / (_PROBES - 1))
_STEP_BACK = float(np.exp(_RATIO))


class Decay(NamedTuple):
    """What is known of |phi| beyond the sum, and the Gaussian that makes it fall."""

    log_height: Reals  # of what may recur: its largest |phi| from each probe on, (lanes, probes)
    mu: Reals  # the Gaussian's ratio, (lanes,)

    def log_beyond(self, points: Reals) -> Reals:
        """log of the largest |phi| beyond so many points of the line."""
        probe = jnp.floor(jnp.log(jnp.maximum(points, _NEAREST) / _NEAREST) / _RATIO)
        index = jnp.clip(probe.astype(int), 0, _PROBES - 1)
        return jnp.take_along_axis(self.log_height, index[..., None], axis=-1)[..., 0]

    def softened(self, terms: Terms) -> Terms:
        """The composition with the Gaussian of ratio mu."""
        shift = self.mu[..., None]
        return (*terms, Term(Gaussian(1.0), shift, jnp.ones_like(shift)))


def probed(
    terms: Terms, line: Line, far: bool, split: Bools, lattice: Lattice | None = None
) -> Decay:
    """What the probes say, without a Gaussian. `far`: dear cumulants are looked at as well.

    Where the atoms are `split` off, what is left falls by itself. On a `lattice` nothing beyond
    half a period is summed.
    """
    heights = _heights(line)
    log_height = add_up(terms, lambda term: term.log_decay(line.theta, heights, far))
    if lattice is not None:
        of_half = add_up(terms, lambda term: term.log_fall(line.theta, heights, lattice.unit))
        # Releases with a larger unit have shorter periods.
        of_half = jnp.where((lattice.parts == 1.0)[..., None], of_half, 0.0)
        log_height = jnp.where(lattice.found[..., None], of_half, log_height)
    return Decay(jnp.where(split[..., None], -jnp.inf, log_height), jnp.zeros_like(line.theta))


def fallen_of(terms: Terms, line: Line, far: bool) -> Decay:
    """What is known of these releases alone, those that fall for good among them."""
    heights = _heights(line)
    log_height = 0.0 * heights
    for term in terms:
        if term.noise.recurs:
            log_height += term.log_decay(line.theta, heights, far)
        else:
            log_height += term.log_fallen(line.theta, heights, far)
    return Decay(log_height, jnp.zeros_like(line.theta))


def decay_of(
    terms: Terms,
    line: Line,
    tolerance: float,
    most: int,
    split: Bools,
    lattice: Lattice | None,
) -> Decay:
    """The decay on `line`.

    mu = 0 where `most` points reach the tolerance without the Gaussian, or leave less than it adds
    to delta: about a share of mu^2 theta (1 + theta) / 2.
    """
    bare = probed(terms, line, tolerance < ROUGH, split, lattice)
    end = most * line.step
    pole = jnp.abs(line.theta * (1.0 + line.theta))
    wanted = jnp.log(pole / (jnp.pi * end * tolerance))
    left = wanted + bare.log_beyond(0.0 * end + most)
    mu = jnp.sqrt(2.0 * jnp.maximum(wanted + 2.0, 1.0)) * _STEP_BACK / end
    needed = (left > 0) & (tolerance * jnp.exp(left) > 0.5 * pole * mu * mu)
    for term in terms:
        falls = (term.count > 0) & (term.shift > 0) & (not term.noise.recurs)
        needed &= ~jnp.any(falls, axis=-1)
    # The sum bounds what so many leave by itself, and more sharply.
    needed &= add_up(terms, lambda term: jnp.sum(jnp.log1p(term.count), axis=-1)) < _MANY
    if lattice is not None:
        needed &= ~lattice.found
    mu = jnp.where(needed, mu, 0.0)
    return Decay(bare.log_height - 0.5 * (mu[..., None] * _heights(line)) ** 2, mu)


def _heights(line: Line) -> Reals:
    probes = jnp.exp(_RATIO * jnp.arange(_PROBES))[(None,) * line.theta.ndim]
    return line.step[..., None] * _NEAREST * probes
