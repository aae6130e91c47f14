"""Files of records: CSV, Parquet and Arrow.

No message shows a cell or a name of the header: a file without a header begins with a record.
"""

import codecs
import contextlib
import csv
import dataclasses
import gzip
import itertools
import re
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp.proof.files import opened_file
from jaxdp.tables.labels import ColumnError, normal, number_in


@dataclasses.dataclass(frozen=True)
class Dialect:
    """Delimiter, decimal mark and encoding of a CSV file."""

    encoding: Annotated[str, typer.Option(help="Encoding of a CSV file, as cp1252 or utf-16.")] = (
        "utf-8"
    )
    delimiter: Annotated[str, typer.Option(help="Mark between cells of a CSV file, or tab.")] = ","
    decimal: Annotated[
        str, typer.Option(help="Decimal mark of a CSV file: a point or a comma.")
    ] = "."


# Largest cell. derived: Python takes no more where a long has 32 bits
_LARGEST_CELL = 2**31 - 1
# Delimiters: their names in messages, and how a shell takes them as an option, if not the default.
_SEPARATORS = {
    ",": ("commas", ""),
    ";": ("semicolons", '";"'),
    "\t": ("tabs", "tab"),
    "|": ("bars", '"|"'),
}
_TABS = {"tab": "\t", "\\t": "\t"}
# Records that are held at a time. chosen: some ten megabytes of a table of twelve columns
CHUNK = 2**16
# Formats of pyarrow by the end of a file's name.
_ARROW = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc"}
# Numbers with a decimal comma, and with a point.
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?", re.ASCII)
_POINT = re.compile(r"[+-]?\d*\.\d*(?:[eE][+-]?\d+)?", re.ASCII)
_OTHER_MARKS = {".": ("comma", ",", _COMMA), ",": ("point", ".", _POINT)}


