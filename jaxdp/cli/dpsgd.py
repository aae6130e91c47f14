"""`jaxdp epsilon | delta | calibrate | statement`: questions about one training by DP-SGD."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from jaxdp.cli.base import (
    AsJson,
    Delta,
    Epsilon,
    ImpossibleError,
    Relation,
    Sampling,
    check,
    check_schedule,
    library,
    show,
    tried,
    wrapped,
)

NoiseMultiplier = Annotated[
    float, typer.Option(help="Standard deviation of the noise over the clipping norm.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    for command in (epsilon, delta, calibrate, statement):
        app.command(command.__name__)(_of_a_training(command))


def epsilon(noise_multiplier: NoiseMultiplier, delta: Delta, **training: Any) -> None:
    """The epsilon of a DP-SGD training at a delta."""
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    value = _number("epsilon", "epsilon", asked, training)
    _show(asked, training, {"epsilon": value}, f"epsilon = {_rounded_up(value, 6)} nats")


def delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon, **training: Any) -> None:
    """The delta of a DP-SGD training at an epsilon."""
    asked = {"noise_multiplier": noise_multiplier, "epsilon": epsilon}
    value = _number("delta", "delta", asked, training)
    _show(asked, training, {"delta": value}, f"delta = {_rounded_up(value, 6)}")


def calibrate(epsilon: Epsilon, delta: Delta, **training: Any) -> None:
    """The least noise multiplier of a DP-SGD training that keeps to (epsilon, delta)."""
    asked = {"epsilon": epsilon, "delta": delta}
    value = _number("calibrate", "noise_multiplier", asked, training)
    text = f"noise multiplier = {_rounded_up(value, 8)}"
    _show(asked, training, {"noise_multiplier": value}, text)


def statement(noise_multiplier: NoiseMultiplier, delta: Delta, **training: Any) -> None:
    """The guarantee of a DP-SGD training, in plain words."""
    asked = {"noise_multiplier": noise_multiplier, "delta": delta}
    text = tried("statement", lambda: _answer("statement", asked, training))
    _show(asked, training, {"statement": text}, wrapped(text))


def _training(
    dataset_size: Annotated[int | None, typer.Option(help="Records in the data set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected records of a batch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the records.")] = None,
    sampling_prob: Annotated[
        float | None, typer.Option(help="Probability of a record to be in a batch.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, one batch each.")] = None,
    relation: Annotated[Relation, typer.Option(help="What neighbours differ by.")] = "add_remove",
    sampling: Annotated[Sampling, typer.Option(help="How batches are drawn.")] = "poisson",
    batch_size_limit: Annotated[
        int | None, typer.Option(help="Records of a truncated batch at most.")
    ] = None,
    group_size: Annotated[int, typer.Option(help="Records of one user.")] = 1,
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
    """Options of the training that were given."""
    return {k: v for k, v in training.items() if v is not None and k != "as_json"}


def _number(
    command: str, question: str, asked: dict[str, float], training: dict[str, Any]
) -> float:
    def work() -> float:
        value = float(_answer(question, asked, training))
        if question == "noise_multiplier" and value == float("inf"):
            raise ImpossibleError(
                f"no noise multiplier keeps this training within epsilon {asked['epsilon']:g} at "
                f"delta {asked['delta']:g}: raise --epsilon or --delta"
            )
        return value

    return tried(command, work)


def _answer(question: str, asked: dict[str, float], training: dict[str, Any]) -> Any:
    """Answer of the library, which is imported once the options are known to be good."""
    schedule = _schedule(training)
    check({**asked, **schedule})
    check_schedule(schedule)
    return getattr(library().dpsgd, question)(**asked, **schedule)


def _rounded_up(value: float, digits: int) -> str:
    from jaxdp.dpsgd.wording import rounded_up

    return rounded_up(value, digits)


def _show(
    asked: dict[str, Any], training: dict[str, Any], answer: dict[str, Any], text: str
) -> None:
    show(training["as_json"], {**asked, **_schedule(training), **answer}, text)
