"""Options, errors and output that the commands share.

Bad values end with exit code 2, what fails with 1; either is one line on stderr.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Epsilon = Annotated[float, typer.Option(help="epsilon in nats.")]
Delta = Annotated[float, typer.Option(help="delta, a probability.")]
Sensitivity = Annotated[float, typer.Option(help="What one record moves an answer by.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


def tried(command: str, work: Callable[[], Any]) -> Any:
    """work(); an error is one line that names the command, and an exit code."""
    try:
        return work()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        typer.echo(f"jaxdp {command}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from error


def show(as_json: bool, answer: Mapping[str, Any], text: str) -> None:
    """Print `answer` as one JSON object for programs, or `text` for people."""
    typer.echo(as_text(answer) if as_json else text)


def as_text(answer: Mapping[str, Any]) -> str:
    """JSON of numbers, arrays' lists and texts; infinities as text, as JSON has no such number."""
    return json.dumps({name: _written(value) for name, value in answer.items()})


def _written(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_file(path: Path, text: str) -> None:
    """Write beside `path` and move: a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
