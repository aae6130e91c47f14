"""One stretch of DP-SGD with equal steps, and the privacy loss of a list of them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TypeAlias, final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import RELATIONS, Relation
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals, Shape
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dpsgd.arguments import with_names
from jaxdp.dpsgd.schemes import SHUFFLED, refuse_shuffled, scheme_of
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.poisson import Poisson

# Relative excess of epochs / sampling_prob over a whole number that is not rounded up to the next.
# chosen: far above rounding
_WHOLE = 1e-9
# Epochs at most. chosen: whole numbers of steps are exact
_MOST_EPOCHS = 1e12


@final
@in_float64
@pytree
class Phase:
    """Equal steps of DP-SGD: noise multiplier, sampling probability and number of steps, batched.

    Args:
        noise_multiplier: standard deviation of the noise on the sum of clipped gradients over the
            clipping norm, above 0.
        dataset_size, batch_size: records, and the expected number of them in a step: every record
            takes part in a step with probability batch_size / dataset_size, on its own.
        sampling_prob: that probability, in [0, 1], instead of the two.
        epochs: passes over the data, of 1 / sampling_prob steps each; what is no whole number of
            steps is rounded up.
        steps: their whole number, instead of epochs.
        sampling: how batches are drawn. "poisson": each record on its own; "truncated": the same,
            cut to batch_size_limit; "without_replacement": exactly batch_size of dataset_size, anew
            in every step; "random_allocation": each record joins one random step of every epoch;
            "balls_in_bins": the same step in every epoch. dataset_size is that of the larger of
            two neighbours.
        batch_size_limit: of "truncated".

    `ValueError` for values out of range and where the rate or the length is given twice or not.

    >>> import jaxdp as dp
    >>> phase = dp.dpsgd.Phase(1.0, dataset_size=60_000, batch_size=256, epochs=2)
    >>> float(phase.steps)
    469.0
    """

    noise_multiplier: Reals
    sampling_prob: Reals
    steps: Reals
    releases: Reals  # of the scheme: steps, epochs, or one for all
    scheme: Scheme | None  # None: Poisson

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
        sampling: str = "poisson",
        batch_size_limit: ArrayLike | None = None,
    ):
        rate = rate_of(dataset_size, batch_size, sampling_prob)
        if (epochs is None) == (steps is None):
            raise ValueError(f"give either epochs or steps, got epochs={epochs}, steps={steps}")
        if steps is not None:
            count = checks.whole("steps", steps)
        else:
            passes = checks.real("epochs", 0.0 if epochs is None else epochs, 0.0, _MOST_EPOCHS)
            count = _steps_of(passes, rate, dataset_size, batch_size)
        if sampling in SHUFFLED:
            refuse_shuffled()
        scheme, releases, count = scheme_of(
            sampling, rate, dataset_size, batch_size, batch_size_limit, count, epochs
        )
        assign(
            self,
            noise_multiplier=checks.positive("noise_multiplier", noise_multiplier),
            sampling_prob=rate,
            steps=count,
            releases=releases,
            scheme=scheme,
        )

    def louder(self, factor: Reals) -> Phase:
        """The phase with its noise multiplied."""
        scale, *others = jax.tree.leaves(self)
        return jax.tree.unflatten(jax.tree.structure(self), [scale * factor, *others])

    def loss(self, relation: Relation, group_size: int = 1) -> PrivacyLoss:
        """The privacy loss of all its steps."""
        return self.releases * self.release_loss(relation, group_size)

    def release_loss(self, relation: Relation, group_size: int = 1) -> PrivacyLoss:
        """The privacy loss of one release of the scheme, of sensitivity 1: a step's if Poisson."""
        checks.one_of("relation", relation, RELATIONS)
        noise = Gaussian(self.noise_multiplier)
        if self.scheme is None and group_size == 1:
            return privacy_loss(Mechanism(noise, 1.0, self.sampling_prob, relation))
        scheme = Poisson(self.sampling_prob) if self.scheme is None else self.scheme
        return privacy_loss(
            Mechanism(noise, 1.0, sampling=scheme, relation=relation, group_size=group_size)
        )

    @property
    def shape(self) -> Shape:
        """The batch."""
        return xp.broadcast_shapes(
            self.noise_multiplier.shape, self.sampling_prob.shape, self.steps.shape
        )


