"""`jaxdp release`: noisy counts, sums and means of a CSV file, as a plan says; `jaxdp check`."""

import contextlib
import csv
import io
import math
import shlex
import signal
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from jaxdp._core.files import sha256_of, write_atomically
from jaxdp._core.progress import shown
from jaxdp.cli.base import (
    Answer,
    AsJson,
    add_command,
    as_text,
    in_columns,
    library,
    printed,
    require_new,
    show,
    wrapped,
)
from jaxdp.cli.ledgers import in_words, words
from jaxdp.cli.record_files import Dialect, Records
from jaxdp.proof.files import read_bytes
from jaxdp.tables.labels import number_in

Data = Annotated[
    Path,
    typer.Argument(help="CSV with a header, also .gz; Parquet; Arrow."),
]
_SUFFIXES = (".csv", ".json")
# Digits in a table that is printed; half widths say how many a value has. chosen: 6 for errors
_DIGITS = {"value": 12}
# Beginnings of formulas in spreadsheets: OWASP, CSV Injection.
_FORMULAS = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
# Columns of a released CSV file beside those of the cells.
_TAKEN = (
    *("name", "category", "value", "half_width", "level", "jointly"),
    *("rho", "sampling_error", "epsilon", "delta", "relation"),
)
# Signals that end a process and that it can hold. Windows has no signal of a closed terminal.
_HELD = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (release, check):
        add_command(app, command, reads_records=True)


