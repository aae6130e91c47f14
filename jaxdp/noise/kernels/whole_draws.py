"""Whole numbers drawn with probability proportional to exp(-h(|n|)), h even and convex.

h(n) = n^2 / (2 s^2), n / s, or n alpha / gamma^2 + (n - start)_+^2 / (2 gamma^2): the discrete
Gaussian, Laplace, flipped Huber (start alpha) and offset Gaussian (start 0), at any scale, and
perhaps up to a bound; or h of any log-concave noise, s as in `half_mass_width`. Rejection from
blocks of W = ceil(s / 2) numbers: a block k with probability proportional to exp(-(k / 2)^2 / 2) or
exp(-k / 2), which dominates (exp(1 - k / 2) for any log-concave noise), a place j in it, uniform, a
sign, and n = k W + j is taken with probability exp(h of the block - h(n)).

Blocks, places and signs are drawn without error. A comparison u < exp(-e) is made in float64
from 32 bits of u where these decide it; else, once in 10^9, with 32 digits and 53 bits more. So a
draw's law is within `ERROR` in total variation of the true one. That of any log-concave noise is
within it of the law of its log density as float64 computes that: see `CONCAVE_ERROR`.
Source: Karney, Sampling exactly from the normal distribution, ACM TOMS 2016; Canonne, Kamath &
Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020.

A known key and law draw the same numbers by NumPy, without a compilation. Many known candidates
are made by a program that has no 32 digits; NumPy makes those that need them again.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from typing import Any, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import chacha, checks
from jaxdp._core.float64 import host_array
from jaxdp._core.namespace import for_traces, in_kernel, kernel, lax, xp
from jaxdp._core.precision import is_tracing, opened
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import (
    children,
    fold_in,
    is_secure,
    kind_of,
    stored_key,
    words_of,
)
from jaxdp._core.types import Bools, Key, Reals, Shape
from jaxdp._numeric.double_double import Double, divide, scaled, total_pair
from jaxdp._numeric.elementary import two_sum

# Total variation between a draw's law and the true one. derived: 1e-25 a refined comparison, and
# thresholds of blocks to 2^-95, 180 of them
ERROR = 2.0**-76
# The same for any log-concave noise. derived: twice an error of 2^-41 of its log density, which may
# lose 2^11 ulp
CONCAVE_ERROR = 2.0**-40
# Largest unit, in whole numbers. derived: k W + j stays exact in a double
LARGEST_UNIT = 2.0**45
# Relative error that a float64 exp(-e) is far below. derived: 4 (e + 2) ulp, e < 500
_CERTAIN = 2.0**-40
# Least exponent of a log-concave noise. chosen: above the rounding of log densities
_BELOW = 2.0**-30
# Blocks of either proposal. derived: beyond them less than 2^-95
_BLOCKS = {"normal": 24, "exponential": 140}
# Number of draws from which on none is padded. chosen: a second of them
_PADDED = 2**20
# Known candidates from which on a program makes them. measured: NumPy takes 2 ms for as many, four
# times as long, and the program .6 s to compile
_MANY = 2**13
# Candidates at a time for each of a few draws that wait for their own. chosen: one turn for most
_AT_ONCE = 8
# Candidates that one word counts. derived: its bits
_ROW = 64
# Whole multiples of it are drawn where there are many. derived: words that ChaCha20 makes at a time
# on a CPU, two a candidate: none are left over, and none are copied
_CHUNK = 2**14
# The least of 31 bits that blocks beyond the compared ones may begin at. derived
_TOP = 2**31 - 1


class _Parts(NamedTuple):
    """Parts of candidates that their words hold: `pick` decides the block, `first_bits` whether."""

    sign: Reals
    pick: jax.Array
    first_bits: Reals
    place: Reals
    size: Reals
    fair: Bools


@functools.cache
def _thresholds(proposal: str) -> tuple[np.ndarray, np.ndarray]:
    """P[block <= k], times 2^31: the whole part, and 64 bits of the rest."""
    with decimal.localcontext(decimal.Context(prec=80)):
        blocks = range(_BLOCKS[proposal])
        powers = [k / 2 if proposal == "exponential" else k * k / 8 for k in blocks]
        weights = [(-decimal.Decimal(x)).exp() for x in powers]
        whole = sum(weights)
        ends = [sum(weights[: k + 1]) / whole for k in range(len(weights) - 1)]
        fixed = [min(int(x * 2**95), 2**95 - 1) for x in ends]
    high = np.array([x >> 64 for x in fixed], dtype=np.int32)
    low = np.array([x & (2**64 - 1) for x in fixed], dtype=np.uint64)
    return high, low


def draw(key: Key, law: WholeLaw, shape: Shape) -> Reals:
    """Whole-number draws of `shape`; NaN where a parameter is not positive and in range.

    One law for all of them: candidates are drawn together and those taken are put in a row. A
    batch of laws, of that shape: each draw waits for its own.
    """
    if not checks.all_concrete(key, law) or is_tracing():
        with for_traces():
            return _drawn(key, law, shape, _in_a_row, _one_by_one)
    with opened(), kernel():
        return _drawn(key, jax.tree.map(host_array, law), shape, _one_row, _one_by_one_of)


def _drawn(key: Key, law: WholeLaw, shape: Shape, in_a_row: Any, one_by_one: Any) -> Reals:
    """`draw`, by functions of a key, a law or laws, and a number of draws."""
    shape = np.broadcast_shapes(shape, law.scale.shape)
    one = all(np.ndim(x) == 0 for x in jax.tree.leaves(law))
    if math.prod(shape) == 0:
        return xp.zeros(shape)
    good, safe = _checked(law)
    size = math.prod(shape)
    count = padded_size(size)
    if one:
        values = in_a_row(key, safe, count)
    else:
        spread = jax.tree.map(
            lambda x: xp.pad(xp.broadcast_to(x, shape).ravel(), (0, count - size), "edge"), safe
        )
        values = one_by_one(key, spread, count)
    values = values[:size].reshape(shape)
    return xp.where(good & (values > -xp.inf), values, xp.nan)


def _checked(law: WholeLaw) -> tuple[Bools, WholeLaw]:
    """Whether a law's parameters are in range, and the law with others where they are not."""
    good = (law.scale > 0) & (law.scale <= LARGEST_UNIT)
    if law.kind in ("huber", "offset"):
        good = good & (law.alpha > 0) & (law.gamma > 0)
    if law.bound is not None:
        good = good & (law.bound >= 0)
    return good, jax.tree.map(lambda x: xp.where(good, x, 1.0), law)


