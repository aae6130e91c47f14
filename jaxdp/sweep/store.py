"""A sweep on disk: a Zarr store that is written block by block, and in it what is done.

The variables have one Zarr chunk a block. In the folder of the first axis, where Zarr does not look
for arrays, `.sweep` holds the sweep's fingerprint in `sweep.json` and a marker for every block,
written after its chunks. The store is made beside its place and moved there.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.sweep.evaluate import Columns, Reasons
from jaxdp.sweep.grid import Grid
from jaxdp.sweep.identity import labels


class Store:
    """The files of one sweep; another one's are refused."""

    def __init__(self, to: str | os.PathLike[str], grid: Grid, digest: str):
        self.path, self.grid, self.digest = Path(to), grid, digest
        self._zarr = checks.extra("zarr", "sweep")
        # By name, opened at the first block: opening them takes as long as writing a chunk.
        self._arrays: dict[str, Any] = {}

    def _notes(self, path: Path) -> Path:
        return path / self.grid.names[0] / ".sweep"

    def begun(self) -> bool:
        """True if the sweep was begun before; `ValueError` where something else is there."""
        if not self.path.exists():
            return False
        manifest = self._notes(self.path) / "sweep.json"
        if not manifest.exists():
            raise ValueError(
                f"to must be a new folder or this sweep's; another sweep's, or none, is {self.path}"
            )
        if json.loads(manifest.read_text())["digest"] != self.digest:
            raise ValueError(
                f"to holds another sweep (other axes, chunk, function or versions): {self.path}"
            )
        return True

    def create(self, variables: tuple[str, ...], attributes: Mapping[str, Any]) -> None:
        """Every array, empty, made beside and moved into place."""
        partial = self.path.with_name(f"{self.path.name}.partial-{uuid.uuid4().hex}")
        group = self._zarr.create_group(store=str(partial), attributes=dict(attributes))
        for name, axis in zip(self.grid.names, self.grid.axes, strict=True):
            array = group.create_array(
                name,
                shape=axis.shape,
                chunks=axis.shape,
                dtype="f8",
                dimension_names=[name],
                attributes=labels(name),
            )
            array[:] = axis
        for name in variables:
            group.create_array(
                name,
                shape=self.grid.shape,
                chunks=self.grid.block,
                dtype="f8",
                fill_value=np.nan,
                dimension_names=list(self.grid.names),
                attributes=labels(name),
                config={"write_empty_chunks": True},
            )
        self._notes(partial).mkdir()
        _write(self._notes(partial) / "sweep.json", {"digest": self.digest, "variables": variables})
        try:
            partial.rename(self.path)
        except OSError:
            # Another process of the same sweep may have been sooner.
            shutil.rmtree(partial)
            if not self.begun():
                raise

    def variables(self) -> tuple[str, ...]:
        """Names of what the function returns."""
        return tuple(json.loads((self._notes(self.path) / "sweep.json").read_text())["variables"])

    def done(self) -> set[int]:
        """The blocks that are finished."""
        return {int(path.stem) for path in self._notes(self.path).glob("*.done")}

    def write(self, number: int, columns: Columns, reasons: Reasons) -> None:
        """One chunk of every variable, then the marker."""
        try:
            if not self._arrays:
                group = self._zarr.open_group(str(self.path), mode="r+")
                self._arrays = {name: group[name] for name in columns}
            at = self.grid.slices(number)
            shape = tuple(part.stop - part.start for part in at)
            for name, column in columns.items():
                self._arrays[name][at] = column.reshape(shape)
            _write(self._notes(self.path) / f"{number}.done", reasons)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(
                errno.ENOSPC,
                f"the disk is full; {len(self.done())} of {self.grid.blocks} chunks are done and "
                f"kept: make room and run the same call again ({self.path})",
            ) from error

    def reasons(self) -> dict[int, Reasons]:
        """Why points of a block failed, where some did."""
        found = {
            n: json.loads((self._notes(self.path) / f"{n}.done").read_text()) for n in self.done()
        }
        return {n: [(int(at), why) for at, why in told] for n, told in found.items() if told}


def read_axes(path: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """The axes of a store that was created."""
    group: Any = checks.extra("zarr", "sweep").open_group(path, mode="r")
    return tuple(np.asarray(group[name][:]) for name in names)


def _write(path: Path, content: Any) -> None:
    """Beside it and moved: a reader sees all of it or nothing."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    partial.write_text(json.dumps(content))
    partial.replace(path)
