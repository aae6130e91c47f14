"""A stretch of outputs on which the privacy loss rises."""

from __future__ import annotations

import itertools
import math
from typing import Any

from jaxdp.proof.balls import ROUGH, acb, arb, ball, number, positive_part, precision
from jaxdp.proof.noises import Interval, Quadratic

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
                total: Any = sum((part.at(x).exp() for part in parts), x * 0 + 1)
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
        ends: list[Any] = [None if x is None else float(x) for x in (self.start, self.stop)]
        low, high = ends
        peaks: list[float] = []
        if low is None or high is None:
            for _, b, curve in self._floats[0]:
                for _, other, _ in self._floats[1]:
                    peaks.append(-((1 + c) * b - c * other) / (2 * curve))
            width = deviations / math.sqrt(-2 * self._floats[0][0][2])
            least: Any = min([*peaks, *([] if high is None else [high])])
            low = least - width if low is None else low
            high = max([*peaks, low]) + width if high is None else high
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


def profile_of(curve: Curve, epsilon: Any) -> Any:
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


def legs_of(curve: Curve, low: Any, high: Any, rest: Any) -> tuple[list[list[Any]], Any]:
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
