"""Mixtures of Gaussians on both sides: several records of a user, random sensitivities."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import logsumexp, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log_probability, round_up
from jaxdp.dominating_pair.base import DominatingPair, Law, Support, law_on
from jaxdp.dominating_pair.mixture_profile import Sides, mixture_log_delta
from jaxdp.dominating_pair.moments import renyi_beyond, renyi_of_law
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import of_law
from jaxdp.noise.structure import Singularities, Smooth

# Tolerance of the sum of probabilities. chosen: far above the rounding of a sum
_WHOLE = 1e-9
# Breaks of the nodes' panels from the lowest mean to the highest. chosen: 1536 nodes in all
_BREAKS = 7


class MixturePair(DominatingPair):
    """Mixtures of Gaussians on opposite sides, which `_sides` states."""

    @abc.abstractmethod
    def _sides(self) -> Sides: ...

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """See `mixture_log_delta`: exact, rounded up."""
        return mixture_log_delta(self._sides(), checks.real("epsilon", epsilon))

    def law(self) -> Law:
        """Law of the loss by the two densities, between the lowest mean and the highest."""
        sides = self._sides()
        shape = sides.up.shape[1:]
        low, high = -xp.max(sides.down, axis=0), xp.max(sides.up, axis=0)
        breaks = [low + (high - low) * part for part in np.linspace(0.0, 1.0, _BREAKS)]
        nodes = of_law(Gaussian(xp.ones(shape)), tuple(breaks))
        columns = Sides(*(x[..., None] for x in sides))

        p, q = columns.log_ratios(nodes.x)
        loss, log_density = p - q, p + Gaussian(1.0).log_density(nodes.x)
        slope = columns.loss_slope(nodes.x)
        support = self.support()
        return law_on(nodes, loss, log_density, slope, support.log_infinite, support.largest)

    def support(self) -> Support:
        """The limit of the loss at infinity; no loss is infinite."""
        largest = round_up(self._sides().ends()[1], 4)
        return Support(largest, xp.full_like(largest, -xp.inf))

    def singularities(self) -> Singularities:
        """Smooth: the loss rises with the output."""
        return Smooth()

    def renyi(self, order: ArrayLike) -> Reals:
        """Renyi divergence from nodes and `log_left_out`, or by joint convexity."""

        def beyond(order: Reals, log_left_out: Reals) -> Reals:
            return renyi_beyond(self._from_components, order, log_left_out)

        return renyi_of_law(self, order, self._from_components, beyond)

    def mean_distance(self) -> Reals:
        """Sum of the largest means of both sides, over components with weight."""
        up, log_up, down, log_down = self._sides()
        sides = ((up, log_up), (down, log_down))
        up, down = (xp.max(xp.where(log == -xp.inf, 0.0, x), axis=0) for x, log in sides)
        return up + down

    def log_hit(self) -> Reals:
        """log of the probability that the means differ, if both sides share the mean 0."""
        sides = self._sides()
        log_moved = [
            logsumexp(xp.where(mean > 0, log_weight, -xp.inf), axis=0)
            for mean, log_weight in ((sides.up, sides.log_up), (sides.down, sides.log_down))
        ]
        return xp.minimum(xp.maximum(*log_moved) + 16.0 * ULP, 0.0)

    def _from_components(self, order: Reals) -> Reals:
        """log sum_ij p_i q_j e^((a - 1) a (a_i + b_j)^2 / 2) / (a - 1): joint convexity."""
        ranked = ((x, (1,) * (order.ndim - x.ndim + 1)) for x in self._sides())
        sides = Sides(*(x.reshape(x.shape[0], *ones, *x.shape[1:]) for x, ones in ranked))
        a = xp.minimum(order, 1e150)[None, None]
        excess = xp.maximum(a - 1.0, 2.0**-30)
        distances = sides.up[:, None] + sides.down[None]
        weight = sides.log_up[:, None] + sides.log_down[None]
        size = xp.maximum(a, 1.0 + 2.0**-30) * 0.5 * distances**2
        value = logsumexp(weight + excess * size, axis=(0, 1)) / excess[0, 0]
        largest, excess = xp.max(size, axis=(0, 1)), excess[0, 0]
        value = xp.minimum(value + 16.0 * ULP * (largest + 701.0 / excess), largest)
        return xp.where(xp.isnan(value), xp.inf, round_up(value, 16))


@final
@pytree
class GaussianMixture(MixturePair):
    """sum_i p_i N(a_i, scale^2) against sum_j q_j N(-b_j, scale^2), all a_i, b_j >= 0.

    It dominates mixtures around any vectors with norms a_i and b_j or less: among all tests of a
    Gaussian, a half-space moves the probability most (arXiv:2403.04867, theorem 3.8).

    Args:
        sensitivities: the a_i, one for each component: numbers, or arrays that broadcast (batches).
        probabilities: the p_i, of sum 1.
        scale: standard deviation of the noise.
        other_sensitivities, other_probabilities: the b_j and q_j; by default Q is N(0, scale^2).

    Raises `ValueError` for values out of range. `privacy_loss(pair)` reports the worse of the pair
    and the exchanged pair.

    >>> import jaxdp as dp
    >>> pair = dp.GaussianMixture([0.0, 1.0, 2.0], [0.81, 0.18, 0.01], 1.0)
    >>> loss = 100 * dp.privacy_loss(pair)
    >>> print(f"{loss.epsilon(1e-5):.4f}")
    16.2309
    """

    sensitivities: tuple[Reals, ...]
    log_probabilities: tuple[Reals, ...]
    other_sensitivities: tuple[Reals, ...]
    other_log_probabilities: tuple[Reals, ...]
    scale: Reals

    def __init__(
        self,
        sensitivities: Sequence[ArrayLike] | ArrayLike,
        probabilities: Sequence[ArrayLike] | ArrayLike,
        scale: ArrayLike,
        other_sensitivities: Sequence[ArrayLike] | ArrayLike = (0.0,),
        other_probabilities: Sequence[ArrayLike] | ArrayLike = (1.0,),
    ):
        up = _side("sensitivities", sensitivities, "probabilities", probabilities)
        names = "other_sensitivities", "other_probabilities"
        down = _side(names[0], other_sensitivities, names[1], other_probabilities)
        _set(self, up, down, checks.positive("scale", scale))

    @classmethod
    def of_logs(
        cls,
        sensitivities: Sequence[Any],
        log_probabilities: Sequence[Any],
        scale: Any,
        other_sensitivities: Sequence[Any] = (),
        other_log_probabilities: Sequence[Any] = (),
    ) -> GaussianMixture:
        """The mixture of weights by their logarithms, which are assumed to add up to 1."""
        zero = xp.zeros(())
        up = tuple(sensitivities), tuple(log_probabilities)
        down = tuple(other_sensitivities) or (zero,), tuple(other_log_probabilities) or (zero,)
        mixture = object.__new__(cls)
        _set(mixture, up, down, scale)
        return mixture

    @classmethod
    def from_fields(
        cls,
        sensitivities: tuple[Any, ...],
        log_probabilities: tuple[Any, ...],
        other_sensitivities: tuple[Any, ...],
        other_log_probabilities: tuple[Any, ...],
        scale: Any,
    ) -> GaussianMixture:
        """The mixture with these fields, in their order."""
        up, down = (
            (sensitivities, log_probabilities),
            (other_sensitivities, other_log_probabilities),
        )
        return cls.of_logs(*up, scale, *down)

    def reversed(self) -> GaussianMixture:
        """Q against P, mirrored; the pair itself if both sides are known to be the same."""
        up = self.sensitivities, self.log_probabilities
        down = self.other_sensitivities, self.other_log_probabilities
        if checks.all_concrete(up, down) and all(
            np.array_equal(x, y) for x, y in zip(sum(up, ()), sum(down, ()), strict=True)
        ):
            return self
        return GaussianMixture.of_logs(*down, self.scale, *up)

    def _sides(self) -> Sides:
        up, down = (
            [ratio_of(checks.guard(x), self.scale) for x in side]
            for side in (self.sensitivities, self.other_sensitivities)
        )
        return stacked(up, self.log_probabilities, down, self.other_log_probabilities)


def stacked(*sides: Sequence[Reals]) -> Sides:
    """The sides from their components: means and log weights of P, of Q."""
    components = xp.broadcast_arrays(*itertools.chain(*sides))
    n = len(sides[0])
    return Sides(*(xp.stack(components[i * n : (i + 1) * n]) for i in range(4)))


def _set(mixture: GaussianMixture, up: tuple, down: tuple, scale: Any) -> None:
    """Store both sides padded to one length with components of weight 0, so that they exchange."""
    n = max(len(up[0]), len(down[0]))
    zero, nothing = xp.zeros(()), xp.full((), -xp.inf)
    assign(
        mixture,
        sensitivities=up[0] + (zero,) * (n - len(up[0])),
        log_probabilities=up[1] + (nothing,) * (n - len(up[1])),
        other_sensitivities=down[0] + (zero,) * (n - len(down[0])),
        other_log_probabilities=down[1] + (nothing,) * (n - len(down[1])),
        scale=scale,
    )


def _side(
    name: str, sensitivities: object, share_name: str, probabilities: object
) -> tuple[tuple[Reals, ...], tuple[Reals, ...]]:
    """The components of one side: sensitivities and log probabilities."""
    lists = []
    for key, values in ((name, sensitivities), (share_name, probabilities)):
        if not isinstance(values, list | tuple) and np.ndim(values) == 0:  # pyright: ignore
            raise ValueError(f"{key} must hold one number a component, got {values!r}")
        lists.append(list(values))  # pyright: ignore
    if len(lists[0]) != len(lists[1]) or not lists[0]:
        raise ValueError(
            f"{share_name} must be one a component of {name}, got "
            f"{len(lists[1])} of {len(lists[0])}"
        )
    means = tuple(checks.nonnegative(name, x) for x in lists[0])
    shares = [checks.probability(share_name, x, lift=True) for x in lists[1]]
    total = sum(shares[1:], start=shares[0])
    if checks.is_concrete(total) and not bool(np.all(np.abs(np.asarray(total) - 1.0) <= _WHOLE)):
        raise ValueError(f"{share_name} must add up to 1, got {total}")
    total = xp.where(xp.abs(total - 1.0) <= _WHOLE, total, xp.nan)
    return means, tuple(log_probability(share / total) for share in shares)
