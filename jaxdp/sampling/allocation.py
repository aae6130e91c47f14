"""Random allocation of records to steps, and balls in bins."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import WITH_OR_WITHOUT, Relation
from jaxdp._core.precision import opened
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp.dominating_pair.allocation import Allocation
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import (
    Batch,
    Known,
    Pairs,
    SamplingStatement,
    Scheme,
    TrainingSizes,
    step_key,
)


@final
@pytree
class RandomAllocation(Scheme):
    """Each record takes part in `selected` of `steps` steps, drawn anew in every epoch.

    Args:
        steps: concrete number of steps in an epoch, which is one release.
        selected: number of steps that a record takes part in, 1 to `steps`: one of each of as many
            blocks of consecutive steps.

    Batches vary in size: do not truncate them, and divide sums by the expected size. E epochs with
    fresh draws are `E * privacy_loss(mechanism)`; use `BallsInBins`, which costs far more, if every
    epoch uses the same bins. "add_remove", "add", "remove" and "zero_out" of the Gaussian are
    supported, groups are not. The blocks bound k of t steps drawn uniformly, too. Source:
    arXiv:2502.08202.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.RandomAllocation(100)
    >>> epoch = dp.Mechanism(dp.Gaussian(1.0), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{dp.privacy_loss(epoch).epsilon(1e-6):.4f}")
    0.8580
    """

    known = Known(WITH_OR_WITHOUT)
    steps: int = static()
    selected: int = static()

    def __init__(self, steps: int, selected: int = 1):
        steps = checks.positive_integer("steps", steps)
        selected = checks.positive_integer("selected", selected)
        if selected > steps:
            raise ValueError(f"selected must lie in [1, steps], got {selected} of {steps}")
        assign(self, steps=steps, selected=selected)

    @classmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """See `Scheme.of`."""
        bins, epochs = _bins_and_epochs(training)
        return cls(bins), epochs * bins

    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """One pair a block of steps; see `Scheme.pairs`."""
        ratio = _ratio(noise, sensitivity)
        sizes = self._blocks()
        return tuple((Allocation(ratio, size), sizes.count(size)) for size in dict.fromkeys(sizes))

    def _blocks(self) -> list[int]:
        """The numbers of steps of the blocks, the longer ones first."""
        short, longer = divmod(self.steps, self.selected)
        return [short + 1] * longer + [short] * (self.selected - longer)

    @property
    def rate(self) -> Reals:
        """See `Scheme.rate`."""
        return xp.asarray(self.selected / self.steps)

    def largest_shift(self, relation: Relation | None, group_size: int) -> ArrayLike:
        """The square root of the number of steps that hold the record."""
        return xp.sqrt(xp.float64(self.selected)) * (1.0 + 2.0**-51)

    def releases(self, steps: Reals) -> Reals:
        """One an epoch."""
        return _epochs(steps, self.steps)

    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """See `Scheme.draw`."""

        @functools.lru_cache(maxsize=1)
        def epoch(index: int) -> list[Batch]:
            batches = []
            for block, size in enumerate(self._blocks()):
                batches.extend(_allocated(key, index * self.selected + block, records, size))
            return batches

        return lambda index: epoch(index // self.steps)[index % self.steps]

    def statement(self) -> SamplingStatement:
        """See `Scheme.statement`."""
        part = "one" if self.selected == 1 else f"{self.selected}"
        return SamplingStatement(
            f"each record joins {part} of the {self.steps:,} steps of every epoch, drawn anew",
            (_condition("in every epoch"),),
        )


@final
@pytree
class BallsInBins(Scheme):
    """Each record joins one of `steps` bins, which are the steps of each of `epochs` epochs.

    Args:
        steps: concrete number of steps in an epoch, which are the bins.
        epochs: number of passes over all bins, which together are one release; above 0.

    A record's bin is drawn once: exactly one epoch at noise divided by sqrt(epochs). Bins vary in
    size: do not truncate them. It supports the relations of `RandomAllocation`. Source:
    arXiv:2412.16802; jax_privacy's `BallsInBinsSampling`.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.BallsInBins(235, 15)
    >>> run = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{dp.privacy_loss(run).epsilon(1e-5):.2f}")
    15.10
    """

    known = Known(WITH_OR_WITHOUT)
    epochs: Reals
    steps: int = static()

    def __init__(self, steps: int, epochs: ArrayLike):
        steps = checks.positive_integer("steps", steps)
        assign(self, epochs=checks.whole("epochs", epochs, 1.0, checks.LARGEST), steps=steps)

    @classmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """See `Scheme.of`."""
        bins, epochs = _bins_and_epochs(training)
        return cls(bins, epochs), epochs * bins

    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """One pair; see `Scheme.pairs`."""
        ratio = _ratio(noise, sensitivity) * xp.sqrt(self.epochs) * (1.0 + 2.0**-51)
        return ((Allocation(ratio, self.steps), 1),)

    @property
    def rate(self) -> Reals:
        """See `Scheme.rate`."""
        return xp.asarray(1.0 / self.steps)

    def largest_shift(self, relation: Relation | None, group_size: int) -> ArrayLike:
        """The square root of the number of steps that hold the record."""
        return xp.sqrt(self.epochs) * (1.0 + 2.0**-51)

    def releases(self, steps: Reals) -> Reals:
        """One for all epochs."""
        epochs = _epochs(steps, self.steps)
        if checks.all_concrete(epochs, self.epochs) and bool(xp.any(epochs != self.epochs)):
            raise ValueError(
                f"steps must be all {self.epochs} epochs of {self.steps} steps, got {steps}"
            )
        return xp.where(epochs == self.epochs, 1.0, xp.nan)

    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """See `Scheme.draw`."""

        bins = functools.cache(lambda: _allocated(key, 0, records, self.steps))
        return lambda index: bins()[index % self.steps]

    def statement(self) -> SamplingStatement:
        """See `Scheme.statement`."""
        return SamplingStatement(
            f"each record joins one of {self.steps:,} steps, the same in every epoch",
            (_condition("once"),),
        )


def _ratio(noise: Noise, sensitivity: Reals) -> Reals:
    assert isinstance(noise, Gaussian)
    return ratio_of(checks.guard(sensitivity), noise.scale)


def _condition(when: str) -> str:
    return (
        f"each record draws its step independently, {when}, so that batches vary in size: none is "
        "cut, filled up with other records, or divided by its own size"
    )


def _bins_and_epochs(training: TrainingSizes) -> tuple[int, Reals]:
    """The steps of an epoch, one concrete number, and the whole number of epochs, 1 or more."""
    rate = training.rate
    if not checks.is_concrete(rate) or np.size(rate) != 1 or not np.all(rate > 0):
        raise ValueError(
            "the steps of an epoch must be one known number where records are allocated to them"
        )
    bins = math.ceil(1.0 / float(np.asarray(rate).item()) * (1.0 - 1e-9))
    if training.epochs is not None:
        return bins, checks.whole("epochs", training.epochs, 1.0, checks.LARGEST)
    return bins, xp.maximum(_epochs(training.steps, bins), 1.0)


def _epochs(steps: Reals, bins: int) -> Reals:
    epochs = steps / bins
    if checks.is_concrete(epochs) and bool(np.any(np.asarray(epochs) != np.round(epochs))):
        raise ValueError(
            f"steps must be whole epochs of {bins} steps where records are allocated, got {steps}"
        )
    return xp.where(epochs == xp.round(epochs), epochs, xp.nan)


@opened()
def _allocated(key: Key, index: int, records: int, steps: int) -> list[Batch]:
    """Batches of all steps of an epoch, padded to the size of the largest one."""
    bins = np.asarray(bins_of(key, index, records, steps))
    counts = np.bincount(bins, minlength=steps)
    order = np.argsort(bins, kind="stable")
    size = max(int(counts.max()), 1)
    mask = np.arange(size)[None] < counts[:, None]
    indices = np.zeros((steps, size), dtype=np.int64)
    indices[mask] = order
    return list(zip(indices, mask, strict=True))


@functools.partial(jax.jit, static_argnums=(2, 3))
def bins_of(key: Key, index: jax.Array | int | None, records: int, steps: int) -> jax.Array:
    """The bin of each record, drawn independently."""
    return jax.random.randint(step_key(key, index), (records,), 0, steps)