def padded_size(size: int) -> int:
    """Number of draws made for `size` that are wanted: a power of two, as few are compiled."""
    padded = max(64, 1 << (size - 1).bit_length())
    return padded if padded < _PADDED else size


def _tried(law: WholeLaw, count: int) -> int:
    """Candidates of one turn: most turns are the only one."""
    least = int(law.candidates * count + 8.0 * math.sqrt(count))
    row = _ROW if least < 4 * _CHUNK else _CHUNK
    return row * (least // row + 1)


def draw_rows(keys: jax.Array, laws: WholeLaw, count: int) -> np.ndarray:
    """Known draws, (keys, count), by a law for each key: what `draw` draws from each, at once."""
    with opened(), kernel():
        good, laws = _checked(jax.tree.map(host_array, laws))
        drawn = _first_turns(keys, laws, _tried(laws, count))
        rows = []
        for index, row in enumerate(drawn):
            taken = row[~np.isnan(row)]
            if len(taken) < count or np.any(taken == np.inf):
                law = jax.tree.map(lambda x, index=index: x[index], laws)
                # Without the indexing of JAX, which is compiled.
                key = stored_key(words_of(keys)[index], kind_of(keys))
                taken = _known_row(key, law, count)
            rows.append(taken[:count])
        return np.where(good[:, None], rows, np.nan)


def _one_row(key: Key, law: WholeLaw, count: int) -> np.ndarray:
    """`draw_rows` of one key."""
    keys = stored_key(words_of(key)[None], kind_of(key))
    return draw_rows(keys, jax.tree.map(np.atleast_1d, law), count)[0]


def _first_turns(keys: jax.Array, laws: WholeLaw, tried: int) -> Reals:
    """Candidates of the first turn of each row; infinite where one is to be refined."""
    first = _first_children(keys)
    if len(keys) * tried >= _MANY:
        with for_traces():
            return host_array(_many_turns(first, laws, tried))
    words = np.moveaxis(_bits_of_rows(first, (2, tried)), 1, 0)
    laws = jax.tree.map(lambda x: x[:, None], laws)
    return _decided(laws, _parts(words, laws))


def _first_children(keys: jax.Array) -> jax.Array:
    """First child of each known key's child of 0."""
    if not is_secure(keys):
        return _first_children_of_jax(keys)
    return stored_key(chacha.first_children(words_of(keys)), chacha.NAME)


@jax.jit
@jax.vmap
def _first_children_of_jax(key: Key) -> Key:
    return jax.random.split(jax.random.fold_in(key, 0))[0]


def _bits_of_rows(keys: jax.Array, shape: Shape) -> np.ndarray:
    """Words of 64 bits, of a shape for each of known keys."""
    if not is_secure(keys):
        return np.asarray(_bits_of_jax(keys, shape))
    return chacha.known_bits(words_of(keys), shape)


@functools.partial(jax.jit, static_argnums=1)
def _bits_of_jax(keys: jax.Array, shape: Shape) -> jax.Array:
    return jax.vmap(lambda key: jax.random.bits(key, shape, dtype=jnp.uint64))(keys)


@functools.partial(jax.jit, static_argnums=2)
def _many_turns(keys: jax.Array, laws: WholeLaw, tried: int) -> Reals:
    def turn(row: tuple[Key, WholeLaw]) -> Reals:
        return _decided(row[1], _parts(_bits(row[0], (2, tried)), row[1]))

    return lax.map(turn, (keys, laws))


def _known_row(key: Key, law: WholeLaw, count: int) -> np.ndarray:
    """`_in_a_row` of a known key and law."""
    taken: list[np.ndarray] = []
    while sum(map(len, taken)) < count:
        turn = fold_in(key, len(taken))
        drawn = np.asarray(_candidates(turn, law, (_tried(law, count),)))
        taken.append(drawn[~np.isnan(drawn)])
    return np.concatenate(taken)[:count]


@functools.partial(jax.jit, static_argnums=2)
def _in_a_row(key: Key, law: WholeLaw, count: int) -> Reals:
    def fill(state: tuple[Reals, jax.Array, jax.Array]) -> tuple[Reals, jax.Array, jax.Array]:
        values, filled, turn = state
        turn_key = jax.random.fold_in(key, turn)
        drawn = _candidates(turn_key, law, (_tried(law, count),))
        taken = ~jnp.isnan(drawn)
        before, total = _counted(taken)
        places = jnp.where(taken, filled + before, count)
        values = values.at[places].set(drawn, mode="drop")
        return values, filled + total, turn + 1

    start = jnp.zeros(count), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32)
    return lax.while_loop(lambda state: state[1] < count, fill, start)[0]


