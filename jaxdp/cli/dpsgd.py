"""`jaxdp epsilon | delta | calibrate | statement`: a training by DP-SGD, or releases of noises."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import typer

from jaxdp._core.neighbours import Relation, Sampling
from jaxdp.cli.base import (
    AsJson,
    Delta,
    Epsilon,
    ImpossibleError,
    Sensitivity,
    check,
    check_schedule,
    exit_on_error,
    library,
    rounded,
    show,
    with_options,
    wrapped,
)

# Names of noises whose parameters are numbers.
NOISES = (
    *("gaussian", "laplace", "truncated_laplace", "flipped_huber", "offset_gaussian", "subbotin"),
    *("staircase", "discrete_gaussian", "discrete_laplace"),
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
    as_json: AsJson = False

    @property
    def schedule(self) -> dict[str, Any]:
        """Options of the training that were given."""
        return {k: v for k, v in vars(self).items() if v is not None and k != "as_json"}


@dataclasses.dataclass(frozen=True)
class Source:
    """A training, or noises that are composed, whose epsilon or delta is computed."""

    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Of a training: deviation of the noise divided by the clipping norm."),
    ] = None
    noise: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead, a noise and its parameters, as laplace:10; can be repeated. "
            f"Names: {', '.join(NOISES)}.",
            metavar="NOISE",
        ),
    ] = None
    times: Annotated[
        list[int] | None,
        typer.Option(help="Releases of each --noise in its order; 1 if left out.", metavar="INT"),
    ] = None
    sensitivity: Sensitivity = 1.0

    @property
    def given(self) -> dict[str, Any]:
        """The options of the training or of the noises."""
        if not self.noise:
            return {"noise_multiplier": self.noise_multiplier}
        return {"noise": self.noise, "times": self.times, "sensitivity": self.sensitivity}


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        app.command(command.__name__)(with_options(command))


def epsilon(delta: Delta, source: Source, training: Training) -> None:
    """Compute the epsilon of a DP-SGD training, or of releases with any noise, at a delta."""
    value = _of_source("epsilon", {"delta": delta}, source, training)
    text = f"epsilon = {rounded(value, 6)} nats"
    _show({"delta": delta, **source.given}, training, {"epsilon": value}, text)


def delta(epsilon: Epsilon, source: Source, training: Training) -> None:
    """Compute the delta of a DP-SGD training, or of releases with any noise, at an epsilon."""
    value = _of_source("delta", {"epsilon": epsilon}, source, training)
    inputs = {"epsilon": epsilon, **source.given}
    _show(inputs, training, {"delta": value}, f"delta = {rounded(value, 6)}")


def calibrate(epsilon: Epsilon, delta: Delta, training: Training) -> None:
    """Compute the smallest noise multiplier of a DP-SGD training for (epsilon, delta)."""
    inputs = {"epsilon": epsilon, "delta": delta}
    value = _number("calibrate", "noise_multiplier", inputs, training)
    text = f"noise multiplier = {rounded(value, 8)}"
    _show(inputs, training, {"noise_multiplier": value}, text)


def statement(
    noise_multiplier: NoiseMultiplier,
    delta: Delta,
    training: Training,
    proof: Annotated[
        bool, typer.Option("--proof", help="Add a line: proved in ball arithmetic or not.")
    ] = False,
) -> None:
    """Print the guarantee of a DP-SGD training and its conditions, in plain words.

    With --json the object also holds the privacy loss, and jaxdp verify takes it.
    """
    inputs = {"noise_multiplier": noise_multiplier, "delta": delta}
    asked = {**inputs, "proof": True} if proof else inputs
    found = exit_on_error("statement", lambda: _answer("statement", asked, training))
    answer = {**found._asdict(), "statement": str(found)}
    if training.as_json:
        from jaxdp.dpsgd.phase import training_of

        loss = training_of(noise_multiplier, training.schedule).privacy_loss
        answer["loss"] = json.loads(loss.to_json())
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


def _of_source(
    question: str, inputs: dict[str, float], source: Source, training: Training
) -> float:
    if not source.noise and source.noise_multiplier is not None:
        asked = {"noise_multiplier": source.noise_multiplier, **inputs}
        return _number(question, question, asked, training)

    def work() -> float:
        if not source.noise:
            raise ValueError("give either --noise-multiplier and a training, or --noise")
        if source.noise_multiplier is not None or training.schedule != Training().schedule:
            raise ValueError("--noise is for releases of whole data: give no option of a training")
        check({**inputs, "sensitivity": source.sensitivity})
        return float(getattr(_loss_of(source), question)(*inputs.values()))

    return exit_on_error(question, work)


def _loss_of(source: Source) -> Any:
    """The composition of the noises."""
    noises, times = source.noise or [], source.times or [1] * len(source.noise or [])
    if len(times) != len(noises) or min(times) < 1:
        raise ValueError(f"--times must be 1 or more, once for each --noise, got {times}")
    dp, losses = library(), []
    for text, count in zip(noises, times, strict=True):
        losses.append(count * dp.privacy_loss(dp.Mechanism(_noise_of(text), source.sensitivity)))
    return sum(losses[1:], losses[0])


def _noise_of(text: str) -> Any:
    """A noise of the library from its name and its parameters: laplace:10 or staircase:1,1,0.3."""
    dp = library()
    name, _, listed = text.partition(":")
    kind = getattr(dp, "".join(part.capitalize() for part in name.strip().split("_")), None)
    try:
        numbers = [float(number) for number in listed.split(",")]
        if not (isinstance(kind, type) and issubclass(kind, dp.own.Noise)):
            raise TypeError
        return kind(*numbers)
    except TypeError:
        numbers = []
    except ValueError as error:
        raise ValueError(f"--noise must have its parameters, as laplace:10: {error}") from None
    raise ValueError(
        f"--noise must be a noise and its parameters, as laplace:10 or discrete_gaussian:3, got "
        f"{text!r}; names are {', '.join(NOISES)}"
    )


def _answer(question: str, inputs: dict[str, float], training: Training) -> Any:
    """Answer of the library, which is imported once the options are known to be good."""
    schedule = training.schedule
    check({**inputs, **schedule})
    check_schedule(schedule)
    return getattr(library().dpsgd, question)(**inputs, **schedule)


def _show(inputs: dict[str, Any], training: Training, answer: dict[str, Any], text: str) -> None:
    schedule = {} if inputs.get("noise") else training.schedule
    show(training.as_json, {**inputs, **schedule, **answer}, text)
