"""The Subbotin's closed form in incomplete gamma functions at 60 digits."""

import mpmath as mp
import numpy as np

mp.mp.dps = 50

GENERATOR = np.random.default_rng(5)
POWERS = (1.0, 1.01, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 20.0)


def survival(t: mp.mpf, p: mp.mpf) -> mp.mpf:
    if t < 0:
        return 1 - survival(-t, p)
    x = t**p / p
    if x > 1:
        return mp.gammainc(1 / p, x, regularized=True) / 2
    return (1 - mp.gammainc(1 / p, 0, x, regularized=True)) / 2


def threshold(shift: mp.mpf, epsilon: mp.mpf, p: mp.mpf) -> mp.mpf:
    """The t where the loss is epsilon >= 0: bisection, then Newton."""
    if epsilon == 0:
        return -shift / 2

    def gap(x: mp.mpf) -> mp.mpf:
        return (abs(x + shift / 2) ** p - abs(x - shift / 2) ** p) / p - epsilon

    low, high = shift * mp.mpf(10) ** -30 * min(epsilon, 1), shift
    while gap(high) < 0:
        high *= 16
    for _ in range(50):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    for _ in range(7):
        v, u = low + shift / 2, low - shift / 2
        low -= gap(low) / (v ** (p - 1) - mp.sign(u) * abs(u) ** (p - 1))
    return low - shift / 2


def log_delta(shift: float, epsilon: float, power: float, scale: float = 1.0) -> mp.mpf:
    with mp.workdps(70):
        m, e, p = mp.mpf(shift) / mp.mpf(scale), abs(mp.mpf(epsilon)), mp.mpf(power)
        if p == 1 and e >= m:
            return -mp.inf if epsilon >= 0 else mp.log(-mp.expm1(epsilon))
        u = threshold(m, e, p)
        near, far = survival(u, p), mp.exp(e) * survival(u + m, p)
        delta, complement = near - far, survival(-u, p) + far
        if epsilon < 0:
            delta, complement = 1 - mp.exp(-e) * complement, mp.exp(-e) * complement
        return mp.log1p(-complement) if complement < 0.5 else mp.log(delta)


def loss(u, shift, power):
    return (np.abs(u + shift) ** power - np.abs(u) ** power) / power
