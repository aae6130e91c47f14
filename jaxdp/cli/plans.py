"""`jaxdp check` and `jaxdp plan`: a plan against a file, without a charge, and a first plan."""

import csv
import dataclasses
import datetime
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from jaxdp._core.files import write_atomically
from jaxdp.cli.base import AsJson, check_output, exit_on_error, library, show, with_options
from jaxdp.cli.ledgers import in_words
from jaxdp.cli.records import Dialect, Records, require_names
from jaxdp.cli.tables import Chunks, Data, has_room, read_plan
from jaxdp.tables.cells import UNITS, cells_of
from jaxdp.tables.fields import LARGEST, LARGEST_LEVEL
from jaxdp.tables.labels import normal, number_in

T = TypeVar("T")

# What a column may be answered to be.
_KINDS = ("skip", "number", "categories", "bins", "date", "id")
# Steps between the bounds of a mean, to which sums are rounded. chosen: far below the noise
_STEPS = 1000


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("check")(with_options(check))
    app.command("plan")(with_options(plan))


def check(
    dialect: Dialect,
    plan: Annotated[Path, typer.Argument(help="TOML file of a plan.")],
    file: Data,
    as_json: AsJson = False,
) -> None:
    """Tell whether `jaxdp release` would take a plan and a file; draw and charge nothing."""

    def work() -> dict[str, Any]:
        from jaxdp.tables.release import tally_of

        table_plan, records = read_plan(plan), Records(file, **vars(dialect))
        with records.located():
            chunks = Chunks(records, table_plan, False if as_json else None)
            tally_of(chunks, table_plan).totals()
        fits = has_room(table_plan)
        return {"plan": str(plan), "file": str(file), "is_accepted": True, "fits_ledger": fits}

    answer = exit_on_error("check", work, reads_records=True)
    text = f"{plan} and {file} would be accepted"
    text += ", and the ledger has room" if answer["fits_ledger"] else ""
    show(as_json, answer, f"{text}; nothing was released or charged")


def plan(
    dialect: Dialect,
    file: Data,
    output: Annotated[Path, typer.Option(help="The plan, a new TOML file.")] = Path("plan.toml"),
) -> None:
    """Write a first plan from public answers that it asks for; read the file's header alone."""

    def names() -> list[str]:
        check_output("output", output, file)
        if output.exists():
            raise ValueError(f"--output must be a new file, and there is {output}")
        found = [name for name in Records(file, **vars(dialect)).names if name]
        require_names(file, found)
        return found

    columns = exit_on_error("plan", names, reads_records=True)
    typer.echo("Answer with public knowledge alone: nothing is read but the first line.")
    budget, ledger = _budget(output)
    keys = {**budget, **_statistics(columns)}
    commands = [*map(shlex.join, _commands(file, output, dialect, ledger))]

    def work() -> None:
        library().tables.plan(keys)
        write_atomically(output, _toml(keys, commands), replaces=False)

    exit_on_error("plan", work)
    typer.echo("\n".join([f"written to {output}; next:", *commands]))


def _asked(question: str, parsed: Callable[[str], T], default: str | None = None) -> T:
    """The answer as `parsed` returns it; after a `ValueError` the question is repeated."""
    while True:
        answer = typer.prompt(question, default=default)
        try:
            return parsed(answer.strip())
        except (NotImplementedError, OSError, ValueError) as error:
            typer.echo(f"  {error}")


def _budget(output: Path) -> tuple[dict[str, Any], list[str]]:
    """The first keys of the plan, and the command that makes its ledger, if it needs one."""
    keys: dict[str, Any] = {"name": _asked("Name of the table", _name, "table")}
    question = "Ledger to charge: a file, or none"
    ledger, total = _asked(question, lambda text: _ledger(text, output), "none")
    tables, command = 1, []
    if ledger is not None:
        tables = _asked("Number of such tables that it has to pay for", _whole, "1")
    if total is None:
        words = f"Budget of all {tables}" if tables > 1 else "Budget"
        given = _asked(f"{words}: epsilon and delta, or rho", _guarantee, "1, 1e-6")
        if ledger is None:
            keys |= given
        else:
            options = [part for key, x in given.items() for part in (f"--{key}", json.dumps(x))]
            command = ["jaxdp", "ledger", _path(ledger), "--create", *options]
            command += [] if "rho" in given else ["--zcdp"]
            dp = library()
            total = dp.ZCDP(0.0, *given.values()) if "rho" in given else None
            total = dp.largest_zcdp((*given.values(),)) if total is None else total
    if ledger is not None:
        keys |= {"rho": float((total / tables).rho), "ledger": ledger}
    keys["level"] = _asked("Level of the half widths", _level, "0.95")
    keys["jointly"] = typer.confirm("Must all half widths hold together at this level?")
    return keys | {"noise": "discrete_gaussian"}, command


