"""Mixtures of Gaussians on both sides: several records of a user, random sensitivities."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import custom_jvp, lax, logsumexp, softmax, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import (
    LOG_SQRT_2PI,
    ULP,
    log1mexp,
    log1p,
    log_probability,
    round_up,
)
from jaxdp._numeric.mills import log_normal_survival, mills_pair
from jaxdp._numeric.search import bisect
from jaxdp.dominating_pair.base import DominatingPair, Law, Mixture, Support, law_on, renyi_of_law
from jaxdp.noise.base import mirrored_log_delta, ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import of_law
from jaxdp.noise.structure import Singularities, Smooth

# Tolerance of the sum of probabilities. chosen: far above the rounding of a sum
_WHOLE = 1e-9
# Breaks of the nodes' panels from the lowest mean to the highest. chosen: 1536 nodes in all
_BREAKS = 7
# Bisections for the place where the loss is epsilon. derived: to below an ulp
_BISECTIONS = 110
# -log of the smallest weight that the bracket covers. chosen: below any double
_LEAST_WEIGHT = 800.0
# Error of a term of delta in ulps. measured: 1e-14 of delta, against 40 digits
_TERM_ULPS = 64.0
# Largest number of components of a mixture. chosen: the general contour serves more
MOST_COMPONENTS = 33


class Sides(NamedTuple):
    """Means in units of the scale, >= 0, and log weights; components along the first axis.

    P = sum_i p_i N(up_i, 1), Q = sum_j q_j N(-down_j, 1).
    """

    up: Reals
    log_up: Reals
    down: Reals
    log_down: Reals

    def reversed(self) -> Sides:
        """Q against P, mirrored."""
        return Sides(self.down, self.log_down, self.up, self.log_up)

    def against(self, rank: int) -> Sides:
        """Reshaped to broadcast against arrays with `rank` axes."""
        shapes = (x.shape[:1] + (rank + 1 - x.ndim) * (1,) + x.shape[1:] for x in self)
        return Sides(*(x.reshape(shape) for x, shape in zip(self, shapes, strict=True)))

    def log_ratios(self, x: Reals) -> tuple[Reals, Reals]:
        """log densities of P and of Q at x, over the density of N(0, 1)."""
        x = x[None]
        return (
            _log_ratio(self.up * x - 0.5 * self.up**2, self.log_up),
            _log_ratio(-self.down * x - 0.5 * self.down**2, self.log_down),
        )

    def loss_slope(self, x: Reals) -> Reals:
        """Slope of the difference of `log_ratios` in x: the weighted means of both sides, added."""
        x = x[None]
        ahead = softmax(self.log_up + self.up * x - 0.5 * self.up**2, axis=0)
        behind = softmax(self.log_down - self.down * x - 0.5 * self.down**2, axis=0)
        return xp.sum(ahead * self.up, axis=0) + xp.sum(behind * self.down, axis=0)

    def ends(self) -> tuple[Reals, Reals]:
        """The limits of the loss at minus infinity and at infinity."""
        ratio = _weight(self.up == 0, self.log_up) - _weight(self.down == 0, self.log_down)
        above = xp.any((self.up > 0) & (self.log_up > -xp.inf), axis=0)
        below = xp.any((self.down > 0) & (self.log_down > -xp.inf), axis=0)
        return xp.where(below, -xp.inf, ratio), xp.where(above, xp.inf, ratio)


def _log_ratio(exponent: Reals, log_weight: Reals) -> Reals:
    """log sum w e^exponent, to full relative accuracy near 0, as the weights add up to 1."""
    near_terms = xp.exp(log_weight) * xp.expm1(xp.minimum(exponent, 1.0))
    excess = xp.sum(near_terms, axis=0)
    near = (xp.abs(excess) < 0.5) & (xp.max(exponent, axis=0) <= 1.0)
    far = logsumexp(log_weight + exponent, axis=0)
    return xp.where(near, log1p(xp.where(near, excess, 0.0)), far)


def _weight(chosen: Bools, log_weight: Reals) -> Reals:
    """log of the total weight of the chosen components; -inf for none."""
    return logsumexp(xp.where(chosen, log_weight, -xp.inf), axis=0)


@jitted
def mixture_log_delta(sides: Sides, epsilon: Reals) -> Reals:
    """log of P[X > t] - e^epsilon Q[X > t], L(t) = epsilon; rounded up.

    P and e^epsilon Q have the same density at t. With R the Mills ratio, every term is therefore
    positive:

        sum_i p_i phi(t - a_i) (R(t - a_i) - R(t)) + e^epsilon sum_j q_j phi(t + b_j) (R(t) -
        R(t + b_j)).

    delta(-e) = 1 - e^-e + e^-e delta(e), with delta(e) of the exchanged pair.
    """
    shape = xp.broadcast_shapes(epsilon.shape, *(x.shape[1:] for x in sides))
    apart = sides.against(len(shape))
    sides = Sides(*(xp.broadcast_to(x, (x.shape[0], *shape)) for x in apart))
    epsilon = xp.broadcast_to(epsilon, shape)
    backward = epsilon < 0
    pairs = zip(sides, sides.reversed(), strict=True)
    chosen = Sides(*(xp.where(backward, y, x) for x, y in pairs))
    size = xp.abs(epsilon)
    upper = _forward(chosen, size)
    mirrored = xp.minimum(mirrored_log_delta(upper, size, 1.0) + 8.0 * ULP, 0.0)
    certain = log1mexp(xp.where(backward, size, 1.0))
    mirrored = xp.where(upper == -xp.inf, certain, mirrored)
    value = xp.where(backward, mirrored, upper)
    return xp.where(xp.isnan(xp.sum(sides.up + sides.down, axis=0) + size), xp.nan, value)


@custom_jvp
def _forward(sides: Sides, epsilon: Reals) -> Reals:
    """log delta at epsilon >= 0."""
    high = sides.ends()[1]
    inside = epsilon < high
    epsilon = xp.where(inside, epsilon, 0.0)
    t = _place(sides, epsilon)
    of_up = sides.log_up + _log_term(t[None] - sides.up, sides.up)
    exponent = -t[None] * sides.down - 0.5 * sides.down**2
    of_down = epsilon[None] + sides.log_down + exponent
    of_down = of_down + _log_term(xp.broadcast_to(t[None], exponent.shape), sides.down)
    terms = xp.concatenate([of_up, of_down])
    total = logsumexp(terms, axis=0)
    size = xp.max(xp.where(terms > -xp.inf, xp.abs(terms), 0.0), axis=0)
    # If t has an error of an ulp the two densities differ; R(t) multiplies the difference.
    p, q = sides.log_ratios(t)
    ulps = 16.0 * epsilon + 8.0 * xp.abs(sides.loss_slope(t)) * (1.0 + xp.abs(t))
    gap = ULP * ulps + xp.abs(p - q - epsilon)
    log_off = log_normal_survival(t) + xp.maximum(p, epsilon + q) + xp.log(gap)
    total = xp.logaddexp(total, log_off) + ULP * (_TERM_ULPS + 8.0 * size)
    return xp.where(inside, xp.minimum(total, 0.0), -xp.inf)


@_forward.defjvp
def _forward_jvp(primals: tuple[Sides, Reals], tangents: tuple[Sides, Reals]):
    """The derivative with the place t fixed, where delta is stationary."""
    (sides, epsilon), (of_sides, of_epsilon) = primals, tangents
    value = _forward(sides, epsilon)
    inside = value > -xp.inf
    t = _place(sides, xp.where(inside, epsilon, 0.0))
    t, epsilon, inside = t[None], epsilon[None], inside[None]
    log_unit = xp.where(inside, value[None], 0.0)

    def share(log_weight: Reals, log_part: Reals) -> Reals:
        return xp.where(inside, xp.exp(log_weight + log_part - log_unit), 0.0)

    y_up, y_down = t - sides.up, t + sides.down
    log_density = lambda x: -0.5 * x * x - LOG_SQRT_2PI  # noqa: E731
    log_down = epsilon + sides.log_down
    survival_up = share(sides.log_up, log_normal_survival(y_up))
    survival_down = share(log_down, log_normal_survival(y_down))
    parts = (
        share(sides.log_up, log_density(y_up)) * of_sides.up
        + xp.where(sides.log_up > -xp.inf, survival_up * of_sides.log_up, 0.0),
        share(log_down, log_density(y_down)) * of_sides.down
        - xp.where(sides.log_down > -xp.inf, survival_down * of_sides.log_down, 0.0)
        - survival_down * of_epsilon[None],
    )
    return value, xp.sum(parts[0], axis=0) + xp.sum(parts[1], axis=0)


def _place(sides: Sides, epsilon: Reals) -> Reals:
    """The t with L(t) = epsilon, by bisection; the loss rises."""
    largest = xp.maximum(xp.max(sides.up, axis=0), xp.max(sides.down, axis=0))
    safe = xp.where(largest > 0, largest, 1.0)
    reach = xp.minimum((epsilon + _LEAST_WEIGHT) / safe + safe, 1e200)

    def is_below(t: Reals) -> Bools:
        p, q = sides.log_ratios(t)
        return p - q < epsilon

    return lax.stop_gradient(bisect(is_below, -reach, reach, halvings=_BISECTIONS)[1])


def _log_term(y: Reals, width: Reals) -> Reals:
    """log of phi(y) (R(y) - R(y + width)), width >= 0, by terms that are positive."""
    log_density = -0.5 * y * y - LOG_SQRT_2PI
    positive = xp.maximum(y, 0.0)
    above = log_density + xp.log(mills_pair(positive, width).difference)
    # Below 0, R(y) = 1 / phi(y) - R(-y): up to 0, and beyond it.
    negative = xp.minimum(y, 0.0)
    part = xp.minimum(-negative, width)
    end = negative + part
    up_to_zero = -xp.expm1(0.5 * part * (negative + end))
    density = xp.exp(-0.5 * negative**2 - LOG_SQRT_2PI)
    up_to_zero = up_to_zero + density * mills_pair(-end, part).difference
    from_zero = density * mills_pair(xp.zeros_like(y), xp.maximum(y + width, 0.0)).difference
    from_zero = xp.where(y < 0, from_zero, 0.0)
    below = xp.log(up_to_zero + from_zero)
    return xp.where(width == 0, -xp.inf, xp.where(y >= 0, above, below))


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
        return renyi_of_law(self, order, self._from_components)

    def log_hit(self) -> Reals:
        """log of the probability that the means differ, if both sides share the mean 0."""
        sides = self._sides()
        up, down = _weight(sides.up > 0, sides.log_up), _weight(sides.down > 0, sides.log_down)
        return xp.minimum(xp.maximum(up, down) + 16.0 * ULP, 0.0)

    def _from_components(self, order: Reals) -> Reals:
        """log sum_ij p_i q_j e^((a - 1) a (a_i + b_j)^2 / 2) / (a - 1): joint convexity."""
        sides = self._sides().against(order.ndim)
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
    def from_fields(
        cls, up: tuple, log_up: tuple, down: tuple, log_down: tuple, scale: Any
    ) -> GaussianMixture:
        """The mixture with these fields; the weights are assumed to add up to 1."""
        mixture = object.__new__(cls)
        _set(mixture, (up, log_up), (down, log_down), scale)
        return mixture

    def reversed(self) -> GaussianMixture:
        """Q against P, mirrored; the pair itself if both sides are known to be the same."""
        up = self.sensitivities, self.log_probabilities
        down = self.other_sensitivities, self.other_log_probabilities
        if checks.all_concrete(up, down) and all(
            np.array_equal(x, y) for x, y in zip(sum(up, ()), sum(down, ()), strict=True)
        ):
            return self
        return GaussianMixture.from_fields(*down, *up, self.scale)

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
