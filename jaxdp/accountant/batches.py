"""Batches in few sizes, so that few shapes compile, and in pieces on a CPU's cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxdp._core.float64 import default_platform
from jaxdp._core.threads import cores, in_threads
from jaxdp._core.tracing import outside_traces

# Lanes above 2 are a multiple of this, later of an eighth to a quarter of their number. chosen
_FEW = 8
# Fewest lanes that are worth a thread. chosen: a lane takes milliseconds
_PIECE = 8
# Releases of a piece, all its lanes together. chosen: the nodes of so many take 250 MB
_MOST = 4096


def in_pieces(function: Callable[..., Any], lanes: Any, releases: int) -> Any:
    """function(*lanes), arrays (lanes, ...), whose results are arrays (lanes, ...) of NumPy.

    `releases`: of one lane.
    """
    size = jax.tree.leaves(lanes)[0].shape[0]
    pieces = _pieces(size, max(_MOST // releases, 1))
    piece = few_sizes(-(-size // pieces))
    with outside_traces():
        index = np.minimum(np.arange(piece * pieces), size - 1).reshape(pieces, piece)
        calls = [jax.tree.map(lambda x, i=i: np.asarray(x)[i], lanes) for i in index]
        # In two threads the same would be compiled twice.
        results = [function(*calls[0]), *in_threads(function, calls[1:])]
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:size], *results)


def of_platform(sizes: dict[str, int]) -> int:
    """The size for a "cpu", or for any "other" device, whichever computes here."""
    return sizes["cpu" if default_platform() == "cpu" else "other"]


def few_sizes(size: int) -> int:
    """The lanes that `size` of them are worked off in."""
    multiple = 1 if size <= 2 else max(_FEW, 2 ** (size - 1).bit_length() // 8)
    return -(-size // multiple) * multiple


def _pieces(size: int, most_lanes: int) -> int:
    few = min(cores(), max(size // _PIECE, 1))
    return -(-size // most_lanes // few) * few if size > most_lanes * few else few
