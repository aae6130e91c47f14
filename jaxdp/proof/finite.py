"""Laws of finitely many losses, or of losses on a lattice whose far masses are bounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, ball, log_number, number, positive_part, within
from jaxdp.proof.law import Sum

Atom = tuple[Any, Any]  # loss and mass, under P


class Finite(Sum):
    """Atoms; `rest(c)` bounds the sum of m e^(c L) over atoms that are left out."""

    def __init__(
        self,
        atoms: Sequence[Atom],
        infinite: Any = 0,
        rest: Callable[[Any], Any] | None = None,
        lattice: tuple[Fraction, Fraction] | None = None,
    ):
        """Losses are balls, or whole k for the loss offset + unit k, lattice = (unit, offset)."""
        self.lattice, self.rest, self.infinite = lattice, rest, arb(infinite)
        if lattice is not None:
            unit, offset = lattice
            self.places = list(atoms)
            atoms = [(ball(offset + unit * k), mass) for k, mass in atoms]
        self.atoms = [(x, m) for x, m in atoms if not m.is_zero()]
        if rest is None:
            self.top = arb(0)
            for i, (x, _) in enumerate(self.atoms):
                self.top = arb.max(self.top, x) if i else x
        self._floats = [(number(x), log_number(m)) for x, m in self.atoms]

    def log_moment(self, c: float) -> float:
        """See `Law`."""
        terms = [log_mass + c * x for x, log_mass in self._floats]
        if not terms:
            return -math.inf
        largest = max(terms)
        return largest + math.log(sum(math.exp(x - largest) for x in terms))

    def nodes(self, c: Any, end: float) -> tuple[Sequence[Any], Sequence[Any], Any]:
        """The atoms."""
        del end
        weights = [m * (c * x).exp() for x, m in self.atoms]
        return weights, [x for x, _ in self.atoms], arb(0) if self.rest is None else self.rest(c)

    def tail(self, c: Any, start: float, end: float) -> Any:
        """M(c) on an endless line, on which atoms come back to it."""
        return self.real(c) if end == math.inf else super().tail(c, start, end)

    def cost(self, c: float) -> float:
        """The atoms."""
        del c
        return float(len(self.atoms))

    def profile(self, epsilon: Any) -> Any:
        """The sum over atoms."""
        parts = (m * positive_part(1 - (epsilon - x).exp()) for x, m in self.atoms)
        rest = arb(0) if self.rest is None else within(self.rest(arb(0)))
        return sum(parts, arb(0)) + rest

    def spread(self, log_goal: float) -> tuple[float, float, float]:
        """See `Law`."""
        heavy = [(x, m) for x, m in self._floats if m > log_goal]
        losses = [x for x, _ in heavy]
        return min(losses), max(losses), max(heavy, key=lambda pair: pair[1])[0]


def response(bound: Fraction, failure: Fraction) -> Finite:
    """The worst pair of (bound, failure)-DP: losses +-bound, and an infinite one."""
    share = ball(1 - failure) / (1 + ball(bound).exp())
    atoms = [(0, share), (1, share * ball(bound).exp())]
    return Finite(atoms, ball(failure), lattice=(2 * bound, -bound))


def randomised_response(bound: Fraction, categories: Fraction) -> Finite:
    """The answer is kept with e^bound times the probability of each other answer."""
    share = 1 / (ball(bound).exp() + ball(categories) - 1)
    if categories == 2:
        return response(bound, Fraction(0))
    atoms = [(-1, share), (0, ball(categories - 2) * share), (1, ball(bound).exp() * share)]
    return Finite(atoms, lattice=(bound, Fraction(0)))


def discrete_laplace(scale: Fraction, shift: int) -> Finite:
    """(1 - q) / (1 + q) q^|k| against the same moved by `shift`, q = e^(-1 / scale)."""
    q = (-1 / ball(scale)).exp()
    atoms = [(shift, 1 / (1 + q)), (0, q**shift / (1 + q))]
    atoms += [(shift - k, (1 - q) / (1 + q) * q**k) for k in range(1, shift)]
    return Finite(atoms, lattice=(2 / scale, -shift / scale))


def discrete_gaussian(scale: Fraction, shift: int, reach: int) -> Finite:
    """e^(-k^2 / (2 scale^2)) / Z, |k| <= reach, against the same moved by `shift`."""

    def density(k: int) -> Any:
        return (-ball(Fraction(k * k) / (2 * scale**2))).exp()

    def beyond(start: int, tilt: Any) -> Any:
        """Of k >= start, times e^(tilt k): the ratio of neighbours falls."""
        first = density(start) * (tilt * start).exp()
        ratio = (tilt - ball(Fraction(2 * start + 1) / (2 * scale**2))).exp()
        return first / (1 - ratio) if ratio < 1 else arb("inf")

    # Enough of the lattice for Z itself.
    edge = math.ceil(20 * scale) + 20
    total = 1 + 2 * sum((density(k) for k in range(1, edge)), arb(0))
    total = total + 2 * within(beyond(edge, arb(0)))
    unit = Fraction(shift) / scale**2
    # The noise at -k: the loss grows with k.
    atoms = [(k, density(k) / total) for k in range(-reach, reach + 1)]

    def rest(c: Any) -> Any:
        lift = (c * ball(unit * shift / 2)).exp() / total
        tilt = c * ball(unit)
        return (lift * (beyond(reach + 1, tilt) + beyond(reach + 1, -tilt))).abs_upper()

    return Finite(atoms, rest=rest, lattice=(unit, unit * shift / 2))


def staircase(epsilon: Fraction, width: Fraction, split: Fraction, shift: Fraction) -> Finite:
    """e^(-epsilon n(x)), n(x) = floor(|x| / width - split) + 1, against itself moved by `shift`."""

    def level(x: Fraction) -> int:
        return max(0, math.floor(abs(x) / width - split) + 1)

    b = (-ball(epsilon)).exp()
    height = (1 - b) / (2 * ball(width) * (ball(split) + b * ball(1 - split)))
    # Beyond `right` both levels rise by 1 a width, and so do they below `left`.
    left, right = -(split + 1) * width, (split + 1) * width + shift
    edges = {left - width, left, right, right + width}
    for m in range(math.ceil((right + width) / width) + 2):
        for edge in (-(split + m) * width, (split + m) * width):
            edges |= {x for x in (edge, edge + shift) if left - width < x < right + width}
    masses: dict[int, Any] = {}
    places = sorted(edges)
    for start, stop in itertools.pairwise(places):
        middle = (start + stop) / 2
        mass = ball(stop - start) * height * b ** level(middle)
        mass = mass / (1 - b) if stop <= left or start >= right else mass
        k = level(middle - shift) - level(middle)
        masses[k] = masses.get(k, arb(0)) + mass
    return Finite(list(masses.items()), lattice=(epsilon, Fraction(0)))


def sampled(base: Finite, only_q: Any, q: Any, added: bool) -> Finite:
    """(1 - q) Q + q P against Q of the pair P, Q; exchanged if `added`.

    `only_q` is the mass of Q where P has none. With w(L) = 1 - q + q e^L the loss is log w, or its
    negative under Q. Of masses left out, w^(1 + c) <= 1 - q + q e^((1 + c) L) and w >= 1 - q.
    """
    atoms = []
    for x, mass in [*base.atoms, (None, only_q)]:
        w = 1 - q if x is None else 1 - q + q * x.exp()
        under_q = mass if x is None else mass * (-x).exp()
        if not under_q.is_zero() and not w.is_zero():
            atoms.append((-w.log(), under_q) if added else (w.log(), under_q * w))
    rest = base.rest
    if rest is None:
        return Finite(atoms, arb(0) if added else q * base.infinite)

    def left_out(c: Any) -> Any:
        under_q = rest(arb(-1))
        if added:
            return under_q * (1 - q) ** (-c)
        return (1 - q) * under_q + q * rest(c)

    result = Finite(atoms, arb(0) if added else q * base.infinite, left_out)
    result.top = -(1 - q).log() if added else None
    return result
