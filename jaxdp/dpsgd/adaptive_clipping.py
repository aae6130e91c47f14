"""Clipping thresholds that follow a quantile of the gradients' norms.

Each step releases the noisy sums and, for each group, a noisy count of the gradients below its
threshold. An example adds 1/2 to the count if its norm is at most the threshold, -1/2 if it is
above, and 0 if its gradient is 0. The counts take a fixed share of the privacy loss of a step, so
that sums and counts together have the noise multiplier of the plan: the squares (Gaussian) or the
absolute values (Laplace) of sensitivity over noise add up. The thresholds depend on noisy counts
alone, and the noise scales change in proportion to them.

Source: Andrew, Thakkar, McMahan & Ramaswamy, NeurIPS 2021, arXiv:1905.03871.
"""

from __future__ import annotations

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp.design.families import norm_of

# The counts' share of 1 / noise_multiplier^2 (Laplace: of 1 / noise_multiplier). chosen: gradients
# get .5 % more noise, and the noise of a quantile is 5 multipliers over the batch
SHARE = 0.01
# Change of a threshold's logarithm a step and unit of the quantile. chosen: by the source
_RATE = 0.2
# A threshold stays within this factor of its first value. chosen: far from the ends of float64
_RANGE = 1e6


def checked_quantile(quantile: float | None, bands: int) -> float | None:
    """The quantile as a float; `ValueError` out of (0, 1) and beside correlated noise."""
    if quantile is None:
        return None
    if not isinstance(quantile, float) or not 0.0 < quantile < 1.0:
        raise ValueError(f"clip_quantile must be a number in (0, 1) or None, got {quantile!r}")
    if bands > 1:
        raise ValueError("bands must be 1 with clip_quantile: correlated noise has fixed scales")
    return float(quantile)


def gradient_factor(family: str) -> float:
    """Factor of the scales of the sums, which leaves the counts their share."""
    return float((1.0 - SHARE) ** (-1.0 / norm_of(family)))


def count_scale(family: str, groups: int) -> float:
    """Scale of the noise on each group's count, at noise multiplier 1."""
    return float(0.5 * (groups / SHARE) ** (1.0 / norm_of(family)))


def count_below(squares: Reals, taken: Bools) -> Reals:
    """The count of one group, from squared norms in units of the threshold."""
    below = xp.where(squares <= 1.0, 0.5, -0.5)
    return xp.sum(xp.where(taken & (squares > 0), below, 0.0))


def adapted(clips: Reals, first: Reals, quantile: float, counts: Reals, batch: Reals) -> Reals:
    """The thresholds of the next step, from noisy counts and the expected batch."""
    following = clips * xp.exp(-_RATE * (counts / batch + 0.5 - quantile))
    return xp.clip(following, first / _RANGE, first * _RANGE)
