"""The `jaxdp` command. Needs the extra `cli`.

JAX is imported when the library is called: help does without.
"""

import importlib
import sys
from typing import Annotated, Any

from jaxdp import __version__

# The modules whose `register` adds commands, in the order of `jaxdp --help`.
COMMANDS = (*("dpsgd", "tables", "plans", "ledgers", "proofs", "audits", "demonstration"),)
# An example at the end of each command's help.
_TRAINING = "--dataset-size 60000 --batch-size 256 --epochs 15"
EXAMPLES = {
    "epsilon": f"--noise-multiplier 1.1 --delta 1e-5 {_TRAINING}",
    "delta": f"--noise-multiplier 1.1 --epsilon 2 {_TRAINING}",
    "calibrate": f"--epsilon 2 --delta 1e-5 {_TRAINING}",
    "statement": f"--noise-multiplier 1.1 --delta 1e-5 {_TRAINING}",
    "release": "data.csv --plan plan.toml --output table.csv",
    "check": "plan.toml data.csv",
    "plan": "data.csv --output plan.toml",
    "ledger": "budget.ledger --create --rho 0.5",
    "verify": "loss.json --epsilon 1.5 --delta 1e-5",
    "audit": "outputs.csv --epsilon 1 --first with --second without",
    "demo": "--output figures",
}
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
    for command in app.registered_commands:
        command.epilog = f"Example: jaxdp {command.name} {EXAMPLES[command.name]}"
    return app
