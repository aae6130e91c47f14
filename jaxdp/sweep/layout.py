"""A sweep's Zarr group in memory: its metadata, its axes, and the bytes of one chunk after another.

Zarr encodes, and what it makes is written to disk elsewhere, so that digests are those of the bytes
that were meant.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.sweep.grid import NOT_DONE, STATUS, Grid

# The group's own metadata, with that of every array in it.
ROOT = "zarr.json"


class Layout:
    """Files of a sweep as Zarr writes them, by their places in the store."""

    def __init__(
        self,
        grid: Grid,
        variables: Mapping[str, Mapping[str, Any]],
        attributes: Mapping[str, Any],
    ):
        zarr = checks.extra("zarr", "sweep")
        self._grid = grid
        self._buffers: dict[str, Any] = {}
        memory = zarr.storage.MemoryStore(self._buffers)
        group = zarr.create_group(store=memory, attributes=dict(attributes))
        for name, axis in zip(grid.names, grid.axes, strict=True):
            array = group.create_array(
                name,
                shape=axis.shape,
                chunks=axis.shape,
                dimension_names=[name],
                attributes=dict(variables[name]),
                **_encoding(zarr, np.dtype("f8")),
            )
            array[:] = axis
        self._arrays = {
            name: group.create_array(
                name,
                shape=grid.shape,
                chunks=grid.block,
                dimension_names=list(grid.names),
                attributes=dict(labels),
                **_encoding(zarr, np.dtype("i1" if name == STATUS else "f8")),
            )
            for name, labels in variables.items()
            if name not in grid.names
        }
        with warnings.catch_warnings():
            # Not in the format's specification yet; a reader that does not know it leaves it out.
            warnings.filterwarnings("ignore", message="Consolidated metadata", category=UserWarning)
            zarr.consolidate_metadata(memory)
        self.files = self._take_contents()

    def root(self, failures: str) -> bytes:
        """The group's metadata with these failures in its attributes."""
        content = json.loads(self.files[ROOT])
        content["attributes"]["failures"] = failures
        return json.dumps(content, indent=2).encode()

    def chunks(self, number: int, columns: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        """The chunk of a block in every array, by its place."""
        slices = self._grid.slices(number)
        shape = tuple(part.stop - part.start for part in slices)
        for name, column in columns.items():
            self._arrays[name][slices] = column.reshape(shape)
        return self._take_contents()

    def _take_contents(self) -> dict[str, bytes]:
        contents = {place: buffer.to_bytes() for place, buffer in self._buffers.items()}
        self._buffers.clear()
        return contents


def _encoding(zarr: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Codecs of a chunk; said in full, as the same chunks are written by later versions."""
    size = dtype.itemsize
    return {
        "dtype": dtype,
        "fill_value": np.nan if dtype.kind == "f" else NOT_DONE,
        "chunk_key_encoding": {"name": "default", "separator": "/"},
        # Of numbers that differ in their last bytes, in less time than zstd and smaller.
        "compressors": (
            zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=size),
            zarr.codecs.Crc32cCodec(),
        ),
        "config": {"write_empty_chunks": True},
    }
