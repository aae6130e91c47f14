"""`jaxdp plan`: a first plan of a table, from a person's answers at a terminal."""

import csv
import dataclasses
import json
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from jaxdp._core.files import write_atomically
from jaxdp.cli.base import add_command, library, require_new
from jaxdp.cli.ledgers import in_words
from jaxdp.cli.record_files import Dialect, Records, require_names
from jaxdp.cli.tables import Data
from jaxdp.tables.cells import UNITS, cells_of
from jaxdp.tables.fields import LARGEST, LARGEST_LEVEL, number_of, one_of
from jaxdp.tables.labels import DROP, normal, number_in

T = TypeVar("T")
# Whole numbers are written without a point.
Number: TypeAlias = int | float

# What a column may be answered to be.
_KINDS = ("skip", "number", "categories", "bins", "date", "id")
# The budget if a person gives none. chosen: that of the example in the documentation
_USUAL = "1, 1e-6"
# Steps between the bounds of a mean, to which sums are rounded. chosen: far below the noise
_STEPS = 1000


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    add_command(app, plan, reads_records=True)


def plan(
    dialect: Dialect,
    file: Data,
    output: Annotated[Path, typer.Option(help="The plan, a new TOML file.")] = Path("plan.toml"),
) -> None:
    """Write a first plan from public answers that it asks for; read the file's header alone."""
    require_new("output", output)
    names = [name for name in Records(file, **vars(dialect)).names if name]
    require_names(file, names)
    typer.echo("Answer with public knowledge alone: nothing is read but the first line.")
    budget, options = _budget(output)
    keys = budget | _statistics(names)
    commands = [*map(shlex.join, _commands(file, output, dialect))]
    if options:
        made = ["jaxdp", "ledger", _path(budget["ledger"]), "--create", *options]
        commands.insert(0, shlex.join(made))
    library().tables.plan(keys)
    write_atomically(output, _toml(keys, commands), replaces=False)
    typer.echo("\n".join([f"written to {output}; next:", *commands]))


def _asked(question: str, parsed: Callable[[str], T], default: str | None = None) -> T:
    """The answer as `parsed` returns it; after a `ValueError` the question is repeated."""
    while True:
        answer = typer.prompt(question, default=default).strip()
        try:
            return parsed(answer)
        except (NotImplementedError, OSError, ValueError) as error:
            typer.echo(f"  {error}")


def _budget(output: Path) -> tuple[dict[str, Any], list[str]]:
    """The first keys of a plan for a file, and the options that make its ledger, if it is new."""
    keys: dict[str, Any] = {"name": _asked("Name of the table", str, "table")}
    ledger, left = _asked("Ledger to charge: a file, or none", partial(_ledger, output), "none")
    question, options = "Budget: epsilon and delta, or rho", []
    if ledger is None:
        keys |= _asked(question, _guarantee, _USUAL)
    else:
        words = "Number of such tables that it has to pay for"
        tables = _asked(words, _whole, "1")
        if left is None:
            given = _asked(question.replace(":", " of all of them:"), _guarantee, _USUAL)
            options = [part for key, x in given.items() for part in (f"--{key}", json.dumps(x))]
            options += [] if "rho" in given else ["--zcdp"]
            dp, numbers = library(), (*given.values(),)
            left = dp.largest_zcdp(numbers) if numbers[1:] else dp.ZCDP(0.0, *numbers)
        keys |= _part(left, tables) | {"ledger": ledger}
    level = partial(_number, "level", 0.0, LARGEST_LEVEL)
    keys["level"] = _asked("Level of the half widths", level, "0.95")
    keys["jointly"] = typer.confirm("Must all half widths hold together at this level?")
    return keys | {"noise": "discrete_gaussian"}, options


def _ledger(output: Path, text: str) -> tuple[str | None, Any]:
    """The file of a ledger, None for none, and what it has left, None for a new one."""
    path = Path(text)
    if text == "none":
        return None, None
    if not path.exists():
        require_new("ledger", path)
        if path.resolve() == output.resolve():
            raise ValueError(f"the ledger must be another file than {output}")
        return text, None
    dp = library()
    left = dp.Ledger(path).remaining()
    typer.echo(f"  {text} has {in_words(left, up=False)} left")
    if not all(size > 0 for size in _part(left, 1).values()):
        raise ValueError(
            "a plan needs some rho, or some epsilon and delta: give a new file for a ledger with a "
            "new budget"
        )
    return text, left


def _part(left: Any, tables: int) -> dict[str, float]:
    """The keys of the budget of one table, if `left` has to pay for so many of them."""
    dp = library()
    if isinstance(left, dp.ZCDP):
        return {"rho": float((left / tables).rho)}
    sizes = {"epsilon": "epsilon_bound", "delta": "delta_bound"}
    return {key: float(getattr(left, name, 0.0)) / tables for key, name in sizes.items()}


def _statistics(columns: list[str]) -> dict[str, Any]:
    """The remaining keys of a plan: ids, cells, and a list of statistics."""
    keys: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for name in columns:
        kinds = tuple(kind for kind in _KINDS if kind != "id" or "person" not in keys)
        kind = _asked(f"Column {name}: {', '.join(kinds)}", partial(_one_of, "kind", kinds), "skip")
        if kind == "number":
            numbers[name] = _values(name)
        elif kind == "id":
            question = f"Records of one {name} (one person) that are used, at most"
            keys |= {"person": name, "rows": _asked(question, _whole, "5")}
            question = f"Cells that one {name} may be in, with so many records in each, or all"
            cells_of_one = _asked(question, lambda x: None if x == "all" else _whole(x), "all")
            keys |= {} if cells_of_one is None else {"max_cells": cells_of_one}
        elif kind != "skip":
            cells[name] = _cells(name, kind)
    by, names = list[str](), (*cells,)
    if cells:
        question = f"Group all statistics by one or more of {', '.join(names)}, or none"
        by = _asked(question, partial(_groups, names), names[0])
    grouped: dict[str, Any] = {"by": by, "margins": True} if by else {}
    count = {"statistic": "count"}
    releases = [count | grouped, *(count | {"by": [x]} for x in cells if x not in by)]
    for name, values in numbers.items():
        if values["missing"] == DROP:
            releases.append(count | {"column": name, "missing": DROP} | grouped)
        releases.append({"statistic": "mean", "column": name} | values | grouped)
    return keys | {"columns": cells, "release": releases}


