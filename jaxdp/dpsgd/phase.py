"""A number of equal steps of DP-SGD, and the privacy loss of several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypedDict, cast, final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import RELATIONS, Relation, Sampling
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals, Shape
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dpsgd.arguments import with_names
from jaxdp.dpsgd.shuffling import SHUFFLED, refuse_shuffled
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling import SCHEMES
from jaxdp.sampling.base import Scheme, TrainingSizes


@final
@in_float64
@pytree
class Phase:
    """Equal steps of DP-SGD: noise multiplier, sampling scheme and number of steps, batched.

    Args:
        noise_multiplier: standard deviation of the noise on the sum of clipped gradients, divided
            by the clipping norm; above 0.
        dataset_size, batch_size: number of records, and expected number of records in a step. Some
            schemes require a public size, of the larger of two neighbours.
        sampling_prob: the expected share of the records in a step, in [0, 1], instead of
            batch_size.
        epochs: passes over the data, of 1 / sampling_prob steps each, rounded up to whole steps.
        steps: the whole number of steps, instead of epochs.
        sampling: a scheme of `dp.sampling`, instead of batch_size and sampling_prob, or a name.
            "poisson": each record is sampled independently; "truncated": the same, cut to
            batch_size_limit; "without_replacement": exactly batch_size of dataset_size, anew in
            every step; "random_allocation": each record joins one random step of every epoch;
            "balls_in_bins": the same step in every epoch.
        batch_size_limit: of "truncated".

    `ValueError` for values out of range, and if the rate or the length is missing or given twice.

    >>> import jaxdp as dp
    >>> phase = dp.dpsgd.Phase(1.0, dataset_size=60_000, batch_size=256, epochs=2)
    >>> float(phase.steps)
    469.0
    """

    noise_multiplier: Reals
    sampling: Scheme
    steps: Reals

    @with_names
    def __init__(
        self,
        noise_multiplier: ArrayLike,
        *,
        dataset_size: ArrayLike | None = None,
        batch_size: ArrayLike | None = None,
        epochs: ArrayLike | None = None,
        sampling_prob: ArrayLike | None = None,
        steps: ArrayLike | None = None,
        sampling: str | Scheme = "poisson",
        batch_size_limit: ArrayLike | None = None,
    ):
        scheme: Scheme
        if isinstance(sampling, Scheme):
            if not dataset_size is batch_size is sampling_prob is batch_size_limit is None:
                raise ValueError(
                    "sampling must be a name where dataset_size, batch_size, sampling_prob or "
                    f"batch_size_limit are given, got {sampling}, which has them"
                )
            sizes = TrainingSizes.given(None, None, sampling.rate, None, epochs, steps)
            scheme, count = sampling, sizes.steps
        else:
            limit = batch_size_limit
            sizes = TrainingSizes.given(
                dataset_size, batch_size, sampling_prob, limit, epochs, steps
            )
            if sampling in SHUFFLED:
                refuse_shuffled()
            checks.one_of("sampling", sampling, tuple(SCHEMES))
            if (limit is not None) != (sampling == "truncated"):
                raise ValueError(
                    "batch_size_limit must be given with sampling='truncated', and only there, got "
                    f"batch_size_limit={limit}, sampling={sampling!r}"
                )
            scheme, count = SCHEMES[sampling].of(sizes)
        scheme.releases(count)
        scale = checks.positive("noise_multiplier", noise_multiplier)
        assign(self, noise_multiplier=scale, sampling=scheme, steps=count)

    @property
    def sampling_prob(self) -> Reals:
        """The expected share of the records in a step."""
        return self.sampling.rate

    def scaled(self, factor: Reals) -> Phase:
        """The phase with its noise multiplied."""
        scale, *others = jax.tree.leaves(self)
        return jax.tree.unflatten(jax.tree.structure(self), [scale * factor, *others])

    def loss(self, relation: Relation, group_size: int = 1) -> PrivacyLoss:
        """The privacy loss of all steps."""
        return self.sampling.releases(self.steps) * self.release_loss(relation, group_size)

    def release_loss(self, relation: Relation, group_size: int = 1) -> PrivacyLoss:
        """The privacy loss of one release of the scheme."""
        checks.one_of("relation", relation, RELATIONS)
        noise, scheme = Gaussian(self.noise_multiplier), self.sampling
        mechanism = Mechanism(noise, 1.0, sampling=scheme, relation=relation, group_size=group_size)
        return privacy_loss(mechanism)

    @property
    def shape(self) -> Shape:
        """The batch."""
        arrays = jax.tree.leaves((self.noise_multiplier, self.sampling, self.steps))
        return xp.broadcast_shapes(*(xp.shape(x) for x in arrays))


Phases: TypeAlias = Phase | Sequence[Phase]


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
        first, *others = (phase.loss(self.relation, self.group_size) for phase in self.phases)
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
    sequence = (phases,) if isinstance(phases, Phase) else phases
    has_phases = isinstance(sequence, Sequence) and len(sequence) > 0
    if not has_phases or not all(isinstance(phase, Phase) for phase in sequence):
        raise ValueError(
            "phases must be one Phase or more, as in [dp.dpsgd.Phase(1.1, "
            f"sampling_prob=0.01, steps=100)], got {phases!r}"
        )
    return Training(tuple(sequence), relation, group_size)