def _counted(taken: Bools) -> tuple[jax.Array, jax.Array]:
    """Numbers of draws taken before each one, and in all: counts of bits, faster than a sum."""
    bit = np.uint64(1) << np.arange(_ROW, dtype=np.uint64)[None]
    words = jnp.sum(jnp.where(taken.reshape(-1, _ROW), bit, np.uint64(0)), axis=1)
    counts = lax.population_count(words).astype(jnp.int32)
    ends = jnp.cumsum(counts)
    within = lax.population_count(words[:, None] & (bit - np.uint64(1))).astype(jnp.int32)
    return ((ends - counts)[:, None] + within).reshape(-1), ends[-1]


def _one_by_one_of(key: Key, law: WholeLaw, count: int) -> Reals:
    at_once = _AT_ONCE if _AT_ONCE * count < _MANY else 1
    law = jax.tree.map(lambda x: x[None], law)

    def fill(state: tuple[Reals, Any]) -> tuple[Reals, Any]:
        values, turn = state
        drawn = _candidates(jax.random.fold_in(key, turn), law, (at_once, count))
        first = xp.argmin(xp.isnan(drawn), axis=0)
        drawn = xp.take_along_axis(drawn, first[None], axis=0)[0]
        return xp.where(xp.isnan(values), drawn, values), turn + np.uint32(1)

    start = xp.full(count, xp.nan), xp.zeros((), np.uint32)
    return lax.while_loop(lambda state: xp.any(xp.isnan(state[0])), fill, start)[0]


