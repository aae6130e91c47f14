"""A budget kept in a file: across runs, processes and threads.

Lines of JSON: the budget, then one line a charge, each with the SHA-256 of the digest before it and
of the line. Lines are only ever appended, under a lock of the operating system, and are on the disk
before `charge` returns. A line that cannot be written whole is taken back, and `charge` raises. A
line that was changed, moved or taken out of the middle is found; lines taken off the end are found
by who kept the last `digest`. A line of a charge has the time (UTC), and the SHA-256 of its plan if
it has one; a line of an output has the SHA-256 of a file, and the digest of the charge that paid
for it. A `Ledger` parses each line once. Later it compares the SHA-256 of
the lines that it has parsed, and parses what was appended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final

from jaxdp._core.files import canonical, sha256_of, sync_folder
from jaxdp._core.float64 import in_float64
from jaxdp._core.precision import require_outside_traces
from jaxdp.adaptive.costs import Item, Kind
from jaxdp.adaptive.filter import Filter
from jaxdp.adaptive.steps import ONE_CHARGE, Step, rows_of, steps_of
from jaxdp.guarantee.base import BudgetLike
from jaxdp.proof.files import opened_file, read_bytes

_FORMAT = "jaxdp-ledger"
_VERSION = 1
# Exceptions of a file that is not a ledger.
_MALFORMED = (
    *(AttributeError, IndexError, KeyError, TypeError, RecursionError),
    *(json.JSONDecodeError, UnicodeDecodeError),
)


@dataclasses.dataclass(frozen=True)
class Charge:
    """Charge in a ledger.

    name, cost, count: as in `Step`. time: in UTC, as ISO 8601. plan_sha256, outputs: the SHA-256 of
    the plan, if it has one, and of the files that were recorded. receipt: the digest of its line.
    """

    name: str
    cost: tuple[float, ...]
    count: int
    time: str
    plan_sha256: str | None
    outputs: tuple[str, ...]
    receipt: str


@final
@in_float64
class Ledger(Filter):
    """A `Filter` in a file, charged before anything is drawn.

    Args:
        path: of the file, made if there is none.
        budget: as of a `Filter`. None for a file that is there, whose budget it must equal
            otherwise.

    All accepted releases together satisfy `budget`, as with a `Filter`, if every release is charged
    here. A file that is not a ledger, was changed or ends within a line raises `ValueError`, and
    nothing can be charged. A file that may only be read can be read. `NotImplementedError` on a
    system without POSIX locks, such as Windows.

    >>> import tempfile, pathlib
    >>> import jaxdp as dp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "budget.ledger"
    >>> ledger = dp.Ledger(path, dp.Budget(4.0, 1e-6))
    >>> receipt = ledger.charge(dp.GDP(0.6), name="ages")
    >>> released = dp.release(dp.Mechanism(dp.Gaussian(2.0), 1.0), 42.0, ledger=ledger)
    >>> print(f"{float(dp.Ledger(path).spent().mu):.4f}")
    0.7810
    """

    def __init__(self, path: str | os.PathLike[str], budget: Kind | BudgetLike | None = None):
        self._open(Path(path))
        if budget is not None:
            self._make(budget)
        with self._current():
            stored = self._budget
        if budget is not None and not _is_same(Filter(budget).budget, stored):
            raise ValueError(
                f"budget must equal the ledger's budget, {stored}, or be left out, got {budget}"
            )

    def _open(self, path: Path) -> None:
        self._path = path
        self._charges: tuple[Charge, ...] = ()
        # Of the lines that were read: the digest of the last, the bytes, and what recognises them.
        self._digest, self._size, self._sha256 = "", 0, hashlib.sha256().digest()

    def _make(self, budget: Kind | BudgetLike) -> None:
        """Write the first line of a file that is missing or empty."""
        if self._path.exists() and self._path.stat().st_size:
            return
        first = {"format": _FORMAT, "filter": Filter(budget).to_json()}
        with self._opened(os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            if not os.fstat(file.fileno()).st_size:
                _append(file, "", first)
                sync_folder(self._path.parent)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges with their times, the digests of their plans and of their outputs."""
        with self._current():
            return self._charges

    @property
    def digest(self) -> str:
        """The digest of the last line, which stands for all before it."""
        with self._current():
            return self._digest

    def spend(self, item: Item, count: object = 1, name: str = "") -> None:
        """`charge`, without its receipt."""
        self.charge(item, count, name)

    def charge(
        self, item: Item, count: object = 1, name: str = "", *, plan_sha256: str | None = None
    ) -> str:
        """Write `count` releases of `item`, or raise `BudgetExceededError` and change nothing.

        `Filter` describes the cost of an item. Returns the receipt, the digest of the new line,
        under which `record_output` stores the digests of files.
        """
        if not isinstance(name, str):
            raise ValueError(f"name must be a text, got {name!r}")
        is_text = isinstance(plan_sha256, str)
        if plan_sha256 is not None and not (is_text and re.fullmatch("[0-9a-f]{64}", plan_sha256)):
            raise ValueError(f"plan_sha256 must be 64 hexadecimal digits, got {plan_sha256!r}")
        with self._current(is_charged=True) as file:
            (row,) = rows_of([self._admitted(item, count, name)])
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            body = {"charge": row, "time": now}
            if plan_sha256 is not None:
                body["plan_sha256"] = plan_sha256
            _append(file, self._digest, body)
            self._read(file)
            return self._digest

    def record_output(self, receipt: str, path: str | os.PathLike[str]) -> str:
        """Write the SHA-256 of a released file beside the charge with this receipt; returns it."""
        sha256 = sha256_of(read_bytes(path, "released file"))
        with self._current(is_charged=True) as file:
            if receipt not in (charge.receipt for charge in self._charges):
                raise ValueError(f"receipt must be of a charge in {self._path}, got {receipt!r}")
            _append(file, self._digest, {"output_sha256": sha256, "of": receipt})
            self._read(file)
        return sha256

    @contextlib.contextmanager
    def _current(self, is_charged: bool = False) -> Iterator[BinaryIO]:
        """The state of the file, which is open for this thread of this process alone."""
        with self._opened(os.O_RDWR | os.O_APPEND if is_charged else os.O_RDONLY) as file:
            self._read(file)
            yield file

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[BinaryIO]:
        require_outside_traces("Ledger", ONE_CHARGE)
        try:
            import fcntl
        except ImportError as error:
            raise NotImplementedError(
                f"locked files need POSIX locks, which {sys.platform} has not: use Linux or macOS"
            ) from error
        with self._lock, opened_file(self._path, "ledger", flags) as file:
            fcntl.flock(file, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
            yield file

    def _read(self, file: BinaryIO) -> None:
        """Take the lines that are new; `ValueError` unless every line is as written."""
        file.seek(0)
        data = file.read()
        if not data:
            raise ValueError(f"budget must be given for a new ledger, {self._path} is empty")
        if not data.endswith(b"\n"):
            raise ValueError(f"path must be a ledger of whole lines, {self._path} ends within one")
        if hashlib.sha256(data[: self._size]).digest() != self._sha256:
            # Its lines may be wrong by themselves.
            again = object.__new__(Ledger)
            again._open(self._path)
            again._read(file)
            raise ValueError(f"digest must match the lines: {self._path} was changed")
        try:
            self._take_lines(data[self._size :].decode("utf-8").splitlines())
        except _MALFORMED as error:
            raise ValueError(f"path must be a ledger, {self._path} is not") from error
        self._size, self._sha256 = len(data), hashlib.sha256(data).digest()

    def _take_lines(self, lines: list[str]) -> None:
        """The effect of new lines; an error changes nothing."""
        digest, rows = self._digest, []
        for line in lines:
            body = json.loads(line)
            written = body.pop("digest")
            digest = _digest(digest, body)
            if written != digest:
                raise ValueError(f"digest must match the lines: {self._path} was changed")
            rows.append({**body, "receipt": digest})
        if not self._size:
            first = rows.pop(0)
            if first["format"] != _FORMAT or first["version"] != _VERSION:
                raise ValueError(f"format must be {_FORMAT}, version {_VERSION}, of {self._path}")
            stored = Filter.from_json(first["filter"])
            self._set(stored._budget, stored._order, stored._limits)
        charges = {charge.receipt: charge for charge in self._charges}
        steps = [step for row in rows for step in _add(charges, row)]
        self._take(steps)
        self._charges, self._digest = (*charges.values(),), digest


def _is_same(budget: Kind, stored: Kind) -> bool:
    pair = [[x.tolist() for x in vars(each).values()] for each in (budget, stored)]
    return type(budget) is type(stored) and pair[0] == pair[1]


def _add(charges: dict[str, Charge], row: dict[str, Any]) -> list[Step]:
    """Add the charge of a line, which is returned, or the output of one, under its receipt."""
    if "charge" not in row:
        paid = charges[row["of"]]
        outputs = (*paid.outputs, row["output_sha256"])
        charges[row["of"]] = dataclasses.replace(paid, outputs=outputs)
        return []
    (step,) = steps_of([row["charge"]])
    cost, more = tuple(map(float, step.cost)), (row.get("plan_sha256"), (), row["receipt"])
    charges[row["receipt"]] = Charge(step.name, cost, step.count, row["time"], *more)
    return [step]


def _append(file: BinaryIO, digest: str, body: dict[str, Any]) -> None:
    """One line more, whole and on the disk; else `OSError`, and the file is as it was."""
    body = {**body, "version": _VERSION}
    line = json.dumps({**body, "digest": _digest(digest, body)}) + "\n"
    end, rest = file.seek(0, os.SEEK_END), line.encode("utf-8")
    try:
        while rest:
            rest = rest[os.write(file.fileno(), rest) :]
        os.fsync(file.fileno())
    except BaseException:
        os.ftruncate(file.fileno(), end)
        os.fsync(file.fileno())
        raise


def _digest(last: str, body: dict[str, object]) -> str:
    return sha256_of(last.encode() + b"\n" + canonical(body))