def _values(name: str) -> dict[str, Any]:
    """The public bounds of a column of numbers, and its rule for missing values."""

    def bounds(text: str) -> tuple[Number, Number]:
        lower, upper = _numbers(text, 2)
        number_of(name, {"upper": upper}, "upper", lower=math.nextafter(lower, math.inf))
        return lower, upper

    lower, upper = _asked(f"Public bounds of {name}, as 0, 100", bounds)
    question = f"Missing values of {name}: {DROP}, or a public number in their place"
    inside = partial(_number, "number", lower, upper)
    rule = _asked(question, lambda text: text if text == DROP else inside(text), DROP)
    return {"lower": lower, "upper": upper, "unit": (upper - lower) / _STEPS, "missing": rule}


def _cells(name: str, kind: str) -> dict[str, Any]:
    """The public cells of a column to group by."""
    unit: dict[str, Any] = {}
    if kind == "date":
        question = f"Unit of {name}: {', '.join(UNITS)}"
        unit["unit"] = _asked(question, partial(_one_of, "unit", UNITS), "month")

    def keys(text: str) -> dict[str, Any]:
        found = {**unit}
        if kind == "date":
            found.update(zip(("first", "last"), _texts(text), strict=False))
        else:
            found[kind] = _numbers(text) if kind == "bins" else _texts(text)
        found["other"] = "other" not in found.get("categories", ())
        cells_of(name, name, found)
        return found

    questions = {
        "categories": f"All public categories of {name}, separated by commas",
        "bins": f"Public edges of the bins of {name}, as 0, 18, 65, 120",
        "date": f"First and last public date of {name}, as 2025-01-01, 2025-12-31",
    }
    return _asked(questions[kind], keys)


def _guarantee(text: str) -> dict[str, Any]:
    """The keys of a budget."""
    given = _numbers(text, 1, 2)
    names = ("epsilon", "delta") if given[1:] else ("rho",)
    keys: dict[str, Any] = dict(zip(names, given, strict=True))
    for key in keys:
        number_of("budget", keys, key, lower=1e-15, upper=0.5 if key == "delta" else 1e15)
    return keys


def _groups(names: tuple[str, ...], text: str) -> list[str]:
    chosen = [text] if text in names else [] if text == "none" else _texts(text)
    return [*dict.fromkeys(_one_of("column", names, name) for name in chosen)]


def _one_of(key: str, choices: tuple[str, ...], text: str) -> str:
    return one_of("answer", {key: text}, key, choices)


def _number(key: str, lower: Number, upper: Number, text: str) -> Number:
    (number,) = _numbers(text, 1)
    number_of("answer", {key: number}, key, lower=float(lower), upper=float(upper))
    return number


def _whole(text: str) -> int:
    number = _number("number", 1, 10**6, text)
    if not isinstance(number, int):
        raise ValueError("give a whole number")
    return number


def _numbers(text: str, *counts: int) -> list[Number]:
    """The numbers between commas, or between semicolons if commas are decimal."""
    parts = text.replace(",", ".").split(";") if ";" in text else text.split(",")
    found = [number_in(part) for part in parts]
    if not all(abs(x) <= LARGEST for x in found) or (counts and len(found) not in counts):
        needed = f"{' or '.join(map(str, counts))} of them, " if counts else ""
        raise ValueError(f"give numbers, {needed}separated by commas, as 0, 18.5")
    return [int(x) if x == int(x) else x for x in found]


def _texts(text: str) -> list[str]:
    """The texts between commas, perhaps in quotes."""
    return [normal(x) for x in next(csv.reader([text], skipinitialspace=True))]


def _toml(keys: dict[str, Any], commands: Sequence[str]) -> str:
    """The plan, after a comment with the next commands."""
    tables = {f"[columns.{_value(name)}]": [table] for name, table in keys["columns"].items()}
    tables["[[release]]"] = keys["release"]
    first = {key: x for key, x in keys.items() if key not in ("columns", "release")}
    # A comment has no line ends.
    lines = [f"# {command}" for command in commands if command.isprintable()]
    lines += [f"{key} = {_value(x)}" for key, x in first.items()]
    for name, table in ((name, table) for name, listed in tables.items() for table in listed):
        lines += ["", name, *(f"{key} = {_value(x)}" for key, x in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value of TOML: JSON's, with DEL, which TOML has no text with."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _commands(file: Path, output: Path, dialect: Dialect) -> Iterator[list[str]]:
    """The next commands, as lists of arguments."""
    options = []
    for field in dataclasses.fields(dialect):
        value = getattr(dialect, field.name)
        if value != field.default:
            options += [f"--{field.name}", "tab" if value == "\t" else value]
    data, made, table = _path(file), _path(output), f"released-{file.name.split('.')[0]}.csv"
    yield ["jaxdp", "check", made, data, *options]
    yield ["jaxdp", "release", data, "--plan", made, *options, "--output", table]


def _path(file: str | Path) -> str:
    """A path, which does not begin as an option does."""
    return f"./{file}" if str(file).startswith("-") else str(file)
