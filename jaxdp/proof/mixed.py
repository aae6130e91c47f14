"""Laws that need no integral: a Gaussian without sampling, and a public coin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import acb, arb, ball, log_number, normal_tail, number
from jaxdp.proof.law import Law


class Gaussian(Law):
    """Gaussian noise without sampling: N(mu, 1) against N(0, 1): log M(s) = (s^2 + s) mu^2 / 2, `variance` = mu^2."""

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
    """Shift over scale a: M = ((1 + s) e^(a s) + s e^(-a (1 + s))) / (1 + 2 s)."""

    def __init__(self, scale: Fraction, shift: Fraction):
        self.ratio = shift / scale
        self.top = ball(self.ratio)

    def _at(self, s: Any) -> Any:
        a = ball(self.ratio)
        return ((1 + s) * (a * s).exp() + s * (-a * (1 + s)).exp()) / (1 + 2 * s)

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
        """|1 + s| / |1 + 2 s| falls to 1/2, and |s| / |1 + 2 s| rises to 1/2, as t grows."""
        a, s = ball(self.ratio), acb(c, arb(start))
        return abs((1 + s) / (1 + 2 * s)) * (a * c).exp() + (-a * (1 + c)).exp() / 2

    def profile(self, epsilon: Any) -> Any:
        """P[x <= 0], where the loss is a, and the losses a - 2 x / scale between 0 and the shift.

        The tests are x <= y, y = (a - epsilon) / 2 in scales, y cut to [0, a]; below, all of them.
        """
        a = ball(self.ratio)
        inside = 1 - ((epsilon - a) / 2).exp()
        below = 1 - epsilon.exp()
        if epsilon >= a:
            return arb(0)
        if epsilon <= -a:
            return below
        return inside if epsilon < a and epsilon > -a else inside.union(below).union(arb(0))

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        a = float(self.ratio)
        return -a, a, a


class Coin(Law):
    """A public coin selects one of several laws, with probabilities `shares`."""

    def __init__(self, shares: Sequence[Any], laws: Sequence[Law]):
        self.parts = [(w, law) for w, law in zip(shares, laws, strict=True) if not w == 0]
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
