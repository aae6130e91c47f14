"""The `jaxdp` command. Needs the extra `cli`.

JAX is imported when something is computed: help and refused calls do without.
"""

import importlib
import sys
from typing import Annotated, Any

from jaxdp import __version__

# The modules whose `register` adds commands, in the order of `jaxdp --help`.
COMMANDS = (*("dpsgd", "tables", "plans", "ledgers", "proofs", "audits", "demonstration"),)
# The one that runs without JAX and NumPy, by the name that is typed.
STANDALONE = {"verify": "proofs"}


def main() -> None:
    """Run the command line; a failure is one line on stderr and a non-zero exit."""
    try:
        typer = importlib.import_module("typer")
    except ImportError:
        sys.exit("jaxdp: typer is needed here: pip install 'jaxdp-privacy[cli]'")
    alone = STANDALONE.get(sys.argv[1]) if len(sys.argv) > 1 else None
    build_app(typer, COMMANDS if alone is None else (alone,))()


def build_app(typer: Any, commands: tuple[str, ...] = COMMANDS) -> Any:
    """The application with the commands of these modules; `typer` is the package."""
    # Tracebacks with local variables would print records.
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

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

    for name in commands:
        importlib.import_module(f"jaxdp.cli.{name}").register(app)
    return app
