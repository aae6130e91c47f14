"""ChaCha20 as a generator of `jax.random`: keys of 256 bits, for draws that no one may predict.

The block function follows RFC 8439, section 2.3: 16 words of state (4 constants, 8 of the key,
4 of the input) through ten double rounds, added to the state. The input words are a 64-bit
counter, a purpose and 0: bits, children of `split` and of `fold_in`, and seeds come from
disjoint inputs, so no drawn bit reveals a key. A draw of 2^32 blocks (256 GiB) raises an error.

NumPy computes few known words, XLA compiles the functions for all others, once: outside of `jit`
JAX calls them as they are, and a loop that is traced at each call is compiled at each call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl

from jaxdp._core import checks
from jaxdp._core.namespace import for_traces, on_host, xp
from jaxdp._core.types import Shape

# Name of the generator, as `jax.random.key_impl` gives it.
NAME = "chacha20"
_KEY_WORDS = 8  # words of a key. derived: RFC 8439, section 2.3
_BLOCK_WORDS = 16  # words of a block. derived: RFC 8439, section 2.3
# "expand 32-byte k" as little-endian words. derived: RFC 8439, section 2.3
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
# Purposes: the third word of the input. chosen: distinct
_BITS = 1  # of a draw
_SPLIT = 2  # of the children of `split`
_FOLD = 3  # of the children of `fold_in`
_SEED = 4  # of keys from seeds
# Blocks of one draw are below this. derived: the low word of the counter
_MOST_BLOCKS = 2**32
# Blocks at a time on a CPU. measured: 4.1 Gbit/s; 0.8 with all at once, out of the cache
_CHUNK = 4096
# Blocks up to which whole numbers of Python are faster than arrays. measured
_FEW = 32
# Quarter rounds of a double round: columns, then diagonals. derived: RFC 8439, section 2.3
_QUARTERS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)


def block(key: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The block function of RFC 8439, elementwise: 16 arrays of words, from 8 and 4."""
    given = (*_CONSTANTS, *key, *inputs)
    shape = np.broadcast_shapes(*map(np.shape, given))
    if on_host(given):
        known = np.empty((_BLOCK_WORDS, *shape), np.uint32)
        for index, word in enumerate(given):
            known[index] = word
        state = known.reshape(4, 4, -1)
        mixed = _mixed_few(state) if state.shape[-1] <= _FEW else _mixed_many(state)
        return list((mixed + state).reshape(known.shape))
    state = [jnp.broadcast_to(jnp.asarray(x, jnp.uint32), shape) for x in given]

    # A loop: unrolled, twenty rounds take XLA on a CPU seconds to compile.
    mixed = lax.fori_loop(0, 10, lambda _, x: _double_round(x), tuple(state))
    return [a + b for a, b in zip(mixed, state, strict=True)]


