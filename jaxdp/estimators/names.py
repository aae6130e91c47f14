"""Names of columns, as messages print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Columns that a message names at most. chosen: a line of them
_NAMED = 5


def label(column: Any) -> str:
    """A column's name in quotes, or its number."""
    return f"'{column}'" if isinstance(column, str) else f"{column}"


def listed(columns: Sequence[Any]) -> str:
    """Labels of the first few columns, with a comma between."""
    more = ", ..." if len(columns) > _NAMED else ""
    return ", ".join(label(column) for column in columns[:_NAMED]) + more


def without_numbers(features: Any) -> list[Any]:
    """Columns of a table, by name or number, with a value that is not a number."""
    table = np.asarray(features, dtype=object)
    if table.ndim != 2:
        return []
    names = getattr(features, "columns", range(table.shape[1]))
    columns = zip(names, table.T, strict=True)
    return [name for name, values in columns if not _is_numeric(values)]


def _is_numeric(values: np.ndarray) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True