def _ledger(text: str, output: Path) -> tuple[str | None, Any]:
    """The file of a ledger, None for none, and what it has left, None for a new one."""
    path = Path(text)
    if text == "none":
        return None, None
    if not path.exists():
        if not path.parent.is_dir() or path.resolve() == output.resolve():
            raise ValueError(f"give a new file in a folder that is there, other than {output}")
        return text, None
    dp = library()
    left = dp.Ledger(path).remaining()
    if not isinstance(left, dp.ZCDP) or not left.rho > 0:
        raise ValueError(
            f"{text} has {in_words(left, up=False)} left, and the plan needs some rho: name another "
            "file, which will be made with a new budget"
        )
    typer.echo(f"  {text} has {in_words(left, up=False)} left")
    return text, left


def _statistics(columns: list[str]) -> dict[str, Any]:
    """The remaining keys of the plan: ids, cells, and a list of statistics."""
    keys: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for name in columns:
        kinds = [kind for kind in _KINDS if kind != "id" or "person" not in keys]
        kind = _asked(f"Column {name}: {', '.join(kinds)}", partial(_one_of, kinds), "skip")
        if kind == "number":
            numbers[name] = _number(name)
        elif kind == "id":
            question = f"Records of one {name} (one person) that are used, at most"
            keys |= {"person": name, "rows": _asked(question, _whole, "5")}
        elif kind != "skip":
            cells[name] = _cells(name, kind)
    by = list[str]()
    if cells:
        question = f"Group all statistics by one or more of {', '.join(cells)}, or none"
        by = _asked(question, partial(_groups, [*cells]), next(iter(cells)))
    grouped: dict[str, Any] = {"by": by, "margins": True} if by else {}
    count = {"statistic": "count"}
    releases = [count | grouped, *(count | {"by": [x]} for x in cells if x not in by)]
    for name, bounds in numbers.items():
        if bounds["missing"] == "drop":
            releases.append(count | {"column": name, "missing": "drop"} | grouped)
        releases.append({"statistic": "mean", "column": name} | bounds | grouped)
    return keys | {"columns": cells, "release": releases}


def _number(name: str) -> dict[str, Any]:
    """The public bounds of a column, and its rule for missing values."""

    def bounds(text: str) -> tuple[float, float]:
        lower, upper, *more = [*_numbers(text), math.nan][:3]
        if not lower < upper or more[0] == more[0]:
            raise ValueError("give two numbers, the smaller one first")
        return lower, upper

    def missing(text: str) -> str | float:
        value, *more = [text] if text == "drop" else _numbers(text)
        if more or not (value == "drop" or lower <= value <= upper):
            raise ValueError(f"give drop, or one number from {lower} to {upper}")
        return value

    lower, upper = _asked(f"Public bounds of {name}, as 0, 100", bounds)
    question = f"Missing values of {name}: drop, or a public number in their place"
    rule = _asked(question, missing, "drop")
    return {"lower": lower, "upper": upper, "unit": (upper - lower) / _STEPS, "missing": rule}


