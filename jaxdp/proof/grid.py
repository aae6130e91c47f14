"""Bounds for few releases whose transform does not fall, on a grid of losses.

Between grid points the profile of a release is at most its chord in e^epsilon, and chords are the
profile of a law on the grid. Compositions of such laws are above. A chord moves no loss by more
than a cell, so delta(epsilon) is at least the chords' delta at epsilon + releases * cell.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, arb_poly, ball, positive_part, precision
from jaxdp.proof.contour import Bracket, Composition, Releases, choose
from jaxdp.proof.finite import Finite
from jaxdp.proof.law import Law

# Grid points of one release at most, and of the composition. chosen: seconds
_POINTS, _TOTAL = 2**13, 2**17
# log of the mass beyond the grid, over delta. chosen: below the width
_BEYOND = -30.0
# Nats by which a tilt lifts the last mass at most. chosen: products of balls stay fast
_LIFT = 200.0
# Masses on a lattice, and totals of atoms, that are added up exactly at most. chosen: a second
_EXACT, _TOTALS = 3000, 20000
# Bits of the sums. chosen: second differences lose 40, a tilt some more
_BITS = 240


def bracket(releases: Releases, epsilon: Fraction, log_delta: float) -> Bracket:
    """Bounds on delta over finite losses, from chords."""
    count = sum(n for n, _ in releases)
    goal = log_delta + _BEYOND - math.log(count)
    spans = [law.spread(goal) for _, law in releases]
    points = min(_POINTS, _TOTAL // count)
    cell = Fraction(max(high - low for low, high, _ in spans) / points * (1 + 1e-6))
    tilt = choose(Composition(releases, epsilon, 1, lambda i, n: None)).tilt
    tilt = min(tilt, _LIFT / (points * float(cell)))
    with precision(_BITS):
        size = ball(cell)
        factor = (arb(tilt) * size).exp()
        whole, beyond, offset = arb_poly([1]), arb(0), Fraction(0)
        for (n, law), (low, high, anchor) in zip(releases, spans, strict=True):
            first = math.floor((low - anchor) / float(cell)) - 1
            last = math.ceil((high - anchor) / float(cell)) + 1
            start = Fraction(anchor) + first * cell
            masses, left_out = _chords(law, start, size, last - first + 1)
            power, tilted = arb(1), []
            for mass in masses:
                tilted.append(mass * power)
                power *= factor
            whole *= arb_poly(tilted) ** n
            beyond += n * left_out
            offset += n * start
        masses = whole.coeffs()
        upper = _delta(masses, epsilon, offset, cell, arb(tilt))
        lower = _delta(masses, epsilon + count * cell, offset, cell, arb(tilt))
    lower = arb(lower.lower())
    return Bracket(lower if lower > 0 else arb(0), arb((upper + beyond).upper()), len(masses))


def exact(releases: Releases, epsilon: Fraction) -> Bracket | None:
    """delta of few atoms as a sum over all totals; None for other releases."""
    if not all(isinstance(law, Finite) and law.rest is None for _, law in releases):
        return None
    sizes = ((n, len(getattr(law, "atoms", ()))) for n, law in releases)
    totals = math.prod(math.comb(n + size - 1, n) for n, size in sizes)
    if totals <= _TOTALS:
        value = _enumerated(releases, ball(epsilon))
        return Bracket(arb(value.lower()), arb(value.upper()), totals)
    lattice = Composition(releases, epsilon, 1, lambda i, n: None).lattice()
    if lattice is None:
        return None
    unit, start = lattice[0], Fraction(0)
    rows, length = [], 0
    laws: Any = releases
    for n, law in laws:
        own, offset = law.lattice
        low = min(k for k, _ in law.places)
        start += n * (offset + own * low)
        stride = int(own / unit)
        size = stride * (max(k for k, _ in law.places) - low) + 1
        masses = [arb(0)] * size
        for k, mass in law.places:
            masses[stride * (k - low)] = mass
        rows.append((n, masses))
        length += n * size
    if length > _EXACT:
        return None
    whole = arb_poly([1])
    for n, masses in rows:
        whole *= arb_poly(masses) ** n
    total = arb(0)
    for k, mass in enumerate(whole.coeffs()):
        place = start + unit * k
        if place > epsilon:
            total += mass * (1 - ball(epsilon - place).exp())
    return Bracket(arb(total.lower()), arb(total.upper()), length)


def _enumerated(releases: Any, epsilon: Any) -> Any:
    """Over how often each atom occurs."""
    terms = [(-epsilon, arb(1))]
    for n, law in releases:
        rows = [(x, w, n) for x, w in terms]
        for x, mass in law.atoms[:-1]:
            powers = [mass**k for k in range(n + 1)]
            rows = [
                (total + k * x, w * powers[k] * math.comb(left, k), left - k)
                for total, w, left in rows
                for k in range(left + 1)
            ]
        x, mass = law.atoms[-1]
        terms = [(total + left * x, w * mass**left) for total, w, left in rows]
    return sum((w * positive_part(1 - (-x).exp()) for x, w in terms), arb(0))


def _chords(law: Law, start: Fraction, cell: Any, count: int) -> tuple[list[Any], Any]:
    """Masses of the chords' law at start + cell k, and the mass above."""
    mass = law.profile(ball(start) - 2000)  # all of it, but e^-2000
    places = [ball(start) + cell * k for k in range(count)]
    deltas = [law.profile(x) for x in places]
    grown = [x.exp() for x in places]
    slopes = [(deltas[0] - mass) / grown[0]]
    for k in range(1, count):
        slopes.append((deltas[k] - deltas[k - 1]) / (grown[k] - grown[k - 1]))
    slopes.append(arb(0))
    masses = (grown[k] * (slopes[k + 1] - slopes[k]) for k in range(count))
    return [positive_part(x) for x in masses], deltas[-1]


def _delta(masses: list[Any], epsilon: Fraction, offset: Fraction, cell: Fraction, c: Any) -> Any:
    """The sum of e^(-c cell k) m_k (1 - e^(epsilon - offset - cell k))_+."""
    first = max(0, math.floor((epsilon - offset) / cell) + 1)
    if first >= len(masses):
        return arb(0)
    above = arb_poly(masses[first:])
    size, place = ball(cell), ball(offset + first * cell)
    p, q = (above((-tilt * size).exp()) for tilt in (c, c + 1))
    lifted = p - (ball(epsilon) - place).exp() * q
    return lifted * (-c * size * first).exp()
