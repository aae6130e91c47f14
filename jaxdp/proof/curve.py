"""A stretch of outputs on which the privacy loss rises, and integrals of P (P / Q)^s over it.

P and Q are sums of e^quadratic. At x + i y, y >= 0, the angle of such a sum is y times a mean of
the slopes of its logarithms at x. The slopes of P are at least those of Q, so the loss
L = log P / Q has an angle of at least 0, and |e^(i t L)| falls with t. No sum vanishes where y
times the range of all slopes is below pi. Hence the integral runs along any polygon in that strip.
Each side is a panel of a Gauss rule; a bound on Bernstein's ellipse around it bounds the error.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

from jaxdp.proof.balls import (
    ROUGH,
    acb,
    arb,
    ctx,
    gauss_rule,
    log_number,
    number,
    on_time,
    positive_part,
    precision,
    total,
)
from jaxdp.proof.noises import Interval, Quadratic

# Ellipse of a Gauss rule, over the panel: sum of the half axes, and the axes. chosen
_RHO, _LONG, _HIGH = 3.0, 5.0 / 3.0, 4.0 / 3.0
# Nodes of a panel beyond those for its nats; panels with more are halved. chosen
_MORE_NODES = 20
# Boxes along an ellipse. chosen
_BOXES = 4
# Halvings at most, and turns t L of a panel at the end of an endless line of t that is bounded by
# its length. chosen
_SHORTEST, _TURN = 2.0**-45, 1e-2
# Points of a sum, and steps over a term's deviation towards an end, for choices. chosen
_POINTS, _WALK = 96, 0.5
# The highest polygon: angle of its sums, steepness, height over a term's deviation. chosen
_ANGLE, _STEEPEST, _HIGHEST = 2.6, 1.0, 2.0


class Curve:
    """An interval on which the loss L = log P / Q rises."""

    def __init__(self, interval: Interval):
        self.interval, self.start, self.stop = interval, interval.start, interval.stop
        self.p, self.q = interval.p, interval.q
        self.ends = interval.ends()
        self._base = _ratio(self.p[0], self.q[0])
        self._p = [_ratio(x, self.p[0]) for x in self.p[1:]]
        self._q = [_ratio(x, self.q[0]) for x in self.q[1:]]
        self._floats = [[tuple(map(number, x)) for x in side] for side in (self.p, self.q)]

    def logs(self, x: Any) -> tuple[Any, Any]:
        """log P and the loss at a real x or a complex ball; not finite if P or Q may vanish."""
        log_p, loss = self.p[0].at(x), self._base.at(x)
        for parts, sign in ((self._p, 1), (self._q, -1)):
            if parts:
                grown: Any = sum((part.at(x).exp() for part in parts), x * 0 + 1)
                safe = isinstance(x, arb) or grown.real > 0 or not grown.imag.contains(0)
                value = grown.log() if safe else acb("nan")
                loss = loss + sign * value
                log_p = log_p + value if sign > 0 else log_p
        return log_p, loss

    def float_logs(self, x: complex | float) -> tuple[Any, Any]:
        """log P and the loss, for choices."""
        values = []
        for side in self._floats:
            terms = [a + x * (b + c * x) for a, b, c in side]
            largest = max(terms, key=lambda term: term.real)
            values.append(largest)
            if len(terms) > 1:
                values[-1] += cmath.log(sum(cmath.exp(t - largest) for t in terms))
        return values[0], values[0] - values[1]

    def reach(self, c: float, deviations: float) -> tuple[float, float]:
        """The ends, or where P e^(c L) has fallen as at so many deviations; for choices."""
        low, high = (None if x is None else float(x) for x in (self.start, self.stop))
        if low is not None and high is not None:
            return low, high

        def value(x: float) -> float:
            log_p, loss = self.float_logs(x)
            return (log_p + c * loss).real

        peaks = [
            -((1 + c) * b - c * other) / (2 * curve)
            for _, b, curve in self._floats[0]
            for _, other, _ in self._floats[1]
        ]
        bounds = -math.inf if low is None else low, math.inf if high is None else high
        known = {x: value(x) for x in (min(max(x, bounds[0]), bounds[1]) for x in peaks)}
        goal = max(known.values()) - deviations**2 / 2
        heavy = [x for x, size in known.items() if size > goal]
        step = _WALK / math.sqrt(-2 * self._floats[0][0][2])
        ends = []
        for end, x, sign in ((low, min(heavy), -1), (high, max(heavy), 1)):
            while end is None and (size := value(x)) > goal:
                goal, x = max(goal, size - deviations**2 / 2), x + sign * step
            ends.append(x if end is None else end)
        return ends[0], ends[1]

    def top(self) -> Any:
        """The largest loss, or None: on an endless side, where P and Q have one last term."""
        if self.stop is not None:
            return self.logs(self.ends[1])[1]
        last = [max(side, key=lambda x: number(x.b)) for side in (self.p, self.q)]
        same = last[0].b.overlaps(last[1].b)
        return last[0].a - last[1].a if same else None

    def cut(self, c: Any, log_goal: float) -> tuple[Any, Any, Any]:
        """Finite ends, and the integral of P e^(c L) beyond them, at most about e^log_goal."""
        deviations = 4.0
        while True:
            ends = [
                arb(x) if y is None else y
                for x, y in zip(self.reach(number(c), deviations), self.ends, strict=True)
            ]
            rest = self._below(c, ends[0]) if self.start is None else arb(0)
            rest += self._above(c, ends[1]) if self.stop is None else arb(0)
            if log_number(rest) < log_goal or deviations > 1e4:
                return ends[0], ends[1], rest.abs_upper()
            deviations *= 1.2

    def _below(self, c: Any, x: Any) -> Any:
        """Integral of P e^(c L) left of x, where no loss is above that at x."""
        return total(p.mass(None, x) for p in self.p) * (c * self.logs(x)[1]).exp()

    def _above(self, c: Any, x: Any) -> Any:
        """Integral of P e^(c L) right of x.

        The largest loss bounds it, if there is one. Else a^(1 + c) b^-c is jointly convex: with the
        shares of the terms at x, P e^(c L) is at most its value there times a sum over pairs of
        terms of exponentials, as no slope rises.
        """
        if (top := self.top()) is not None:
            return total(p.mass(x, None) for p in self.p) * (c * top).exp()
        log_p, loss = self.logs(x)
        found = arb(0)
        for p in self.p:
            for q in self.q:
                fall = c * q.slope(x) - (1 + c) * p.slope(x)
                share = (p.at(x) - log_p + q.at(x) - log_p + loss).exp()
                found += share / fall if fall > 0 else arb("inf")
        return found * (log_p + c * loss).exp()

    def highest(self) -> float:
        """The largest height of a polygon inside the strip, for choices."""
        place = float(self.start or self.stop or 0)
        slopes = [b + 2 * curve * place for side in self._floats for _, b, curve in side]
        heights = [_ANGLE / max(max(slopes) - min(slopes), 1e-300)]
        curvature = -2 * min(x[2] for side in self._floats for x in side)
        if curvature > 0:
            heights.append(_HIGHEST / math.sqrt(curvature))
        if self.start is not None and self.stop is not None:
            heights.append(_STEEPEST * float(self.stop - self.start) / 4)
        return min(heights)

    def nodes(
        self, c: Any, height: float, times: tuple[float, float], log_goal: float, nats: float
    ) -> tuple[list[Any], list[Any], Any]:
        """Weights w, losses L and an error: the integral of P e^(s L) is the sum of w e^(i t L).

        For s = c + i t, t in `times`, along a polygon of this height.
        """
        low, high, error = self.cut(c, log_goal)
        width, weights, losses = high - low, [], []
        angle = arb(height) * arb.max(self._range(low), self._range(high))
        if not angle < arb.pi():
            raise ArithmeticError("the polygon must stay in the strip")

        def corner(u: float) -> Any:
            return acb(low + width * u, 4 * arb(height) * u * (1 - arb(u)))

        most, panels = _MORE_NODES + nats / (2 * math.log(_RHO)), [(0.0, 1.0)]
        while panels:
            on_time()
            first, last = panels.pop()
            ends = corner(first), corner(last)
            middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
            bound = self._log_bound(c, middle, half, times)
            order = math.inf
            if bound.is_finite():
                log_size = number(bound) + log_number(abs(half)) + 4
                order = math.ceil((log_size - log_goal) / (2 * math.log(_RHO)))
            if order > most and not self._is_short(c, ends, last - first, times):
                panels += [(first, (first + last) / 2), ((first + last) / 2, last)]
            elif order < 1 or order > most:
                on_panel = bound if order < 1 else self._on_panel(c, ends)
                error += 2 * abs(half) * on_panel.exp()
            else:
                scale = abs(half) * bound.exp() * arb(64) / 15 / (1 - arb(_RHO) ** -2)
                error += scale * arb(_RHO) ** (-2 * int(order))
                for y, w in gauss_rule(int(order), ctx.prec):
                    log_size, loss = self._logs(c, middle + half * y)
                    weights.append(half * w * log_size.exp())
                    losses.append(loss)
        return weights, losses, error.abs_upper()

    def _logs(self, c: Any, x: Any) -> tuple[Any, Any]:
        """log P e^(c L), and the loss."""
        log_p, loss = self.logs(x)
        return log_p + c * loss, loss

    def _range(self, x: Any) -> Any:
        slopes = [y.slope(x) for y in (*self.p, *self.q)]
        return max((abs(y - z) for y in slopes for z in slopes), key=number)

    def _log_bound(self, c: Any, middle: Any, half: Any, times: tuple[float, float]) -> Any:
        """log of a bound of |P e^(s L)| on the ellipse around a panel; infinite if unknown."""
        found = []
        with precision(ROUGH):
            for i in range(2 * _BOXES):
                across = arb(_LONG * ((2 * (i // 2) + 1) / _BOXES - 1), _LONG / _BOXES)
                box = middle + half * acb(across, arb((i % 2 - 0.5) * _HIGH, _HIGH / 2))
                log_size, loss = self._logs(c, box)
                fall = loss.imag.lower()
                value = log_size.real - fall * arb(times[0] if fall >= 0 else times[1])
                if not value.is_finite():
                    return arb("inf")
                found.append(arb(value.upper()))
        return max(found, key=number)

    def _is_short(
        self, c: Any, ends: tuple[Any, Any], share: float, times: tuple[float, float]
    ) -> bool:
        """True if the length of a panel bounds its integral well."""
        if share < _SHORTEST or times[1] < math.inf:
            return share < _SHORTEST
        (first, loss), (last, other) = (self._logs(c, x) for x in ends)
        return (
            number(abs(other - loss)) * times[0] < _TURN and abs(number(first.real - last.real)) < 1
        )

    def _on_panel(self, c: Any, ends: tuple[Any, Any]) -> Any:
        """log of a bound of |P e^(s L)| on the panel itself."""
        hull = (x.union(y) for x, y in zip(*((z.real, z.imag) for z in ends), strict=True))
        return arb(self._logs(c, acb(*hull))[0].real.upper())

    def float_nodes(self, c: float, height: float) -> list[tuple[float, Any]]:
        """log |w| and losses of a coarse sum, for choices."""
        low, high = self.reach(c, 10.0)
        found = []
        for i in range(_POINTS):
            u, width = (i + 0.5) / _POINTS, high - low
            along = width + 4j * height * (1 - 2 * u)
            z = low + width * u + 4j * height * u * (1 - u)
            log_p, loss = self.float_logs(z)
            log_size = log_p + c * loss
            found.append((log_size.real + math.log(abs(along) / _POINTS), loss))
        return found

    def profile(self, epsilon: Any) -> Any:
        """The integral of (P - e^epsilon Q)_+.

        Floats find a place where the loss is epsilon. Around it lies a zone, on whose ends the loss
        is proved to be on either side; there the integrand counts from 0 to its largest value.
        """
        (first, last), (low, high) = self.ends, self.reach(0.0, 60.0)
        x = self.crossing(number(epsilon), low, high)
        left, right, width = first, last, 1e-14 * (abs(x) + (high - low) * 1e-3)
        for _ in range(12):
            a, b = arb(x - width), arb(x + width)
            if left is first and low < x - width and self.logs(a)[1] < epsilon:
                left = a
            if right is last and x + width < high and self.logs(b)[1] > epsilon:
                right = b
            width *= 10
        if left is first and first is not None and self.logs(first)[1] >= epsilon:
            right = first
        zone = above = arb(0)
        if right is not first or first is None:
            zone = total(y.mass(left, right) for y in self.p)
            if right is not None:
                zone = zone * positive_part(1 - (epsilon - self.logs(right)[1]).exp())
        if right is not None and right is not last:
            p, q = (total(y.mass(right, last) for y in side) for side in (self.p, self.q))
            above = p - epsilon.exp() * q
        return above + arb(0).union(zone)

    def crossing(self, epsilon: float, low: float, high: float) -> float:
        """The output whose loss is epsilon, by bisection, for choices."""
        for _ in range(60):
            middle = (low + high) / 2
            up = self.float_logs(middle)[1].real < epsilon
            low, high = (middle, high) if up else (low, middle)
        return low


def _ratio(x: Quadratic, y: Quadratic) -> Quadratic:
    """log x - log y; terms of one noise share the curvature itself."""
    return Quadratic(x.a - y.a, x.b - y.b, arb(0) if x.c is y.c else x.c - y.c)
