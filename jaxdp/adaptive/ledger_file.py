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
import copy
import dataclasses
import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

from jaxdp import ledger
from jaxdp._core import checks
from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.files import canonical, sha256_of, sync_folder
from jaxdp._core.float64 import in_float64
from jaxdp._core.threads import Locked
from jaxdp.adaptive.currency import Currency, Item
from jaxdp.adaptive.filter import Filter
from jaxdp.guarantee.base import BudgetLike
from jaxdp.ledger import ONE_CHARGE, Step

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

    name, cost, count: as in `Step`. time: in UTC, as ISO 8601, None in a file of an earlier
    version. plan_sha256, outputs: the SHA-256 of the plan, if it has one, and of the files that
    were recorded. receipt: the digest of its line.
    """

    name: str
    cost: tuple[float, ...]
    count: int
    time: str | None
    plan_sha256: str | None
    outputs: tuple[str, ...]
    receipt: str


class _Parsed(NamedTuple):
    """Lines that were parsed: their effect, and what recognises them. Never changed."""

    running: Filter
    charges: tuple[Charge, ...]
    digest: str  # of the last line
    size: int  # in bytes
    sha256: bytes  # of these bytes


@final
@in_float64
class Ledger(Locked):
    """A running budget in a file, charged before anything is drawn.

    Args:
        path: of the file, made if there is none.
        budget: a `Budget` or (epsilon, delta), which is kept as its `largest_gdp`; or a `PureDP`,
            `ZCDP`, `RDP` or `GDP`. None for a file that is there, whose budget it must equal
            otherwise.

    All accepted releases together satisfy `budget`, as with a `Filter`, if every release is charged
    here. A file that is not a ledger, was changed or ends within a line raises `ValueError`, and
    nothing can be charged. `NotImplementedError` on a system without POSIX locks, such as Windows.

    >>> import tempfile, pathlib
    >>> import jaxdp as dp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "budget.ledger"
    >>> ledger = dp.Ledger(path, dp.Budget(4.0, 1e-6))
    >>> receipt = ledger.charge(dp.GDP(0.6), name="ages")
    >>> released = dp.release(dp.Mechanism(dp.Gaussian(2.0), 1.0), 42.0, ledger=ledger)
    >>> print(f"{float(ledger.budget.mu):.4f} {float(dp.Ledger(path).spent().mu):.4f}")
    0.8379 0.7810
    """

    def __init__(self, path: str | os.PathLike[str], budget: Currency | BudgetLike | None = None):
        super().__init__()
        self._path = Path(path)
        self._parsed: _Parsed | None = None
        with self._locked(create=budget is not None) as file:
            if not file.read(1):
                if budget is None:
                    raise ValueError(f"budget must be given for a new ledger, {path} is empty")
                first: dict[str, object] = {"format": _FORMAT, "filter": Filter(budget).to_json()}
                _append(file, "", first)
                sync_folder(self._path.parent)
            stored = self._read(file).running.budget
        if budget is not None and Filter(budget).to_json() != Filter(stored).to_json():
            raise ValueError(
                f"budget must equal the ledger's budget, {stored}, or be left out, got {budget}"
            )

    @property
    def budget(self) -> Currency:
        """The budget that all charges together will not pass."""
        return self._state().running.budget

    @property
    def steps(self) -> tuple[Step, ...]:
        """The charges: names, costs of one release in the budget's kind, and counts."""
        return self._state().running.steps

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges with their times, the digests of their plans and of their outputs."""
        return self._state().charges

    @property
    def digest(self) -> str:
        """The digest of the last line, which stands for all before it."""
        return self._state().digest

    def spent(self) -> Currency:
        """The sum of the charges, rounded up; see `Filter.spent`."""
        return self._state().running.spent()

    def remaining(self) -> Currency:
        """A guarantee that still fits, rounded down."""
        return self._state().running.remaining()

    def would_fit(self, item: Item, count: object = 1) -> bool:
        """True if `charge` would take the step now; another process may be faster."""
        return self._state().running.would_fit(item, count)

    def share(self, parts: int) -> Currency:
        """One of `parts` equal parts of the budget, all of which fit together."""
        return self.budget / parts

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
        with self._locked(create=False) as file:
            parsed = self._read(file)
            running = copy.copy(parsed.running)
            running.spend(item, count, name)
            step = running.steps[-1]
            row = [step.name, ledger.to_hex(step.cost), step.count]
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            body = {"step": row, "time": now}
            if plan_sha256 is not None:
                body["plan_sha256"] = plan_sha256
            _append(file, parsed.digest, body)
            return self._read(file).digest

    def record_output(self, receipt: str, path: str | os.PathLike[str]) -> str:
        """Write the SHA-256 of a released file beside the charge with this receipt; returns it."""
        sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        with self._locked(create=False) as file:
            parsed = self._read(file)
            if receipt not in (charge.receipt for charge in parsed.charges):
                raise ValueError(f"receipt must be of a charge in {self._path}, got {receipt!r}")
            _append(file, parsed.digest, {"output_sha256": sha256, "of": receipt})
            self._read(file)
        return sha256

    def _state(self) -> _Parsed:
        with self._locked(create=False) as file:
            return self._read(file)

    def _read(self, file: BinaryIO) -> _Parsed:
        """The state of the file; `ValueError` unless every line is as written."""
        file.seek(0)
        data = file.read()
        if not data.endswith(b"\n"):
            raise ValueError(f"path must be a ledger of whole lines, {self._path} ends within one")
        known = self._parsed
        if known is not None and hashlib.sha256(data[: known.size]).digest() != known.sha256:
            _parsed(data, None, self._path)
            raise ValueError(f"digest must match the lines: {self._path} was changed")
        self._parsed = _parsed(data, known, self._path)
        return self._parsed

    @contextlib.contextmanager
    def _locked(self, create: bool) -> Iterator[BinaryIO]:
        """The file at its beginning, for this thread of this process alone."""
        require_outside_traces("Ledger", ONE_CHARGE)
        fcntl = checks.posix_locks()
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        with self._lock:
            try:
                descriptor = os.open(self._path, flags, 0o600)
            except FileNotFoundError as error:
                missing = self._path.parent if create else self._path
                raise ValueError(f"path must be an existing ledger, found no {missing}") from error
            except (IsADirectoryError, NotADirectoryError) as error:
                where = "a folder" if self._path.is_dir() else "inside a file"
                raise ValueError(f"path must be a ledger, {self._path} is {where}") from error
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file  # pyright: ignore[reportReturnType]


def _parsed(data: bytes, before: _Parsed | None, path: Path) -> _Parsed:
    """The state after all lines, of which those of `before` are known."""
    digest, size = ("", 0) if before is None else (before.digest, before.size)
    rows = []
    try:
        for line in data[size:].decode("utf-8").splitlines():
            body = json.loads(line)
            written = body.pop("digest")
            digest = _digest(digest, body)
            if written != digest:
                raise ValueError(f"digest must match the lines: {path} was changed")
            rows.append({**body, "receipt": digest})
        if before is None:
            first = rows.pop(0)
            if first["format"] != _FORMAT or first["version"] != _VERSION:
                raise ValueError(f"format must be {_FORMAT}, version {_VERSION}, of {path}")
            running, known = Filter.from_json(first["filter"]), ()
        else:
            running, known = copy.copy(before.running), before.charges
        charges = {charge.receipt: charge for charge in known}
        for row in rows:
            _add(charges, row)
    except _MALFORMED as error:
        raise ValueError(f"path must be a ledger, {path} is not") from error
    new = [*charges.values()][len(known) :]
    running.resumed([Step(c.name, c.cost, c.count) for c in new])
    return _Parsed(
        running, tuple(charges.values()), digest, len(data), hashlib.sha256(data).digest()
    )


def _add(charges: dict[str, Charge], row: dict[str, Any]) -> None:
    """Add the charge of a line, or the output of one, under its receipt."""
    if "step" in row:
        name, cost, count = row["step"]
        charges[row["receipt"]] = Charge(
            name,
            ledger.from_hex(cost),
            ledger.whole_count(count),
            row.get("time"),
            row.get("plan_sha256"),
            (),
            row["receipt"],
        )
    else:
        paid = charges[row["of"]]
        outputs = (*paid.outputs, row["output_sha256"])
        charges[row["of"]] = dataclasses.replace(paid, outputs=outputs)


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
