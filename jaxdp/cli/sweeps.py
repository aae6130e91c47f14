"""`jaxdp sweep`: one question about DP-SGD over a grid, from flags or a TOML file."""

import dataclasses
import functools
import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import typer

from jaxdp._core.neighbours import Relation
from jaxdp.cli.base import (
    AsJson,
    check,
    check_schedule,
    flag,
    library,
    show,
    tried,
    with_options,
)

Quantity = Literal["epsilon", "delta", "noise_multiplier"]
# What may be a number or a range; the others are settings.
VARIABLES = (
    "noise_multiplier",
    "epsilon",
    "delta",
    "dataset_size",
    "batch_size",
    "epochs",
    "sampling_prob",
    "steps",
)
# Ranges of these are rounded: they count something.
WHOLE = ("dataset_size", "steps")
# Rows of a table that is printed. chosen: what a person reads
MOST_ROWS = 400
# Failures that are told. chosen: enough to see why
MOST_REASONS = 5
# Points of a chunk. chosen: about 5 seconds of epsilons on two cores
CHUNK = 2**12

Values = Annotated[
    str | None, typer.Option(help="0.8, 1,2,4 or 0.1:10:100 or log:1e-9:1e-3:50.", metavar="VALUES")
]


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("sweep")(with_options(run))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a sweep: options here, keys in a TOML file."""

    quantity: Annotated[Quantity | None, typer.Option(help="What is computed.")] = None
    noise_multiplier: Values = None
    epsilon: Values = None
    delta: Values = None
    dataset_size: Values = None
    batch_size: Values = None
    epochs: Values = None
    sampling_prob: Values = None
    steps: Values = None
    relation: Annotated[Relation | None, typer.Option(help="What neighbours differ by.")] = None
    to: Annotated[Path | None, typer.Option(help="A Zarr store; a killed run resumes.")] = None
    chunk: Annotated[int | None, typer.Option(help="Points of a chunk.")] = None
    stripe: Annotated[str | None, typer.Option(help="i/n: this job's share of one store.")] = None


def run(
    settings: Settings,
    file: Annotated[Path | None, typer.Argument(help="TOML; the options' names are keys.")] = None,
    as_json: AsJson = False,
) -> None:
    """Epsilon, delta or the least noise of DP-SGD over a grid of settings."""
    tried("sweep", lambda: _swept(_settings(file, vars(settings)), as_json))


def _settings(file: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the file, then those of the flags, which override them."""
    found: dict[str, Any] = {}
    if file is not None:
        found = {k.replace("-", "_"): v for k, v in tomllib.loads(file.read_text()).items()}
        unknown = sorted(found.keys() - flags.keys())
        if unknown:
            raise ValueError(f"{file} must have the options' names as keys, got {unknown[0]}")
    return found | {name: value for name, value in flags.items() if value is not None}


def _swept(settings: dict[str, Any], as_json: bool) -> None:
    quantity, relation = settings.get("quantity", "epsilon"), settings.get("relation", "add_remove")
    for name, value, kind in (("quantity", quantity, Quantity), ("relation", relation, Relation)):
        if value not in get_args(kind):
            listed = ", ".join(get_args(kind))
            raise ValueError(f"{flag(name)} must be one of {listed}, got {value!r}")
    values = {name: values_of(name, settings[name]) for name in VARIABLES if name in settings}
    axes = {name: axis for name, axis in values.items() if axis.size > 1}
    if not axes:
        raise ValueError("give a range, as in --steps 100,1000 or --sampling-prob log:1e-4:1e-1:20")
    for name, axis in values.items():
        for value in axis:
            check({name: value})
    check_schedule(values)
    stripe = _stripe(str(settings.get("stripe", "0/1")))
    fixed = {name: axis.item() for name, axis in values.items() if name not in axes}
    to, points = settings.get("to"), int(np.prod([axis.size for axis in axes.values()]))
    if to is None and not as_json and points > MOST_ROWS:
        raise ValueError(f"{points:,} points are no table: give --to grid.zarr, or --json")
    swept = library().sweep(
        functools.partial(point, quantity, relation, fixed),
        axes,
        to,
        chunk=int(settings.get("chunk", CHUNK)),
        stripe=stripe,
        progress=to is not None,
    )
    for reason in swept.attrs["failures"].splitlines()[:MOST_REASONS]:
        typer.echo(f"jaxdp sweep: no {quantity} at {reason}", err=True)
    found = swept[quantity]
    if to is None:
        answer = {name: axis.tolist() for name, axis in axes.items()}
        show(as_json, {**fixed, **answer, quantity: found.values.tolist()}, _table(found))
    else:
        from jaxdp.sweep.grid import FAILED, NOT_DONE, STATUS

        status = swept[STATUS].values
        left, failed = int((status == NOT_DONE).sum()), int((status == FAILED).sum())
        text = f"{to}: {points:,} points, {left:,} not done, {failed:,} failed"
        answer = {"to": str(to), "points": points, "not_done": left, "failed": failed}
        show(as_json, answer, text)


def point(quantity: str, relation: Relation, fixed: Mapping[str, float], **values: Any) -> Any:
    """The quantity at a block of points, under its name."""
    from jaxdp import dpsgd

    return {quantity: getattr(dpsgd, quantity)(**fixed, **values, relation=relation)}


def values_of(name: str, told: Any) -> np.ndarray:
    """One axis: a number, a list of them, "a:b:n" or "log:a:b:n", both ends included."""
    try:
        if not isinstance(told, str):
            found = np.atleast_1d(np.asarray(told, dtype=np.float64))
        elif ":" not in told:
            found = np.array([float(part) for part in told.split(",")])
        else:
            spread = np.geomspace if told.startswith("log:") else np.linspace
            first, last, count = told.removeprefix("log:").split(":")
            with np.errstate(all="raise"):
                found = spread(float(first), float(last), int(count))
            if name in WHOLE:
                found = np.unique(np.round(found))
    except (TypeError, ValueError, FloatingPointError) as error:
        raise ValueError(
            f"{flag(name)} must be a number, numbers as in 1,2,4, a range as in 0.1:10:100 or "
            f"log:1e-9:1e-3:50, got {told!r}"
        ) from error
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"{flag(name)} must be one finite number or more, got {told!r}")
    return found


def _stripe(told: str) -> tuple[int, int]:
    try:
        index, jobs = map(int, told.split("/"))
    except ValueError as error:
        raise ValueError(f"--stripe must be i/n with 0 <= i < n, as 3/16, got {told!r}") from error
    return index, jobs


def _table(found: Any) -> str:
    """A line a point, in columns; the quantity is rounded up."""
    from jaxdp.dpsgd.wording import rounded_up

    names = [*found.dims, found.name]
    points = itertools.product(*(found[name].values for name in found.dims))
    rows = zip(points, found.values.ravel(), strict=True)
    lines = [[*(f"{x:.9g}" for x in at), rounded_up(value, 6)] for at, value in rows]
    widths = [max(map(len, column)) + 2 for column in zip(names, *lines, strict=True)]
    return "\n".join(
        "".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for line in [names, *lines]
    )
