"""log delta of compositions of sampling schemes, in NumPy: an inverse Laplace transform by nodes.

Nothing of the library is used: a pair is the loss L and its mass under the law without the record,
at nodes of a trapezoidal rule, which is exact to rounding for what is smooth and falls as a normal.
"""

import numpy as np
from compositions import GROUP, MIXED, RECORDS, STEPS
from scipy.special import logsumexp
from scipy.stats import binom

# Steps of nodes in standard deviations on a line, in space, and how far beyond the tilted mean.
STEP, WIDER, BEYOND = 0.03, 0.35, 9.0
# By how much two tilts may disagree.
NOISE = 1e-9
# Tilts looked at, and the least share of the largest node that is kept.
TILTS, LEAST = np.geomspace(0.1, 40.0, 60), 1e-16


def mixture(means, shares, low, high):
    """(log mass without the record, loss): sum of shares N(means) against N(0)."""
    largest = max(means)
    x = np.arange(low * largest - BEYOND, high * largest + BEYOND, min(STEP, STEP / largest))
    log_mass = -0.5 * x**2 + np.log(x[1] - x[0]) - 0.5 * np.log(2.0 * np.pi)
    each = [np.log(w) + m * x - 0.5 * m**2 for m, w in zip(means, shares, strict=True) if w > 0]
    return log_mass, logsumexp(each, axis=0)


def allocation(mean, steps, low, high):
    """The same of one of `steps` normals, in as many dimensions: unordered nodes, counted."""
    assert steps == 3
    x = np.arange(low * mean - BEYOND, high * mean + BEYOND, WIDER)
    line = -0.5 * x**2 + np.log(WIDER) - 0.5 * np.log(2.0 * np.pi)
    i, j, k = np.indices((x.size,) * 3).reshape(3, -1)
    kept = (i <= j) & (j <= k) & (x[i] ** 2 + x[j] ** 2 + x[k] ** 2 < (x[-1] ** 2 + BEYOND**2))
    i, j, k = i[kept], j[kept], k[kept]
    orders = np.where(i == k, 1.0, np.where((i == j) | (j == k), 3.0, 6.0))
    z = mean * x - 0.5 * mean**2
    return line[i] + line[j] + line[k] + np.log(orders), logsumexp([z[i], z[j], z[k]], 0) - np.log(
        3
    )


def nodes_of(kind, parameters, low, high):
    """The nodes of one release, tilts from `low` to `high` considered."""
    p, m = parameters, 1.0 / parameters["scale"]
    if kind == "truncated_poisson":
        q, limit = p["sampling_prob"], p["limit"]
        full = binom.sf(limit - 1.0, RECORDS - 1.0, q)
        rate = limit / RECORDS * binom.sf(limit, RECORDS, q) / full if full > 0 else 0.0
        coin = ((1.0 - full, m, q), (full, 2.0 * m, rate))
        parts = [
            (np.log(w) + mass, loss)
            for w, a, r in coin
            if w > 0
            for mass, loss in (mixture((0.0, a), (1.0 - r, r), low, high),)
        ]
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    if kind == "without_replacement":
        g = p["batch"] / RECORDS
        return mixture((0.0, 2.0 * m), (1.0 - g, g), low, high)
    if kind == "group":
        taken = np.arange(GROUP + 1)
        return mixture(m * taken, binom.pmf(taken, GROUP, p["sampling_prob"]), low, high)
    if kind == "gaussian_mixture":
        shares = 1.0 - p["once"] - p["twice"], p["once"], p["twice"]
        return mixture(m * np.array(MIXED), shares, low, high)
    assert kind == "random_allocation"
    return allocation(m, STEPS, low, high)


def chernoff(log_mass, power, count, epsilon):
    """A bound on log delta, and the tilt of the least; `power(z)` is what losses are raised to."""
    each = [count * logsumexp(log_mass + power(c)) - c * epsilon for c in TILTS]
    best = np.argmin(each)
    return each[best], TILTS[best]


def one_way(log_mass, power, count, epsilon, c):
    """log delta by the line through the tilt c."""
    tilted = log_mass + power(c)
    total = logsumexp(tilted)
    kept = tilted > tilted.max() + np.log(LEAST)
    mass, loss = np.exp(tilted[kept] - total), (power(c + 1.0) - power(c))[kept]
    step = 2.0 * np.pi / (100.0 / c + 100.0)
    value, start = 0.0, 0
    while True:
        u = step * np.arange(start, start + 500)
        each = (np.exp(1j * np.outer(u, loss)) @ mass) ** count
        each = each * np.exp(-1j * u * epsilon) / ((c + 1j * u) * (c + 1.0 + 1j * u))
        each[0] *= 0.5 if start == 0 else 1.0
        value, start = value + each.real.sum(), start + 500
        if np.abs(each[-100:]).sum() < 1e-13 * value:
            return count * total - c * epsilon + np.log(step * value / np.pi)


def log_delta(kind, parameters, epsilon):
    """The worse of both directions; one whose bound is below the other is not looked at."""
    count, largest = parameters["count"], TILTS[-1] + 1.0
    ways = []
    for low, high, sign, removed in ((0.0, largest, 1.0, 1.0), (-largest, 0.0, -1.0, 0.0)):
        log_mass, loss = nodes_of(kind, parameters, low, high)

        def power(z, loss=loss, sign=sign, removed=removed):
            return (sign * z + removed) * loss

        ways.append((*chernoff(log_mass, power, count, epsilon), log_mass, power))
    best = -np.inf
    for bound, c, log_mass, power in sorted(ways, key=lambda way: -way[0]):
        if bound > best:
            each = [one_way(log_mass, power, count, epsilon, share * c) for share in (0.9, 1.0)]
            assert abs(each[1] - each[0]) < NOISE, each
            best = max(best, each[1])
    return best
