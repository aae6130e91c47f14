"""`jaxdp verify`: a statement proved in ball arithmetic. Imports neither JAX nor NumPy."""

from typing import Annotated

import typer

from jaxdp.cli.base import AsJson, add_command


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    add_command(app, verify, failed=2)


def verify(
    file: Annotated[str, typer.Argument(help="JSON of a privacy loss, or of a whole statement.")],
    epsilon: Annotated[str | None, typer.Option(help="epsilon in nats; 1.5 is exact.")] = None,
    delta: Annotated[str | None, typer.Option(help="delta, a probability; 1e-5 is exact.")] = None,
    most_points: Annotated[
        int | None, typer.Option(help="Points of a sum, or terms of an exact delta, at most.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove a guarantee in ball arithmetic. Exit status 0: proved, 1: refuted, 3: open."""
    from jaxdp.proof import command

    text, status = command.run(file, epsilon, delta, most_points, as_json)
    typer.echo(text)
    raise typer.Exit(status)
