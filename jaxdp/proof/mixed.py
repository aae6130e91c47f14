"""Laws that need no integral: a Gaussian without sampling, and a public coin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import acb, arb, ball, log_number, normal_tail, number, positive_part
from jaxdp.proof.law import Law


class Gaussian(Law):
    """N(mu, 1) against N(0, 1), mu^2 = `variance`: log M(s) = (s^2 + s) mu^2 / 2."""

    def __init__(self, variance: Any):
        self.variance = variance

    def log_moment(self, c: float) -> float:
        """See `Law`."""
        return (c * c + c) * number(self.variance) / 2

    def real(self, c: Any) -> Any:
        """M(c)."""
        return ((c * c + c) * self.variance / 2).exp()

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M on the line."""
        raise NotImplementedError("part of the smoothing")

    def profile(self, epsilon: Any) -> Any:
        """The closed form."""
        mu = self.variance.sqrt()
        upper, lower = normal_tail(epsilon / mu - mu / 2), normal_tail(epsilon / mu + mu / 2)
        return upper - epsilon.exp() * lower

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        half, mu = number(self.variance) / 2, math.sqrt(number(self.variance))
        width = mu * math.sqrt(2 * abs(log_goal))
        return half - width, half + width, half


class Laplace(Law):
    """Laplace noise, also truncated: shift over scale a, bound over scale, None without a bound.

    Losses a and -a with the masses A and B, and a - 2 y at 0 < y < a with the density C e^-y:

        M = (A + C / (1 + 2 s)) e^(a s) + (B - C e^-a / (1 + 2 s)) e^(-a s).

    A shift d above the bound b leaves the overlap of the supports: a = 2 b - d, A = B = 0.
    """

    def __init__(self, shift: Fraction, bound: Fraction | None):
        whole = arb(2) if bound is None else 2 * (1 - (-ball(bound)).exp())
        self.ratio, start, up = shift, arb(0), 1 / whole
        if bound is not None and shift > bound:
            self.ratio, start = max(2 * bound - shift, Fraction(0)), ball(shift - bound)
            up = arb(0)
        elif bound is not None:
            up = (1 - (-ball(bound - shift)).exp()) / whole
        a = ball(self.ratio)
        down, self.density = up * (-a).exp(), (-start).exp() / whole
        self.up, self.down, self.top = up, down, a
        low = self.density * (-a).exp()
        # Numerators over 1 + 2 s; exact without a bound.
        self.first = (arb(1), arb(1)) if bound is None else (up + self.density, 2 * up)
        self.second = (arb(0), (-a).exp()) if bound is None else (down - low, 2 * down)
        if bound is not None:
            self.infinite = 1 - up - down - self.density + low

    def _at(self, s: Any) -> Any:
        a = ball(self.ratio)
        (f0, f1), (g0, g1) = self.first, self.second
        return ((f0 + f1 * s) * (a * s).exp() + (g0 + g1 * s) * (-a * s).exp()) / (1 + 2 * s)

    def log_moment(self, c: float) -> float:
        """See `Law`."""
        return log_number(self._at(arb(c)))

    def real(self, c: Any) -> Any:
        """M(c)."""
        return self._at(c)

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M on the line."""
        return [self._at(acb(c, step * j)) for j in range(count + 1)]

    def tail(self, c: Any, start: float, end: float) -> Any:
        """|f0 + f1 s| / |1 + 2 s| moves to |f1| / 2 without turning, as t grows."""
        a, s, total = ball(self.ratio), acb(c, arb(start)), arb(0)
        for (f0, f1), sign in ((self.first, 1), (self.second, -1)):
            size = arb.max(abs((f0 + f1 * s) / (1 + 2 * s)), abs(f1) / 2)
            total += size * (sign * a * c).exp()
        return total

    def profile(self, epsilon: Any) -> Any:
        """The masses, and the density up to the y of loss epsilon, cut to [0, a]."""
        a = ball(self.ratio)
        y = arb.min(arb.max((a - epsilon) / 2, arb(0)), a)
        inside = 1 - (-y).exp() - (epsilon - a).exp() * (y.exp() - 1)
        ends = self.up * positive_part(1 - (epsilon - a).exp())
        return ends + self.down * positive_part(1 - (epsilon + a).exp()) + self.density * inside

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        a = float(self.ratio)
        return -a, a, a


class Coin(Law):
    """A public coin selects one of several laws, with probabilities `shares`."""

    def __init__(self, shares: Sequence[Any], laws: Sequence[Law]):
        self.parts = [(w, law) for w, law in zip(shares, laws, strict=True) if not w.is_zero()]
        self.infinite = sum((w * law.infinite for w, law in self.parts), arb(0))
        tops = [law.top for _, law in self.parts]
        self.top = None if None in tops else max(tops, key=number) if len(tops) == 1 else None

    def log_moment(self, c: float) -> float:
        """See `Law`."""
        terms = [log_number(w) + law.log_moment(c) for w, law in self.parts]
        largest = max(terms)
        return largest + math.log(sum(math.exp(x - largest) for x in terms))

    def real(self, c: Any) -> Any:
        """M(c)."""
        return sum((w * law.real(c) for w, law in self._resolved()), arb(0))

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M on the line."""
        lines = [[w * x for x in law.line(c, step, count)] for w, law in self._resolved()]
        return [sum(values, 0) for values in zip(*lines, strict=True)]

    def tail(self, c: Any, start: float, end: float) -> Any:
        """The sum of the tails."""
        return sum((w * law.tail(c, start, end) for w, law in self._resolved()), arb(0))

    def profile(self, epsilon: Any) -> Any:
        """The sum of the profiles."""
        return sum((w * law.profile(epsilon) for w, law in self.parts), arb(0))

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        found = [law.spread(log_goal) for _, law in self.parts]
        heaviest = max(range(len(found)), key=lambda i: number(self.parts[i][0]))
        return min(x[0] for x in found), max(x[1] for x in found), found[heaviest][2]

    def _resolved(self) -> list[tuple[Any, Law]]:
        for _, law in self.parts:
            law.bits = self.bits
        return self.parts
