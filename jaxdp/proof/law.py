"""The privacy loss of one release under P, as atoms and curves: what the theorem needs of it."""

from __future__ import annotations

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
from jaxdp.proof.curve import Curve, Cut
from jaxdp.proof.noises import Interval

Atom = tuple[Any, Any]  # loss and mass, under P
Lines = list[Any]

# Steps of repeated products, after which they start anew. derived: a square box grows by up to
# sqrt 2 in each complex product
_RESTART = 32
# Heights of polygons over the highest: their number, and how many of them serve every larger t
_HEIGHTS, _STEEP = 14, 3
# Ratio and number of stretches of t with a height each. chosen
_STRETCH, _STRETCHES = 4.0, 30


class Fractional(NamedTuple):
    """M(s) = ((f0 + f1 s) e^(a s) + (g0 + g1 s) e^(-a s)) / (1 + 2 s), as that of Laplace noise."""

    a: Fraction
    first: tuple[Any, Any]
    second: tuple[Any, Any]


class Law:
    """M(s) = E e^(s L) over the finite losses L of one release under P.

    Atoms, curves, and what is left out: `rest(c)` bounds the sum of m e^(c L) over it. The mass of
    infinite losses is apart. `variance` is that of a Gaussian loss, which needs no integral.
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
        fractional: Fractional | None = None,
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

    def float_nodes(
        self, c: float, level: int | None = None, cut: Cut | None = None
    ) -> list[tuple[float, complex]]:
        """log |w| and losses of a coarse sum on the axis or at a level of heights; for choices."""

        def build() -> list[tuple[float, complex]]:
            found = [] if cut else [(log_number(m) + c * number(x), x) for x, m in self.atoms]
            found = [(size, complex(number(x))) for size, x in found]
            for curve in self.curves:
                height = 0.0 if level is None else curve.highest(cut) * 2.0**-level
                found += curve.float_nodes(c, height, cut)
            return found

        return self._cached((c, level, cut), build)

    def log_moment(self, c: float, cut: Cut | None = None) -> float:
        """log M(c) in floating point, for choices."""
        if self.variance is not None:
            return (c * c + c) * number(self.variance) / 2
        return self._cached(
            ("moment", c, cut), lambda: log_sum([x for x, _ in self.float_nodes(c, None, cut)])
        )

    def log_tail(self, c: float, t: float, cut: Cut | None = None) -> tuple[float, int]:
        """log of about what `tail` bounds, and the level of the best height; for choices."""
        return min(
            (log_sum([x - t * loss.imag for x, loss in self.float_nodes(c, k, cut)]), k)
            for k in range(_HEIGHTS if self.curves else 1)
        )

    def nodes(
        self, c: Any, level: int | None, times: tuple[float, float], nats: float, cut: Cut | None
    ) -> tuple[Lines, Lines, Any]:
        """Weights, losses and the error of M(c + i t) = sum w e^(i t L), t in `times`.

        The error is about e^-nats M(c). With a cut, of the curves times its factor.
        """

        def build() -> tuple[Lines, Lines, Any]:
            atoms = [] if cut else self.atoms
            weights = [acb(m * (c * x).exp()) for x, m in atoms]
            losses, error = (
                [acb(x) for x, _ in atoms],
                arb(0) if self.rest is None else self.rest(c),
            )
            goal = self.log_moment(number(c)) - nats - math.log(1 + len(self.curves))
            for curve in self.curves:
                height = 0.0 if level is None else curve.highest(cut) * 2.0**-level
                more = curve.nodes(c, height, times, goal, cut)
                weights, losses, error = weights + more[0], losses + more[1], error + more[2]
            return weights, losses, error

        return self._cached((number(c), level, times, nats, cut, ctx.prec), build)

    def cut(self, epsilon: float, place: float, share: float) -> Cut | None:
        """A cut where the loss is a share of epsilon, as wide as a share of the way to epsilon."""
        places = []
        for loss in (place * epsilon, epsilon):
            for curve in self.curves:
                ends = curve.reach(0.0, 60.0)
                if curve.float_logs(ends[0])[1].real < loss <= curve.float_logs(ends[1])[1].real:
                    places.append(curve.crossing(loss, *ends))
        if self.atoms or len(places) < 2:
            return None
        return Cut(places[0], share * (places[1] - places[0]))

    def real(self, c: Any, nats: float, cut: Cut | None = None) -> Any:
        """M(c), c >= 0."""
        if self.variance is not None:
            return ((c * c + c) * self.variance / 2).exp()
        weights, _, error = self.nodes(c, None, (0.0, 0.0), nats, cut)
        return total(w.real for w in weights) + within(error)

    def line(self, c: Any, step: Any, count: int, nats: float, cut: Cut | None = None) -> Lines:
        """M(c + i step j), j = 0, ..., count."""
        end = number(step) * count * 1.001
        weights, losses, error = self.nodes(c, 0 if self.curves else None, (0.0, end), nats, cut)
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

    def tail(self, c: Any, start: float, nats: float, cut: Cut | None = None) -> Any:
        """At least |M(c + i t)| for every t >= start.

        The sum of |w e^(i t L)| along a polygon falls with t. A stretch of t has its own height, as
        low ones have few panels only where t is bounded; the highest serve every larger t.
        """
        with precision(ROUGH):
            whole, found, t = self.real(c, nats, cut), arb(0), start
            for _ in range(_STRETCHES if self.curves else 0):
                level = self.log_tail(number(c), t, cut)[1]
                end = math.inf if level < _STEEP else _STRETCH * t
                weights, losses, error = self.nodes(c, level, (t, end), nats, cut)
                falls = (arb(max(x.imag.lower(), arb(0))) for x in losses)
                sizes = (
                    abs(w) * (-fall * arb(t)).exp() for w, fall in zip(weights, falls, strict=True)
                )
                found = arb.max(found, (total(sizes) + error).abs_upper())
                if end == math.inf:
                    return arb.min(found, whole)
                t = end
            return whole

    def profile(self, epsilon: Any) -> Any:
        """E (1 - e^(epsilon - L))_+ over finite losses, in closed form."""
        if self.variance is not None:
            return gaussian_profile(self.variance, epsilon)
        found = arb(0) if self.rest is None else within(self.rest(arb(0)))
        found += total(m * positive_part(1 - (epsilon - x).exp()) for x, m in self.atoms)
        return found + total(curve.profile(epsilon) for curve in self.curves)


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