def _cells(name: str, kind: str) -> dict[str, Any]:
    """The public cells of a column to group by."""

    def asked(question: str, keys: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        def checked(text: str) -> dict[str, Any]:
            found = keys(text)
            found |= {} if "other" in found.get("categories", ()) else {"other": True}
            cells_of(name, name, found, datetime.UTC)
            return found

        return _asked(question, checked)

    if kind == "categories":
        question = f"All public categories of {name}, separated by commas"
        return asked(question, lambda text: {"categories": _texts(text)})
    if kind == "bins":
        question = f"Public edges of the bins of {name}, as 0, 18, 65, 120"
        return asked(question, lambda text: {"bins": _numbers(text)})
    unit = _asked(f"Unit of {name}: {', '.join(UNITS)}", partial(_one_of, UNITS), "month")
    question = f"First and last public date of {name}, as 2025-01-01, 2025-12-31"
    return asked(
        question,
        lambda text: {"unit": unit, **dict(zip(("first", "last"), _texts(text), strict=True))},
    )


def _name(text: str) -> str:
    return text or "table"


def _whole(text: str) -> int:
    number, *more = _numbers(text)
    if more or number not in range(1, 10**6 + 1):
        raise ValueError("give a whole number from 1 to 1,000,000")
    return int(number)


def _level(text: str) -> float:
    level, *more = _numbers(text)
    if more or not 0 < level <= LARGEST_LEVEL:
        raise ValueError("give a probability below 1, such as 0.95")
    return level


def _guarantee(text: str) -> dict[str, float]:
    """The keys of a budget."""
    given = _numbers(text)
    if len(given) > 2 or min(given) <= 0 or given[1:] >= [1]:
        raise ValueError("give epsilon and delta, as 1, 1e-6, or rho, as 0.02")
    return dict(zip(("epsilon", "delta"), given, strict=True)) if given[1:] else {"rho": given[0]}


def _one_of(choices: Sequence[str], text: str) -> str:
    if text not in choices:
        raise ValueError(f"give one of {', '.join(choices)}")
    return text


def _groups(names: list[str], text: str) -> list[str]:
    if text in names:
        return [text]
    chosen = [] if text == "none" else _texts(text)
    if len({*chosen} & {*names}) < len(chosen):
        raise ValueError("give names of these columns, each once, separated by commas, or none")
    return chosen


def _texts(text: str) -> list[str]:
    """The texts between commas, perhaps in quotes."""
    return [normal(x) for x in next(csv.reader([text], skipinitialspace=True))]


def _numbers(text: str) -> list[float]:
    """The numbers between commas, or between semicolons if commas are decimal."""
    parts = text.replace(",", ".").split(";") if ";" in text else text.split(",")
    found = [number_in(part) for part in parts]
    if not all(abs(x) <= LARGEST for x in found):
        raise ValueError("give numbers, separated by commas, such as 0, 18.5")
    return [int(x) if x == int(x) else x for x in found]


def _toml(keys: Mapping[str, Any], commands: Sequence[str]) -> str:
    """The plan, after a comment with the next commands."""

    def lines(table: Mapping[str, Any]) -> Iterator[str]:
        return (f"{key} = {_value(x)}" for key, x in table.items())

    tables = [(f"[columns.{_value(name)}]", table) for name, table in keys["columns"].items()]
    tables += [("[[release]]", table) for table in keys["release"]]
    first = {key: x for key, x in keys.items() if key not in ("columns", "release")}
    # A comment has no line ends.
    comment = (f"# {command}" for command in commands if command.isprintable())
    parts = [*comment, *lines(first), *(x for name, t in tables for x in ("", name, *lines(t)))]
    return "\n".join(parts) + "\n"


def _value(value: Any) -> str:
    """A value of TOML: JSON's, with DEL, which TOML has no text with."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _commands(file: Path, output: Path, dialect: Dialect, ledger: list[str]) -> Iterator[list[str]]:
    """The next commands, as lists of arguments."""
    options = []
    for field in dataclasses.fields(dialect):
        value = getattr(dialect, field.name)
        if value != field.default:
            options += [f"--{field.name}", "tab" if value == "\t" else value]
    data, table = _path(file), f"released-{file.name.split('.')[0]}.csv"
    if ledger:
        yield ledger
    yield ["jaxdp", "check", _path(output), data, *options]
    yield ["jaxdp", "release", data, "--plan", _path(output), *options, "--output", table]


def _path(file: str | Path) -> str:
    """A path that is no option."""
    return f"./{file}" if str(file).startswith("-") else str(file)
