"""Options, errors and output that the commands share; nothing here imports JAX.

Bad values end with exit code 2, what fails and budgets that nothing meets with 1; either is one
line on stderr.
"""

import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import typer

from jaxdp._core.files import require_replaceable

Epsilon = Annotated[float, typer.Option(help="epsilon in nats.")]
Delta = Annotated[float, typer.Option(help="delta, a probability.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
# What a command returns: for programs, in words, and an exit status if it may be another than 0.
Answer: TypeAlias = tuple[Mapping[str, Any], str] | tuple[Mapping[str, Any], str, int]

# Columns of printed text. chosen: the narrowest terminal
COLUMNS = 80
# Arguments of functions that are options here under the same name.
_OPTIONS = (
    *("noise_multiplier", "sensitivity", "batch_size", "epsilon", "epochs", "delta", "steps"),
    *("sampling_prob", "dataset_size", "batch_size_limit", "group_size", "relation", "sampling"),
)
# Errors that are answered in one line.
_ERRORS = (ImportError, OSError, RuntimeError, TypeError, ValueError)


@functools.cache
def library() -> ModuleType:
    """The package, with the cache of compiled programs."""
    package = importlib.import_module("jaxdp")
    # A home that cannot be written to costs time only.
    with contextlib.suppress(OSError, ValueError):
        package.enable_cache()
    return package


def add_command(
    app: typer.Typer, command: Callable[..., Any], *, reads_records: bool = False, failed: int = 1
) -> None:
    """Add a command to `app`; what it returns is printed, as one JSON object with --json.

    Each field of a parameter that is a dataclass becomes an option. A command that returns None
    prints by itself. reads_records, failed: as of `exit_on_error`.
    """
    declared, kind = inspect.signature(command), inspect.Parameter.KEYWORD_ONLY
    records, parameters = dict[str, Any](), list[inspect.Parameter]()
    for name, parameter in declared.parameters.items():
        record: Any = parameter.annotation
        if dataclasses.is_dataclass(record):
            records[name], hints = record, get_type_hints(record, include_extras=True)
            parameters += [
                inspect.Parameter(x.name, kind, default=x.default, annotation=hints[x.name])
                for x in dataclasses.fields(record)
            ]
        else:
            parameters.append(parameter)
    if declared.return_annotation is not None and "as_json" not in declared.parameters:
        parameters.append(inspect.Parameter("as_json", kind, default=False, annotation=AsJson))

    @functools.wraps(command)
    def called(**options: Any) -> None:
        for name, record in records.items():
            fields = [field.name for field in dataclasses.fields(record)]
            options[name] = record(**{field: options.pop(field) for field in fields})
        as_json = options.get("as_json", False)
        given = {name: options[name] for name in declared.parameters}
        work = functools.partial(command, **given)
        found = exit_on_error(command.__name__, work, reads_records=reads_records, failed=failed)
        if found is not None:
            answer, text, *status = found
            show(as_json, answer, text)
            raise typer.Exit(*status)

    parameters = [p.replace(kind=kind, annotation=_with_choices(p.annotation)) for p in parameters]
    called.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(command.__name__)(called)


def _with_choices(annotation: Any) -> Any:
    """The annotation of an option, its choices moved to its help where it has some.

    Typer cuts words in its column of choices.
    """
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    choices = [
        c for part in (kind, *get_args(kind)) if get_origin(part) is Literal for c in get_args(part)
    ]
    if not choices:
        return annotation
    (option,) = map(copy.copy, notes)
    option.metavar = "NAME"
    option.help = f"{option.help.rstrip('.')}: {', '.join(choices[:-1])} or {choices[-1]}."
    return Annotated[kind, option]


def flag(name: str) -> str:
    """The option of an argument: --noise-multiplier of noise_multiplier."""
    return "--" + name.replace("_", "-")


def exit_on_error(
    command: str, work: Callable[[], Any], *, reads_records: bool = False, failed: int = 1
) -> Any:
    """work(); an error is one line that names the command, and an exit code.

    reads_records: show the messages of our own errors alone, and catch all. failed: the exit code
    of errors that are not of bad values.
    """
    caught = Exception if reads_records else _ERRORS
    try:
        return work()
    except (typer.Exit, typer.Abort):
        raise
    except caught as error:
        text = f"{type(error).__name__}, whose message is not shown: it may hold a record"
        if not reads_records or _is_our_own(error):
            text = _with_flags(" ".join(str(error).split()))
        typer.echo(f"jaxdp {command}: {text}", err=True)
        is_bad_value = isinstance(error, TypeError | ValueError)
        raise typer.Exit(2 if is_bad_value else failed) from None


def _is_our_own(error: Exception) -> bool:
    """True for errors whose message shows no record: ours, and those of files and packages."""
    return (
        type(error) in (ValueError, NotImplementedError)
        or isinstance(error, OSError | ImportError)
        or type(error).__module__.split(".")[0] == "jaxdp"
    )


def _with_flags(text: str) -> str:
    """The text of an error with options in place of the arguments of functions."""
    for name in _OPTIONS:
        # A single word is an argument only if the error states its rule.
        pattern = rf"\b{name}\b" if "_" in name else rf"^{name}\b(?= must)"
        text = re.sub(rf"(?<![-\w]){pattern}(?!\()", flag(name), text)
    return text


def show(as_json: bool, answer: Mapping[str, Any], text: str) -> None:
    """Print `answer` as one JSON object for programs, or `text` for people.

    Where nothing can be printed: one line on stderr, and exit code 1.
    """
    error = printed(as_text(answer) if as_json else text)
    if error is not None:
        typer.echo(f"jaxdp: cannot print: {error}", err=True)
        raise typer.Exit(1)


def printed(text: str) -> str | None:
    """Print a text to the last byte; the reason if that fails."""
    if sys.stdout is None or sys.stdout.closed:
        return "standard output is closed"
    try:
        typer.echo(text)
        sys.stdout.flush()
    except OSError as error:
        # The rest would be written, and fail, once more at the end of the process.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error.strerror or str(error)
    return None


def as_text(answer: Mapping[str, Any]) -> str:
    """JSON of numbers, lists, texts and mappings. It has no infinity: `null` stands for it.

    A field NAME that holds one has a field NAME_is_infinite beside it, of the same shape.
    """
    return json.dumps(_finite(answer), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        fields = {name: _finite(item) for name, item in value.items()}
        infinite = {name: _infinite(item) for name, item in value.items()}
        marked = {f"{name}_is_infinite": x for name, x in infinite.items() if _any_true(x)}
        return fields | marked
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _infinite(value: Any) -> Any:
    """True where a number is infinite, in lists of the same shape."""
    if isinstance(value, list | tuple):
        return [_infinite(item) for item in value]
    return isinstance(value, float) and math.isinf(value)


def _any_true(marks: Any) -> bool:
    return any(map(_any_true, marks)) if isinstance(marks, list) else marks


def rounded(value: float, digits: int, *, up: bool = True) -> str:
    """A bound as text with `digits` significant digits, rounded up or down."""
    from jaxdp.dpsgd.statement import rounded_up

    return rounded_up(value, digits) if up else rounded_up(-value, digits).lstrip("-")


def wrapped(text: str) -> str:
    """The text with its long lines broken, their continuations indented."""
    return "\n".join(
        textwrap.fill(
            line,
            COLUMNS,
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        for line in text.splitlines()
    )


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([x.ljust(n) for x, n in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in lines]


def require_new(name: str, path: Path) -> None:
    """Raise for an output that exists or cannot be written, before anything is read or spent."""
    require_replaceable(path)
    if not os.access(path.parent, os.W_OK):
        raise OSError(f"{flag(name)} cannot be written to: {path}")
    if path.exists():
        raise ValueError(f"{flag(name)} must be a new file, and there is {path}")
