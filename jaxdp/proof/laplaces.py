"""Compositions of few Laplace releases, also truncated ones, exactly, by residues.

With M_i = ((f0 + f1 s) e^(a s) + (g0 + g1 s) e^(-a s)) / (1 + 2 s), M is a sum over k_i of products
e^(s sum_i a_i (n_i - 2 k_i)) F(s) / (1 + 2 s)^N, F a polynomial. In step 1 of the theorem the
contour is closed: to the right, without poles, where x = sum_i a_i (n_i - 2 k_i) - epsilon <= 0;
else to the left, with the residues at 0 and -1, and the one at -1/2, of order N = sum n_i.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, arb_poly, ball, precision
from jaxdp.proof.contour import Bracket, Releases
from jaxdp.proof.mixed import Laplace

# Terms times releases at most. chosen: seconds
_WORK = 400000
# Relative radius that suffices, and doublings of the precision. chosen
_CLOSE, _TRIALS = -15, 6


def residues(releases: Releases, epsilon: Fraction) -> Bracket | None:
    """Bounds on delta; None where another release is among them, or there are too many terms."""
    laws = [(n, law) for n, law in releases if isinstance(law, Laplace)]
    terms, size = math.prod(n + 1 for n, _ in releases), sum(n for n, _ in releases)
    if len(laws) < len(releases) or terms * size > _WORK:
        return None
    bits, value = 128 + size, arb(0)
    for _ in range(_TRIALS):
        with precision(bits):
            value = _sum(laws, ball(epsilon))
        if value > 0 and value.rad() < value.mid() * arb(10) ** _CLOSE:
            break
        bits *= 2
    return Bracket(arb(value.lower()), arb(value.upper()), terms)


def _sum(laws: list[tuple[int, Laplace]], epsilon: Any) -> Any:
    size = sum(n for n, _ in laws)
    # 1 / (s (s + 1)) = 1 / (v^2 - 1/4) = -4 sum (2 v)^(2 i), s = v - 1/2, to the order needed.
    kernel = arb_poly([-4 * arb(4) ** (i // 2) if i % 2 == 0 else arb(0) for i in range(size)])
    terms: list[Any] = [(-epsilon, arb(1), ())]
    for n, law in laws:
        a = ball(law.ratio)
        sides = [arb_poly([f0 - f1 / 2, f1]) for f0, f1 in (law.first, law.second)]
        powers = [_powers(side, n) for side in sides]
        terms = [
            (x + a * (n - 2 * k), w * math.comb(n, k), (*p, powers[0][n - k], powers[1][k]))
            for x, w, p in terms
            for k in range(n + 1)
        ]
    total = arb(0)
    for x, weight, factors in terms:
        if x <= 0:  # continuous at 0: an undecided sign only widens the ball
            continue
        polynomial = math.prod(factors, start=arb_poly([1]))
        at_0, at_1 = polynomial(arb(1) / 2), polynomial(-arb(1) / 2) * (-1) ** size
        series = (polynomial * kernel).coeffs()[:size]
        # The coefficient of v^(N - 1) after the product with e^(x v).
        factor, residue = arb(1), arb(0)
        for j, value in enumerate(reversed(series + [arb(0)] * (size - len(series)))):
            residue += value * factor
            factor *= x / (j + 1)
        total += weight * (at_0 - (-x).exp() * at_1 + (-x / 2).exp() * residue / arb(2) ** size)
    return total


def _powers(x: Any, n: int) -> list[Any]:
    found = [arb_poly([1])]
    for _ in range(n):
        found.append(found[-1] * x)
    return found
