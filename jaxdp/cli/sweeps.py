"""`jaxdp sweep`: one question about DP-SGD over a grid, from flags or a TOML file."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import typer

from jaxdp._core.neighbours import Relation
from jaxdp.cli.base import (
    AsJson,
    check,
    check_differs,
    check_schedule,
    exit_on_error,
    flag,
    in_columns,
    library,
    read_toml,
    rounded,
    show,
    with_options,
)

Quantity = Literal["epsilon", "delta", "noise_multiplier"]
# Arguments that may be a number or a range; the others are settings.
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
# Most rows of a printed table. chosen: a person reads no more
MOST_ROWS = 400
# Most failures shown. chosen: enough to see the reason
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

    quantity: Annotated[Quantity | None, typer.Option(help="Computed quantity.")] = None
    noise_multiplier: Values = None
    epsilon: Values = None
    delta: Values = None
    dataset_size: Values = None
    batch_size: Values = None
    epochs: Values = None
    sampling_prob: Values = None
    steps: Values = None
    relation: Annotated[Relation | None, typer.Option(help="Neighbouring relation.")] = None
    to: Annotated[Path | None, typer.Option(help="A Zarr store; a killed run resumes.")] = None
    chunk: Annotated[int | None, typer.Option(help="Number of points per chunk.")] = None
    stripe: Annotated[str | None, typer.Option(help="i/n: this job's share of one store.")] = None


def run(
    settings: Settings,
    file: Annotated[
        Path | None, typer.Argument(help="TOML file whose keys are the names of the options.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute epsilon, delta or the smallest noise of DP-SGD over a grid of settings."""
    exit_on_error("sweep", lambda: _run_sweep(_settings(file, vars(settings)), as_json))


def _settings(file: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the file, overridden by the flags."""
    settings: dict[str, Any] = {}
    if file is not None:
        settings = {k.replace("-", "_"): v for k, v in read_toml(file).items()}
        unknown = sorted(settings.keys() - flags.keys())
        if unknown:
            raise ValueError(f"{file} must have the options' names as keys, got {unknown[0]}")
    settings |= {name: value for name, value in flags.items() if value is not None}
    if "to" in settings:
        check_differs("to", Path(settings["to"]), file)
    return settings


def _run_sweep(settings: dict[str, Any], as_json: bool) -> None:
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
        raise ValueError(f"{points:,} points do not fit a table: give --to grid.zarr, or --json")
    swept = library().sweep(
        functools.partial(point, quantity, relation, fixed),
        axes,
        to,
        chunk=int(settings.get("chunk", CHUNK)),
        stripe=stripe,
        progress=to is not None and not as_json,
    )
    for reason in swept.attrs["failures"].splitlines()[:MOST_REASONS]:
        typer.echo(f"jaxdp sweep: no {quantity} at {reason}", err=True)
    column = swept[quantity]
    if to is None:
        answer = {name: axis.tolist() for name, axis in axes.items()}
        show(as_json, {**fixed, **answer, quantity: column.values.tolist()}, _table(column))
    else:
        from jaxdp.sweep.grid import FAILED, NOT_DONE, STATUS

        status = swept[STATUS].values
        not_done, failed = int((status == NOT_DONE).sum()), int((status == FAILED).sum())
        text = f"{to}: {points:,} points, {not_done:,} not done, {failed:,} failed"
        answer = {"to": str(to), "points": points, "not_done": not_done, "failed": failed}
        show(as_json, answer, text)


def point(quantity: str, relation: Relation, fixed: Mapping[str, float], **values: Any) -> Any:
    """The quantity at a block of points, under its name."""
    from jaxdp import dpsgd

    return {quantity: getattr(dpsgd, quantity)(**fixed, **values, relation=relation)}


def values_of(name: str, text: Any) -> np.ndarray:
    """One axis: a number, a list of them, "a:b:n" or "log:a:b:n", both ends included."""
    try:
        if not isinstance(text, str):
            axis = np.atleast_1d(np.asarray(text, dtype=np.float64))
        elif ":" not in text:
            axis = np.array([float(part) for part in text.split(",")])
        else:
            spread = np.geomspace if text.startswith("log:") else np.linspace
            start, end, count = text.removeprefix("log:").split(":")
            with np.errstate(all="raise"):
                axis = spread(float(start), float(end), int(count))
            if name in WHOLE:
                axis = np.unique(np.round(axis))
    except (TypeError, ValueError, FloatingPointError) as error:
        raise ValueError(
            f"{flag(name)} must be a number, numbers as in 1,2,4, a range as in 0.1:10:100 or "
            f"log:1e-9:1e-3:50, got {text!r}"
        ) from error
    if axis.ndim != 1 or not axis.size or not np.isfinite(axis).all():
        raise ValueError(f"{flag(name)} must be one finite number or more, got {text!r}")
    return axis


def _stripe(text: str) -> tuple[int, int]:
    try:
        index, jobs = map(int, text.split("/"))
    except ValueError as error:
        raise ValueError(f"--stripe must be i/n with 0 <= i < n, as 3/16, got {text!r}") from error
    return index, jobs


def _table(values: Any) -> str:
    """A line a point, in columns; the quantity is rounded up."""
    names = [*values.dims, values.name]
    points = itertools.product(*(values[name].values for name in values.dims))
    rows = zip(points, values.values.ravel(), strict=True)
    lines = [[*(f"{x:.9g}" for x in point), rounded(value, 6)] for point, value in rows]
    return "\n".join(f"  {line}" for line in in_columns([names, *lines], ">"))
