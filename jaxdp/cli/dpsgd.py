"""`jaxdp epsilon | delta | calibrate | statement`: questions about one training by DP-SGD."""

import dataclasses
from typing import Annotated, Any

import typer

from jaxdp._core.neighbours import Relation, Sampling
from jaxdp.cli.base import (
    AsJson,
    Delta,
    Epsilon,
    ImpossibleError,
    check,
    check_schedule,
    exit_on_error,
    library,
    show,
    with_options,
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
    sampling: Annotated[Sampling, typer.Option(help="Sampling scheme of the batches.")] = "poisson"
    batch_size_limit: Annotated[
        int | None, typer.Option(help="Largest size of a truncated batch.")
    ] = None
    group_size: Annotated[int, typer.Option(help="Number of records of one user.")] = 1
    as_json: AsJson = False

    @property
    def schedule(self) -> dict[str, Any]:
        """Options of the training that were given."""
        return {k: v for k, v in vars(self).items() if v is not None and k != "as_json"}


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        app.command(command.__name__)(with_options(command))


def epsilon(noise_multiplier: NoiseMultiplier, delta: Delta, training: Training) -> None:
    """Compute the epsilon of a DP-SGD training at a delta."""
    inputs = {"noise_multiplier": noise_multiplier, "delta": delta}
    value = _number("epsilon", "epsilon", inputs, training)
    _show(inputs, training, {"epsilon": value}, f"epsilon = {_rounded_up(value, 6)} nats")


def delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon, training: Training) -> None:
    """Compute the delta of a DP-SGD training at an epsilon."""
    inputs = {"noise_multiplier": noise_multiplier, "epsilon": epsilon}
    value = _number("delta", "delta", inputs, training)
    _show(inputs, training, {"delta": value}, f"delta = {_rounded_up(value, 6)}")


def calibrate(epsilon: Epsilon, delta: Delta, training: Training) -> None:
    """Compute the smallest noise multiplier of a DP-SGD training for (epsilon, delta)."""
    inputs = {"epsilon": epsilon, "delta": delta}
    value = _number("calibrate", "noise_multiplier", inputs, training)
    text = f"noise multiplier = {_rounded_up(value, 8)}"
    _show(inputs, training, {"noise_multiplier": value}, text)


def statement(
    noise_multiplier: NoiseMultiplier,
    delta: Delta,
    training: Training,
    proof: Annotated[
        bool, typer.Option("--proof", help="Add a line: proved in ball arithmetic or not.")
    ] = False,
) -> None:
    """Print the guarantee of a DP-SGD training and its conditions, in plain words."""
    inputs = {"noise_multiplier": noise_multiplier, "delta": delta}
    asked = {**inputs, "proof": True} if proof else inputs
    found = exit_on_error("statement", lambda: _answer("statement", asked, training))
    answer = {**found._asdict(), "statement": str(found)}
    _show(inputs, training, answer, wrapped(str(found)))


def _number(command: str, question: str, inputs: dict[str, float], training: Training) -> float:
    def work() -> float:
        value = float(_answer(question, inputs, training))
        if question == "noise_multiplier" and value == float("inf"):
            raise ImpossibleError(
                f"no noise multiplier keeps this training within epsilon {inputs['epsilon']:g} at "
                f"delta {inputs['delta']:g}: raise --epsilon or --delta"
            )
        return value

    return exit_on_error(command, work)


def _answer(question: str, inputs: dict[str, float], training: Training) -> Any:
    """Answer of the library, which is imported once the options are known to be good."""
    schedule = training.schedule
    check({**inputs, **schedule})
    check_schedule(schedule)
    return getattr(library().dpsgd, question)(**inputs, **schedule)


def _rounded_up(value: float, digits: int) -> str:
    from jaxdp.dpsgd.statement import rounded_up

    return rounded_up(value, digits)


def _show(inputs: dict[str, Any], training: Training, answer: dict[str, Any], text: str) -> None:
    show(training.as_json, {**inputs, **training.schedule, **answer}, text)
