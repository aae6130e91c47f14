"""Tails of the binomial law, accurate relative to their own size, in log space.

P[Bin(n, q) >= k] = I_q(k, n - k + 1), the regularised incomplete beta function. Its continued
fraction converges fast on the far side of the mean; the other tail is 1 minus the far one.

Sources: Press et al., Numerical Recipes, 2007, section 6.4; Loader, Fast and Accurate Computation
of Binomial Probabilities, 2000 (the saddle-point form of the probability, which loses no digits).
"""

from __future__ import annotations

import numpy as np

from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import custom_jvp, lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, horner, log1m, log1p

# log k! less Stirling's (k + 1/2) log k - k + log sqrt(2 pi), 1 <= k < 16; 0 at k = 0. derived
_STIRLING = np.array(
    [
        *(0.0, 0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.02079067210376509),
        *(0.01664469118982119, 0.01387612882307075, 0.01189670994589177, 0.01041126526197209),
        *(0.009255462182712733, 0.008330563433362871, 0.007573675487951841, 0.00694284010720953),
        *(0.006408994188004207, 0.005951370112758848, 0.005554733551962801),
    ]
)
# Coefficients of the series of that error in 1 / k, 1 / k^3, ... derived: B_2j / (2 j (2 j - 1))
_SERIES = (1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0)
# Coefficients of (u - log(1 + u)) / u^2. derived: the next term is below an ulp at |u| = .1
_DEVIANCE = tuple((-1.0) ** power / power for power in range(2, 25))
# Largest number of steps of the continued fraction. derived: near the mean it needs about sqrt(n)
_MOST_STEPS = 20_000
# Relative change of the fraction at which it has converged. chosen: below an ulp
_CONVERGED = 0.25 * ULP
# Least size of a denominator. chosen: only an exact 0 is smaller
_TINY = 1e-290


def log_binomial_tails(n: Reals, k: Reals, q: Reals) -> tuple[Reals, Reals]:
    """log P[Bin(n, q) >= k] and log P[Bin(n, q) < k], whole n and k, q in [0, 1].

    Relative error of both probabilities: 1e-13 (1 + |log P|). Differentiable in q.
    """
    n, k, q = xp.broadcast_arrays(*(xp.asarray(x, dtype=float) for x in (n, k, q)))
    return _tails(n, k, q)


@custom_jvp
@jitted
def _tails(n: Reals, k: Reals, q: Reals) -> tuple[Reals, Reals]:
    certain, impossible = (k <= 0) | (q >= 1) & (k <= n), (k > n) | (q <= 0) & (k > 0)
    settled = certain | impossible
    at_k, at_n = xp.where(settled, 1.0, k), xp.where(settled, 2.0, n)
    p = xp.where(settled, 0.25, q)
    upper_is_small = at_k > (at_n + 1.0) * p
    # P[Bin(n, q) < k] = P[Bin(n, 1 - q) >= n - k + 1].
    j = xp.where(upper_is_small, at_k, at_n - at_k + 1.0)
    log_small = _log_far_tail(at_n, j, p, upper_is_small)
    log_small = xp.minimum(log_small, -ULP)
    log_large = log1m(xp.exp(log_small))
    above = xp.where(upper_is_small, log_small, log_large)
    below = xp.where(upper_is_small, log_large, log_small)
    above = xp.where(certain, 0.0, xp.where(impossible, -xp.inf, above))
    below = xp.where(certain, -xp.inf, xp.where(impossible, 0.0, below))
    broken = xp.isnan(n + k + q)
    return xp.where(broken, xp.nan, above), xp.where(broken, xp.nan, below)


