"""The keyword arguments that describe a training by DP-SGD in every function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from jaxdp._core.neighbours import Relation, Sampling
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.dpsgd.phase import Phase, Phases, loss_of
from jaxdp.dpsgd.shuffling import SHUFFLED, refuse_shuffled
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.sampling.base import Scheme


class Schedule(TypedDict, total=False):
    """Keyword arguments that describe a training, or a list of phases.

    dataset_size, batch_size, epochs, sampling_prob, steps, sampling, batch_size_limit: see `Phase`.
    phases: a `Phase` or a list of phases, which compose, instead of all these. relation: the
    neighbouring relation, see `Mechanism`; by default "add_remove", one record more or less.
    group_size: neighbours differ in this number of records of one user.
    """

    dataset_size: ArrayLike | None
    batch_size: ArrayLike | None
    epochs: ArrayLike | None
    sampling_prob: ArrayLike | None
    steps: ArrayLike | None
    phases: Phases | None
    relation: Relation
    sampling: Sampling | Scheme
    batch_size_limit: ArrayLike | None
    group_size: int


class Training(NamedTuple):
    """Phases, the neighbouring relation, and the number of records of one user."""

    phases: tuple[Phase, ...]
    relation: Relation
    group_size: int

    @property
    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of all steps."""
        return loss_of(self.phases, self.relation, self.group_size)

    @property
    def zcdp(self) -> ZCDP:
        """The zCDP of all steps."""
        first, *others = (phase.zcdp(self.relation, self.group_size) for phase in self.phases)
        return sum(others, first)

    def scaled(self, factor: Reals) -> Training:
        """The training with all noise multiplied."""
        return self._replace(phases=tuple(phase.scaled(factor) for phase in self.phases))


def training_of(
    noise_multiplier: ArrayLike | None,
    schedule: Mapping[str, Any],
    delta: ArrayLike | None = None,
) -> Training:
    """The training that the arguments describe; a noise multiplier unless there are phases.

    `delta`: for the epsilon in the error message for shuffled batches.
    """
    options = cast("Schedule", dict(schedule))
    for name in options.keys() - Schedule.__annotations__.keys():
        takes = ", ".join(Schedule.__annotations__)
        raise TypeError(f"unexpected keyword argument {name!r}: a schedule takes {takes}")
    relation, group_size = options.pop("relation", "add_remove"), options.pop("group_size", 1)
    phases = options.pop("phases", None)
    if phases is None:
        if noise_multiplier is None:
            raise ValueError("give noise_multiplier or phases, got neither")
        arguments = cast("dict[str, Any]", options)
        if str(arguments.get("sampling")) in SHUFFLED and delta is not None:
            poisson = Phase(noise_multiplier, **{**arguments, "sampling": "poisson"})
            rate, count = poisson.sampling_prob, poisson.steps
            refuse_shuffled(poisson.noise_multiplier, rate, count, delta)
        return Training((Phase(noise_multiplier, **arguments),), relation, group_size)
    if options.get("sampling") == "poisson":
        options.pop("sampling")
    if noise_multiplier is not None or any(x is not None for x in options.values()):
        raise ValueError(
            "give phases alone: each holds its own noise multiplier, sampling and steps"
        )
    return Training(as_phases(phases), relation, group_size)


def as_phases(phases: Phases) -> tuple[Phase, ...]:
    """One phase or more as a tuple; else `ValueError`."""
    sequence = (phases,) if isinstance(phases, Phase) else phases
    has_phases = isinstance(sequence, Sequence) and len(sequence) > 0
    if not has_phases or not all(isinstance(phase, Phase) for phase in sequence):
        raise ValueError(
            "phases must be one Phase or more, as in [dp.dpsgd.Phase(1.1, "
            f"sampling_prob=0.01, steps=100)], got {phases!r}"
        )
    return tuple(sequence)
