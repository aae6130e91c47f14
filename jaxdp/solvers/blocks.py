"""Records in blocks of rows, dense or sparse, and the designs of regressions that are made of them.

Records are read a block at a time, in float64, whatever type they are stored in. A design is
written once, in the type of the records. A sparse one holds the entries that are not zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

# Numbers of a block. chosen: 2 MB, which a processor's cache holds
_NUMBERS = 2**18


def is_sparse(values: Any) -> bool:
    """True for matrices and arrays of `scipy.sparse`."""
    return hasattr(values, "tocsc") and hasattr(values, "nnz")


class SparseDesign(NamedTuple):
    """Rows of a design, one a coordinate: values[starts[j] : starts[j + 1]] at these records."""

    starts: np.ndarray
    places: np.ndarray
    values: np.ndarray
    records: int

    @property
    def shape(self) -> tuple[int, int]:
        """(coordinates, records)."""
        return len(self.starts) - 1, self.records

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.values.dtype

    def row(self, coordinate: Any) -> tuple[np.ndarray, np.ndarray]:
        """Records with an entry, and the entries."""
        inside = slice(*self.starts[coordinate : coordinate + 2])
        return self.places[inside], self.values[inside]


class Columns(NamedTuple):
    """Features (n, p), and targets (n, k) as last columns if there are any."""

    features: Any
    targets: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p + k)."""
        records, features = self.features.shape
        return records, features + (0 if self.targets is None else self.targets.shape[1])

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Rows and their numbers in float64, (rows, p + k)."""
        records, width = self.shape
        length = max(_NUMBERS // width, 1)
        for start in range(0, records, length):
            rows = slice(start, min(start + length, records))
            part = self.features[rows]
            part = np.asarray(part.toarray() if is_sparse(part) else part, dtype=np.float64)
            if self.targets is not None:
                part = np.column_stack([part, self.targets[rows]])
            yield rows, part


class Units(NamedTuple):
    """Ends that features are clipped to, centres and scales, (p,); of targets (k,)."""

    lower: np.ndarray
    upper: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    target_center: np.ndarray
    target_scale: np.ndarray

    def of(self, features: np.ndarray) -> np.ndarray:
        """Clipped features, measured from their centres in their units."""
        found = np.clip(features, self.lower, self.upper)
        found -= self.center
        found /= self.scale
        return found

    def near(self, deviations: float) -> np.ndarray:
        """Ends within some deviations of the centres, (2, p)."""
        ends = self.center + np.multiply.outer([-deviations, deviations], self.scale)
        return np.clip(ends, self.lower, self.upper)


def design_of(
    features: Any, ranges: Units | None, dtype: Any, intercept: bool, signs: np.ndarray | None
) -> Any:
    """The design of a `Problem`: clipped and centred features, a row each, times the signs."""
    if is_sparse(features):
        return _sparse_design(features, ranges, dtype, intercept, signs)
    records, width = features.shape
    design = np.empty((width + intercept, records), dtype)
    for rows, part in Columns(features).blocks():
        part = part if ranges is None else ranges.of(part)
        design[:width, rows] = (part if signs is None else part * signs[rows, None]).T
    if intercept:
        design[-1] = 1.0 if signs is None else signs
    return design


def _sparse_design(
    features: Any, ranges: Units | None, dtype: Any, intercept: bool, signs: np.ndarray | None
) -> SparseDesign:
    columns = features.tocsc()
    columns.sum_duplicates()
    places, values = columns.indices, columns.data.astype(dtype)
    if ranges is not None:
        if ranges.center.any():
            raise ValueError("features must not be centred if they are sparse")
        counts = np.diff(columns.indptr)
        ends = (np.repeat(end.astype(dtype), counts) for end in (ranges.lower, ranges.upper))
        np.clip(values, *ends, out=values)
        values /= np.repeat(ranges.scale.astype(dtype), counts)
    if signs is not None:
        values *= signs[places]
    starts, records = columns.indptr, features.shape[0]
    if intercept:
        starts = np.append(starts, starts[-1] + records)
        places = np.append(places, np.arange(records, dtype=places.dtype))
        values = np.append(values, np.ones(records, dtype) if signs is None else signs)
    return SparseDesign(starts, places, values.astype(dtype, copy=False), records)
