"""Pairs of laws of a table that must be close, and their exact delta in whole weights.

The law of an answer between two nodes interpolates theirs. A pair of laws is affine in the two
answers on every rectangle between nodes, and the hockey-stick divergence is jointly convex: within
a sensitivity it is largest at a corner of the rectangle cut by the strip of close answers. The
corners are pairs of nodes, and pairs of a node and the answer exactly one sensitivity away.
"""

from __future__ import annotations

import bisect
import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from jaxdp._numeric.elementary import ULP
from jaxdp.optimal.exact import TOTAL, exp_below
from jaxdp.optimal.table_program import shortfalls


class Points(NamedTuple):
    """Answers: the nodes, then others, each between the node `below` and the next."""

    below: tuple[int, ...]
    share: tuple[Fraction, ...]
    pairs: np.ndarray  # (n, 3): two of them, and 0
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
    listed = np.array([(a, b, 0, far) for a, b, far in sorted(pairs) if a != b], dtype=int)
    return Points(tuple(below), tuple(share), listed[:, :3], listed[:, 3] > 0, count)


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

    for row, partner, _ in points.pairs[rough >= rough.max() - 1e-11]:
        (p, scale), (q, their_scale) = law(int(row)), law(int(partner))
        numerator, denominator = growth.numerator * scale, growth.denominator * their_scale
        gaps = (a * denominator - numerator * b for a, b in zip(p, q, strict=True))
        amount = sum(gap for gap in gaps if gap > 0)
        worst = max(worst, Fraction(amount, scale * denominator * TOTAL))
    return worst
