"""Laws of losses with a density: P and Q as mixtures of one noise, integrated between kinks."""

from __future__ import annotations

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
from jaxdp.proof.curve import Curve, legs_of, profile_of
from jaxdp.proof.law import Sum
from jaxdp.proof.noises import Interval

# Ellipse of a Gauss rule, over the panel: sum of the half axes, 3. chosen
_RHO, _LONG, _HIGH = 3.0, 5.0 / 3.0, 4.0 / 3.0
# Nodes of a panel; panels with more are halved. chosen
_MOST_NODES = 40
# Boxes that cover half of an ellipse. chosen
_BOXES = 4
# Angle of e^(i t L) over all losses that nodes resolve at most. chosen: 2,000 nodes
_TURNS = 5000.0
# Points of a sum for choices. chosen
_POINTS = 240


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
            for x in curve.reach(c, 5.0):
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
                    assert log_bound is not None
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
            total += profile_of(curve, epsilon)
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
            self._known[key] = [legs_of(x, *cut) for x, cut in zip(self.curves, cuts, strict=True)]
        for ways, rest in self._known[key]:
            best = None
            for cells in ways:
                value = arb(0)
                for size, log_p, loss, angle in cells:
                    value += size * (log_p + c * loss - arb(start) * angle).exp().abs_upper()
                best = value if best is None or value < best else best
            total += best + rest
        return total.abs_upper()
