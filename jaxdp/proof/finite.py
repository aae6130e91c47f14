"""Laws of finitely many losses, or of losses on a lattice whose far masses are bounded."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, ball, on_time, total, within
from jaxdp.proof.law import Law

# Deviations of a discrete Gaussian that are kept: 12 of a tilt, and 70 bits. chosen
_REACH = 30


def response(bound: Fraction, failure: Fraction) -> Law:
    """The worst pair of (bound, failure)-DP: losses +-bound, and an infinite one."""
    share = ball(1 - failure) / (1 + ball(bound).exp())
    atoms = [(0, share), (1, share * ball(bound).exp())]
    return Law(atoms, infinite=ball(failure), lattice=(2 * bound, -bound))


def randomised_response(bound: Fraction, categories: Fraction) -> Law:
    """The answer is kept with e^bound times the probability of each other answer."""
    share = 1 / (ball(bound).exp() + ball(categories) - 1)
    if categories == 2:
        return response(bound, Fraction(0))
    atoms = [(-1, share), (0, ball(categories - 2) * share), (1, ball(bound).exp() * share)]
    return Law(atoms, lattice=(bound, Fraction(0)))


def discrete_laplace(scale: Fraction, shift: int) -> Law:
    """(1 - q) / (1 + q) q^|k| against the same moved by `shift`, q = e^(-1 / scale)."""
    q = (-1 / ball(scale)).exp()
    atoms = [(shift, 1 / (1 + q)), (0, q**shift / (1 + q))]
    for k in range(1, shift):
        on_time()
        atoms.append((shift - k, (1 - q) / (1 + q) * q**k))
    return Law(atoms, lattice=(2 / scale, -shift / scale))


def discrete_gaussian(scale: Fraction, shift: int) -> Law:
    """e^(-k^2 / (2 scale^2)) / Z, against the same moved by `shift`."""
    reach = math.ceil(_REACH * scale + shift) + 10

    def density(k: int) -> Any:
        on_time()
        return (-ball(Fraction(k * k) / (2 * scale**2))).exp()

    def beyond(start: int, tilt: Any) -> Any:
        """Bound on the sum of e^(tilt k) over k >= start: the ratio of neighbours falls."""
        first = density(start) * (tilt * start).exp()
        ratio = (tilt - ball(Fraction(2 * start + 1) / (2 * scale**2))).exp()
        return first / (1 - ratio) if ratio < 1 else arb("inf")

    # Enough of the lattice for Z itself.
    edge = math.ceil(20 * scale) + 20
    whole = 1 + 2 * total(density(k) for k in range(1, edge)) + 2 * within(beyond(edge, arb(0)))
    unit = Fraction(shift) / scale**2
    # The noise at -k: the loss grows with k.
    atoms = [(k, density(k) / whole) for k in range(-reach, reach + 1)]

    def rest(c: Any) -> Any:
        lift = (c * ball(unit * shift / 2)).exp() / whole
        tilt = c * ball(unit)
        return (lift * (beyond(reach + 1, tilt) + beyond(reach + 1, -tilt))).abs_upper()

    return Law(atoms, rest=rest, lattice=(unit, unit * shift / 2))


def staircase(epsilon: Fraction, width: Fraction, split: Fraction, shift: Fraction) -> Law:
    """e^(-epsilon n(x)), n(x) = floor(|x| / width - split) + 1, against itself moved by `shift`."""

    def level(x: Fraction) -> int:
        return max(0, math.floor(abs(x) / width - split) + 1)

    b = (-ball(epsilon)).exp()
    height = (1 - b) / (2 * ball(width) * (ball(split) + b * ball(1 - split)))
    # Beyond `right` both levels rise by 1 a width, and so do they below `left`.
    left, right = -(split + 1) * width, (split + 1) * width + shift
    edges = {left - width, left, right, right + width}
    for m in range(math.ceil((right + width) / width) + 2):
        on_time()
        for edge in (-(split + m) * width, (split + m) * width):
            edges |= {x for x in (edge, edge + shift) if left - width < x < right + width}
    masses: dict[int, Any] = {}
    places = sorted(edges)
    for start, stop in itertools.pairwise(places):
        on_time()
        middle = (start + stop) / 2
        mass = ball(stop - start) * height * b ** level(middle)
        mass = mass / (1 - b) if stop <= left or start >= right else mass
        k = level(middle - shift) - level(middle)
        masses[k] = masses.get(k, arb(0)) + mass
    return Law(list(masses.items()), lattice=(epsilon, Fraction(0)))


def sampled(base: Law, only_q: Any, q: Any, added: bool) -> Law:
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
    infinite, top = (arb(0), -(1 - q).log()) if added else (q * base.infinite, None)
    rest = base.rest
    if rest is None:
        return Law(atoms, infinite=infinite)

    def left_out(c: Any) -> Any:
        under_q = rest(arb(-1))
        return under_q * (1 - q) ** (-c) if added else (1 - q) * under_q + q * rest(c)

    return Law(atoms, infinite=infinite, rest=left_out, top=top)
