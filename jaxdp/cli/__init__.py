"""The `jaxdp` command. Needs the extra `cli`."""

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import jax

from jaxdp import __version__, _check, demo
from jaxdp._cache import enable_cache


def main() -> None:
    """Run the command line; a failure is one line on stderr and a non-zero exit."""
    try:
        typer = _check.extra("typer", "cli")
    except ImportError as error:
        sys.exit(f"jaxdp: {error}")
    jax.config.update("jax_enable_x64", True)
    # A home that cannot be written to costs time only.
    with contextlib.suppress(OSError, ValueError):
        enable_cache()
    build_app(typer)()


def build_app(typer: Any) -> Any:
    """The application, all of its commands in it; `typer` is the package."""
    commands = importlib.import_module("jaxdp.commands")
    app = typer.Typer(no_args_is_help=True)
    commands.register(app)

    def print_version(wanted: bool) -> bool:
        if wanted:
            typer.echo(f"jaxdp {__version__}")
            raise typer.Exit()
        return wanted

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=print_version, is_eager=True, help="Print the version."
            ),
        ] = False,
    ) -> None:
        """A numerical privacy accountant in JAX."""

    @app.command("demo")
    def demo_command(
        out: Annotated[Path, typer.Option(help="Folder for demo.png and demo.json.")] = Path(),
        as_json: Annotated[
            bool, typer.Option("--json", help="Print the numbers as JSON, nothing else.")
        ] = False,
    ) -> None:
        """Sweep delta, calibrate i.n.i.d. noise, train a private LASSO and logistic regression."""
        try:
            report = demo.main(out, (lambda line: None) if as_json else typer.echo)
        except (ImportError, OSError, ValueError) as error:
            typer.echo(f"jaxdp demo: {error}", err=True)
            raise typer.Exit(1) from error
        if as_json:
            typer.echo(json.dumps(report))

    return app