@_tails.defjvp
def _tails_jvp(primals: tuple[Reals, Reals, Reals], tangents: tuple[Reals, Reals, Reals]):
    """d P[Bin(n, q) >= k] / dq = k P[Bin(n, q) = k] / q, with n and k fixed."""
    n, k, q = primals
    above, below = _tails(n, k, q)
    inside = (k > 0) & (k <= n) & (q > 0) & (q < 1)
    safe_n, safe_k = xp.where(inside, n, 2.0), xp.where(inside, k, 1.0)
    p = xp.where(inside, q, 0.25)
    log_rate = _log_probability(safe_n, safe_k, p, xp.ones_like(inside))
    log_rate = log_rate + (xp.log(safe_k) - xp.log(p))
    slopes = (
        xp.where(inside, xp.exp(log_rate - xp.where(inside, x, 0.0)), 0.0) for x in (above, below)
    )
    upper_slope, lower_slope = slopes
    return (above, below), (upper_slope * tangents[2], -lower_slope * tangents[2])


def _log_far_tail(n: Reals, k: Reals, q: Reals, is_q: Bools) -> Reals:
    """log P[Bin(n, p) >= k] beyond the mean; p is q, or 1 - q where `is_q` is False."""
    a, b = k, n - k + 1.0
    x = xp.where(is_q, q, 1.0 - q)

    def step(state):
        m, c, d, value, _ = state
        even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        before = value
        for part in (even, odd):
            d = 1.0 + part * d
            d = 1.0 / xp.where(xp.abs(d) < _TINY, _TINY, d)
            c = 1.0 + part / c
            c = xp.where(xp.abs(c) < _TINY, _TINY, c)
            value = value * d * c
        change = xp.max(xp.abs(value / before - 1.0))
        return m + 1.0, c, d, value, change

    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    start = 1.0, xp.ones_like(x), d, d, xp.asarray(1.0)
    value = lax.while_loop(lambda s: (s[4] > _CONVERGED) & (s[0] < _MOST_STEPS), step, start)[3]
    # x^a (1 - x)^b / (a B(a, b)) = P[Bin(n, x) = k] (1 - x).
    complement = xp.where(is_q, log1m(q), xp.log(q))
    return _log_probability(n, k, q, is_q) + complement + xp.log(value)


def _log_probability(n: Reals, k: Reals, q: Reals, is_q: Bools) -> Reals:
    """log P[Bin(n, p) = k], p = q or 1 - q, by deviances."""
    misses = n - k
    hit, miss = xp.where(is_q, q, 1.0 - q), xp.where(is_q, 1.0 - q, q)
    log_hit, log_miss = (
        xp.where(is_q, xp.log(q), log1m(q)),
        xp.where(is_q, log1m(q), xp.log(q)),
    )
    corner = (k == 0) | (misses == 0)
    safe_k, safe_rest = xp.maximum(k, 1.0), xp.maximum(misses, 1.0)
    body = _stirling(n) - _stirling(safe_k) - _stirling(safe_rest)
    body = body - (_deviance(safe_k, n * hit) + _deviance(safe_rest, n * miss))
    body = body + (0.5 * (xp.log(n) - xp.log(safe_k) - xp.log(safe_rest)) - LOG_SQRT_2PI)
    at_corner = xp.where(k == 0, n * log_miss, n * log_hit)
    return xp.where(corner, at_corner, body)


def _deviance(x: Reals, mean: Reals) -> Reals:
    """x log(x / mean) + mean - x >= 0, without a difference of nearly equal numbers."""
    excess = (mean - x) / x
    near = xp.abs(excess) < 0.1
    safe = xp.where(near, excess, 0.0)
    far = excess - log1p(xp.where(near, 0.0, excess))
    return x * xp.where(near, horner(_DEVIANCE, safe) * safe * safe, far)


def _stirling(k: Reals) -> Reals:
    """log k! less Stirling's approximation, whole k >= 1."""
    small = k < _STIRLING.size
    listed = xp.take(_STIRLING, xp.where(small, k, 0.0).astype(int))
    inverse = 1.0 / xp.where(small, 16.0, k)
    return xp.where(small, listed, horner(_SERIES, inverse * inverse) * inverse)
