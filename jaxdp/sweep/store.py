"""A sweep on disk: a Zarr store that is written block by block, and in it what is done.

The variables have one Zarr chunk a block. In the folder of the first axis, where Zarr does not look
for arrays, `.sweep` holds the sweep's fingerprint in `sweep.json` and a marker for every block with
the digests of its chunks, written after them. The store is made beside its place and moved there.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.files import Format, sealed, sha256_of, unsealed, write_atomically
from jaxdp.sweep.evaluate import Columns, Reasons, reasons_as_text
from jaxdp.sweep.grid import STATUS, Grid
from jaxdp.sweep.layout import ROOT, Layout

# Of what is in `.sweep`, and of how chunks are encoded.
_FORMAT = Format("jaxdp-sweep", 3)
# Says which sweep the store is of, and what is in it.
_MANIFEST = "sweep.json"
# Files that are read at a time. chosen: a disk's queue and the hashing of a chunk overlap
_READERS = 4


class Store:
    """The files of one sweep; another one's are refused, damaged ones made again."""

    def __init__(self, to: str | os.PathLike[str], grid: Grid, fingerprint: str):
        self.path, self.grid, self.fingerprint = Path(to), grid, fingerprint
        self._layout: Layout | None = None

    def begun(self) -> bool:
        """True if the sweep was begun before; `ValueError` where something else is there.

        What of its metadata and axes is damaged is written again.
        """
        if not self.path.exists():
            return False
        manifest = self._notes(self.path) / _MANIFEST
        if not manifest.exists():
            raise ValueError(
                f"to must be a new folder or this sweep's; another sweep's, or none, is "
                f"{self.path}, which has no {manifest}"
            )
        if self._manifest()["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"to holds another sweep (other axes, chunk, function or versions): {self.path}"
            )
        for place, content in self._files().files.items():
            # The root tells failures too: it is written at the end of every call.
            if place != ROOT and _content(self.path / place) != content:
                _write(self.path / place, content)
        return True

    def create(
        self, variables: Mapping[str, Mapping[str, Any]], attributes: Mapping[str, Any]
    ) -> None:
        """Every array, empty, made beside and moved into place."""
        partial = self.path.with_name(f"{self.path.name}.partial-{uuid.uuid4().hex}")
        self._layout = Layout(self.grid, variables, attributes)
        for place, content in self._layout.files.items():
            _write(partial / place, content)
        manifest = {
            "fingerprint": self.fingerprint,
            "variables": dict(variables),
            "attributes": dict(attributes),
        }
        _write(self._notes(partial) / _MANIFEST, sealed(_FORMAT, manifest))
        try:
            partial.rename(self.path)
        except OSError:
            # Another process of the same sweep may have been sooner.
            shutil.rmtree(partial)
            self._layout = None
            if not self.begun():
                raise

    def results(self) -> tuple[str, ...]:
        """Names of what the function returns."""
        coordinates = (*self.grid.names, STATUS)
        return tuple(name for name in self._manifest()["variables"] if name not in coordinates)

    def done(self) -> set[int]:
        """The blocks that have a marker."""
        stems = (path.stem for path in self._notes(self.path).glob("*.done"))
        return {int(stem) for stem in stems if stem.isdecimal() and int(stem) < self.grid.blocks}

    def damaged(self) -> set[int]:
        """The finished blocks whose marker, or one of whose chunks, is not what was written."""
        numbers = sorted(self.done())
        with ThreadPoolExecutor(_READERS) as pool:
            whole = pool.map(self._is_whole, numbers)
            return {number for number, is_whole in zip(numbers, whole, strict=True) if not is_whole}

    def write(self, number: int, columns: Columns, reasons: Reasons) -> None:
        """One chunk of every variable, then the marker."""
        try:
            chunks = self._files().chunks(number, columns)
            for place, content in chunks.items():
                _write(self.path / place, content)
            # A chunk ends in its own CRC, so that all chunks have one CRC: no digest of them.
            digests = {place: sha256_of(content) for place, content in chunks.items()}
            marker = {"block": number, "chunks": digests, "failures": reasons}
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
        """Tell the failures in the group's attributes; again if other jobs finished meanwhile."""
        while True:
            numbers = self.done()
            failures = reasons_as_text(self.grid, self._reasons(numbers))
            content = self._files().root(failures)
            if _content(self.path / ROOT) != content:
                _write(self.path / ROOT, content)
            if self.done() == numbers:
                return failures

    def _notes(self, path: Path) -> Path:
        return path / self.grid.names[0] / ".sweep"

    def _marker(self, number: int) -> Path:
        return self._notes(self.path) / f"{number}.done"

    def _read_marker(self, number: int) -> dict[str, Any]:
        return unsealed(_FORMAT, self._marker(number).read_text(encoding="utf-8"))

    def _manifest(self) -> dict[str, Any]:
        path = self._notes(self.path) / _MANIFEST
        anew = f"remove {self.path} and run the same call again"
        try:
            return unsealed(_FORMAT, path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{path} is damaged, or of another jaxdp ({error}): bring it back from a copy, or "
                f"{anew}"
            ) from error

    def _files(self) -> Layout:
        if self._layout is None:
            manifest = self._manifest()
            self._layout = Layout(self.grid, manifest["variables"], manifest["attributes"])
        return self._layout

    def _is_whole(self, number: int) -> bool:
        try:
            marker = self._read_marker(number)
        except (OSError, ValueError):
            return False
        if marker["block"] != number:
            return False
        return all(
            (content := _content(self.path / place)) is not None and sha256_of(content) == digest
            for place, digest in marker["chunks"].items()
        )

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


def _write(path: Path, content: str | bytes) -> None:
    """All or nothing; what a loss of power damages is found by its digest, and made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content, survives_power_loss=False)


def _content(path: Path) -> bytes | None:
    """None where there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
