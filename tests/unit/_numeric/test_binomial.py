"""Binomial tails against sums of 50 digits, and their derivative."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxdp._numeric import binomial

pytestmark = pytest.mark.float64


def log_binomial_tails(n, k, q):
    return binomial.log_binomial_tails(*(jnp.asarray(x) for x in (n, k, q)))


CASES = (
    (10, 3, 0.2),
    (10, 1, 0.5),
    (1000, 60, 0.05),
    (1000, 40, 0.05),
    (60_000, 300, 256 / 60_000),
    (49_999, 4096, 0.08192),
    (10**6, 5, 1e-7),
)


def log_tail(n, k, q):
    """log P[Bin(n, q) >= k] beyond the mean."""
    q = mp.mpf(q)
    term, total = mp.binomial(n, k) * q**k * (1 - q) ** (n - k), mp.mpf(0)
    while k <= n and term > total * mp.mpf(10) ** -40:
        total += term
        term *= mp.mpf(n - k) / (k + 1) * q / (1 - q)
        k += 1
    return total


@pytest.mark.parametrize(("n", "k", "q"), CASES)
def test_both_tails_keep_their_relative_accuracy(n, k, q):
    with mp.workdps(50):
        if k > n * q:
            above = log_tail(n, k, q)
            below = 1 - above
        else:
            below = log_tail(n, n - k + 1, 1 - mp.mpf(q))
            above = 1 - below
        found = [float(x) for x in log_binomial_tails(float(n), float(k), q)]
        for value, truth in zip(found, (above, below), strict=True):
            error = abs(mp.expm1(mp.mpf(value) - mp.log(truth)))
            assert error < 2e-13 * (1 + abs(mp.log(truth)))


def test_certain_and_impossible():
    assert log_binomial_tails(5.0, 0.0, 0.3) == (0.0, -np.inf)
    assert log_binomial_tails(5.0, 6.0, 0.3) == (-np.inf, 0.0)
    assert log_binomial_tails(5.0, 1.0, 0.0) == (-np.inf, 0.0)
    assert log_binomial_tails(5.0, 5.0, 1.0) == (0.0, -np.inf)