def release(
    dialect: Dialect,
    file: Data,
    plan: Annotated[
        Path, typer.Option(help="TOML file with the budget and a table per statistic.")
    ],
    output: Annotated[Path | None, typer.Option(help="A .json or .csv file for the table.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the expected errors; read no record.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Release noisy counts, sums and means under one budget, with error bars."""
    if output is not None:
        if output.suffix not in _SUFFIXES:
            raise ValueError(f"--output must end in {' or '.join(_SUFFIXES)}, got {output}")
        require_new("output", output)
    table_plan = read_plan(plan)
    if dry_run:
        answer, lines = _expected(table_plan)
        show(as_json, answer, f"{lines}\n{_meaning(answer)}")
        return
    if output is None and sys.stdout is None:
        raise ValueError("--output must be given: standard output is closed")
    data = Records(file, **vars(dialect))
    has_room(table_plan)
    with Held() as held:
        with data.located(), _charge_said(table_plan.ledger):
            chunks = Chunks(data, table_plan, False if as_json else None, held)
            table = library().tables.release(chunks, table_plan)
        rows = [row._asdict() for row in table.rows]
        answer, lines = _report(table_plan, rows), _lines(rows)
        paid = None if table.receipt is None else (table_plan.ledger, table.receipt)
        place = ""
        try:
            if output is not None:
                write_atomically(output, _in_format(output, answer), replaces=False)
                place = f"in {output}"
                lines += f"\nwritten to {output}"
                if paid is not None:
                    library().Ledger(paid[0]).record_output(paid[1], output)
        finally:  # what was charged is shown
            text = f"{lines}\n{_meaning(answer)}"
            error = printed(as_text(answer) if as_json else text)
            if error is not None or held.pending:
                lost = error is not None and not place
                place = rescued(as_text(answer) + "\n") if lost else place or "printed"
                raise _told(error, place, paid)


def check(
    dialect: Dialect,
    plan: Annotated[Path, typer.Argument(help="TOML file of a plan.")],
    file: Data,
    as_json: AsJson = False,
) -> Answer:
    """Tell whether `jaxdp release` would take a plan and a file; draw and charge nothing."""
    table_plan, records = read_plan(plan), Records(file, **vars(dialect))
    fits = has_room(table_plan)
    from jaxdp.tables.release import tally_of

    with records.located():
        chunks = Chunks(records, table_plan, False if as_json else None, Held())
        tally_of(chunks, table_plan).totals()
    answer = {"plan": str(plan), "file": str(file), "is_accepted": True, "fits_ledger": fits}
    room = ", and the ledger has room" if fits else ""
    return answer, f"{plan} and {file} would be accepted{room}; nothing was released or charged"


def _told(error: str | None, place: str, paid: tuple[str, str] | None) -> typer.Exit:
    """Say what was charged, and where the table is, if it was not printed or a signal came."""
    cost = "" if paid is None else f"{paid[0]} was charged (receipt {paid[1]}); "
    why = "interrupted" if error is None else f"cannot print: {error}"
    typer.echo(f"jaxdp release: {why}; {cost}the table is {place}", err=True)
    return typer.Exit(130 if error is None else 1)


@contextlib.contextmanager
def _charge_said(file: str | None) -> Iterator[None]:
    """Say so if the ledger was charged, and something fails before there is a table."""
    before = None if file is None else library().Ledger(file).digest
    try:
        yield
    except BaseException:
        if file is not None and library().Ledger(file).digest != before:
            typer.echo(f"jaxdp release: {file} was charged, and no table was made", err=True)
        raise


class Held:
    """Ctrl-C and the signals of `kill` and of a closed terminal, which wait while `waits` is true.

    One that came then is `pending`; else they do what they usually do.
    """

    def __init__(self) -> None:
        self.waits, self.pending, self._usual = False, False, dict[int, Any]()

    def __enter__(self) -> "Held":
        with contextlib.suppress(ValueError):  # another thread than the main one has no signals
            for number in _HELD:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._usual[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.waits:
            self.pending = True
            return
        self._release()
        signal.raise_signal(number)

    def _release(self) -> None:
        for number, usual in self._usual.items():
            signal.signal(number, usual)


def rescued(text: str) -> str:
    """Place of the text of a result that cannot be printed: a new file for its owner alone."""
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        path = folder / f"jaxdp-release-{uuid.uuid4().hex[:12]}.json"
        with contextlib.suppress(OSError):
            write_atomically(path, text, mode=0o600, replaces=False)
            return f"in {path}"
    return f"here: {text}"


class Chunks:
    """The columns that a plan reads, some records at a time, as often as they are read."""

    def __init__(self, records: Records, plan: Any, progress: bool | None, held: Held):
        numbers = set[str]()
        for query in plan.queries:
            for name in query.columns:
                key = "column" if name == query.column else "column of cells"
                records.require(name, f"{query.where}: {key}")
            numbers.update({query.column} - {None} if query.statistic != "count" else ())
            numbers.update(cells.column for cells in query.cells if "numbers" in cells.kinds)
        if plan.person is not None:
            records.require(plan.person, "plan: person")
        # A count of all records needs a column, too.
        names = plan.columns or {name for name in records.names if name}
        self._read = partial(records.chunks, names, numbers)
        self._progress, self._held = progress, held

    def __iter__(self) -> Iterator[dict[str, list[Any]]]:
        self._held.waits = False
        yield from shown(self._read(), "chunks of records", self._progress)
        # The charge comes next.
        self._held.waits = True


def read_plan(file: Path) -> Any:
    """The plan in a TOML file, with the SHA-256 of the file."""
    content = read_bytes(file, "plan")
    try:
        keys = tomllib.loads(content.decode("utf-8-sig"))
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{file} must be TOML in UTF-8: {error}") from error
    return library().tables.plan(keys)._replace(sha256=sha256_of(content))


def has_room(plan: Any) -> bool | None:
    """True if the plan's ledger has room for the table, None without one; else `ValueError`."""
    if plan.ledger is None:
        return None
    from jaxdp.tables.release import cost_of

    if not Path(plan.ledger).exists():
        raise ValueError(
            f"plan: ledger must be a file that is there, and {plan.ledger} is not: make it with "
            f"jaxdp ledger {shlex.quote(plan.ledger)} --create and its budget"
        )
    dp = library()
    ledger = dp.Ledger(plan.ledger)
    try:
        ledger.admitted(cost_of(plan))
    except dp.BudgetExceededError as error:
        left = " or ".join(in_words(x, up=False) for x in error.remaining) or "nothing"
        cost = "no finite number" if error.step is None else words(ledger.budget, error.step.cost)
        raise ValueError(
            f"{plan.ledger} has {left} left, and the table costs {cost}: nothing was charged or "
            "released; give the plan a smaller budget, or release no more from this ledger"
        ) from error
    return True


def _meaning(answer: dict[str, Any]) -> str:
    """The meaning of the half widths, and the guarantee."""
    whose = "all half widths hold together" if answer["jointly"] else "each half width holds"
    return wrapped(f"{whose} with probability {answer['level']:g}\n{answer['guarantee']}")


def _report(plan: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows, and the promise that they keep together."""
    promise, whose = plan.guarantee, "one record"
    if plan.person is not None:
        of_cells = "" if plan.max_cells is None else f" in each of at most {plan.max_cells} cells"
        whose = f"all records of one person (of each, at most {plan.rows}{of_cells} are used)"
    if hasattr(promise, "sampling_error"):
        rho, error = float(promise.exact.rho), float(promise.sampling_error)
        numbers = {"rho": rho, "sampling_error": error}
        less = ", and for labels that more than one person has" if plan.thresholds() else ""
        kind = (
            f"{rho:g}-zero-concentrated differentially private (rho) for exact draws of the noise"
            f"{less}, and sampled within {error:.1e} of them in total variation"
        )
    else:
        epsilon, delta = float(promise.epsilon_bound), float(promise.delta_bound)
        numbers = {"epsilon": epsilon, "delta": delta}
        kind = f"({epsilon:g}, {delta:g})-differentially private"
    return {
        "rows": rows,
        "level": plan.level,
        "jointly": plan.jointly,
        **numbers,
        "relation": "add_remove",
        "thresholds": {plan.queries[i].name: x for i, x in plan.thresholds().items()},
        "guarantee": (
            f"{kind}, all numbers together, for {whose} added or removed; the plan is public"
        ),
    }


def _expected(plan: Any) -> tuple[dict[str, Any], str]:
    """Errors of the statistics by name; for a mean the errors of its sum."""
    errors = plan.expected_errors()
    rows = [
        {"name": q.name, "noise": q.noise}
        | {name: float(value) for name, value in vars(errors[q.name]).items()}
        for q in plan.queries
    ]
    kinds, report = {q.statistic for q in plan.queries}, _report(plan, rows)
    notes = [_lines(rows)]
    if "mean" in kinds:
        notes.append("of a mean: the errors of its sum, to be divided by the number of records")
    if "quantile" in kinds:
        notes.append("of a quantile: bounds on the errors of its rank, in records")
    for name, threshold in report["thresholds"].items():
        notes.append(f"{name}: labels are published from {threshold} records (noisy) on")
    return report, "\n".join(notes)


def _lines(rows: list[dict[str, Any]]) -> str:
    """A table in columns."""
    names = [name for name in rows[0] if name != "cell"]
    cells = [names, *([_cell(row[name], _DIGITS.get(name, 6)) for name in names] for row in rows)]
    return "\n".join(in_columns(cells))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a column for each column of its cell, which may have the name of another."""
    others = {name: x if x == x else None for name, x in row.items() if name != "cell"}
    cell = {f"by {n}" if n in _TAKEN else n: x for n, x in row["cell"].items()}
    return {"name": others.pop("name"), "category": others.pop("category"), **cell, **others}


def _cell(value: Any, digits: int) -> str:
    if value is None or value != value:  # a number that is not known
        return ""
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def _in_format(path: Path, answer: dict[str, Any]) -> str:
    """JSON of everything, or CSV of the rows with the guarantee in each."""
    if path.suffix == ".json":
        return as_text(answer) + "\n"
    text = io.StringIO()
    promise = {k: x for k, x in answer.items() if k not in ("rows", "guarantee", "thresholds")}
    rows = [_flat(row) for row in answer["rows"]]
    by = dict.fromkeys(name for row in rows for name in row if name not in _TAKEN)
    writer = csv.DictWriter(text, ["name", "category", *by, "value", "half_width", *promise])
    writer.writerow({name: _unlike_a_formula(name) for name in writer.fieldnames})
    for row in rows:
        writer.writerow({k: _unlike_a_formula(x) for k, x in (row | promise).items()})
    return text.getvalue()


def _unlike_a_formula(value: Any) -> Any:
    """A text after an apostrophe if a spreadsheet would compute it; a number as it is."""
    if (
        isinstance(value, str)
        and value.startswith(_FORMULAS)
        and not math.isfinite(number_in(value))
    ):
        return f"'{value}"
    return value
