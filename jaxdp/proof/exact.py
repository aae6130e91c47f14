"""Deltas without a remainder: one release, Gaussians, few atoms, few Laplace releases."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from jaxdp.proof.balls import arb, arb_poly, ball, on_time, positive_part, precision, total
from jaxdp.proof.law import Releases, gaussian_profile

# Sums of atoms at most, and terms of residues times releases. chosen: seconds
_SUMS, _WORK = 20000, 1500000
# Relative radius that suffices, and doublings of the precision. chosen
_CLOSE, _TRIALS = -15, 6


def delta(releases: Releases, epsilon: Fraction, most_terms: int) -> tuple[Any, int] | None:
    """Delta over finite losses and the number of terms; None for other releases, or more terms."""
    laws = [law for _, law in releases]
    if all(law.variance is not None for law in laws):
        return gaussian_profile(total(n * law.variance for n, law in releases), ball(epsilon)), 0
    if sum(n for n, _ in releases) == 1:
        return laws[0].profile(ball(epsilon)), 0
    if all(law.fractional is not None for law in laws):
        terms, size = math.prod(n + 1 for n, _ in releases), sum(n for n, _ in releases)
        if terms <= most_terms and terms * size <= _WORK:
            return _residues(releases, epsilon, size), terms
    if not any(law.curves or law.rest for law in laws):
        sums = math.prod(math.comb(n + len(law.atoms) - 1, n) for n, law in releases)
        if sums <= min(most_terms, _SUMS):
            return _enumerated(releases, ball(epsilon)), sums
    return None


def _enumerated(releases: Releases, epsilon: Any) -> Any:
    """Delta as a sum over the numbers of times that the atoms occur."""
    terms = [(-epsilon, arb(1))]
    for n, law in releases:
        rows = [(x, w, n) for x, w in terms]
        for x, mass in law.atoms[:-1]:
            powers = [mass**k for k in range(n + 1)]
            rows = [
                (found + k * x, w * powers[k] * math.comb(left, k), left - k)
                for found, w, left in rows
                for k in range(left + 1)
            ]
            on_time()
        x, mass = law.atoms[-1]
        terms = [(found + left * x, w * mass**left) for found, w, left in rows]
    return total(w * positive_part(1 - (-x).exp()) for x, w in terms)


def _residues(releases: Releases, epsilon: Fraction, size: int) -> Any:
    """Delta by residues, with as many bits as it needs.

    M is a sum over k_i of products e^(s sum_i a_i (n_i - 2 k_i)) F(s) / (1 + 2 s)^N, F a
    polynomial. In step 1 of the theorem the contour is closed: to the right, without poles, where
    x = sum_i a_i (n_i - 2 k_i) - epsilon <= 0; else to the left, with the residues at 0 and -1, and
    the one at -1/2, of order N = sum n_i.
    """
    bits, value = 128 + size, arb(0)
    for _ in range(_TRIALS):
        with precision(bits):
            value = _sum_of_residues(releases, ball(epsilon), size)
        if value > 0 and value.rad() < value.mid() * arb(10) ** _CLOSE:
            break
        bits *= 2
    return value


def _sum_of_residues(releases: list[tuple[int, Any]], epsilon: Any, size: int) -> Any:
    # 1 / (s (s + 1)) = 1 / (v^2 - 1/4) = -4 sum (2 v)^(2 i), s = v - 1/2, to the order needed.
    kernel = arb_poly([-4 * arb(4) ** (i // 2) if i % 2 == 0 else arb(0) for i in range(size)])
    terms: list[Any] = [(-epsilon, arb_poly([1]))]
    for n, law in releases:
        shift, *numerators = law.fractional()
        a = ball(shift)
        sides = [arb_poly([f0 - f1 / 2, f1]) for f0, f1 in numerators]
        powers = [math.comb(n, k) * sides[0] ** (n - k) * sides[1] ** k for k in range(n + 1)]
        terms = [(x + a * (n - 2 * k), p * powers[k]) for x, p in terms for k in range(n + 1)]
    found = arb(0)
    for x, polynomial in terms:
        on_time()
        if x <= 0:  # continuous at 0: an undecided sign only widens the ball
            continue
        at_0, at_1 = polynomial(arb(1) / 2), polynomial(-arb(1) / 2) * (-1) ** size
        series = (polynomial * kernel).coeffs()[:size]
        # The coefficient of v^(N - 1) after the product with e^(x v).
        factor, residue = arb(1), arb(0)
        for j, value in enumerate(reversed(series + [arb(0)] * (size - len(series)))):
            residue += value * factor
            factor *= x / (j + 1)
        found += at_0 - (-x).exp() * at_1 + (-x / 2).exp() * residue / arb(2) ** size
    return found
