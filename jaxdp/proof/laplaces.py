"""Compositions of few Laplace releases, exactly, by residues.

M is a sum over k_i of prod_i C(n_i, k_i) e^(-a_i k_i) times (1 + s)^(N - K) s^K / (1 + 2 s)^N e^(s
sum_i a_i (n_i - 2 k_i)), a_i shift over scale, N = sum n_i, K = sum k_i. In step 1 of the theorem
the contour is closed: to the right, without poles, where x = sum_i a_i (n_i - 2 k_i) - epsilon <=
0; else to the left, with the residue at 0 (K = 0 alone, equal to 1) and the one at -1/2, of order N.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, arb_poly, ball, ctx, precision
from jaxdp.proof.contour import Bracket, Releases
from jaxdp.proof.mixed import Laplace

# Terms at most. chosen: seconds
_TERMS = 3000
# Relative radius that suffices, and doublings of the precision. chosen
_CLOSE, _TRIALS = -15, 6


def residues(releases: Releases, epsilon: Fraction) -> Bracket | None:
    """Bounds on delta; None where another release is among them, or there are too many terms."""
    ratios = [law.ratio if isinstance(law, Laplace) else None for _, law in releases]
    if None in ratios or math.prod(n + 1 for n, _ in releases) > _TERMS:
        return None
    bits = ctx.prec
    value, terms = arb(0), 0
    for _ in range(_TRIALS):
        with precision(bits):
            rows = [(n, ball(a)) for (n, _), a in zip(releases, ratios, strict=True)]
            value, terms = _sum(rows, ball(epsilon))
        if value > 0 and value.rad() < value.mid() * arb(10) ** _CLOSE:
            break
        bits *= 2
    return Bracket(arb(value.lower()), arb(value.upper()), terms)


def _sum(releases: list[tuple[int, Any]], epsilon: Any) -> tuple[Any, int]:
    size = sum(n for n, _ in releases)
    terms = [(-epsilon, arb(1), 0)]
    for n, a in releases:
        terms = [
            (x + a * (n - 2 * k), w * math.comb(n, k) * (-a * k).exp(), above + k)
            for x, w, above in terms
            for k in range(n + 1)
        ]
    total, polynomials = arb(0), {}
    for x, weight, k in terms:
        if x <= 0:  # continuous at 0: an undecided sign only widens the ball
            continue
        if k not in polynomials:  # (1/2 + v)^(N - k - 1) (v - 1/2)^(k - 1), s = v - 1/2
            half, less = arb_poly([arb(1) / 2, 1]), arb_poly([-arb(1) / 2, 1])
            if k:
                polynomials[k] = half ** (size - k - 1) * less ** (k - 1)
            else:  # 1 / (v - 1/2) = -2 sum (2 v)^i, to the order needed
                series = arb_poly([-2 * arb(2) ** i for i in range(size)])
                polynomials[k] = half ** (size - 1) * series
        factor, residue = arb(1), arb(0)
        for j in range(size):  # the coefficient of v^(N - 1) after the product with e^(x v)
            residue += polynomials[k][size - 1 - j] * factor
            factor *= x / (j + 1)
        total += weight * ((-x / 2).exp() * residue / arb(2) ** size + (1 if k == 0 else 0))
    return total, len(terms)
