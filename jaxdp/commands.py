"""The commands of the command line that answer one question each. Needs the extra `cli`.

Bad values end with exit code 2, what fails with 1; either is one line on stderr.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from jaxdp import dpsgd
from jaxdp.compare import compare
from jaxdp.guarantee.base import Budget
from jaxdp.mechanism import Relation

NoiseMultiplier = Annotated[
    float, typer.Option(help="Standard deviation of the noise over the clipping norm.")
]
Epsilon = Annotated[float, typer.Option(help="epsilon in nats.")]
Delta = Annotated[float, typer.Option(help="delta, a probability.")]
DatasetSize = Annotated[int | None, typer.Option(help="Records in the data set.")]
BatchSize = Annotated[int | None, typer.Option(help="Expected records of a batch.")]
Epochs = Annotated[float | None, typer.Option(help="Expected passes over the records.")]
SamplingProb = Annotated[
    float | None, typer.Option(help="Probability of a record to be in a batch.")
]
Steps = Annotated[int | None, typer.Option(help="Updates, one batch each.")]
RelationOption = Annotated[Relation, typer.Option(help="What neighbours differ by.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        app.command(command.__name__)(command)
    app.command("compare")(compare_families)


def epsilon(
    noise_multiplier: NoiseMultiplier,
    delta: Delta,
    dataset_size: DatasetSize = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    sampling_prob: SamplingProb = None,
    steps: Steps = None,
    relation: RelationOption = "add_remove",
    as_json: AsJson = False,
) -> None:
    """The epsilon of a DP-SGD training at a delta."""
    schedule = _schedule(dataset_size, batch_size, epochs, sampling_prob, steps, relation)
    value = _answer("epsilon", lambda: dpsgd.epsilon(noise_multiplier, delta, **schedule))
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    _show({**asked, **schedule, "epsilon": value}, f"epsilon = {value:.6g} nats", as_json)


def delta(
    noise_multiplier: NoiseMultiplier,
    epsilon: Epsilon,
    dataset_size: DatasetSize = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    sampling_prob: SamplingProb = None,
    steps: Steps = None,
    relation: RelationOption = "add_remove",
    as_json: AsJson = False,
) -> None:
    """The delta of a DP-SGD training at an epsilon."""
    schedule = _schedule(dataset_size, batch_size, epochs, sampling_prob, steps, relation)
    value = _answer("delta", lambda: dpsgd.delta(noise_multiplier, epsilon, **schedule))
    asked = {"noise_multiplier": noise_multiplier, "epsilon": epsilon}
    _show({**asked, **schedule, "delta": value}, f"delta = {value:.6g}", as_json)


def calibrate(
    epsilon: Epsilon,
    delta: Delta,
    dataset_size: DatasetSize = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    sampling_prob: SamplingProb = None,
    steps: Steps = None,
    relation: RelationOption = "add_remove",
    as_json: AsJson = False,
) -> None:
    """The least noise multiplier of a DP-SGD training that keeps to (epsilon, delta)."""
    schedule = _schedule(dataset_size, batch_size, epochs, sampling_prob, steps, relation)
    value = _answer(
        "calibrate", lambda: dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, **schedule)
    )
    asked = {"epsilon": epsilon, "delta": delta}
    text = f"noise multiplier = {value:.8g}"
    _show({**asked, **schedule, "noise_multiplier": value}, text, as_json)


def statement(
    noise_multiplier: NoiseMultiplier,
    delta: Delta,
    dataset_size: DatasetSize = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    sampling_prob: SamplingProb = None,
    steps: Steps = None,
    relation: RelationOption = "add_remove",
    as_json: AsJson = False,
) -> None:
    """What a DP-SGD training guarantees, in plain words."""
    schedule = _schedule(dataset_size, batch_size, epochs, sampling_prob, steps, relation)
    text = _tried("statement", lambda: dpsgd.statement(noise_multiplier, delta, **schedule))
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    _show({**asked, **schedule, "statement": text}, text, as_json)


def compare_families(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Annotated[float, typer.Option(help="What one record moves an answer by.")] = 1.0,
    count: Annotated[int, typer.Option(help="Answers that share the budget.")] = 1,
    as_json: AsJson = False,
) -> None:
    """The least noise of every family for one budget, side by side."""
    found = _tried("compare", lambda: compare(Budget(epsilon, delta), sensitivity, count))
    rows = [row._asdict() for row in found]
    asked = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity, "count": count}
    _show({**asked, "families": rows}, str(found), as_json)


def _schedule(
    dataset_size: int | None,
    batch_size: int | None,
    epochs: float | None,
    sampling_prob: float | None,
    steps: int | None,
    relation: Relation,
) -> dict[str, Any]:
    """What was said of the training."""
    said = {
        "dataset_size": dataset_size,
        "batch_size": batch_size,
        "epochs": epochs,
        "sampling_prob": sampling_prob,
        "steps": steps,
    }
    known = {key: value for key, value in said.items() if value is not None}
    return known | {"relation": relation}


def _answer(name: str, ask: Callable[[], Any]) -> float:
    return float(np.asarray(_tried(name, ask)))


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


def _show(numbers: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(numbers) if as_json else text)
