"""A mechanism that is a table: a law of outputs for each of some answers.

The law of an answer between two nodes interpolates theirs. A pair of laws is affine in the two
answers on every rectangle between nodes, and the hockey-stick divergence is jointly convex: within
a sensitivity it is largest at a corner of the rectangle cut by the strip of close answers. The
corners are pairs of nodes, and pairs of a node and the answer exactly one sensitivity away.
"""

from __future__ import annotations

import bisect
import itertools
from fractions import Fraction
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Indices, Key, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.noise.histogram import Certificate
from jaxdp.optimal.exact import TOTAL, exp_below
from jaxdp.optimal.measure import MeasureLike, measure_of
from jaxdp.optimal.table_program import shortfalls


class Points(NamedTuple):
    """Answers: the nodes, then others, each between the node `below` and the next."""

    below: tuple[int, ...]
    share: tuple[Fraction, ...]
    pairs: np.ndarray  # (n, 2)
    far: np.ndarray  # (n,): whether a pair is as far apart as a pair can be
    nodes: int

    @property
    def mix(self) -> np.ndarray:
        """(points, nodes): the share of every node's law in each of theirs, each to an ulp."""
        table = np.zeros((len(self.below), self.nodes))
        for row, (below, share) in enumerate(zip(self.below, self.share, strict=True)):
            table[row, below] = float(1 - share)
            if share:
                table[row, below + 1] = float(share)
        return table


def close_points(nodes: tuple[float, ...], sensitivity: Fraction, snap: float = 0.0) -> Points:
    """All pairs of corners; `snap`: shares that are so near to 0 or 1 are those."""
    places = [Fraction(node) for node in nodes]
    count = len(places)
    below, share = list(range(count)), [Fraction(0)] * count
    numbers: dict[Fraction, int] = {place: k for k, place in enumerate(places)}
    pairs: set[tuple[int, int, bool]] = set()

    def number(place: Fraction) -> int:
        if place not in numbers:
            k = bisect.bisect_right(places, place) - 1
            part = (place - places[k]) / (places[k + 1] - places[k])
            if part <= snap:
                return k
            if part >= 1 - snap:
                return k + 1
            numbers[place] = len(below)
            below.append(k)
            share.append(part)
        return numbers[place]

    for k, place in enumerate(places):
        pairs |= {
            (k, partner, False)
            for partner in range(count)
            if partner != k and abs(places[partner] - place) < sensitivity
        }
        for answer in (place - sensitivity, place + sensitivity):
            if places[0] <= answer <= places[-1]:
                partner = number(answer)
                pairs -= {(k, partner, False), (partner, k, False)}
                pairs |= {(k, partner, True), (partner, k, True)}
    if not any(far for _, _, far in pairs):
        pairs |= {(0, count - 1, True), (count - 1, 0, True)}
        pairs -= {(0, count - 1, False), (count - 1, 0, False)}
    listed = np.array([(a, b, far) for a, b, far in sorted(pairs) if a != b], dtype=int)
    return Points(tuple(below), tuple(share), listed[:, :2], listed[:, 2] > 0, count)


def felt_sensitivity(nodes: tuple[float, ...], sensitivity: float) -> Fraction:
    """The sensitivity of answers as a release sees them.

    A share is rounded three times, by less than an ulp, and is a chance only in steps of an ulp:
    an answer is taken for one that is at most 4 ulp of its part away.
    """
    widest = max(Fraction(b) - Fraction(a) for a, b in itertools.pairwise(nodes))
    return Fraction(sensitivity) + 8 * Fraction(ULP) * widest


def exact_table_delta(weights: np.ndarray, points: Points, epsilon: float) -> Fraction:
    """The largest delta of whole weights at close points, e^epsilon rounded down: never too low."""
    rough = shortfalls(points.mix @ (weights / TOTAL), points.pairs, epsilon)
    growth = exp_below(epsilon)
    worst = Fraction(0)

    def law(point: int) -> tuple[list[int], int]:
        k, part = points.below[point], points.share[point]
        row_weights = weights[k].tolist()
        if not part:
            return row_weights, 1
        upper, whole = part.numerator, part.denominator
        return [
            (whole - upper) * a + upper * b
            for a, b in zip(row_weights, weights[k + 1].tolist(), strict=True)
        ], whole

    for row, partner in points.pairs[rough >= rough.max() - 1e-11]:
        (p, scale), (q, their_scale) = law(int(row)), law(int(partner))
        numerator, denominator = growth.numerator * scale, growth.denominator * their_scale
        gaps = (a * denominator - numerator * b for a, b in zip(p, q, strict=True))
        amount = sum(gap for gap in gaps if gap > 0)
        worst = max(worst, Fraction(amount, scale * denominator * TOTAL))
    return worst


