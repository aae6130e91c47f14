"""`jaxdp demo`: the main job on real data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from jaxdp.cli.base import AsJson, exit_on_error, library


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("demo")(run)


def run(
    output: Annotated[Path, typer.Option(help="Folder for demo.png and demo.json.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Sweep DP-SGD, calibrate i.n.i.d. noise, train a private LASSO and logistic regression."""
    say = (lambda line: None) if as_json else typer.echo

    def work() -> dict:
        library()
        from jaxdp import demo

        return demo.main(output, say, progress=not as_json)

    report = exit_on_error("demo", work)
    if as_json:
        typer.echo(json.dumps(report))
