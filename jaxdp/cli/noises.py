"""`jaxdp compare | optimal-noise`: noise for one answer and one budget."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jaxdp._core.files import write_atomically
from jaxdp.cli.base import (
    AsJson,
    Delta,
    Epsilon,
    ImpossibleError,
    Sensitivity,
    as_text,
    check,
    check_writable,
    exit_on_error,
    in_columns,
    library,
    rounded,
    show,
    with_options,
    wrapped,
)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("compare")(compare_families)
    app.command("optimal-noise")(with_options(design))


def compare_families(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Sensitivity = 1.0,
    count: Annotated[int, typer.Option(help="Answers that share the budget.")] = 1,
    families: Annotated[
        str | None,
        typer.Option(help="Families to fit: laplace,gaussian; default: all on the reals."),
    ] = None,
    integers: Annotated[
        bool, typer.Option("--integers", help="Include noise on the integers, for integer answers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the smallest noise of each family for one budget."""
    names = None if families is None else [name.strip() for name in families.split(",")]
    inputs = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "count": count}

    def work() -> Any:
        check(inputs)
        options = {"integers": integers, "progress": False if as_json else None}
        table = library().compare((epsilon, delta), sensitivity, count, names, **options)
        if not table:
            raise ImpossibleError(
                f"no noise satisfies epsilon {epsilon:g} at delta {delta:g}: raise one of them"
            )
        return table

    table = exit_on_error("compare", work)
    rows = {"families": [row._asdict() for row in table]}
    show(as_json, inputs | rows, _in_lines(table))


def _in_lines(table: Any) -> str:
    """The comparison as a table, the parameters of a family on a line of their own."""
    head = ("family", "variance", "mean |T|", "/ gaussian", "/ bound", "guarantee", "support")
    lines: list[tuple[str, ...]] = [head]
    for row in table:
        errors = (row.variance, row.mean_absolute, row.ratio_to_gaussian, row.ratio_to_bound)
        lines.append((row.family, *(f"{x:.6g}" for x in errors), row.guarantee, row.support))
    head_line, *others = in_columns(lines)
    below = (" ".join(f"{k}={v:.6g}" for k, v in row.parameters.items()) for row in table)
    pairs = zip(others, below, strict=True)
    return wrapped("\n".join([head_line, *(f"{errors}\n    {shape}" for errors, shape in pairs)]))


@dataclasses.dataclass(frozen=True)
class Question:
    """Budget and error that noise is designed for."""

    epsilon: Epsilon
    delta: Delta
    sensitivity: Sensitivity = 1.0
    loss: Annotated[
        Literal["l1", "l2"], typer.Option(help="Expected size or expected square of the error.")
    ] = "l1"


def design(
    question: Question,
    resolution: Annotated[
        int | None, typer.Option(help="Number of cells of the noise per sensitivity.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time limit of the solver.")] = 300.0,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the noise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the noise with the smallest expected error for one budget, with a lower bound."""
    inputs, limits = vars(question), {"resolution": resolution, "seconds": seconds}

    def work() -> Any:
        check(inputs | limits)
        if out is not None:
            check_writable("out", out)
        if question.delta == 0:
            raise ImpossibleError("bounded noise has no delta of 0: raise --delta")
        budget, sensitivity = (question.epsilon, question.delta), question.sensitivity
        return library().optimal.noise(budget, question.loss, sensitivity=sensitivity, **limits)

    noise = exit_on_error("optimal-noise", work)
    proof = noise.certificate
    fields = {
        "width": float(noise.width),
        "weights": noise.weights,
        "atom_weight": noise.atom_weight,
        **proof._asdict(),
    }
    answer = as_text(inputs | fields)
    if out is not None:
        exit_on_error("optimal-noise", lambda: write_atomically(out, answer + "\n"))
    lines = [
        f"expected {question.loss} loss <= {rounded(proof.loss_upper, 6)}",
        f"no noise below    {rounded(proof.loss_lower, 6, up=False)}",
        f"delta             <= {rounded(max(proof.deltas), 6)} at epsilon {question.epsilon:g}",
        f"cells             {len(noise.weights)} of {float(noise.width):.6g}",
        *([] if proof.complete else ["stopped early: the noise is private, the bracket wide"]),
        *([] if out is None else [f"written to        {out}"]),
    ]
    typer.echo(answer if as_json else wrapped("\n".join(lines)))
