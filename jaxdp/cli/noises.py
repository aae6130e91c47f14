"""`jaxdp compare | optimal-noise`: noise for one answer and one budget."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from jaxdp.cli.base import AsJson, Delta, Epsilon, Sensitivity, as_text, show, tried, write_file
from jaxdp.design.compare import compare
from jaxdp.dpsgd.wording import rounded_up
from jaxdp.guarantee.base import Budget
from jaxdp.noise.histogram import Histogram
from jaxdp.optimal.noise import optimal_noise


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("compare")(compare_families)
    app.command("optimal-noise")(design)


def compare_families(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Sensitivity = 1.0,
    count: Annotated[int, typer.Option(help="Answers that share the budget.")] = 1,
    families: Annotated[
        str | None, typer.Option(help="Those that are fitted: laplace,gaussian; else all of reals.")
    ] = None,
    integers: Annotated[
        bool, typer.Option("--integers", help="Noise on the integers too, for whole answers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The least noise of every family for one budget, side by side."""
    names = None if families is None else [name.strip() for name in families.split(",")]
    asked = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "count": count}
    table = tried(
        "compare",
        lambda: compare(Budget(epsilon, delta), sensitivity, count, names, integers=integers),
    )
    rows = {"families": [row._asdict() for row in table]}
    show(as_json, asked | rows, str(table))


def design(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Sensitivity = 1.0,
    loss: Annotated[
        Literal["l1", "l2"], typer.Option(help="Expected size or expected square of the error.")
    ] = "l1",
    resolution: Annotated[
        int | None, typer.Option(help="Cells of the noise in one sensitivity.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="When the solver stops.")] = 300.0,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the noise.")] = None,
    as_json: AsJson = False,
) -> None:
    """The additive noise of least expected error for one budget, with a proof of how near it is."""
    asked = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "loss": loss}

    def work() -> Histogram:
        return optimal_noise(
            (epsilon, delta), loss, sensitivity=sensitivity, resolution=resolution, seconds=seconds
        )

    noise = tried("optimal-noise", work)
    proof = noise.certificate
    found = {
        "width": float(noise.width),
        "weights": noise.weights,
        "atom_weight": noise.atom_weight,
        **proof._asdict(),
    }
    answer = as_text(asked | found)
    if out is not None:
        tried("optimal-noise", lambda: write_file(out, answer + "\n"))
    lines = [
        f"expected {loss} loss <= {rounded_up(proof.loss_upper, 6)}",
        f"no noise below    {rounded_up(-proof.loss_lower, 6).lstrip('-')}",
        f"delta             <= {rounded_up(max(proof.deltas), 6)} at epsilon {epsilon:g}",
        f"cells             {len(noise.weights)} of {float(noise.width):.6g}",
        *([] if proof.complete else ["stopped early: the noise is private, the bracket wide"]),
        *([] if out is None else [f"written to        {out}"]),
    ]
    typer.echo(answer if as_json else "\n".join(lines))
