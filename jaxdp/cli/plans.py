"""`jaxdp check` and `jaxdp plan`: a plan against a file, without a charge, and a first plan."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp._core.files import write_atomically
from jaxdp.cli import answers
from jaxdp.cli.base import AsJson, check_output, exit_on_error, library, show, with_options
from jaxdp.cli.record_files import Dialect, Records, require_names
from jaxdp.cli.results import Held
from jaxdp.cli.tables import Chunks, Data, has_room, read_plan


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
        fits = has_room(table_plan)
        with records.located():
            chunks = Chunks(records, table_plan, False if as_json else None, Held())
            tally_of(chunks, table_plan).totals()
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
    budget, options = answers.budget(output)
    keys = budget | answers.statistics(columns)
    commands = [*map(shlex.join, _commands(file, output, dialect))]
    if options:
        made = ["jaxdp", "ledger", _path(budget["ledger"]), "--create", *options]
        commands.insert(0, shlex.join(made))

    def work() -> None:
        library().tables.plan(keys)
        write_atomically(output, _toml(keys, commands), replaces=False)

    exit_on_error("plan", work)
    typer.echo("\n".join([f"written to {output}; next:", *commands]))


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
