"""A sweep on disk: a Zarr group with one chunk of every variable a block, and a marker a block.

In the folder of the first axis, where Zarr does not look for arrays, `.sweep` holds the sweep's
fingerprint in `sweep.json` and, for every finished block, its failures and a digest of its
values. The store is made beside its place and moved there. Zarr writes and reads the chunks; each
ends in a CRC.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.files import Format, sealed, unsealed, write_atomically
from jaxdp.sweep.evaluate import Columns, Reasons, reasons_as_text
from jaxdp.sweep.grid import NOT_DONE, STATUS, Grid

_FORMAT = Format("jaxdp-sweep", 4)  # of the files in `.sweep` and of the chunks
_MANIFEST = "sweep.json"  # fingerprint, variables and attributes of the sweep
_ROOT = "zarr.json"  # the group's own metadata
_READERS = 4  # blocks read at a time. chosen: reading and hashing overlap


class Store:
    """The files of one sweep; another sweep's are refused, damaged ones are computed again."""

    def __init__(self, to: str | os.PathLike[str], grid: Grid, fingerprint: str):
        self.path, self.grid, self.fingerprint = Path(to), grid, fingerprint
        self._notes = Path(grid.names[0]) / ".sweep"
        self._arrays: dict[str, Any] = {}

    def begun(self) -> bool:
        """True if the sweep was begun before; `ValueError` if the folder holds something else.

        Damaged metadata and axes are written again.
        """
        if not self.path.exists():
            return False
        manifest = self.path / self._notes / _MANIFEST
        if not manifest.exists():
            raise ValueError(
                f"to must be a new folder or this sweep's; another sweep's, or none, is "
                f"{self.path}, which has no {manifest}"
            )
        known = self._manifest()
        if known["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"to holds another sweep (other axes, chunk, function or versions): {self.path}"
            )
        self._repair(None)
        return True

    def create(
        self, variables: Mapping[str, Mapping[str, Any]], attributes: Mapping[str, Any]
    ) -> None:
        """Make every array, empty, beside the store's place and move them there."""
        partial = self.path.with_name(f"{self.path.name}.partial-{uuid.uuid4().hex}")
        self._lay_out(partial, variables, attributes)
        known = {"fingerprint": self.fingerprint, "variables": variables, "attributes": attributes}
        _write(partial / self._notes / _MANIFEST, sealed(_FORMAT, known))
        try:
            partial.rename(self.path)
        except OSError:
            # Another process of the same sweep may have been sooner.
            shutil.rmtree(partial)
            if not self.begun():
                raise

    def results(self) -> tuple[str, ...]:
        """Names of the function's results."""
        coordinates = (*self.grid.names, STATUS)
        return tuple(name for name in self._manifest()["variables"] if name not in coordinates)

    def done(self) -> set[int]:
        """The blocks that have a marker."""
        stems = (path.stem for path in (self.path / self._notes).glob("*.done"))
        return {int(stem) for stem in stems if stem.isdecimal() and int(stem) < self.grid.blocks}

    def damaged(self) -> set[int]:
        """The finished blocks whose marker or values were damaged."""
        numbers = sorted(self.done())
        with ThreadPoolExecutor(_READERS) as pool:
            intact = pool.map(self._is_intact, numbers)
            return {
                number for number, is_intact in zip(numbers, intact, strict=True) if not is_intact
            }

    def write(self, number: int, columns: Columns, reasons: Reasons) -> None:
        """One chunk of every variable, then the marker."""
        slices = self.grid.slices(number)
        shape = [part.stop - part.start for part in slices]
        try:
            for name, column in columns.items():
                self._array(name)[slices] = column.reshape(shape)
            marker = {"block": number, "values": _digest(columns), "failures": reasons}
            _write(self._marker(number), sealed(_FORMAT, marker))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(
                errno.ENOSPC,
                f"the disk is full; {len(self.done())} of {self.grid.blocks} chunks are done and "
                f"kept: make room and run the same call again ({self.path})",
            ) from error

    def finish(self) -> str:
        """Write all failures into the attributes; again if other jobs finished meanwhile."""
        while True:
            numbers = self.done()
            failures = reasons_as_text(self.grid, self._reasons(numbers))
            self._repair(failures)
            if self.done() == numbers:
                return failures

    def _repair(self, failures: str | None) -> None:
        """Write damaged metadata and axes again; the root, which holds the failures, if given."""
        known = self._manifest()
        attributes = {**known["attributes"], "failures": failures}
        with tempfile.TemporaryDirectory() as folder:
            self._lay_out(Path(folder), known["variables"], attributes)
            for file in (file for file in Path(folder).rglob("*") if file.is_file()):
                place, content = file.relative_to(folder), file.read_bytes()
                is_known = failures is not None or place != Path(_ROOT)
                if is_known and _content(self.path / place) != content:
                    _write(self.path / place, content)

    def _lay_out(
        self, path: Path, variables: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> None:
        """A group at `path` with all axes, and all arrays without a chunk."""
        zarr, grid = checks.extra("zarr", "sweep"), self.grid
        group = zarr.create_group(store=str(path), attributes=dict(attributes))
        for name, labels in variables.items():
            is_axis = name in grid.names
            axis = grid.axes[grid.names.index(name)] if is_axis else None
            dtype = np.dtype("i1" if name == STATUS else "f8")
            array = group.create_array(
                name,
                shape=grid.shape if axis is None else axis.shape,
                chunks=grid.block if axis is None else axis.shape,
                dimension_names=list(grid.names) if axis is None else [name],
                attributes=dict(labels),
                dtype=dtype,
                fill_value=NOT_DONE if name == STATUS else np.nan,
                # In full, as the same chunks are written by later versions of Zarr.
                chunk_key_encoding={"name": "default", "separator": "/"},
                # Smaller than zstd and faster for numbers that differ in their last bytes.
                compressors=(
                    zarr.codecs.BloscCodec(
                        cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize
                    ),
                    zarr.codecs.Crc32cCodec(),
                ),
            )
            if axis is not None:
                array[:] = axis
        with warnings.catch_warnings():
            # Not in the format's specification yet; a reader that does not know it leaves it out.
            warnings.filterwarnings("ignore", message="Consolidated metadata", category=UserWarning)
            zarr.consolidate_metadata(str(path))

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            zarr = checks.extra("zarr", "sweep")
            self._arrays[name] = zarr.open_array(str(self.path), path=name, mode="r+")
        return self._arrays[name]

    def _marker(self, number: int) -> Path:
        return self.path / self._notes / f"{number}.done"

    def _read_marker(self, number: int) -> dict[str, Any]:
        return unsealed(_FORMAT, self._marker(number).read_text(encoding="utf-8"))

    def _manifest(self) -> dict[str, Any]:
        path = self.path / self._notes / _MANIFEST
        try:
            return unsealed(_FORMAT, path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{path} is damaged, or of another jaxdp ({error}): bring it back from a copy, or "
                f"remove {self.path} and run the same call again"
            ) from error

    def _is_intact(self, number: int) -> bool:
        slices = self.grid.slices(number)
        try:
            marker = self._read_marker(number)
            names = (*self.results(), STATUS)
            found = {name: self._array(name)[slices].ravel() for name in names}
        except Exception:  # Zarr's codecs raise errors of many kinds for a damaged chunk
            return False
        return marker["block"] == number and marker["values"] == _digest(found)

    def _reasons(self, numbers: set[int]) -> dict[int, Reasons]:
        reasons = {}
        for number in numbers:
            try:
                failures = self._read_marker(number)["failures"]
            except ValueError as error:
                raise ValueError(
                    f"{self._marker(number)} is damaged: run the same call again"
                ) from error
            if failures:
                reasons[number] = [(int(place), why) for place, why in failures]
        return reasons


def read_axes(path: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """The axes of a store that was created."""
    zarr = checks.extra("zarr", "sweep")
    return tuple(np.asarray(zarr.open_array(path, path=name, mode="r")[:]) for name in names)


def _digest(columns: Columns) -> str:
    """SHA-256 of a block's values, independent of the order of the variables."""
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update(name.encode() + np.ascontiguousarray(columns[name]).tobytes())
    return digest.hexdigest()


def _write(path: Path, content: str | bytes) -> None:
    """All or nothing; after a loss of power the digests show the damage."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content, survives_power_loss=False)


def _content(path: Path) -> bytes | None:
    """Content of a file, or None."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
