"""The privacy loss of one release under P, as atoms and curves: what the theorem needs of it."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.balls import (
    ROUGH,
    acb,
    arb,
    ball,
    ctx,
    log_number,
    log_sum,
    number,
    on_time,
    positive_part,
    precision,
    total,
    within,
)
from jaxdp.proof.curve import Curve
from jaxdp.proof.noises import Interval

Atom = tuple[Any, Any]  # loss and mass, under P
Lines = list[Any]

# Steps of repeated products, after which they start anew. derived: a square box grows by up to
# sqrt 2 in each complex product
_RESTART = 32
# Heights of polygons over the highest: their number, and how many of them serve every larger t
_HEIGHTS, _STEEP = 14, 3
# Ratio and number of stretches of t with a height each, and how many at least are bounded, as ends
# of curves are bounded coarsely on an endless one. chosen
_STRETCH, _STRETCHES, _BOUNDED = 4.0, 30, 4


# Cell of t over the inverse deviation of the loss and over t, and their number. chosen
_CELL, _GROWTH, _MOST_CELLS = 0.08, 0.2, 500
# Places of a stretch at which floats look at a transform. chosen
_TIMES = (1.0, 1.3, 1.7, 2.2, 2.8, 3.6)


class Fractional(NamedTuple):
    """M(s) = ((f0 + f1 s) e^(a s) + (g0 + g1 s) e^(-a s)) / (1 + 2 s), as Laplace noise has."""

    a: Fraction
    first: tuple[Any, Any]
    second: tuple[Any, Any]


class Law:
    """M(s) = E e^(s L) over the finite losses L of one release under P.

    The law consists of atoms, curves and a remainder: `rest(c)` bounds the sum of m e^(c L) over
    the remainder. `infinite` is the mass of infinite losses, which is kept separately. `variance`
    is set for a Gaussian loss, which needs no integral.
    """

    def __init__(
        self,
        atoms: Sequence[Atom] = (),
        curves: Sequence[Curve] = (),
        *,
        infinite: Any = 0,
        rest: Callable[[Any], Any] | None = None,
        lattice: tuple[Fraction, Fraction] | None = None,
        top: Any = None,
        variance: Any = None,
        fractional: Callable[[], Fractional] | None = None,
    ):
        """Losses of atoms are balls, or k for offset + unit k, lattice = (unit, offset)."""
        if lattice is not None:
            atoms = [(ball(lattice[1] + lattice[0] * k), mass) for k, mass in atoms]
        self.atoms = [(x, m) for x, m in atoms if not m.is_zero()]
        self.curves, self.rest, self.infinite = list(curves), rest, arb(infinite)
        self.lattice, self.variance, self.fractional = lattice, variance, fractional
        tops = [x for x, _ in self.atoms] + [curve.top() for curve in curves]
        if top is None and rest is None and variance is None and None not in tops:
            top = tops[0] if tops else arb(0)
            for x in tops:
                top = arb.max(top, x)
        self.top = top  # largest finite loss; None: unbounded
        self._known: dict[Any, Any] = {}

    def _cached(self, key: Any, build: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = build()
        return self._known[key]

    def float_nodes(self, c: float, level: int | None = None) -> list[tuple[float, Any]]:
        """log |w| and losses of a coarse sum on the axis or at a level of heights; for choices."""

        def build() -> list[tuple[float, Any]]:
            found = [(log_number(m) + c * number(x), x) for x, m in self.atoms]
            found = [(size, complex(number(x))) for size, x in found]
            for curve in self.curves:
                height = 0.0 if level is None else curve.highest() * 2.0**-level
                found += curve.float_nodes(c, height)
            return found

        return self._cached((c, level), build)

    def log_moment(self, c: float) -> float:
        """log M(c) in floating point, for choices."""
        if self.variance is not None:
            return (c * c + c) * number(self.variance) / 2
        return self._cached(
            ("moment", c), lambda: log_sum([x for x, _ in self.float_nodes(c, None)])
        )

    def level(self, c: float, t: float) -> tuple[float, int]:
        """log of the sum of |w e^(i t L)| along the best polygon, and its level; for choices."""
        return min(
            (log_sum([x - t * loss.imag for x, loss in self.float_nodes(c, k)]), k)
            for k in range(_HEIGHTS if self.curves else 1)
        )

    def log_tail(self, c: float, t: float) -> float:
        """log of an estimate of `tail`; for choices."""
        if not self.curves or len(self.curves) + len(self.atoms) == 1:
            return self.level(c, t)[0]
        nodes, whole = self.float_nodes(c), self.log_moment(c)
        sizes = [(math.exp(x - whole), loss.real) for x, loss in nodes]
        found = []
        for k in range(_BOUNDED):
            times = [t * _STRETCH**k * ratio for ratio in _TIMES]
            largest = max(abs(sum(w * cmath.exp(1j * s * x) for w, x in sizes)) for s in times)
            log_largest = whole + math.log(max(largest, 1e-300))
            found.append(min(log_largest, self.level(c, times[0])[0]))
        return max(found)

    def nodes(
        self, c: Any, level: int | None, times: tuple[float, float], nats: float
    ) -> tuple[Lines, Lines, Any]:
        """Weights, losses and the error of M(c + i t) = sum w e^(i t L), t in `times`.

        The error is about e^-nats M(c).
        """

        def build() -> tuple[Lines, Lines, Any]:
            on_time()
            atoms = self.atoms
            weights = [acb(m * (c * x).exp()) for x, m in atoms]
            losses, error = (
                [acb(x) for x, _ in atoms],
                arb(0) if self.rest is None else self.rest(c),
            )
            goal = self.log_moment(number(c)) - nats - math.log(1 + len(self.curves))
            for curve in self.curves:
                height = 0.0 if level is None else curve.highest() * 2.0**-level
                more = curve.nodes(c, height, times, goal, nats)
                weights, losses, error = weights + more[0], losses + more[1], error + more[2]
            return weights, losses, error

        return self._cached((number(c), level, times, nats, ctx.prec), build)

    def real(self, c: Any, nats: float) -> Any:
        """M(c), c >= 0."""
        if self.variance is not None:
            return ((c * c + c) * self.variance / 2).exp()
        weights, _, error = self.nodes(c, None, (0.0, 0.0), nats)
        return total(w.real for w in weights) + within(error)

    def line(self, c: Any, step: Any, count: int, nats: float) -> Lines:
        """M(c + i step j), j = 0, ..., count."""
        end = number(step) * count * 1.001
        weights, losses, error = self.nodes(c, 0 if self.curves else None, (0.0, end), nats)
        around = acb(within(error), within(error))
        turn = [(acb(0, 1) * step * x).exp() for x in losses]
        now = weights
        out = []
        for j in range(count + 1):
            on_time()
            if j and j % _RESTART == 0:
                pairs = zip(weights, losses, strict=True)
                now = [w * (acb(0, 1) * step * j * x).exp() for w, x in pairs]
            out.append(sum(now, acb(0)) + around)
            now = [x * y for x, y in zip(now, turn, strict=True)]
        return out

    def tail(self, c: Any, start: float, nats: float, stop: float = math.inf) -> Any:
        """Upper bound on |M(c + i t)|, start <= t <= stop.

        The sum of |w e^(i t L)| along a polygon falls with t. A stretch of t has its own height, as
        low ones have few panels only where t is bounded; the highest serve every larger t.
        """
        with precision(ROUGH):
            whole, found, t = self.real(c, nats), arb(0), start
            for i in range(_STRETCHES if self.curves else 0):
                level = self.level(number(c), t)[1]
                end = math.inf if level < _STEEP and i >= _BOUNDED else min(_STRETCH * t, stop)
                weights, losses, error = self.nodes(c, level, (t, end), nats)
                falls = (arb(max(x.imag.lower(), arb(0))) for x in losses)
                sizes = (
                    abs(w) * (-fall * arb(t)).exp() for w, fall in zip(weights, falls, strict=True)
                )
                bound = (total(sizes) + error).abs_upper()
                several = len(self.curves) + len(self.atoms) > 1
                if end < math.inf and several and not bound < whole / 2:
                    bound = arb.min(bound, self._cells(c, t, end, nats))
                found = arb.max(found, bound)
                if end >= stop:
                    return arb.min(found, whole)
                t = end
            return whole

    def _cells(self, c: Any, start: float, end: float, nats: float) -> Any:
        """Upper bound on |M(c + i t)|, start <= t <= end, where atoms and curves cancel.

        |M|^2 = sum w w' cos(t (L - L')) over nodes, whose second derivative is at most
        2 (M(c) S2 - S1^2) for the moments S of L: Taylor's bound on each cell.
        """
        weights, losses, error = self.nodes(c, None, (0.0, end), nats)
        weights, losses = [w.real for w in weights], [x.real for x in losses]
        whole = total(weights)
        mean = (total(w * x for w, x in zip(weights, losses, strict=True)) / whole).mid()
        losses = [x - mean for x in losses]
        first = total(w * x for w, x in zip(weights, losses, strict=True))
        second = total(w * x * x for w, x in zip(weights, losses, strict=True))
        curve = (whole * second - first * first).abs_upper()
        widest = _CELL / math.sqrt(max(number(curve / whole**2), 1e-300))
        if (end - start) / widest > _MOST_CELLS:
            return whole
        found, t = arb(0), start
        while t < end:
            on_time()
            width = min(_GROWTH * t, widest)
            turned = [w * acb(0, x * arb(t)).exp() for w, x in zip(weights, losses, strict=True)]
            at = sum(turned, acb(0))
            moved = sum((v * x for v, x in zip(turned, losses, strict=True)), acb(0))
            slope = 2 * (at.conjugate() * acb(0, 1) * moved).real
            square = at.real**2 + at.imag**2
            ahead = square + slope * arb(width) + curve * arb(width) ** 2
            found = arb.max(found, arb.max(square, ahead).abs_upper())
            t += width
        return found.sqrt() + error

    def profile(self, epsilon: Any) -> Any:
        """E (1 - e^(epsilon - L))_+ over finite losses, in closed form."""
        if self.variance is not None:
            return gaussian_profile(self.variance, epsilon)
        found = arb(0) if self.rest is None else within(self.rest(arb(0)))
        found += total(m * positive_part(1 - (epsilon - x).exp()) for x, m in self.atoms)
        return found + total(curve.profile(epsilon) for curve in self.curves)


# How often each law is drawn.
Releases = list[tuple[int, Law]]


def gaussian_profile(variance: Any, epsilon: Any) -> Any:
    """N(mu, 1) against N(0, 1), mu^2 = `variance`."""
    mu = variance.sqrt()
    upper, lower = ((epsilon / mu + sign * mu / 2) / arb(2).sqrt() for sign in (-1, 1))
    return (upper.erfc() - epsilon.exp() * lower.erfc()) / 2


def from_intervals(pieces: Sequence[Interval], extra: Sequence[Atom] = (), **more: Any) -> Law:
    """Atoms where P / Q is constant, infinite losses where Q is 0, and curves."""
    atoms, curves, infinite = list(extra), [], arb(0)
    for piece in pieces:
        mass = total(p.mass(*piece.ends()) for p in piece.p)
        if piece.p and not piece.q:
            infinite += mass
        elif piece.p and piece.flat:
            first, second = (total(x.a.exp() for x in side) for side in (piece.p, piece.q))
            atoms.append(((first / second).log(), mass))
        elif piece.p:
            curves.append(Curve(piece))
    return Law(atoms, curves, infinite=infinite, **more)