@final
@in_float64
@pytree
class RangeMechanism:
    """Releases an answer in [low, high] by a table of laws, one for each of some nodes there.

    An answer between two nodes is rounded to one of them at random, without bias; the node's law
    draws an output among the same nodes. All answers at most `certificate.sensitivity` apart are
    (epsilon, delta)-close, those between the nodes too (`close_points`). weights[k][j] / 2^40:
    chance of output j at node k. Made by `dp.optimal.mechanism`.
    """

    nodes: tuple[float, ...] = static()
    weights: tuple[tuple[int, ...], ...] = static()
    certificate: Certificate = static()

    @property
    def table(self) -> Reals:
        """Chances, (nodes, outputs)."""
        return jnp.asarray(self.weights, dtype=jnp.float64) / TOTAL

    @draws_in_float64
    def release(self, key: Key, value: ArrayLike) -> Reals:
        """One draw for each true answer in `value`, which is clamped to the range; NaN for NaN.

        Under jit and vmap. Floating-point rounding moves an answer by 4 ulp of its part at most,
        which the certificate includes. The outputs are nodes: they leak nothing through rounding.
        """
        value, nodes = checks.real("value", value), jnp.asarray(self.nodes)
        ends = jnp.cumsum(jnp.asarray(self.weights, dtype=jnp.int64), axis=1)
        answer = jnp.clip(jnp.where(jnp.isnan(value), nodes[0], value), nodes[0], nodes[-1])
        below = jnp.clip(jnp.searchsorted(nodes, answer, side="right") - 1, 0, nodes.size - 2)
        share = (answer - nodes[below]) / (nodes[below + 1] - nodes[below])
        round_key, draw_key = jax.random.split(checked_key(key, value))
        is_upper = jax.random.uniform(round_key, value.shape, dtype=jnp.float64) < share
        node = below + is_upper.astype(int)
        pick = jax.random.randint(draw_key, value.shape, 0, TOTAL, dtype=jnp.int64)
        output = jnp.sum(pick[..., None] >= ends[node], axis=-1)
        return jnp.where(jnp.isnan(value), jnp.nan, nodes[output])

    def delta(self, epsilon: ArrayLike) -> Reals:
        """The worst delta of any answers within the sensitivity, an upper bound, epsilon >= 0."""
        epsilon = checks.real("epsilon", epsilon, 0.0)
        felt = felt_sensitivity(self.nodes, self.certificate.sensitivity)
        points = close_points(self.nodes, felt)
        laws = jnp.asarray(points.mix @ (np.array(self.weights, dtype=float) / TOTAL))
        return _worst(laws, jnp.asarray(points.pairs), epsilon.ravel()).reshape(epsilon.shape)

    def expected_loss(self, value: ArrayLike, loss: MeasureLike = "l1") -> Reals:
        """E c(output - value) at each concrete true answer in `value`."""
        value = np.asarray(checks.real("value", value))
        nodes, table = np.asarray(self.nodes), np.asarray(self.table)
        answer = np.clip(value, nodes[0], nodes[-1])
        below = np.clip(np.searchsorted(nodes, answer, side="right") - 1, 0, nodes.size - 2)
        share = ((answer - nodes[below]) / (nodes[below + 1] - nodes[below]))[..., None]
        cost = measure_of(loss)(nodes - value[..., None])
        return jnp.asarray(
            np.sum(((1 - share) * table[below] + share * table[below + 1]) * cost, -1)
        )


@jax.jit
def _worst(laws: Reals, pairs: Int[Array, "pairs two"], epsilon: Reals) -> Reals:
    def one(e: Reals) -> Reals:
        # Smaller than e^epsilon by more than the rounding of both and of the mixtures.
        growth = jnp.exp(jnp.minimum(e, 600.0)) * (1.0 - 16.0 * ULP)

        def pair(ab: Indices) -> Reals:
            return jnp.sum(jnp.maximum(laws[ab[0]] * (1.0 + 8.0 * ULP) - growth * laws[ab[1]], 0.0))

        worst = jnp.max(jax.lax.map(pair, pairs)) * (1.0 + (16.0 + laws.shape[0]) * ULP)
        return jnp.where(jnp.isnan(e), jnp.nan, jnp.minimum(worst, 1.0))

    return jax.lax.map(one, epsilon)
