"""Bars on stderr, where one is wanted and can be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def with_bar(
    items: Iterable[Item], what: str, total: int, progress: bool | None, done: int = 0
) -> Iterable[Item]:
    """The items one by one, with a bar of tqdm if that is installed; None: on a terminal alone."""
    if not (sys.stderr.isatty() if progress is None else progress):
        return items
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        return items
    return tqdm.tqdm(items, desc=what, total=total, initial=done, leave=False, file=sys.stderr)
