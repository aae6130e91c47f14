"""`jaxdp verify`: a statement proved in ball arithmetic. Imports neither JAX nor NumPy."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("verify")(run)


def run(
    file: Annotated[str, typer.Argument(help="JSON of a privacy loss, or of a whole statement.")],
    epsilon: Annotated[str | None, typer.Option(help="epsilon in nats; 1.5 is exact.")] = None,
    delta: Annotated[str | None, typer.Option(help="delta, a probability; 1e-5 is exact.")] = None,
    most_points: Annotated[
        int | None, typer.Option(help="Points of a sum, or terms of an exact delta, at most.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, nothing else.")
    ] = False,
) -> None:
    """Prove a guarantee in ball arithmetic. Exit status 0: proved, 1: refuted, 3: open."""
    try:
        from jaxdp.proof import command

        text, status = command.run(file, epsilon, delta, most_points, as_json)
    except (ImportError, OSError, ValueError) as error:
        typer.echo(f"jaxdp verify: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(text)
    raise typer.Exit(status)
