"""Laws of losses with a density: P and Q as mixtures of one noise, integrated between kinks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from jaxdp.proof.balls import (
    ROUGH,
    acb,
    arb,
    ball,
    gauss_rule,
    log_number,
    number,
    positive_part,
    precision,
)
from jaxdp.proof.balls import ctx as context
from jaxdp.proof.law import Sum
from jaxdp.proof.noises import Interval, Quadratic

# Ellipse of a Gauss rule, over the panel: sum of the half axes, 3. chosen
_RHO, _LONG, _HIGH = 3.0, 5.0 / 3.0, 4.0 / 3.0
# Nodes of a panel; panels with more are halved. chosen
_MOST_NODES = 40
# Boxes that cover half of an ellipse. chosen
_BOXES = 4
# Angle of e^(i t L) over all losses that nodes resolve at most. chosen: 2,000 nodes
_TURNS = 3000.0
# Points of a sum for choices. chosen
_POINTS = 240
# Cells of a contour moved off the real axis: ratio and least of their heights, cells along the
# top, and the angle that it reaches at most, less than pi. chosen
_RATIO, _LEAST, _ACROSS, _ANGLE = 1.4, 2.0**-24, 24, 2.5


class Curve:
    """An interval on which the loss L = log P / Q rises."""

    def __init__(self, interval: Interval):
        self.start, self.stop = interval.start, interval.stop
        self.p, self.q, self._last = interval.p, interval.q, math.inf
        self._base = _less(self.p[0], self.q[0])
        self._p = [_less(x, self.p[0]) for x in self.p[1:]]
        self._q = [_less(x, self.q[0]) for x in self.q[1:]]
        self._floats = [
            [(number(x.log_weight + x.a), number(x.b), number(x.c)) for x in side]
            for side in (self.p, self.q)
        ]

    def logs(self, x: Any, analytic: bool = False) -> tuple[Any, Any]:
        """log P and the loss at a real x or a complex ball; not finite if P or Q may vanish.

        A factor e^quadratic is taken out, so the other one, 1 at least on the axis, must not meet
        the negative numbers.
        """
        log_p = self.p[0].at(x)
        loss = self._base.at(x)
        for parts, sign in ((self._p, 1), (self._q, -1)):
            if parts:
                total = sum((part.at(x).exp() for part in parts), x * 0 + 1)
                if isinstance(total, acb):
                    safe = total.real > 0 or not total.imag.contains(0)
                    value = total.log(analytic=analytic) if safe else acb("nan")
                else:
                    value = total.log()
                loss = loss + sign * value
                log_p = log_p + value if sign > 0 else log_p
        return log_p, loss

    def float_logs(self, x: float) -> tuple[float, float]:
        """log P and the loss, for choices."""
        values = []
        for side in self._floats:
            terms = [a + x * (b + c * x) for a, b, c in side]
            largest = max(terms)
            values.append(largest + math.log(sum(math.exp(t - largest) for t in terms)))
        return values[0], values[0] - values[1]

    def crossing(self, epsilon: float, low: float, high: float) -> float:
        """Where the loss is epsilon, for choices; near the last answer if there is one."""
        step, x = (high - low) * 1e-4, self._last
        if low < x < high:
            up = self.float_logs(x)[1] < epsilon
            y = x
            while low < y < high and (self.float_logs(y)[1] < epsilon) == up:
                y, step = y + (step if up else -step), 4 * step
            low, high = max(low, min(x, y)), min(high, max(x, y))
        for _ in range(60):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if self.float_logs(middle)[1] < epsilon else (low, middle)
        self._last = low
        return low

    def reach(self, c: float, deviations: float) -> tuple[float, float]:
        """The ends, or as many deviations beyond the peaks of P e^(c L); for choices."""
        low, high = (None if x is None else float(x) for x in (self.start, self.stop))
        peaks = []
        if low is None or high is None:
            for _, b, curve in self._floats[0]:
                for _, other, _ in self._floats[1]:
                    peaks.append(-((1 + c) * b - c * other) / (2 * curve))
            width = deviations / math.sqrt(-2 * self._floats[0][0][2])
            low = min(*peaks, *([] if high is None else [high])) - width if low is None else low
            high = max(*peaks, low) + width if high is None else high
        return low, high

    def beyond(self, c: Any, x: Any, right: bool) -> Any:
        """Integral of P e^(c L) beyond x, on an endless side.

        a^(1 + c) b^-c is jointly convex: at most the sum over pairs of components.
        """
        total = arb(0)
        for p in self.p:
            for q in self.q:
                slope = (1 + c) * (p.b + 2 * p.c * x) - c * (q.b + 2 * q.c * x)
                slope = -slope if right else slope
                log_p, log_q = p.at(x) - p.log_weight, q.at(x) - q.log_weight
                lift = p.log_weight + q.log_weight + (1 + c) * log_p - c * log_q
                total += lift.exp() / slope if slope > 0 else arb("inf")
        return total.abs_upper()

    def cut(self, c: Any, nats: float, log_goal: float) -> tuple[Any, Any, Any]:
        """Finite ends, and the integral of P e^(c L) beyond them; e^-log_goal suffices."""
        deviations = math.sqrt(2 * nats) + 1
        while True:
            low, high = self.reach(number(c), deviations)
            ends = [
                ball(y) if y is not None else arb(x)
                for x, y in ((low, self.start), (high, self.stop))
            ]
            rest = arb(0)
            for end, given, right in zip(ends, (self.start, self.stop), (False, True), strict=True):
                rest += self.beyond(c, end, right) if given is None else 0
            if rest < arb(-log_goal).exp() or deviations > 1e4:
                return ends[0], ends[1], rest
            deviations *= 1.3


def _less(x: Quadratic, y: Quadratic) -> Quadratic:
    """log x - log y, as a polynomial."""
    curve = arb(0) if x.c is y.c else x.c - y.c
    return Quadratic(arb(0), x.log_weight - y.log_weight + x.a - y.a, x.b - y.b, curve)


class Density(Sum):
    """Atoms where P / Q is constant, and curves between; `extra` are more (loss, mass)."""

    def __init__(
        self, pieces: Sequence[Interval], extra: Sequence[tuple[Any, Any]] = (), top: Any = None
    ):
        self.atoms, self.curves, self.infinite = list(extra), [], arb(0)
        for piece in pieces:
            ends = [None if x is None else ball(x) for x in (piece.start, piece.stop)]
            mass = sum((p.mass(*ends) for p in piece.p), arb(0))
            if piece.p and not piece.q:
                self.infinite += mass
            elif piece.flat and piece.p:
                sides = (
                    sum(((x.log_weight + x.a).exp() for x in s), arb(0)) for s in (piece.p, piece.q)
                )
                first, second = sides
                self.atoms.append(((first / second).log(), mass))
            elif piece.p:
                self.curves.append(Curve(piece))
        self.top = top
        if top is None and all(curve.stop is not None for curve in self.curves):
            tops = [x for x, _ in self.atoms]
            tops += [curve.logs(ball(curve.stop))[1] for curve in self.curves]
            self.top = tops[0]
            for x in tops[1:]:
                self.top = arb.max(self.top, x)
        self._known: dict[Any, Any] = {}

    def log_moment(self, c: float) -> float:
        """See `Law`."""
        terms = [log_number(m) + c * number(x) for x, m in self.atoms]
        for curve in self.curves:
            low, high = curve.reach(c, 10.0)
            step = (high - low) / _POINTS
            for i in range(_POINTS):
                log_p, loss = curve.float_logs(low + (i + 0.5) * step)
                terms.append(log_p + c * loss + math.log(step))
        largest = max(terms)
        return largest + math.log(sum(math.exp(x - largest) for x in terms))

    def cost(self, c: float) -> float:
        """Of a line as long as it can be."""
        return 1000.0

    def longest(self, c: float) -> float:
        """By the nodes that resolve e^(i t L)."""
        turns = 1e-300
        for curve in self.curves:
            for x in curve.reach(c, 12.0):
                turns += abs(curve.float_logs(x)[1])
        return _TURNS / turns

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        found = [(log_number(m), number(x)) for x, m in self.atoms]
        found = [pair for pair in found if pair[0] > log_goal]
        for curve in self.curves:
            low, high = curve.reach(0.0, math.sqrt(2 * abs(log_goal)))
            for i in range(_POINTS + 1):
                x = low + (high - low) * i / _POINTS
                log_p, loss = curve.float_logs(x)
                found.append((log_p + math.log((high - low) / _POINTS), loss))
        return min(x for _, x in found), max(x for _, x in found), max(found)[1]

    def nodes(self, c: Any, end: float) -> tuple[Sequence[Any], Sequence[Any], Any]:
        """The atoms, and Gauss rules on panels of the curves."""
        key = (number(c), end, self.bits, context.prec)
        if key not in self._known:
            weights = [m * (c * x).exp() for x, m in self.atoms]
            losses, error = [x for x, _ in self.atoms], arb(0)
            nats = self.bits - self.log_moment(number(c))
            for curve in self.curves:
                low, high, rest = curve.cut(c, self.bits, nats)
                error += rest
                panels = [(low, high)]
                while panels:
                    start, stop = panels.pop()
                    middle, half = (start + stop) / 2, (stop - start) / 2
                    log_bound = self._log_bound(curve, c, end, middle.mid(), half.abs_upper())
                    order = _MOST_NODES + 1
                    if log_bound is not None:
                        log_error = number(log_bound) + nats + log_number(half) + 4.0
                        order = max(2, math.ceil(log_error / (2 * math.log(_RHO))))
                    if order > _MOST_NODES:
                        panels += [(start, middle), (middle, stop)]
                        continue
                    scale = 64 * half * log_bound.exp() / 15 / (1 - arb(_RHO) ** -2)
                    error += (scale * arb(_RHO) ** (-2 * order)).abs_upper()
                    for y, w in gauss_rule(order, context.prec):
                        log_p, loss = curve.logs(middle + half * y)
                        weights.append(half * w * (log_p + c * loss).exp())
                        losses.append(loss)
            self._known = {key: (weights, losses, error), **dict([*self._known.items()][:3])}
        return self._known[key]

    @staticmethod
    def _log_bound(curve: Curve, c: Any, end: float, middle: Any, half: Any) -> Any:
        """log of a bound of |P e^(s L)| on the ellipse around a panel; None if it is not known.

        Boxes on its upper half; on the lower half the angle of L has the other sign.
        """
        found = None
        with precision(ROUGH):
            for i in range(_BOXES):
                x = middle + half * _LONG * ((2 * i + 1) / _BOXES - 1.0)
                box = acb(arb(x.mid(), half * _LONG / _BOXES), arb(0.5, 0.5) * half * _HIGH)
                log_p, loss = curve.logs(box)
                value = log_p.real + c * loss.real + arb(end) * loss.imag.abs_upper()
                if not value.is_finite():
                    return None
                value = arb(value.upper())
                found = value if found is None else arb.max(found, value)
        return found

    def profile(self, epsilon: Any) -> Any:
        """Atoms, and P - e^epsilon Q from where the loss exceeds epsilon."""
        total = sum((m * positive_part(1 - (epsilon - x).exp()) for x, m in self.atoms), arb(0))
        for curve in self.curves:
            total += _curve_profile(curve, epsilon)
        return total

    def far(self, c: Any, start: float) -> Any:
        """Atoms, and the contour moved up by b: no term on it grows with t.

        On x + i y the angle of L lies in [0, pi): slopes of log densities of P are at least those
        of Q. Legs at 45 degrees from both ends, as L can be stationary there, and the top; the best
        of a few heights.
        """
        total = sum((m * (c * x).exp() for x, m in self.atoms), arb(0))
        key = ("legs", number(c), self.bits)
        if key not in self._known:
            nats = self.bits - self.log_moment(number(c))
            cuts = [curve.cut(c, self.bits, nats) for curve in self.curves]
            self._known[key] = [_legs(x, *cut) for x, cut in zip(self.curves, cuts, strict=True)]
        for ways, rest in self._known[key]:
            best = None
            for cells in ways:
                value = arb(0)
                for size, log_p, loss, angle in cells:
                    value += size * (log_p + c * loss - arb(start) * angle).exp().abs_upper()
                best = value if best is None or value < best else best
            total += best + rest
        return total.abs_upper()


def _curve_profile(curve: Curve, epsilon: Any) -> Any:
    """The integral of (P - e^epsilon Q)_+ over a curve.

    Floats find a place where the loss is epsilon. Around it lies a zone, on whose ends the loss is
    proved to be on either side; there the integrand counts from 0 to its largest possible value.
    """
    first, last = (None if x is None else ball(x) for x in (curve.start, curve.stop))
    low, high = curve.reach(0.0, 60.0)
    left, right = first, last
    x = curve.crossing(number(epsilon), low, high)
    width = 1e-14 * (abs(x) + (high - low) * 1e-3)
    for _ in range(12):
        a, b = arb(x - width), arb(x + width)
        if left is first and low < x - width and curve.logs(a)[1] < epsilon:
            left = a
        if right is last and x + width < high and curve.logs(b)[1] > epsilon:
            right = b
        width *= 10
    if left is first and first is not None and curve.logs(first)[1] >= epsilon:
        right = first
    zone = arb(0)
    if right is not first or first is None:
        zone = sum((y.mass(left, right) for y in curve.p), arb(0))
        if right is not None:
            zone = zone * positive_part(1 - (epsilon - curve.logs(right)[1]).exp())
    above = arb(0)
    if right is not None and right is not last:
        p, q = (sum((y.mass(right, last) for y in side), arb(0)) for side in (curve.p, curve.q))
        above = p - epsilon.exp() * q
    return above + arb(0).union(zone)


def _legs(curve: Curve, low: Any, high: Any, rest: Any) -> tuple[list[list[Any]], Any]:
    """For each height, cells (size, log P, loss, angle), and the integral beyond the ends."""
    with precision(ROUGH):
        spread = arb(0)
        for x in (low, high):
            slopes = [y.b + 2 * y.c * x for y in (*curve.p, *curve.q)]
            for slope in slopes:
                spread = arb.max(spread, abs(slope - slopes[0]))
        largest = min(_ANGLE / max(2 * number(spread), 1e-300), 0.499 * number(high - low))
        heights = [0.0, largest * _LEAST]
        while heights[-1] < largest:
            heights.append(heights[-1] * _RATIO)
        sides, ways = [], []
        for i, (y, above) in enumerate(itertools.pairwise(heights)):
            rise = arb(y).union(arb(above))
            for x, inward in ((low, 1), (high, -1)):
                size = arb(2).sqrt() * (above - y)
                sides.append(_cell(curve, acb(x + inward * rise, rise), size))
            if i in (len(heights) - 2, len(heights) - 4, len(heights) - 8):
                left = low + above
                step, top = (high - above - left) / _ACROSS, []
                for k in range(_ACROSS):
                    x = (left + step * k).union(left + step * (k + 1))
                    top.append(_cell(curve, acb(x, arb(above)), step))
                ways.append([*sides, *top])
    return ways, rest


def _cell(curve: Curve, box: Any, size: Any) -> tuple[Any, Any, Any, Any]:
    log_p, loss = curve.logs(box)
    angle = loss.imag.lower()
    return arb(size).abs_upper(), log_p.real, loss.real, angle if angle > 0 else arb(0)