class Records:
    """A file of records: CSV, perhaps in gzip, or Parquet or Arrow, which pyarrow reads.

    names: of the columns, stripped and in Unicode's composed form, "" for those without a name.
    `ValueError` for a file that is not as its header and the options say.
    """

    def __init__(
        self, file: Path, encoding: str = "utf-8", delimiter: str = ",", decimal: str = "."
    ):
        self.file = file
        if file.exists():
            with opened_file(file, "file of records"):  # no pipe: it is read more than once
                pass
        self._encoding, self._delimiter, self._decimal = encoding, delimiter, decimal
        self._is_arrow = file.suffix.lower() in _ARROW
        if self._is_arrow:
            self.names = [normal(name) for name in _dataset(file).schema.names]
        else:
            self._delimiter = _TABS.get(delimiter, delimiter)
            self._check_marks()
            with contextlib.closing(self._rows()) as rows:
                self.names = self._header(rows)
        first: dict[str, int] = {}
        for i, name in enumerate(self.names):
            if name and first.setdefault(name, i) < i:
                raise ValueError(
                    f"the columns of {file} must have names that differ, and columns "
                    f"{first[name] + 1} and {i + 1} have one name: rename one of them, "
                    "or delete its column"
                )

    def chunks(
        self, wanted: Iterable[str] | None = None, numbers: Collection[str] = ()
    ) -> Iterator[dict[str, list[Any]]]:
        """The columns that are wanted, all that have a name if None, some records at a time.

        numbers: columns of numbers, where the other decimal mark is an error.
        """
        chosen = {name for name in self.names if name and (wanted is None or name in wanted)}
        if self._is_arrow:
            for batch in _batches(self.file):
                yield {normal(n): x for n, x in batch.items() if normal(n) in chosen}
            return
        places = {name: i for i, name in enumerate(self.names) if name in chosen}
        with contextlib.closing(self._rows()) as rows:
            self._header(rows)
            for before in itertools.count(0, CHUNK):
                cells = self._columns(itertools.islice(rows, CHUNK), before == 0)
                if not cells:
                    return
                columns = {name: cells[i] for name, i in places.items()}
                for name in (name for name in columns if name in numbers):
                    shown = places[name] + 1 if wanted is None else repr(name)
                    self._check_decimals(columns[name], f"column {shown}", before)
                if self._decimal == ",":
                    columns = {
                        name: [x.replace(",", ".") if _COMMA.fullmatch(x.strip()) else x for x in c]
                        for name, c in columns.items()
                    }
                yield columns

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """A `ColumnError` becomes a `ValueError` with the file, and the place of the record."""
        try:
            yield
        except ColumnError as error:
            place = "" if error.record is None else f", {self.place(error.record - 1)}"
            raise ValueError(f"{self.file}{place}: {error}") from None

    def place(self, record: int) -> str:
        """The place of a record, counted from 0: its last line in a CSV file."""
        if self._is_arrow:
            return f"record {record + 1}"
        with contextlib.closing(self._rows()) as rows:  # the header is the first of them
            line, _ = next(itertools.islice(rows, record + 1, None))
        return f"line {line}"

    def require(self, name: str, place: str) -> None:
        """ValueError unless the header has the name."""
        if name not in self.names:
            raise ValueError(
                f"{place} must be a column of {self.file}, got {name!r}: the first line must be a "
                f"header with this name{self._hint(self.names)}"
            )

    def _check_marks(self) -> None:
        delimiter, decimal = self._delimiter, self._decimal
        if len(delimiter) != 1 or delimiter in '"\r\n. ' or delimiter.isalnum():
            raise ValueError(f"--delimiter must be a mark such as ; or tab, got {delimiter!r}")
        if decimal not in (".", ",") or decimal == delimiter:
            raise ValueError(
                f"--decimal must be . or , and not the delimiter, got {decimal!r} beside "
                f"{delimiter!r}"
            )

    def _header(self, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
        _, header = next(rows, (0, None))
        if header is None:
            raise ValueError(
                f"{self.file} must begin with a header, the names of its columns, and has no line"
            )
        names = [normal(name) for name in header]
        hint = self._hint(names)
        if len(names) == 1 and hint:
            raise ValueError(f"{self.file} must have {self._words()} between cells{hint}")
        return names

    def _columns(self, rows: Iterable[tuple[int, list[str]]], is_first: bool) -> list[list[str]]:
        """The cells of some lines by column; nothing after the last line of all."""
        lines, width = [*rows], len(self.names)
        for line, row in lines:
            if len(row) != width:
                raise ValueError(
                    f"every line of {self.file} must have {width} cells, as the first has; the "
                    f"record that ends in line {line} has {len(row)}"
                    + (
                        self._hint(self.names)
                        or ": correct it, or the first line; a cell that has "
                        f"{self._words()} must stand in quotes"
                    )
                )
        if not lines:
            return [[] for _ in self.names] if is_first else []
        return [list(column) for column in zip(*[row for _, row in lines], strict=True)]

    def _check_decimals(self, cells: list[str], column: str, before: int) -> None:
        """ColumnError for a number with the other decimal mark: 1.234 may be a thousand, or one."""
        name, mark, pattern = _OTHER_MARKS[self._decimal]
        for i, cell in enumerate(cells):
            if mark in cell and cell.strip() != mark and pattern.fullmatch(cell.strip()):
                raise ColumnError(
                    f"with --decimal {self._decimal} numbers must have no {name}, and record "
                    f"{before + i + 1} of {column} has one: name the --decimal of the file, and "
                    "write no marks of thousands",
                    before + i + 1,
                )

    def _words(self) -> str:
        return _SEPARATORS.get(self._delimiter, ("marks", ""))[0]

    def _hint(self, names: list[str]) -> str:
        """A hint in words if the header separates names by another mark than the delimiter."""
        for mark, (words, option) in _SEPARATORS.items():
            if option and mark != self._delimiter and any(mark in name for name in names):
                return (
                    f": its first line has {words}, and cells must be separated by "
                    f"{self._words()}: add --delimiter {option}"
                )
        return ""

    def _rows(self) -> Generator[tuple[int, list[str]]]:
        """Lines that are not blank as cells, each with the number of its last line in the file."""
        usual, file, line, end = csv.field_size_limit(_LARGEST_CELL), self.file, "", 0

        def lines(text: Iterable[str]) -> Iterator[str]:
            nonlocal line
            for line in text:
                if "\0" in line:
                    raise UnicodeError
                yield line

        try:
            with _opened(file, self._encoding) as text:
                # Spaces after delimiters are no part of a cell, nor do they hide its quote.
                reader = csv.reader(
                    lines(text), strict=True, skipinitialspace=True, delimiter=self._delimiter
                )
                for row in reader:
                    end = reader.line_num
                    if len(row) > 1 or line.strip():  # a quoted "" is a cell, spaces are not
                        yield end, row
        except UnicodeError:
            raise ValueError(_undecoded(file, self._encoding)) from None
        except csv.Error:
            raise ValueError(
                f"{file}: a quote that begins a cell must end it, and the record that begins after "
                f"line {end} has one that does not: correct it, or double a quote "
                "within a cell"
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise ValueError(f"{file} must be a whole gzip file, as its name says") from None
        finally:
            csv.field_size_limit(usual)


def _undecoded(file: Path, encoding: str) -> str:
    """Message about the first line that has bytes of another encoding, or a NUL."""
    line = 1  # for UTF-16 text without a byte-order mark
    with contextlib.suppress(UnicodeError), _opened(file, encoding, "replace") as lines:
        bad = (i for i, text in enumerate(lines, 1) if "\ufffd" in text or "\0" in text)
        line = next(bad, line)
    return (
        f"{file} must be text in {encoding} without NUL, and line {line} is not: name its "
        "--encoding, such as cp1252 or utf-16"
    )


def require_names(file: Path, names: list[str]) -> None:
    """ValueError if all names are numbers, as in a file that begins with a record."""
    if names and all(number_in(name) == number_in(name) for name in names):
        raise ValueError(
            f"{file} must begin with a header: the names in its first line are numbers"
        )


def _opened(file: Path, encoding: str, errors: str = "strict"):
    """The file as text; without a mark of UTF-8 at its beginning."""
    try:
        codec = codecs.lookup(encoding).name
        codec_of_file = "utf-8-sig" if codec == "utf-8" else encoding
        opener: Any = gzip.open if file.suffix.lower() == ".gz" else open
        text = opener(file, "rt", encoding=codec_of_file, errors=errors, newline="")
    except LookupError:
        raise ValueError(
            f"--encoding must be an encoding of text, such as utf-8 or cp1252, got {encoding!r}"
        ) from None
    with contextlib.ExitStack() as stack:
        stack.enter_context(text)
        start = text.buffer.peek(3)[:3]
        if start == codecs.BOM_UTF8 and not codec.startswith("utf-8"):
            raise ValueError(f"{file} begins with the mark of UTF-8: leave --encoding out")
        stack.pop_all()
    return text


def _batches(file: Path) -> Iterator[dict[str, list[Any]]]:
    """The columns of a Parquet or Arrow file, `CHUNK` records at most at a time."""
    dataset, count = _dataset(file), 0
    for batch in dataset.to_batches(batch_size=CHUNK):
        count += 1
        yield batch.to_pydict()
    if not count:
        yield {name: [] for name in dataset.schema.names}


def _dataset(file: Path) -> Any:
    from jaxdp._core import checks  # imports JAX, which help does without

    pyarrow = checks.extra("pyarrow.dataset", "parquet")
    if not file.is_file():
        raise FileNotFoundError(f"No such file: {str(file)!r}")
    try:
        return pyarrow.dataset(file, format=_ARROW[file.suffix.lower()])
    except Exception:
        # Its message may show what the file holds.
        raise ValueError(f"{file} must be a {file.suffix[1:]} file, as its name says") from None
