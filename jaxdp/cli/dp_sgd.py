"""The commands of the command line that answer one question each. Needs the extra `cli`.

Bad values end with exit code 2, what fails with 1; either is one line on stderr.
"""

import functools
import inspect
import json
import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from jaxdp import dpsgd
from jaxdp.compare import compare
from jaxdp.dpsgd.wording import rounded_up
from jaxdp.guarantee.base import Budget
from jaxdp.mechanism import Relation

NoiseMultiplier = Annotated[
    float, typer.Option(help="Standard deviation of the noise over the clipping norm.")
]
Epsilon = Annotated[float, typer.Option(help="epsilon in nats.")]
Delta = Annotated[float, typer.Option(help="delta, a probability.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        app.command(command.__name__)(_of_a_training(command))
    app.command("compare")(compare_families)


def epsilon(noise_multiplier: NoiseMultiplier, delta: Delta, **training: Any) -> None:
    """The epsilon of a DP-SGD training at a delta."""
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    value = _number("epsilon", dpsgd.epsilon, asked, training)
    _show(asked, training, {"epsilon": value}, f"epsilon = {rounded_up(value, 6)} nats")


def delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon, **training: Any) -> None:
    """The delta of a DP-SGD training at an epsilon."""
    asked = {"noise_multiplier": noise_multiplier, "epsilon": epsilon}
    value = _number("delta", dpsgd.delta, asked, training)
    _show(asked, training, {"delta": value}, f"delta = {rounded_up(value, 6)}")


def calibrate(epsilon: Epsilon, delta: Delta, **training: Any) -> None:
    """The least noise multiplier of a DP-SGD training that keeps to (epsilon, delta)."""
    asked = {"epsilon": epsilon, "delta": delta}
    value = _number("calibrate", dpsgd.noise_multiplier, asked, training)
    _show(
        asked, training, {"noise_multiplier": value}, f"noise multiplier = {rounded_up(value, 8)}"
    )


def statement(noise_multiplier: NoiseMultiplier, delta: Delta, **training: Any) -> None:
    """What a DP-SGD training guarantees, in plain words."""
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    text = _tried("statement", lambda: dpsgd.statement(**asked, **_schedule(training)))
    _show(asked, training, {"statement": text}, text)


def compare_families(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Annotated[float, typer.Option(help="What one record moves an answer by.")] = 1.0,
    count: Annotated[int, typer.Option(help="Answers that share the budget.")] = 1,
    as_json: AsJson = False,
) -> None:
    """The least noise of every family for one budget, side by side."""
    asked = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "count": count}
    found = _tried("compare", lambda: compare(Budget(epsilon, delta), sensitivity, count))
    rows = [row._asdict() for row in found]
    _show(asked, {"as_json": as_json}, {"families": rows}, str(found))


def _training(
    dataset_size: Annotated[int | None, typer.Option(help="Records in the data set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected records of a batch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the records.")] = None,
    sampling_prob: Annotated[
        float | None, typer.Option(help="Probability of a record to be in a batch.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, one batch each.")] = None,
    relation: Annotated[Relation, typer.Option(help="What neighbours differ by.")] = "add_remove",
    as_json: AsJson = False,
) -> None:
    """The options that all questions about a training share; only its signature is used."""


def _of_a_training(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of `_training` in its signature, which is what typer reads."""
    own, shared = (inspect.signature(f).parameters.values() for f in (command, _training))

    @functools.wraps(command)
    def called(**options: Any) -> None:
        command(**options)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own, *shared)
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    signature = inspect.Signature(parameters)
    called.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    return called


def _schedule(training: dict[str, Any]) -> dict[str, Any]:
    """What was said of the training."""
    return {k: v for k, v in training.items() if v is not None and k != "as_json"}


def _number(
    name: str, ask: Callable[..., Any], asked: dict[str, float], training: dict[str, Any]
) -> float:
    return float(np.asarray(_tried(name, lambda: ask(**asked, **_schedule(training)))))


def _tried(name: str, ask: Callable[[], Any]) -> Any:
    """ask(); an error is one line and an exit code."""
    try:
        return ask()
    except ValueError as error:
        typer.echo(f"jaxdp {name}: {error}", err=True)
        raise typer.Exit(2) from error
    except (ImportError, OSError) as error:
        typer.echo(f"jaxdp {name}: {error}", err=True)
        raise typer.Exit(1) from error


def _show(
    asked: dict[str, Any], training: dict[str, Any], answer: dict[str, Any], text: str
) -> None:
    if not training["as_json"]:
        typer.echo(text)
        return
    numbers = {**asked, **_schedule(training), **answer}
    typer.echo(json.dumps({name: _written(value) for name, value in numbers.items()}))


def _written(value: Any) -> Any:
    """Infinities as text: JSON has no number for them."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