_one_by_one = jax.jit(_one_by_one_of, static_argnums=2)


def _bits(key: Key, shape: Shape) -> Any:
    """Words of 64 bits; NumPy's if the key is known."""
    words = jax.random.bits(key, shape, dtype=np.uint64)
    return np.asarray(words) if in_kernel() else words


def _candidates(key: Key, law: WholeLaw, shape: Shape) -> Reals:
    """Signed candidates; NaN where one is refused."""
    first, second = children(key)
    words = _bits(first, (2, *shape))
    # One array, which XLA makes in one pass.
    known = _decided(law, _parts(words, law))

    def refine(state: tuple[Reals, Any]) -> tuple[Reals, Any]:
        # What depends on the turn, which is 1: XLA would compute all else before the loop, and
        # write arrays that are hardly ever needed.
        again = _parts(words ^ (state[1] - np.uint32(1)).astype(np.uint64), law)
        refined = _refined(jax.random.fold_in(second, state[1]), law, again)
        return _signed(law, again, *refined), state[1] - np.uint32(1)

    # A loop of one turn at most: under `vmap` a condition would always be computed.
    start = known, xp.any(known == xp.inf).astype(np.uint32)
    return lax.while_loop(lambda state: state[1] > 0, refine, start)[0]


def _parts(words: Any, law: WholeLaw) -> _Parts:
    """Parts of candidates from two words each, (2, ...)."""
    sign = xp.where((words[0] & np.uint64(1)) == 0, 1.0, -1.0)
    pick = ((words[0] >> np.uint64(1)) & np.uint64(_TOP)).astype(xp.int32)
    first_bits = (words[0] >> np.uint64(32)).astype(xp.float64) * 2.0**-32
    size = xp.broadcast_to(xp.ceil(0.5 * law.scale), pick.shape)
    count = size.astype(xp.uint64)
    place = words[1] % count
    # 2^64 less a remainder is a multiple of the count: no place is likelier than another.
    fair = words[1] - place <= np.uint64(2**64 - 1) - (count - np.uint64(1))
    return _Parts(sign, pick, first_bits, place.astype(xp.float64), size, fair)


def _decided(law: WholeLaw, parts: _Parts) -> Reals:
    """Signed numbers by float64, NaN where refused; infinite where it decides nothing.

    -inf, which becomes NaN, where the density is above the one that dominates, or no number.
    """
    high, _ = _thresholds(law.proposal)
    block, tie = xp.zeros(parts.pick.shape, xp.int32), parts.pick == _TOP
    for threshold in high[high < _TOP].tolist():
        block = block + (parts.pick >= threshold).astype(xp.int32)
        tie = tie | (parts.pick == threshold)
    block = block.astype(xp.float64)
    size = exponent(law, block, parts.place, parts.size)
    chance = xp.exp(-size)
    taken = parts.first_bits + 2.0**-32 <= chance * (1.0 - _CERTAIN)
    is_open = ~taken & (parts.first_bits < chance * (1.0 + _CERTAIN)) | tie
    decided = xp.where(is_open & parts.fair, xp.inf, _signed(law, parts, block, taken))
    return xp.where(size >= -_BELOW, decided, -xp.inf) if law.kind == "concave" else decided


def _signed(law: WholeLaw, parts: _Parts, block: Reals, taken: Bools) -> Reals:
    """Signed numbers of these blocks; NaN for those that are not taken, or do not count."""
    value = block * parts.size + parts.place
    taken = taken & parts.fair & ((parts.sign > 0) | (value > 0))
    taken = taken if law.bound is None else taken & (value <= law.bound)
    return xp.where(taken, parts.sign * value, xp.nan)


def _refined(key: Key, law: WholeLaw, parts: _Parts) -> tuple[Reals, Bools]:
    """Blocks and decisions from 117 more bits and with 32 digits."""
    shape = parts.pick.shape
    more = _bits(key, (2, *shape))
    highs, lows = (xp.asarray(x) for x in _thresholds(law.proposal))

    def count_block(index: Any, block: Reals) -> Reals:
        high, low = highs[index], lows[index]
        reached = (parts.pick > high) | ((parts.pick == high) & (more[0] >= low))
        return block + reached.astype(xp.float64)

    block = lax.fori_loop(0, highs.size, count_block, xp.zeros(shape))
    chance = exp_pair(exponent_pair(law, block, parts.place, parts.size))
    rest = (more[1] >> np.uint64(11)).astype(xp.float64) * 2.0**-85
    return block, total_pair(chance, -parts.first_bits, -rest).high > 0


