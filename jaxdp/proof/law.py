"""The privacy loss of one release: what the theorem needs to know of it."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

from jaxdp.proof.balls import ROUGH, acb, arb, disc, number, precision, within

# Steps of repeated products, after which they start anew. derived: a square box grows by up to
# sqrt 2 in each complex product
_RESTART = 32
# Cell of t over the inverse deviation of the loss, and over t. chosen: the quadratic term is small
_CELL, _GROWTH = 0.25, 0.4
# Doublings of t up to a place where the transform has fallen. chosen
_DOUBLINGS = 12
# Cells that a tail may take. chosen: seconds
_MOST_CELLS = 1500


class Law(abc.ABC):
    """M(s) = E e^(s L) over the finite losses L of one release under P.

    The mass of infinite losses is apart. Members that return balls contain the true value.
    """

    infinite: Any = arb(0)  # P[L = inf]
    top: Any = None  # largest finite loss; None: unbounded
    bits: float = 40.0  # nats to which M is resolved, relative to the mass of P

    @abc.abstractmethod
    def log_moment(self, c: float) -> float:
        """log M(c) in floating point, for choices."""

    @abc.abstractmethod
    def real(self, c: Any) -> Any:
        """M(c), c >= 0."""

    @abc.abstractmethod
    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M(c + i step j), j = 0, ..., count."""

    @abc.abstractmethod
    def profile(self, epsilon: Any) -> Any:
        """E (1 - e^(epsilon - L))_+ over finite losses."""

    @abc.abstractmethod
    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """Smallest and largest loss that matter, and one at which much mass lies; for choices."""

    def cost(self, c: float) -> float:
        """Number of terms of a point of a line."""
        del c
        return 1.0

    def longest(self, c: float) -> float:
        """The largest t on the line of tilt c that takes seconds."""
        del c
        return math.inf

    def tail(self, c: Any, start: float, end: float) -> Any:
        """At least |M(c + i t)|, start <= t <= end; `end` may be infinite."""
        del start, end
        return self.real(c)


class Sum(Law):
    """A law whose M is a sum of w e^(s L) over nodes (w, L), w > 0, up to an error."""

    @abc.abstractmethod
    def nodes(self, c: Any, end: float) -> tuple[Sequence[Any], Sequence[Any], Any]:
        """Weights w e^(c L), losses, and the error of the sum at every c + i t, |t| <= end."""

    def far(self, c: Any, start: float) -> Any:
        """At least |M(c + i t)| for every t >= start."""
        del start
        return self.real(c)

    def real(self, c: Any) -> Any:
        """M(c)."""
        weights, _, error = self.nodes(c, 0.0)
        return sum(weights, arb(0)) + within(error)

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M(c + i step j)."""
        weights, losses, error = self.nodes(c, number(step) * count * 1.001)
        return rotated(weights, losses, step, count, disc(error))

    def tail(self, c: Any, start: float, end: float) -> Any:
        """The least of `far`, and of cells of t up to a place where `far` has fallen.

        On the sum of the nodes alone, |M|^2 = sum w w' cos(t (L - L')), whose second derivative is
        at most 2 (M(c) S2 - S1^2) for the moments S of L: Taylor's bound on each cell.
        """
        with precision(ROUGH):
            direct, whole = self.far(c, start), self.real(c)
            if direct < whole / 2:
                return direct
            beyond = arb(0)
            if end == math.inf:
                # Where half of what can fall has fallen.
                goal = (whole + self.far(c, start * 2.0**60)) / 2
                ends = vars(self).setdefault("_ends", {})
                first = max(start, ends.get(number(c), start))
                for k in range(_DOUBLINGS):
                    end = ends[number(c)] = first * 2.0**k
                    beyond = self.far(c, end)
                    if beyond < goal:
                        break
                    if end > self.longest(number(c)):
                        return direct if direct < whole else whole
                else:
                    return direct if direct < whole else whole
            found = arb.max(beyond, self._cells(c, start, end, direct))
        return found if found < direct else direct

    def _cells(self, c: Any, start: float, end: float, give_up: Any) -> Any:
        known = vars(self).setdefault("_known_cells", {})
        key = (number(c), end)
        if key not in known or start < known[key][0]:
            known[key] = start, self._all_cells(c, start, end)
        cells = known[key][1]
        if cells is None:
            return give_up
        found = arb(0)
        for until, bound in cells:
            if until > start:
                found = arb.max(found, bound)
        return found

    def _all_cells(self, c: Any, start: float, end: float) -> list[tuple[float, Any]] | None:
        weights, losses, error = self.nodes(c, end)
        total = sum(weights, arb(0))
        mean = (sum((w * x for w, x in zip(weights, losses, strict=True)), arb(0)) / total).mid()
        losses = [x - mean for x in losses]
        first = sum((w * x for w, x in zip(weights, losses, strict=True)), arb(0))
        second = sum((w * x * x for w, x in zip(weights, losses, strict=True)), arb(0))
        curve = (total * second - first * first).abs_upper()
        deviation = math.sqrt(max(number(curve), 1e-300)) / number(total)
        cells, t = [], start
        while t < end:
            if len(cells) > _MOST_CELLS:
                return None
            width = min(_GROWTH * t, _CELL / deviation)
            turned = [w * acb(0, x * arb(t)).exp() for w, x in zip(weights, losses, strict=True)]
            at = sum(turned, acb(0))
            moved = sum((v * x for v, x in zip(turned, losses, strict=True)), acb(0))
            slope = 2 * (at.conjugate() * acb(0, 1) * moved).real
            square = at.real**2 + at.imag**2
            ahead = square + slope * arb(width) + arb(curve) * arb(width) ** 2
            t += width
            cells.append((t, arb.max(square, ahead).abs_upper().sqrt() + error))
        return cells


def rotated(
    weights: Sequence[Any], losses: Sequence[Any], step: Any, count: int, around: Any
) -> list[Any]:
    """sum w e^(i step j L) + around, j = 0, ..., count."""
    turn = [(acb(0, step) * x).exp() for x in losses]
    now: list[Any] = [acb(w) for w in weights]
    out = []
    for j in range(count + 1):
        if j and j % _RESTART == 0:
            now = [w * (acb(0, step * j) * x).exp() for w, x in zip(weights, losses, strict=True)]
        out.append(sum(now, acb(0)) + around)
        now = [x * y for x, y in zip(now, turn, strict=True)]
    return out
