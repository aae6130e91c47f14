"""Bars of progress on stderr."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

Item = TypeVar("Item")


def shown(
    items: Iterable[Item], words: str, progress: bool | None, count: int | None = None
) -> Iterable[Item]:
    """The items one by one, with a bar of tqdm if requested and installed.

    words: name of the items. progress: None for a bar if stderr is a terminal. count: number of
    items, if `items` has no length.
    """
    if not (sys.stderr.isatty() if progress is None else progress):
        return items
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return items
    total = len(items) if isinstance(items, Sized) else count
    return _with_bar(items, tqdm.tqdm(desc=words, total=total, leave=False, file=sys.stderr))


def _with_bar(items: Iterable[Item], bar: Any) -> Iterator[Item]:
    """The items; the rate excludes the first item, which compiles."""
    with bar:
        for item in items:
            yield item
            if bar.n > 0:
                bar.update()
            else:
                bar.reset()
                bar.initial = bar.n = bar.last_print_n = 1
                bar.refresh()
