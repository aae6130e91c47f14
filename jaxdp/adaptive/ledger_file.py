"""A budget kept in a file: across runs, processes and threads.

Lines of JSON: the budget, then one line a charge, each with the SHA-256 of the digest before it and
of the line. Lines are only ever appended, under a lock of the operating system, and are on the disk
before `charge` returns. A line that was changed, moved or taken out of the middle is found; lines
taken off the end are found by who kept the last `digest`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, final

from jaxdp import ledger
from jaxdp._core import checks
from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.files import canonical, sha256_of
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
    >>> ledger.charge(dp.GDP(0.6), name="ages")
    >>> released = dp.release(dp.Mechanism(dp.Gaussian(2.0), 1.0), 42.0, ledger=ledger)
    >>> print(f"{float(ledger.budget.mu):.4f} {float(dp.Ledger(path).spent().mu):.4f}")
    0.8379 0.7810
    """

    def __init__(self, path: str | os.PathLike[str], budget: Currency | BudgetLike | None = None):
        super().__init__()
        self._path = Path(path)
        with self._locked(create=budget is not None) as file:
            if not file.read(1):
                if budget is None:
                    raise ValueError(f"budget must be given for a new ledger, {path} is empty")
                _append(file, "", {"format": _FORMAT, "filter": Filter(budget).to_json()})
                return
            stored = _read(file, self._path)[0].budget
        if budget is not None and Filter(budget).to_json() != Filter(stored).to_json():
            raise ValueError(
                f"budget must equal the ledger's budget, {stored}, or be left out, got {budget}"
            )

    @property
    def budget(self) -> Currency:
        """The budget that all charges together will not pass."""
        return self._state()[0].budget

    @property
    def steps(self) -> tuple[Step, ...]:
        """The charges: names, costs of one release in the budget's kind, and counts."""
        return self._state()[0].steps

    @property
    def digest(self) -> str:
        """The digest of the last line, which stands for all before it."""
        return self._state()[1]

    def spent(self) -> Currency:
        """The sum of the charges, rounded up; see `Filter.spent`."""
        return self._state()[0].spent()

    def remaining(self) -> Currency:
        """A guarantee that still fits, rounded down."""
        return self._state()[0].remaining()

    def would_fit(self, item: Item, count: object = 1) -> bool:
        """True if `charge` would take the step now; another process may be faster."""
        return self._state()[0].would_fit(item, count)

    def charge(self, item: Item, count: object = 1, name: str = "") -> None:
        """Write `count` releases of `item`, or raise `BudgetExceededError` and change nothing.

        `Filter` describes the cost of an item.
        """
        if not isinstance(name, str):
            raise ValueError(f"name must be a text, got {name!r}")
        with self._locked(create=False) as file:
            running, digest = _read(file, self._path)
            running.spend(item, count, name)
            step = running.steps[-1]
            row = [step.name, ledger.to_hex(step.cost), step.count]
            _append(file, digest, {"step": row})

    def _state(self) -> tuple[Filter, str]:
        with self._locked(create=False) as file:
            return _read(file, self._path)

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


def _read(file: BinaryIO, path: Path) -> tuple[Filter, str]:
    """The filter and the last digest of a file; `ValueError` unless every line is as written."""
    file.seek(0)
    data = file.read()
    if not data.endswith(b"\n"):
        raise ValueError(f"path must be a ledger of whole lines, {path} ends within one")
    digest, rows = "", []
    try:
        for line in data.decode("utf-8").splitlines():
            body = json.loads(line)
            written = body.pop("digest")
            digest = _digest(digest, body)
            if written != digest:
                raise ValueError(f"digest must match the lines: {path} was changed")
            rows.append(body)
        if rows[0]["format"] != _FORMAT or rows[0]["version"] != _VERSION:
            raise ValueError(f"format must be {_FORMAT}, version {_VERSION}, of {path}")
        running = Filter.from_json(rows[0]["filter"])
        steps = [
            (name, ledger.from_hex(cost), count)
            for name, cost, count in (row["step"] for row in rows[1:])
        ]
    except _MALFORMED as error:
        raise ValueError(f"path must be a ledger, {path} is not") from error
    return running.resumed([Step(n, c, ledger.whole_count(k)) for n, c, k in steps]), digest


def _append(file: BinaryIO, digest: str, body: dict[str, object]) -> None:
    """One line more, on the disk."""
    body = {**body, "version": _VERSION}
    line = json.dumps({**body, "digest": _digest(digest, body)}) + "\n"
    file.write(line.encode("utf-8"))
    os.fsync(file.fileno())


def _digest(last: str, body: dict[str, object]) -> str:
    return sha256_of(last.encode() + b"\n" + canonical(body))