def _mixed_few(state: np.ndarray) -> np.ndarray:
    """Ten double rounds of states (4, 4, blocks), by whole numbers of Python: a row is one.

    Its words have 64 bits each, of which the upper ones are free: a sixth of NumPy's time.
    """
    a, b, c, d = (int.from_bytes(row.astype("<u8").tobytes(), "little") for row in state)
    size = 64 * state.shape[-1]
    words = int.from_bytes(np.full(size // 16, 2**32 - 1, "<u8").tobytes(), "little")
    row = (1 << 4 * size) - 1

    def turned(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) & words

    def moved(x: int, columns: int) -> int:
        return (x >> columns * size | x << (4 - columns) * size) & row

    for half in range(20):
        a = (a + b) & words
        d = turned(d ^ a, 16)
        c = (c + d) & words
        b = turned(b ^ c, 12)
        a = (a + b) & words
        d = turned(d ^ a, 8)
        c = (c + d) & words
        b = turned(b ^ c, 7)
        step = 3 if half % 2 else 1
        b, c, d = moved(b, step), moved(c, 2), moved(d, 4 - step)
    mixed = b"".join(x.to_bytes(size // 2, "little") for x in (a, b, c, d))
    return np.frombuffer(mixed, "<u8").astype(np.uint32).reshape(state.shape)


def _mixed_many(state: np.ndarray) -> np.ndarray:
    """Ten double rounds of states (4, 4, blocks), by NumPy."""
    a, b, c, d = state
    rows = np.arange(4)
    for half in range(20):
        a = a + b
        d = _rotated(d ^ a, 16)
        c = c + d
        b = _rotated(b ^ c, 12)
        a = a + b
        d = _rotated(d ^ a, 8)
        c = c + d
        b = _rotated(b ^ c, 7)
        # From columns to diagonals, or back.
        step = 3 if half % 2 else 1
        b, c, d = b[(rows + step) % 4], c[(rows + 2) % 4], d[(rows + 4 - step) % 4]
    return np.stack([a, b, c, d])


def _double_round(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    x = list(state)
    for a, b, c, d in _QUARTERS:
        x[a] = x[a] + x[b]
        x[d] = _rotated(x[d] ^ x[a], 16)
        x[c] = x[c] + x[d]
        x[b] = _rotated(x[b] ^ x[c], 12)
        x[a] = x[a] + x[b]
        x[d] = _rotated(x[d] ^ x[a], 8)
        x[c] = x[c] + x[d]
        x[b] = _rotated(x[b] ^ x[c], 7)
    return tuple(x)


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _program(
    blocks: Callable[..., int] = lambda *_: 1, static_argnums: tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function as a program, or by NumPy for known words and few `blocks`."""

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        program = jax.jit(function, static_argnums=static_argnums, inline=True)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if not checks.all_concrete(args) or blocks(*args) > _CHUNK:
                with for_traces():
                    return program(*args)
            known = (np.asarray(x) if hasattr(x, "dtype") else x for x in args)
            return jax.device_put(function(*known))

        return call

    return of


@_program()
def _seed(seed: Any) -> Any:
    """A key from a whole number: for tests, as a seed can be guessed."""
    low, high = seed.astype(np.uint32), 0
    if seed.dtype.itemsize == 8:
        high = (seed.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
    return xp.stack(block([0] * _KEY_WORDS, (low, high, _SEED, 0))[:_KEY_WORDS])


def children(key: Any, shape: Shape) -> Any:
    """Children of a key, as of `jax.random.split`: half of the block of their number."""
    number = xp.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    return xp.stack(block(list(key), (number, 0, _SPLIT, 0))[:_KEY_WORDS], axis=-1)


def child(keys: Any, number: Any) -> Any:
    """The child of a number of keys (..., 8), as of `jax.random.fold_in`: half of its block."""
    number = xp.asarray(number).astype(np.uint32)
    words = block(list(xp.moveaxis(keys, -1, 0)), (number, 0, _FOLD, 0))
    return xp.stack(words[:_KEY_WORDS], axis=-1)


def _blocks(_: Any, bit_width: int, shape: Shape) -> int:
    """The number of blocks that hold a draw."""
    return -(-math.prod(shape) * bit_width // (32 * _BLOCK_WORDS))


@_program(_blocks, static_argnums=(1, 2))
def _bits(key: Any, bit_width: int, shape: Shape) -> Any:
    """Random words of 8, 16, 32 or 64 bits."""
    size, blocks = math.prod(shape), _blocks(key, bit_width, shape)
    if blocks >= _MOST_BLOCKS:
        raise ValueError(f"shape must need fewer than 2^32 blocks of 512 bits, got {shape}")

    def drawn(counter: Any) -> Any:
        return _cast(block(list(key), (counter, 0, _BITS, 0)), bit_width)

    if blocks <= _CHUNK or jax.default_backend() != "cpu":
        return drawn(xp.arange(blocks, dtype=np.uint32)).reshape(-1)[:size].reshape(shape)
    chunks = -(-blocks // _CHUNK)
    counters = lax.iota(jnp.uint32, chunks * _CHUNK).reshape(chunks, _CHUNK)
    return lax.map(drawn, counters).reshape(-1)[:size].reshape(shape)


def _cast(words: list[Any], bit_width: int) -> Any:
    """The words of blocks as words of another width."""
    drawn = xp.stack(words)
    if bit_width == 64:
        # Halves of a block side by side: a cast of neighbouring words is four times slower.
        half = _BLOCK_WORDS // 2
        high = drawn[half:].astype(np.uint64) << np.uint64(32)
        return high | drawn[:half].astype(np.uint64)
    if bit_width < 32:
        narrow = np.dtype(f"uint{bit_width}")
        return drawn.view(narrow)
    return drawn


def first_children(keys: np.ndarray) -> np.ndarray:
    """First child of each known key's child of 0, for keys (keys, 8)."""
    return np.stack(block(list(child(keys, 0).T), (0, 0, _SPLIT, 0))[:_KEY_WORDS], axis=-1)


def known_bits(keys: np.ndarray, shape: Shape) -> np.ndarray:
    """Words of 64 bits, of a shape for each of known keys: those of `jax.random.bits`."""
    size = math.prod(shape)
    counters = np.arange(_blocks(None, 64, shape), dtype=np.uint32)
    words = _cast(block(list(keys.T[..., None]), (counters, 0, _BITS, 0)), 64)
    return np.moveaxis(words, 0, 1).reshape(len(keys), -1)[:, :size].reshape(-1, *shape)


IMPLEMENTATION = define_prng_impl(
    key_shape=(_KEY_WORDS,),
    seed=_seed,
    split=_program(lambda _, shape: math.prod(shape), static_argnums=(1,))(children),
    random_bits=_bits,
    fold_in=_program()(child),
    name=NAME,
    tag=NAME,
)
