"""CSV files of records.

No message shows a cell or a name of the header: a file without a header begins with a record.
"""

import codecs
import contextlib
import csv
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Annotated

import typer

from jaxdp.tables.labels import normal, number_in

Encoding = Annotated[
    str, typer.Option(help="Encoding of the CSV file: utf-8, cp1252, utf-16 and so on.")
]
# Largest cell. derived: Python takes no more where a long has 32 bits
_LARGEST_CELL = 2**31 - 1
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_columns(file: Path, encoding: str) -> dict[str, list[str]]:
    """The cells of a CSV file by column, without columns that have no name.

    Names are stripped and in Unicode's composed form. `ValueError` for a file that is not as its
    header and `encoding` say.
    """
    with contextlib.closing(_rows(file, encoding)) as rows:
        _, header = next(rows, (0, None))
        if header is None:
            raise ValueError(f"{file} must begin with a header, and has no line")
        names = [normal(name) for name in header]
        hint = _hint(names)
        if len(names) == 1 and hint:
            raise ValueError(f"{file} must have commas between cells{hint}")
        for i, name in enumerate(names):
            if name and name in names[:i]:
                raise ValueError(
                    f"the columns of {file} must have names that differ, and columns "
                    f"{names.index(name) + 1} and {i + 1} have one name"
                )
        columns: list[list[str]] = [[] for _ in names]
        for line, row in rows:
            if len(row) != len(names):
                raise ValueError(
                    f"every line of {file} must have {len(names)} cells, as the first has; the "
                    f"record that ends in line {line} has {len(row)}{hint}"
                )
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
    return {name: column for name, column in zip(names, columns, strict=True) if name}


def require_column(file: Path, columns: dict[str, list[str]], name: str, place: str) -> None:
    """ValueError unless the header has the name."""
    if name not in columns:
        raise ValueError(
            f"{place} must be a column of {file}, got {name!r}: the first line must be a header "
            f"with this name{_hint([*columns])}"
        )


def require_names(file: Path, names: list[str]) -> None:
    """ValueError if all names are numbers, as in a file that begins with a record."""
    if names and all(number_in(name) == number_in(name) for name in names):
        raise ValueError(
            f"{file} must begin with a header: the names in its first line are numbers"
        )


def _rows(file: Path, encoding: str) -> Generator[tuple[int, list[str]]]:
    """Lines that are not blank as cells, each with the number of its last line in the file."""
    usual, lines = csv.field_size_limit(_LARGEST_CELL), _Lines()
    try:
        with _opened(file, encoding) as lines.text:
            # Spaces after commas are no part of a cell, nor do they hide its quote.
            reader = csv.reader(lines, strict=True, skipinitialspace=True)
            yield from ((reader.line_num, row) for row in reader if not lines.is_blank(row))
    except UnicodeError:
        raise ValueError(
            f"{file} must be text in {encoding}, and is not: name its --encoding, such as cp1252"
        ) from None
    except csv.Error:
        raise ValueError(
            f"{file}: a quote that begins a cell must end it, and the record that begins after "
            f"line {lines.end_of_last} has one that does not"
        ) from None
    finally:
        csv.field_size_limit(usual)


class _Lines:
    """The lines of a text, with what the reader does not tell about them."""

    def __init__(self):
        self.text: Iterator[str] = iter(())
        self._last = ""
        self._count = 0
        self.end_of_last = 0  # the last line of the last record

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._last = next(self.text)
        self._count += 1
        if "\0" in self._last:
            raise UnicodeError
        return self._last

    def is_blank(self, row: list[str]) -> bool:
        """True if the record that was read last is a line without characters but spaces."""
        self.end_of_last = self._count
        return len(row) <= 1 and not self._last.strip()


def _opened(file: Path, encoding: str):
    """The file as text; a mark of UTF-8 at its beginning is no part of it."""
    try:
        codec = codecs.lookup(encoding).name
        text = file.open(encoding="utf-8-sig" if codec == "utf-8" else encoding, newline="")
    except LookupError:
        raise ValueError(
            f"--encoding must be an encoding of text, such as utf-8 or cp1252, got {encoding!r}"
        ) from None
    with contextlib.ExitStack() as stack:
        stack.enter_context(text)
        start = text.buffer.peek(3)[:3]  # pyright: ignore[reportAttributeAccessIssue]
        if start == codecs.BOM_UTF8 and not codec.startswith("utf-8"):
            raise ValueError(f"{file} begins with the mark of UTF-8: leave --encoding out")
        stack.pop_all()
    return text


def _hint(names: list[str]) -> str:
    """What the header has between names where these are no commas."""
    for mark, words in _SEPARATORS.items():
        if any(mark in name for name in names):
            return f": its first line has {words}, and cells must be separated by commas"
    return ""
