"""Gaussian differential privacy: what composed Gaussians are, exactly."""

from __future__ import annotations

import math
from typing import final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.double_double import quotient_up
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.guarantee.base import (
    Budget,
    BudgetLike,
    Guarantee,
    as_budget,
    largest_within,
    repeated,
)
from jaxdp.noise.gaussian import Gaussian, log_delta_of_ratio

# Relative rounding of a sum of products. chosen: far above that of matrices of 10,000 rows
_ROUNDING = 1e-11


def matrix_sensitivity(strategy: ArrayLike, min_sep: int = 1, participations: int = 1) -> float:
    """Largest norm of C g for unit rows g of a record that takes part several times.

    Args:
        strategy: the matrix C, (outputs, steps), such as the nodes of a tree over its leaves;
            concrete.
        min_sep: least number of steps between two participations.
        participations: largest number of participations of one record.

    If the rows g_i have norm 1 at the steps i of a pattern, |C g|^2 <= sum over i, j of |X_ij|, X =
    C^T C. Dynamic programming bounds the maximum over patterns by maxima over j, then over i. Exact
    where X has no entry min_sep or more off its diagonal (banded), and for one
    participation: the largest norm of a column. Rounded up.
    Source: Choquette-Choo et al., arXiv:2306.08153, section 4 and appendix.
    """
    matrix = np.asarray(checks.real("strategy", strategy))
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"strategy must be a matrix (outputs, steps), got shape {matrix.shape}")
    min_sep = checks.positive_integer("min_sep", min_sep)
    participations = checks.positive_integer("participations", participations)
    gram = np.abs(matrix.T @ matrix)
    sums = _largest_sum(gram, min_sep, participations)
    size = math.sqrt(float(_largest_sum(sums, min_sep, participations)))
    return size * (1.0 + _ROUNDING)


def _largest_sum(weights: np.ndarray, min_sep: int, participations: int) -> np.ndarray:
    """Largest sum along the last axis of `participations` weights >= 0 at most, min_sep apart."""
    steps = weights.shape[-1]
    sums = np.zeros((steps + min_sep, *weights.shape[:-1]))
    for _ in range(min(participations, -(-steps // min_sep))):
        following = np.zeros_like(sums)
        for step in range(steps - 1, -1, -1):
            with_step = weights[..., step] + sums[step + min_sep]
            following[step] = np.maximum(following[step + 1], with_step)
        sums = following
    return np.asarray(sums[0])


@final
@pytree
class GDP(Guarantee):
    """Gaussian differential privacy: no easier to attack than telling N(0, 1) from N(mu, 1).

    Gaussians of ratios mu_k = shift_k / scale_k compose to mu = sqrt(sum mu_k^2), exactly.
    Source: Dong, Roth & Su, JRSS-B 84, 2022.
    """

    mu: Reals

    def __init__(self, mu: ArrayLike):
        assign(self, mu=checks.nonnegative("mu", mu))

    @classmethod
    def of_matrix(
        cls,
        strategy: ArrayLike,
        noise_multiplier: ArrayLike,
        *,
        min_sep: int = 1,
        participations: int = 1,
    ) -> GDP:
        """Guarantee of C x + noise, a matrix mechanism: its sensitivity over the noise multiplier.

        Args:
            strategy: the matrix C, (outputs, steps), known; rows x of one record have norm 1 at
                most (clipped).
            noise_multiplier: standard deviation of the noise on every entry.
            min_sep, participations: of one record, see `matrix_sensitivity`.

        Batches are fixed beforehand; steps may depend on earlier outputs, each of which is released
        after its last step.

        >>> import jaxdp as dp
        >>> import numpy as np
        >>> print(dp.GDP.of_matrix(np.tril(np.ones((4, 4))), 2.0).mu.round(6))
        1.0
        """
        scale = checks.positive("noise_multiplier", noise_multiplier)
        return cls(matrix_sensitivity(strategy, min_sep, participations) / scale)

    @classmethod
    def of_tree(cls, steps: int, noise_multiplier: ArrayLike) -> GDP:
        """Guarantee of sums over a binary tree with `steps` leaves, each record in one leaf.

        mu is sqrt(ceil(log2 steps) + 1) / noise_multiplier, rounded up: a record is in the sums of
        ceil(log2 steps) + 1 nodes. For restarted trees that hold every record once, use the largest
        tree.
        """
        depth = (checks.positive_integer("steps", steps) - 1).bit_length()
        scale = checks.positive("noise_multiplier", noise_multiplier)
        sensitivity = math.sqrt(depth + 1.0) * (1.0 + 2.0**-52)
        return cls(quotient_up(xp.asarray(sensitivity), scale))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """`Gaussian.log_delta` at shift / scale = mu: exact to rounding, which is included."""
        return Gaussian(1.0).log_delta(self.mu, epsilon)

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """Phi(Phi^-1(1 - fpr) - mu), rounded down; 0 at an infinite mu."""
        unit = Gaussian(1.0)
        mu, fpr = xp.broadcast_arrays(
            checks.guard(self.mu), checks.probability("fpr", fpr, lift=True)
        )
        endless = xp.isinf(mu)
        mu = xp.where(endless, 0.0, mu)
        threshold = -unit.quantile(fpr)
        point = mu - threshold
        fnr = xp.exp(unit.log_survival(point))
        # The quantile's rounding, times the hazard of the normal law (at most 1 + point).
        distance = xp.minimum(xp.abs(threshold) + mu, 1e100)
        hazard = xp.where(point > 0, 1.0 + point, xp.exp(-0.5 * point**2))
        fnr = fnr * xp.maximum(1.0 - 32.0 * ULP * (1.0 + distance * hazard), 0.0)
        return xp.where(endless, 0.0, xp.where((fpr == 0) & (mu >= 0), 1.0, fnr))

    def composed(self, other: GDP) -> GDP:
        """The guarantee of both releases together, rounded up."""
        return GDP(round_up(xp.hypot(*xp.broadcast_arrays(self.mu, other.mu)), 2))

    def __rmul__(self, count: ArrayLike) -> GDP:
        root = xp.sqrt(checks.whole("count", count))
        return GDP(round_up(repeated("mu", root, self.mu), 2))

    def __truediv__(self, parts: ArrayLike) -> GDP:
        """One of `parts` equal parts, mu / sqrt(parts): their squares add up to mu^2 at most."""
        return GDP(round_up(self.mu / xp.sqrt(checks.whole("parts", parts, 1.0)), -4))


@in_float64
def largest_gdp(budget: BudgetLike) -> GDP:
    """The largest mu whose Gaussian guarantee satisfies a budget.

    Args:
        budget: a `Budget` or (epsilon, delta), epsilon in nats; batched.

    Returns:
        A `GDP`, rounded down by a few ulps. mu = 0 (infinite noise) if nothing in (1e-300, 1e15) is
        feasible.

    Differentiable by the implicit function theorem.
    Source: s* of Muthukrishnan & Kalyani, the i.n.i.d. paper, (P2).

    >>> import jaxdp as dp
    >>> print(f"{dp.largest_gdp((1.0, 1e-5)).mu:.4f}")
    0.2681
    """
    return _largest(as_budget(budget))


@jitted
def _largest(budget: Budget) -> GDP:
    return GDP(largest_within(log_delta_of_ratio, budget.epsilon, budget.delta))
