"""`jaxdp epsilon | delta | calibrate | statement`: a training by DP-SGD."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import typer

from jaxdp._core.neighbours import Relation, Sampling
from jaxdp.cli.base import (
    Answer,
    Delta,
    Epsilon,
    add_command,
    library,
    rounded,
    wrapped,
)

NoiseMultiplier = Annotated[
    float, typer.Option(help="Standard deviation of the noise divided by the clipping norm.")
]


@dataclasses.dataclass(frozen=True)
class Training:
    """The options that all questions about a training share."""

    dataset_size: Annotated[int | None, typer.Option(help="Number of records.")] = None
    batch_size: Annotated[int | None, typer.Option(help="Expected size of a batch.")] = None
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the records.")] = None
    sampling_prob: Annotated[
        float | None, typer.Option(help="Probability that a record is in a batch.")
    ] = None
    steps: Annotated[int | None, typer.Option(help="Updates, one batch each.")] = None
    relation: Annotated[Relation, typer.Option(help="Neighbouring relation.")] = "add_remove"
    sampling: Annotated[
        Literal[Sampling, "shuffled"],
        typer.Option(help="Sampling scheme of the batches; shuffled prints known bounds."),
    ] = "poisson"
    batch_size_limit: Annotated[
        int | None, typer.Option(help="Largest size of a truncated batch.")
    ] = None
    group_size: Annotated[int, typer.Option(help="Number of records of one user.")] = 1

    @property
    def schedule(self) -> dict[str, Any]:
        """Options of the training that were given."""
        return {k: v for k, v in vars(self).items() if v is not None}


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        add_command(app, command)


def epsilon(noise_multiplier: NoiseMultiplier, delta: Delta, training: Training) -> Answer:
    """Compute the epsilon of a DP-SGD training at a delta."""
    inputs = {"noise_multiplier": noise_multiplier, "delta": delta, **training.schedule}
    value = float(library().dpsgd.epsilon(**inputs))
    return {**inputs, "epsilon": value}, f"epsilon = {rounded(value, 6)} nats"


def delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon, training: Training) -> Answer:
    """Compute the delta of a DP-SGD training at an epsilon."""
    if not epsilon >= 0:
        raise ValueError(f"--epsilon must be 0 or more, got {epsilon:g}")
    inputs = {"noise_multiplier": noise_multiplier, "epsilon": epsilon, **training.schedule}
    value = float(library().dpsgd.delta(**inputs))
    return {**inputs, "delta": value}, f"delta = {rounded(value, 6)}"


def calibrate(epsilon: Epsilon, delta: Delta, training: Training) -> Answer:
    """Compute the smallest noise multiplier of a DP-SGD training for (epsilon, delta)."""
    inputs = {"epsilon": epsilon, "delta": delta, **training.schedule}
    value = float(library().dpsgd.noise_multiplier(**inputs))
    if value == float("inf"):
        raise RuntimeError(
            f"no noise multiplier keeps this training within epsilon {epsilon:g} at delta "
            f"{delta:g}: raise --epsilon or --delta"
        )
    return {**inputs, "noise_multiplier": value}, f"noise multiplier = {rounded(value, 8)}"


def statement(
    noise_multiplier: NoiseMultiplier,
    delta: Delta,
    training: Training,
    proof: Annotated[
        bool, typer.Option("--proof", help="Add a line: proved in ball arithmetic or not.")
    ] = False,
) -> Answer:
    """Print the guarantee of a DP-SGD training and its conditions, in plain words.

    With --json the object also holds the privacy loss, and jaxdp verify takes it.
    """
    inputs = {"noise_multiplier": noise_multiplier, "delta": delta, **training.schedule}
    found = library().dpsgd.statement(**inputs, proof=proof)
    from jaxdp.dpsgd.phase import training_of

    loss = training_of(noise_multiplier, training.schedule).privacy_loss
    known = {**inputs, **found._asdict(), "statement": str(found)}
    return {**known, "loss": json.loads(loss.to_json())}, wrapped(str(found))
