"""Pad batches to a few sizes, so that few shapes compile, and split them over a CPU's cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxdp._core.devices import default_platform
from jaxdp._core.threads import cores, in_threads
from jaxdp._core.tracing import outside_traces

# Batches of more than 2 lanes are padded to a multiple of this; larger ones to a multiple of an
# eighth to a quarter of their size. chosen: few shapes, little padding
_FEW = 8
# Fewest lanes that are worth a thread. chosen: a lane takes milliseconds
_LANES_A_THREAD = 8
# Releases of a piece, all its lanes together. chosen: their nodes take 250 MB
_MOST = 4096


def in_pieces(function: Callable[..., Any], lanes: Any, piece: int) -> Any:
    """NumPy arrays function(*lanes) of arrays (lanes, ...), evaluated for `piece` lanes a call."""
    size = jax.tree.leaves(lanes)[0].shape[0]
    with outside_traces():
        index = np.minimum(np.arange(-(-size // piece) * piece), size - 1).reshape(-1, piece)
        calls = [jax.tree.map(lambda x, i=i: np.asarray(x)[i], lanes) for i in index]
        results = in_threads(function, calls)
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:size], *results)


def piece_of(size: int, releases: int) -> int:
    """Number of lanes in one call, for a batch of `size` lanes with `releases` releases each."""
    return lanes_a_call(max(_MOST // releases, 1), size, on_host=False)


def of_platform(sizes: dict[str, int]) -> int:
    """The size for the platform that computes here: "cpu", or "other" for any other device."""
    return sizes["cpu" if default_platform() == "cpu" else "other"]


def lanes_a_call(most: int, size: int, on_host: bool) -> int:
    """Number of lanes in one call, at most `most`; a program gets few sizes, as each compiles."""
    of_a_core = -(-size // min(cores(), max(size // _LANES_A_THREAD, 1)))
    return min(most, of_a_core if on_host else few_sizes(of_a_core))


def few_sizes(size: int) -> int:
    """The number of lanes to which a batch of `size` lanes is padded."""
    multiple = 1 if size <= 2 else max(_FEW, 2 ** (size - 1).bit_length() // 8)
    return -(-size // multiple) * multiple
