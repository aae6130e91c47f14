"""`jaxdp check` and `jaxdp plan`: a plan against a file, without a charge, and a first plan."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxdp._core.files import write_atomically
from jaxdp.cli.base import AsJson, check_output, exit_on_error, library, show, with_options
from jaxdp.cli.records import Delimiter, Dialect, Encoding, Records, require_names
from jaxdp.cli.tables import Chunks, Data, read_plan

# What a column may be asked to be.
_KINDS = ("skip", "number", "categories", "date")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("check")(with_options(check))
    app.command("plan")(plan)


def check(
    dialect: Dialect,
    plan: Annotated[Path, typer.Argument(help="TOML file of a plan.")],
    file: Data,
    as_json: AsJson = False,
) -> None:
    """Tell whether `jaxdp release` would take a plan and a file; draw and charge nothing."""

    def work() -> dict[str, Any]:
        from jaxdp.tables.release import cost_of, tally_of

        table_plan = read_plan(plan)
        progress = False if as_json else None
        chunks = Chunks(Records(file, **vars(dialect)), table_plan, progress)
        tally_of(chunks, table_plan).totals()
        fits = None
        if table_plan.ledger is not None:
            ledger = library().Ledger(table_plan.ledger)
            fits = ledger.would_fit(cost_of(table_plan, ledger.budget))
            if not fits:
                raise ValueError(
                    f"the table does not fit in what remains of {table_plan.ledger}: "
                    f"{ledger.remaining()}"
                )
        return {"plan": str(plan), "file": str(file), "is_accepted": True, "fits_ledger": fits}

    answer = exit_on_error("check", work, reads_records=True)
    text = f"{plan} and {file} would be accepted"
    text += ", and the ledger has room" if answer["fits_ledger"] else ""
    show(as_json, answer, f"{text}; nothing was released or charged")


def plan(
    file: Data,
    output: Annotated[Path, typer.Option(help="The plan, a new TOML file.")] = Path("plan.toml"),
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = ",",
) -> None:
    """Write a first plan from public answers that it asks for; read the file's header alone."""

    def names() -> list[str]:
        check_output("output", output, file)
        if output.exists():
            raise ValueError(f"--output must be a new file, and there is {output}")
        found = [name for name in Records(file, encoding, delimiter).names if name]
        require_names(file, found)
        return found

    columns = exit_on_error("plan", names, reads_records=True)
    typer.echo("Answer with public knowledge alone: nothing is read but the first line.")
    text = "\n".join(_lines(columns)) + "\n"

    def work() -> None:
        library().tables.plan(_parsed(text))
        write_atomically(output, text)

    exit_on_error("plan", work)
    typer.echo(f"written to {output}; next: jaxdp check {output} {file}")


def _parsed(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _lines(columns: list[str]) -> Iterator[str]:
    """The lines of the plan, from answers."""
    yield f"name = {_quoted(typer.prompt('Name of the table', default='table'))}"
    yield f"rho = {typer.prompt('Budget: rho of zero-concentrated privacy', type=float)}"
    yield 'noise = "discrete_gaussian"'
    yield 'missing = "drop"'
    groups, numbers = [], []
    for name in columns:
        kind = ""
        while kind not in _KINDS:
            kind = typer.prompt(f"Column {name}: {', '.join(_KINDS)}", default="skip")
        if kind == "number":
            numbers.append((name, *(_number(name, end) for end in ("least", "largest"))))
        elif kind != "skip":
            groups.append(name)
            yield from ("", f"[columns.{_quoted(name)}]", *_cells(name, kind), "other = true")
    by = [name for name in groups if typer.confirm(f"Group all statistics by {name}?")]
    grouped = [f"by = {_list(by)}", "margins = true"] if by else []
    yield from ("", "[[release]]", 'statistic = "count"', *grouped)
    for name in (name for name in groups if name not in by):
        yield from ("", "[[release]]", 'statistic = "count"', f"by = {_list([name])}")
    for name, lower, upper in numbers:
        column = f"column = {_quoted(name)}"
        yield from ("", "[[release]]", 'statistic = "count"', column, 'missing = "drop"', *grouped)
        bounds = f"lower = {lower}", f"upper = {upper}", f"unit = {(upper - lower) / 1000}"
        yield from ("", "[[release]]", 'statistic = "mean"', column, *bounds, *grouped)


def _cells(name: str, kind: str) -> Iterator[str]:
    if kind == "categories":
        listed = typer.prompt(f"All public categories of {name}, separated by commas")
        yield f"categories = {_list([part.strip() for part in listed.split(',')])}"
        return
    yield f"unit = {_quoted(typer.prompt('day, week, month, quarter or year', default='month'))}"
    for end in ("first", "last"):
        yield f"{end} = {_quoted(typer.prompt(f'The {end} date of {name}, as 2026-12-31'))}"


def _number(name: str, end: str) -> float:
    return typer.prompt(f"The {end} possible value of {name} (public)", type=float)


def _quoted(text: str) -> str:
    """A text of TOML: JSON's, with DEL, which TOML has no text with."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(texts: list[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"
