"""`jaxdp demo`: the main job on real data."""

from pathlib import Path
from typing import Annotated

import typer

from jaxdp.cli.base import AsJson, add_command, library, show


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    add_command(app, demo)


def demo(
    output: Annotated[Path, typer.Option(help="Folder for demo.png and demo.json.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Sweep DP-SGD, calibrate i.n.i.d. noise, train a private LASSO and logistic regression."""
    library()
    from jaxdp.demo import main

    report = main(output, (lambda _: None) if as_json else typer.echo, progress=not as_json)
    if as_json:
        show(as_json, report, "")
