"""delta of n equal releases whose loss has two to five atoms, one total after the other.

With M = sum over i of p_i e^(theta l_i) and w_i = p_i e^(theta l_i) / M,

    delta = M^n e^(-theta epsilon) sum over m of Multinomial(m; n, w) (1 - e^-gap)_+ e^(-theta gap),

gap = sum of m_i l_i less epsilon: at the saddle theta the totals next to epsilon are the likely
ones. The rarest atom's count is summed over what Bernstein's and Hoeffding's inequalities leave of
it, for each the next one's, ...; the probabilities are products of binomial ones, which are known
to full relative accuracy near their peaks.
Source: Loader, Fast and accurate computation of binomial probabilities, 2000 (their form).
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1p
from jaxdp._types import Bools, Indices, Reals

# Of a law: of so many each takes a loop.
ATOMS = 5
# -log of the probability of what is not looked at; then the most totals that are.
_LEFT, _MOST = 60.0, 2.0**22
_CHUNK = 2048
_SMALL = 16
# log n! - log(sqrt(2 pi n) (n / e)^n).
_EXACT = np.array(
    [0.0]
    + [
        math.log(math.factorial(k)) - (0.5 * math.log(2 * math.pi * k) + k * math.log(k) - k)
        for k in range(1, _SMALL)
    ]
)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


class Law(NamedTuple):
    """Atoms of one release, (ATOMS,): log masses of -inf and losses of 0 where there are fewer."""

    log_mass: Reals
    loss: Reals


class Summed(NamedTuple):
    """log delta between bounds: scalars, infinite where there are too many totals."""

    upper: Reals
    lower: Reals


class _Sums(NamedTuple):
    upper: Reals
    lower: Reals
    beyond: Reals  # of e^-gap over what is above epsilon
    by_mass: Reals  # of every m_i, weighted as delta is, and as `beyond` is: (ATOMS,)
    by_loss: Reals


@jax.custom_jvp
def log_delta_of_atoms(law: Law, count: Reals, epsilon: Reals, tilt: Reals) -> Summed:
    """At epsilon >= 0, for a tilt >= 0 near the saddle."""
    return _summed(law, count, epsilon, tilt)[0]


@log_delta_of_atoms.defjvp
def _log_delta_jvp(primals, tangents):
    law, count, epsilon, tilt = primals
    moved, counted, raised, _ = tangents
    value, sums = _summed(*primals)
    ahead, behind = (_summed(law, count + by, epsilon, tilt)[0].upper for by in (1.0, -1.0))
    # Between two whole numbers nothing is defined; of none delta is 0.
    by_count = jnp.where(jnp.isfinite(behind), 0.5 * (ahead - behind), 0.0)
    present = law.log_mass > -jnp.inf
    slope = jnp.sum(jnp.where(present, sums.by_mass * moved.log_mass, 0.0))
    slope += jnp.sum(jnp.where(present, sums.by_loss * moved.loss, 0.0))
    slope = (slope - sums.beyond * raised) / sums.upper
    slope = jnp.where(sums.upper > 0, slope, 0.0) + by_count * counted
    return value, Summed(slope, slope)


class _Level(NamedTuple):
    """The counts of one atom where those of rarer ones are known."""

    chance: tuple[Reals, Reals]  # w and 1 - w, of what is left
    reach: Reals  # to either side of the mean
    width: Reals  # how many


def _levels(law: Law, count: Reals, tilt: Reals) -> tuple[Indices, Reals, list[_Level]]:
    """The atoms from the rarest to the most likely, their weights, and all but the last."""
    logs = law.log_mass + tilt * law.loss
    order = jnp.argsort(logs)
    weight = jnp.exp(logs - jnp.max(logs))[order]
    levels = []
    for i in range(ATOMS - 1):
        later = jnp.sum(weight[i + 1 :])
        chance = weight[i] / (weight[i] + later), later / (weight[i] + later)
        variance = count * chance[0] * chance[1]
        bernstein = _LEFT / 3.0 + jnp.sqrt(_LEFT**2 / 9.0 + 2.0 * _LEFT * variance)
        side = jnp.minimum(bernstein, jnp.sqrt(0.5 * _LEFT * count)) + 1.0
        side = jnp.where(chance[0] > 0, jnp.ceil(jnp.minimum(side, count)), 0.0)
        levels.append(_Level(chance, side, jnp.minimum(2.0 * side, count) + 1.0))
    return order, weight / jnp.sum(weight), levels


def _counts(index: Reals, count: Reals, levels: list[_Level]) -> tuple[Reals, Reals, Bools]:
    """Of each atom (atoms, totals), their log probability, and which of them there are."""
    rest, inside = jnp.broadcast_to(count, index.shape), index >= 0
    log_share, found = jnp.zeros_like(index), []
    for level in levels:
        others = jnp.floor(index / level.width)
        place = index - others * level.width
        least = jnp.maximum(jnp.floor(rest * level.chance[0]) - level.reach, 0.0)
        each = least + place
        inside &= each <= rest
        each = jnp.where(inside, each, 0.0)
        log_share += _log_binomial(each, rest, *level.chance)
        rest, index = rest - each, others
        found.append(each)
    return jnp.stack([*found, rest]), log_share, inside & (index == 0)


def _summed(law: Law, count: Reals, epsilon: Reals, tilt: Reals) -> tuple[Summed, _Sums]:
    order, weight, levels = _levels(law, count, tilt)
    loss = law.loss[order]
    total = functools.reduce(jnp.multiply, [level.width for level in levels])
    possible = total <= _MOST
    # Of the positions of the totals.
    off = 16.0 * ULP * (epsilon + count * jnp.max(jnp.abs(loss)))

    def add(state: tuple[Reals, _Sums]) -> tuple[Reals, _Sums]:
        start, sums = state
        counts, log_share, inside = _counts(start + jnp.arange(1.0 * _CHUNK), count, levels)
        gap = loss @ counts - epsilon

        def above(gap: Reals) -> tuple[Reals, Reals]:
            held = jnp.where(inside & (gap > 0), gap, 0.0)
            share = jnp.where(inside & (gap > 0), jnp.exp(log_share - tilt * held), 0.0)
            return share, -jnp.expm1(-held)

        most, high = above(gap + off)
        least, low = above(gap - off)
        value, beyond = most * high, most * (1.0 - high)
        more = _Sums(
            jnp.sum(value), jnp.sum(least * low), jnp.sum(beyond), counts @ value, counts @ beyond
        )
        return start + _CHUNK, jax.tree.map(jnp.add, sums, more)

    nothing, each = jnp.zeros(()), jnp.zeros(ATOMS)
    start = nothing, _Sums(nothing, nothing, nothing, each, each)
    sums = lax.while_loop(lambda s: (s[0] < total) & possible, add, start)[1]
    back = jnp.argsort(order)
    sums = sums._replace(by_mass=sums.by_mass[back], by_loss=sums.by_loss[back])
    log_size = count * _cumulant(law, tilt) - tilt * epsilon
    shifted = jnp.abs(tilt * loss)
    error = 512.0 + 16.0 * jnp.abs(log_size) + 8.0 * tilt * epsilon
    error += 8.0 * count * jnp.sum(weight * shifted)
    # What the weights are off by counts as far as the counts are from their means.
    far = functools.reduce(jnp.add, [level.reach for level in levels])
    error += far * (32.0 + 16.0 * jnp.max(jnp.where(weight > 0, shifted, 0.0)))
    left = 2.0 * (ATOMS - 1) * math.exp(-_LEFT)
    upper = log_size + jnp.log(sums.upper * (1.0 + ULP * error) + left)
    lower = log_size + jnp.log(jnp.maximum(sums.lower * (1.0 - ULP * error), 0.0))
    upper, lower = (x + s * 8.0 * ULP * jnp.abs(x) for x, s in ((upper, 1.0), (lower, -1.0)))
    found = Summed(
        jnp.where(possible, jnp.minimum(upper, 0.0), jnp.inf),
        jnp.where(possible & (sums.lower > 0), lower, -jnp.inf),
    )
    return found, sums


def _cumulant(law: Law, tilt: Reals) -> Reals:
    """log of M: the masses add up to 1."""
    mass, turn = jnp.exp(law.log_mass), tilt * law.loss
    near = jnp.max(jnp.abs(turn)) < 1.0
    excess = jnp.sum(mass * jnp.expm1(jnp.where(near, turn, 0.0)))
    return jnp.where(near, log1p(excess), jax.nn.logsumexp(law.log_mass + turn))


def _log_binomial(j: Reals, n: Reals, w: Reals, rest: Reals) -> Reals:
    """log of the probability of j <= n successes, of a chance w = 1 - `rest` each."""
    middle = (j > 0) & (j < n)
    k, held = jnp.where(middle, j, 1.0), jnp.where(middle, n, 2.0)
    value = _beyond_stirling(held) - _beyond_stirling(k) - _beyond_stirling(held - k)
    value -= _deviance(k, held * w) + _deviance(held - k, held * rest)
    value += 0.5 * jnp.log(held / (k * (held - k))) - LOG_SQRT_2PI
    none = jnp.where(n > 0, n * jnp.log(jnp.where(j == 0, rest, w)), 0.0)
    small = jnp.where(j == 0, w, rest)
    none = jnp.where(small < 0.5, n * log1p(-jnp.where(small < 0.5, small, 0.0)), none)
    return jnp.where(middle, value, none)


def _beyond_stirling(n: Reals) -> Reals:
    exact = jnp.asarray(_EXACT)[jnp.clip(n, 0, _SMALL - 1).astype(int)]
    inverse = 1.0 / jnp.maximum(n, 1.0 * _SMALL)
    square = inverse * inverse
    series = functools.reduce(lambda x, c: c + square * x, _STIRLING[::-1], 0.0 * n)
    return jnp.where(n < _SMALL, exact, inverse * series)


def _deviance(x: Reals, mean: Reals) -> Reals:
    """x log(x / mean) + mean - x, accurate near the mean."""
    gap = x - mean
    v = gap / (x + mean)
    near = jnp.abs(v) < 0.1
    u = jnp.where(near, v, 0.0)
    square = u * u
    series = functools.reduce(lambda s, k: 1.0 / (2 * k + 1) + square * s, range(9, 0, -1), 0.0 * u)
    close = gap * u + 2.0 * x * u * square * series
    safe = jnp.where(near | (mean <= 0), 1.0, x / jnp.where(mean > 0, mean, 1.0))
    far = jnp.where(mean > 0, x * jnp.log(safe) - gap, jnp.inf)
    return jnp.where(near, close, far)
