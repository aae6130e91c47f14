"""Several records of one user in a sample under Gaussian noise, the user added or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dominating_pair.base import Mixture
from jaxdp.dominating_pair.gaussian_mixture import MixturePair, Sides, stacked
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian import Gaussian

# Largest number of components of a mixture. chosen: the general contour serves more
MOST_COMPONENTS = 33


@final
@pytree
class SampledGroup(MixturePair):
    """sum_k p_k N(k shift, scale^2) against N(0, scale^2), exchanged where `added` is 1.

    p_k is the probability that k records take part. Their number is a sum of independent
    indicators, as binomial and hypergeometric ones are. All roots of sum p_k z^k are then real, so
    the ratio of the densities has no zero at |Im x| < pi scale^2 / shift (factors e^(-a k^2) keep
    roots real: Laguerre; Polya & Schur, Crelle 144, 1914).
    """

    noise: Gaussian
    shift: Reals
    log_probabilities: tuple[Reals, ...]
    added: Reals

    def __init__(
        self,
        noise: Gaussian,
        shift: ArrayLike,
        log_probabilities: Sequence[Any],
        added: ArrayLike = 0.0,
    ):
        assign(
            self,
            noise=noise,
            shift=checks.distance("shift", shift, noise.on_integers),
            log_probabilities=tuple(log_probabilities),
            added=checks.probability("added", added),
        )

    def reversed(self) -> SampledGroup:
        """`added` exchanged."""
        return SampledGroup(self.noise, self.shift, self.log_probabilities, 1.0 - self.added)

    def mixtures(self) -> tuple[Mixture, ...]:
        """One mixture; empty if it has more than `MOST_COMPONENTS` components."""
        if len(self.log_probabilities) > MOST_COMPONENTS:
            return ()
        ratio = ratio_of(self.shift, self.noise.scale)
        missed, *hits = (xp.broadcast_to(xp.exp(x), ratio.shape) for x in self.log_probabilities)
        means = xp.stack([k * ratio for k in range(1, len(hits) + 1)], -1)
        return (Mixture(means, xp.stack(hits, -1), missed, ratio, self.added, xp.ones(())),)

    def _sides(self) -> Sides:
        """The mixture against a certain 0, as components of the same means on both sides."""
        added, number = self.added > 0, len(self.log_probabilities)
        means = [ratio_of(checks.guard(k * self.shift), self.noise.scale) for k in range(number)]
        logs = zip(self.log_probabilities, (0.0, *[-xp.inf] * (number - 1)), strict=True)
        sides = ((xp.where(added, none, p), xp.where(added, p, none)) for p, none in logs)
        up, down = zip(*sides, strict=True)
        return stacked(means, up, means, down)
