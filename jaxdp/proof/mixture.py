"""Mixtures of Gaussians of one scale: M by the trapezoidal rule along the outputs.

P = sum w_i N(a_i), Q = sum v_j N(b_j), every a_i >= b_j. On the line Im x = y >= 0 the angle of
P / Q lies in [0, pi), so that |P (P / Q)^s|, s = c + i t, falls with t, and

    |P (P / Q)^s| <= e^(y^2 / (2 sigma^2)) cos(theta / 2)^-c P(Re x) (P(Re x) / Q(Re x))^c,

theta = y (max b - min b) / sigma^2 < pi, since |sum v e^(i phi)| >= cos(theta / 2) sum v for angles
in a range of theta. For a function analytic in the strip |Im x - y| <= a, whose integrals of the
modulus on both edges are N+ and N-, the rule of step k errs by at most (N+ + N-) / (e^(2 pi a / k)
- 1). Here y = 0 for t = 0, and y = a for t > 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import ROUGH, acb, arb, ball, disc, log_number, number, precision, within
from jaxdp.proof.density import Density
from jaxdp.proof.law import rotated
from jaxdp.proof.noises import Component, gaussian, intervals

# Largest angle of a sum of components, below pi. chosen
_ANGLE = 3.1
# Candidates of the strip's width; angles tried for a tail, and their ratio. chosen
_WIDTHS, _HEIGHTS, _RATIO = 60, 40, 1.5
# Nats beyond which a tail's integrand is cut. chosen
_TAIL_NATS = 30.0


class Mixture(Density):
    """P and Q as components; the exchanged pair is its mirror image."""

    def __init__(
        self, scale: Fraction, p: Sequence[Component], q: Sequence[Component], top: Any = None
    ):
        p, q = ([x for x in side if not x.weight.is_zero()] for side in (p, q))
        super().__init__(intervals(gaussian(scale), p, q), top=top)
        self.variance = ball(scale) ** 2
        shifts = [[part.shift for part in side] for side in (p, q)]
        widths = [max(x) - min(x) for x in shifts]
        self._turn = ball(max(widths)) / self.variance  # angle of a sum over Im x
        self._turn_q = ball(widths[1]) / self.variance
        self._first_height = 5

    def cost(self, c: float) -> float:
        """Points along the outputs."""
        low, high = self.curves[0].reach(c, math.sqrt(2 * self.bits))
        return (high - low) / self._strip(c, True, self.bits)[1]

    def longest(self, c: float) -> float:
        """Nodes do not turn faster with t."""
        del c
        return math.inf

    def _grown(self, c: Any, y: Any) -> Any:
        """Factor of the bound on the line Im x = y."""
        assert self._turn * y < arb.pi()
        factor = (y * y / self.variance / 2).exp()
        return factor * (self._turn_q * y / 2).cos() ** (-c)

    def _strip(self, c: float, shifted: bool, nats: float) -> tuple[float, float]:
        """Half width of the strip, and the step."""
        scale, turn_q = math.sqrt(number(self.variance)), number(self._turn_q)
        widest = scale * math.sqrt(2 * nats)
        if number(self._turn) > 0:
            widest = min(widest, _ANGLE / number(self._turn) / (2 if shifted else 1))

        def step(a: float) -> float:
            y = 2 * a if shifted else a
            grown = y * y / scale**2 / 2 - c * math.log(math.cos(turn_q * y / 2))
            return 2 * math.pi * a / (nats + 1 + grown)

        a = max((widest * j / _WIDTHS for j in range(1, _WIDTHS + 1)), key=step)
        return a, step(a)

    def _points(self, c: Any, shifted: bool) -> tuple[list[Any], list[Any], Any, Any]:
        """Weights and losses at the points, the mass beyond, and the error over M(c)."""
        (curve,) = self.curves
        a, step = (arb(x) for x in self._strip(number(c), shifted, self.bits))
        y = a if shifted else arb(0)
        nats = self.bits + log_number(self._grown(c, y))
        low, high, _ = curve.cut(c, nats, nats - self.log_moment(number(c)))
        first, last = math.floor(number(low / step)), math.ceil(number(high / step))
        weights, losses = [], []
        for i in range(first, last + 1):
            log_p, loss = curve.logs(acb(step * i, y) if shifted else step * i)
            weights.append(step * (log_p + c * loss).exp())
            losses.append(loss)
        edges = self._grown(c, 2 * a) + 1 if shifted else 2 * self._grown(c, a)
        error = edges / ((2 * arb.pi() * a / step).exp() - 1)
        beyond = curve.beyond(c, step * first, False) + curve.beyond(c, step * last, True)
        return weights, losses, beyond * self._grown(c, y), error

    def real(self, c: Any) -> Any:
        """M(c)."""
        key = ("real", number(c), self.bits)
        if key not in self._known:
            weights, _, beyond, error = self._points(c, False)
            assert error < 0.25
            total = (sum(weights, arb(0)) + within(beyond)) / (1 + within(error))
            self._known = {key: total}
        return self._known[key]

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M(c + i step j)."""
        whole = self.real(c)
        if not count:
            return [acb(whole)]
        weights, losses, beyond, error = self._points(c, True)
        around = disc(beyond + error * whole.abs_upper())
        return [acb(whole), *rotated(weights, losses, step, count, around)[1:]]

    def tail(self, c: Any, start: float, end: float) -> Any:
        """The integral of the modulus on Im x = y at t = start, with the best of a few y."""
        del end
        (curve,) = self.curves
        best, t = self.real(c), arb(start)
        low, high, beyond = curve.cut(c, _TAIL_NATS, _TAIL_NATS - self.log_moment(number(c)))
        seen: dict[int, Any] = {}

        def at(i: int) -> Any:
            angle = _ANGLE * 0.7 / _RATIO**i
            slope = self._turn + (0 if number(self._turn) > 0 else 1 / self.variance.sqrt())
            up = acb(0, 1) * (angle / slope)

            def integrand(x: Any, analytic: Any) -> Any:
                over, above = curve.logs(x + up, analytic)
                under, below = curve.logs(x - up, analytic)
                modulus = (over + under + c * (above + below)) / 2
                return (modulus + t * acb(0, 1) * (above - below) / 2).exp()

            inside = acb.integral(
                integrand,
                acb(low),
                acb(high),
                rel_tol=arb(2) ** -24,
                abs_tol=number(best) * arb(2) ** -64,
                eval_limit=20000,
            )
            value = inside.real + beyond * self._grown(c, up.imag)
            return value.abs_upper() if value.is_finite() else best

        def value(i: int) -> Any:
            if i not in seen:
                seen[i] = at(i)
            return seen[i]

        with precision(ROUGH):
            i = self._first_height
            while i < _HEIGHTS and value(i + 1) < value(i):
                i += 1
            while i > 0 and value(i - 1) < value(i):
                i -= 1
        self._first_height = i
        return value(i) if value(i) < best else best