def uniform_below(key: Key, count: Reals, shape: Shape) -> Reals:
    """Uniform integers below `count` <= 2^53, by rejection with 8 tries; their error is 2^-88."""
    size = xp.broadcast_to(count, (8, *shape)).astype(xp.uint64)
    words = _bits(key, (8, *shape))
    rest = words % size
    fair = words - rest <= np.uint64(2**64 - 1) - (size - np.uint64(1))
    first = xp.argmax(fair, axis=0)
    return xp.take_along_axis(rest, first[None], axis=0)[0].astype(xp.float64)


def by_weight(key: Key, weights: tuple[int, ...], shape: Shape) -> Reals:
    """Indices of whole weights of any size, drawn by their shares of the sum to 2^-128 each."""
    high, low = (xp.asarray(x) for x in _ends(weights))
    word, rest = _bits(key, (2, *shape))

    def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        first, last = ends
        middle = (first + last) // 2
        at, below = high[middle], low[middle]
        reached = (word > at) | ((word == at) & (rest >= below))
        return xp.where(reached, middle + 1, first), xp.where(reached, last, middle)

    start = xp.zeros(shape, xp.int32), xp.full(shape, len(weights) - 1, xp.int32)
    return 1.0 * lax.fori_loop(0, len(weights).bit_length(), halve, start)[0]


