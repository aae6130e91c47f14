"""Bars of progress on stderr."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


def shown(items: Sequence[Item], words: str, progress: bool | None) -> Iterable[Item]:
    """The items one by one, with a bar of tqdm where it is wanted and installed.

    words: what the items are. progress: None wants it where stderr is a terminal.
    """
    if not (sys.stderr.isatty() if progress is None else progress):
        return items
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return items
    return tqdm.tqdm(items, desc=words, leave=False, file=sys.stderr)
