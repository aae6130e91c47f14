"""The `jaxdp` command. Needs the extra `cli`."""

import contextlib
import importlib
import sys
from typing import Annotated, Any

import jax

from jaxdp import __version__
from jaxdp._core import checks
from jaxdp._core.cache import enable_cache

# The modules whose `register` adds commands, in the order of `jaxdp --help`.
COMMANDS = ("dp_sgd", "noises", "sweeps", "models", "demonstration")


def main() -> None:
    """Run the command line; a failure is one line on stderr and a non-zero exit."""
    try:
        typer = checks.extra("typer", "cli")
    except ImportError as error:
        sys.exit(f"jaxdp: {error}")
    jax.config.update("jax_enable_x64", True)
    # A home that cannot be written to costs time only.
    with contextlib.suppress(OSError, ValueError):
        enable_cache()
    build_app(typer)()


def build_app(typer: Any) -> Any:
    """The application, all of its commands in it; `typer` is the package."""
    app = typer.Typer(no_args_is_help=True)

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

    for name in COMMANDS:
        importlib.import_module(f"jaxdp.cli.{name}").register(app)
    return app