def _steps_of(
    epochs: Reals, rate: Reals, dataset_size: ArrayLike | None, batch_size: ArrayLike | None
) -> Reals:
    """The steps of so many passes, rounded up; from sizes without rounding first."""
    if dataset_size is not None and batch_size is not None:
        records, batch = (
            checks.whole("dataset_size", dataset_size),
            checks.real("batch_size", batch_size),
        )
        return xp.ceil(epochs * records / batch)
    if checks.is_concrete(rate) and not bool(xp.all(rate > 0)):
        raise ValueError(f"sampling_prob must be above 0 where epochs are given, got {rate}")
    return xp.ceil(epochs / rate * (1.0 - _WHOLE))


Phases: TypeAlias = Phase | Sequence[Phase]


def rate_of(
    dataset_size: ArrayLike | None, batch_size: ArrayLike | None, sampling_prob: ArrayLike | None
) -> Reals:
    """The sampling probability, from one of the two ways to say it."""
    sizes = dataset_size is not None and batch_size is not None
    if (sampling_prob is None) != sizes or (dataset_size is None) != (batch_size is None):
        raise ValueError(
            "give either dataset_size and batch_size or sampling_prob, got "
            f"dataset_size={dataset_size}, batch_size={batch_size}, sampling_prob={sampling_prob}"
        )
    if sampling_prob is not None:
        return checks.probability("sampling_prob", sampling_prob, lift=True)
    records = checks.whole("dataset_size", dataset_size, 1.0)  # pyright: ignore[reportArgumentType]
    batch = checks.positive("batch_size", batch_size)  # pyright: ignore[reportArgumentType]
    return checks.probability("batch_size / dataset_size", batch / records)


@in_float64
def combined_noise_multiplier(noise_multipliers: Sequence[ArrayLike]) -> Reals:
    """The noise multiplier of several Gaussian releases of one and the same sample.

    Args:
        noise_multipliers: at least one, each standard deviation of a release over its own
            sensitivity, above 0; they broadcast.

    Returns:
        (sum m^-2)^(-1/2), rounded down: together the releases are one Gaussian release with this
        noise multiplier. Account for the step with it.

    For what is computed from the batch of one step: gradients of groups of layers with noise each,
    a count of clipped gradients, a metric. The sum of their sampled losses is no bound, as each
    would have its own sample. `ValueError` for an empty sequence.

    >>> import jaxdp as dp
    >>> multiplier = dp.dpsgd.combined_noise_multiplier([1.0, 1.0])
    >>> print(f"{multiplier:.4f}")
    0.7071
    >>> print(f"{dp.dpsgd.epsilon(multiplier, 1e-6, sampling_prob=0.01, steps=1000):.3f}")
    5.287
    """
    scales = [checks.positive("noise_multipliers", m) for m in noise_multipliers]
    if not scales:
        raise ValueError("noise_multipliers must hold at least one, got none")
    least = functools.reduce(xp.minimum, scales)
    finite = xp.where(xp.isinf(least), 1.0, least)
    squares = functools.reduce(operator.add, ((finite / scale) ** 2 for scale in scales))
    rounding = (4.0 + len(scales)) * xp.finfo(xp.float64).eps
    combined = finite / xp.sqrt(squares) * (1.0 - (rounding if len(scales) > 1 else 0.0))
    return xp.where(xp.isinf(least), xp.inf, combined)


def loss_of(phases: tuple[Phase, ...], relation: Relation, group_size: int = 1) -> PrivacyLoss:
    """The privacy loss of all phases, one after the other."""
    return functools.reduce(operator.add, (phase.loss(relation, group_size) for phase in phases))