@functools.lru_cache(maxsize=64)
def _ends(weights: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the weights up to each, as two words of a fraction of 2^128."""
    sums = [*itertools.accumulate(weights)]
    fixed = [min((x << 128) // sums[-1], 2**128 - 1) for x in sums]
    high, low = [x >> 64 for x in fixed], [x & (2**64 - 1) for x in fixed]
    return np.array(high, dtype=np.uint64), np.array(low, dtype=np.uint64)


# Halvings of the argument, and terms of the series. derived: 1e-31
_HALVINGS, _TERMS = 6, 20


def exp_pair(exponent: Double) -> Double:
    """exp(-e), e >= 0, to an absolute 1e-27; 0 beyond 200."""
    far = exponent.high > 200.0
    small = scaled(Double(*(xp.where(far, 1.0, -x) for x in exponent)), 2.0**-_HALVINGS)
    count = xp.round(small.high * 4.0) * 0.25
    high, low = two_sum(small.high, -count)
    rest = Double(high, low + small.low)
    # Not a constant: XLA would take (1 + x) - 1 for x.
    zero, one = xp.zeros_like(high), xp.where(high <= 1.0, 1.0, xp.nan)

    def add_term(index: Any, value: Double) -> Double:
        order = Double(one * (_TERMS - index), zero)
        term = divide(product(rest, value), order, xp.ones(high.shape, bool))
        return total_pair(one, term)

    value = lax.fori_loop(0, _TERMS, add_term, Double(one, zero))
    value = product(value, _quarters(count))
    value = lax.fori_loop(0, _HALVINGS, lambda _, x: product(x, x), value)
    return Double(*(xp.where(far, 0.0, x) for x in value))


def product(x: Double, y: Double) -> Double:
    """x y to 1e-31, from partial products of 26 bits, which no compiler can contract wrongly."""
    a, b = (lax.reduce_precision(v, 11, 25) for v in (x.high, y.high))
    a_low, b_low = x.high - a, y.high - b
    high, first = two_sum(a * b, a * b_low)
    high, second = two_sum(high, a_low * b)
    low = (first + second) + (a_low * b_low + (x.high * y.low + x.low * y.high))
    return Double(*two_sum(high, low))


def _quarters(count: Reals) -> Double:
    """exp(count) for multiples of 1/4 in [-4, 0], to 1e-32, from a table."""
    with decimal.localcontext(decimal.Context(prec=60)):
        exact = [(decimal.Decimal(-i) / 4).exp() for i in range(17)]
        high = np.array([float(x) for x in exact])
        low = np.array([float(x - decimal.Decimal(float(x))) for x in exact])
    index = xp.clip(xp.round(-4.0 * count), 0, 16).astype(xp.int32)
    return Double(xp.take(high, index), xp.take(low, index))


Kind = Literal["normal", "exponential", "huber", "offset", "concave"]
# Widening of the proposal of a log-concave noise. chosen: above a density's error in mass
_ROOM = 1.0 + 2.0**-20


@final
@pytree
class WholeLaw:
    """h of one kind with its scale s, up to `bound`, at least 0; all numbers if None.

    "huber" and "offset" with alpha and gamma as well, s = gamma^2 / alpha; "concave" with a
    log-concave `noise`, of which h is -log of the density at multiples of `fine`.
    """

    kind: Kind = static()
    scale: Reals
    alpha: Any = None
    gamma: Any = None
    bound: Reals | None = None
    noise: Any = None
    fine: Any = None

    @property
    def proposal(self) -> str:
        """The law of the blocks."""
        return "normal" if self.kind == "normal" else "exponential"

    @property
    def candidates(self) -> float:
        """Candidates for each draw: 4 % above one over the chance that one is taken."""
        return {"normal": 1.25, "concave": 3.6}.get(self.kind, 1.33)


def half_mass_width(noise: Any) -> Reals:
    """s = 1 / (2 g(0)), enlarged, of a symmetric log-concave density g.

    g(x) <= g(0) exp(1 - x / s): with r = log g(0) / g(x), the chord of log g from 0 to x has a mass
    of x g(0) (1 - e^-r) / r, at most 1/2, and r / (1 - e^-r) <= 1 + r.
    """
    return 0.5 * _ROOM * xp.exp(-noise.log_density(xp.zeros(())))


def law_of(noise: Any, kind: Kind, fine: Reals) -> WholeLaw:
    """The law of a log-concave noise at the multiples of `fine`, or of noise of one scale."""
    if kind != "concave":
        return WholeLaw(kind, noise.scale / fine)
    return WholeLaw(kind, half_mass_width(noise) / fine, noise=noise, fine=fine)


def exponent(law: WholeLaw, k: Reals, j: Reals, size: Reals) -> Reals:
    """h(n) - h of the block k of a size, at place j: parts >= 0 to a relative error of 8 ulp."""
    if law.kind == "concave":
        here = law.noise.log_density((k * size + j) * law.fine)
        return 1.0 + law.noise.log_density(xp.zeros(())) - here - 0.5 * k
    beyond = (j + k * (size - 0.5 * law.scale)) / law.scale
    if law.kind == "normal":
        return 0.5 * beyond * (beyond + k)
    if law.kind == "exponential":
        return beyond
    tail = k * size + j - _start(law)
    return beyond + 0.5 * (xp.maximum(tail, 0.0) / law.gamma) ** 2


def _start(law: WholeLaw) -> Any:
    """First number with a quadratic term in h."""
    return law.alpha if law.kind == "huber" else 0.0


def exponent_pair(law: WholeLaw, k: Reals, j: Reals, size: Reals) -> Double:
    """`exponent` to 1e-30; "concave": as it is, but not below 0."""
    everywhere = xp.ones(k.shape, bool)
    zero = xp.zeros(k.shape)

    def exactly(x: Reals) -> Double:
        return Double(xp.broadcast_to(x, k.shape), zero)

    if law.kind == "concave":
        return exactly(xp.maximum(exponent(law, k, j, size), 0.0))
    inside = size - 0.5 * law.scale
    n = k * size + j
    if law.kind in ("huber", "offset"):
        square_of_gamma = product(exactly(law.gamma), exactly(law.gamma))
        slope = divide(exactly(law.alpha), square_of_gamma, everywhere)  # alpha / gamma^2
        centre = total_pair(product(exactly(n), slope), -0.5 * k)
        outside = total_pair(exactly(n), exactly(zero - _start(law)))
        share = divide(outside, exactly(law.gamma), outside.high > 0)
        square = scaled(product(share, share), 0.5)
        return total_pair(centre, Double(*(xp.where(outside.high > 0, x, 0.0) for x in square)))
    part = product(exactly(k), exactly(inside))
    above = total_pair(part, j)
    beyond = divide(above, exactly(law.scale), everywhere)
    if law.kind == "exponential":
        return beyond
    return scaled(product(beyond, total_pair(beyond, k)), 0.5)
