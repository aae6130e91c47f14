"""Bars of progress on stderr."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")


def shown(
    items: Iterable[Item], words: str, progress: bool | None, count: int | None = None
) -> Iterable[Item]:
    """The items with a bar of tqdm, if it is installed and requested; None: on a terminal."""
    if not (sys.stderr.isatty() if progress is None else progress):
        return items
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return items
    return tqdm.tqdm(items, desc=words, total=count, leave=False, file=sys.stderr)
