"""Random allocation of records to steps, and balls in bins: what one shuffled pass should be."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import WITH_OR_WITHOUT
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dominating_pair.allocation import allocation
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.base import Pairs, Release, Scheme, require_known


@final
@in_float64
@pytree
class RandomAllocation(Scheme):
    """Each record takes part in `selected` of `steps` steps, drawn anew: one release is an epoch.

    Args:
        steps: of an epoch, known.
        selected: steps that a record takes part in, 1 to `steps`; from 2 on they are independent
            allocations to as many blocks of steps, an upper bound.

    Batches vary in size: none may be cut, and sums are divided by the expected size. E epochs with
    fresh draws are `E * privacy_loss(mechanism)`; where every epoch uses the same bins it is
    `BallsInBins`, which costs far more. Relations: "add_remove", "add", "remove", "zero_out", of
    the Gaussian; no groups. Source: arXiv:2502.08202; blocks its theorem on k of t.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.RandomAllocation(100)
    >>> epoch = dp.Mechanism(dp.Gaussian(1.0), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{dp.privacy_loss(epoch).epsilon(1e-6):.4f}")
    0.8580
    """

    steps: int = static()
    selected: int = static()

    def __init__(self, steps: int, selected: int = 1):
        steps = checks.positive_integer("steps", steps)
        selected = checks.positive_integer("selected", selected)
        if selected > steps:
            raise ValueError(f"selected must lie in [1, steps], got {selected} of {steps}")
        assign(self, steps=steps, selected=selected)

    def require(self, release: Release) -> None:
        """See `Scheme.require`."""
        require_known(self, release, WITH_OR_WITHOUT)

    def pairs(self, release: Release) -> Pairs:
        """One pair a block of steps; see `Scheme.pairs`."""
        ratio = _ratio(release)
        short, longer = divmod(self.steps, self.selected)
        blocks = ((short + 1, longer), (short, self.selected - longer))
        return tuple((allocation(ratio, size), count) for size, count in blocks if count)


@final
@in_float64
@pytree
class BallsInBins(Scheme):
    """Each record joins one of `steps` bins for good, one bin a step: a release is all the epochs.

    Args:
        steps: of an epoch, which are the bins; known.
        epochs: how often all bins are passed, known or not; above 0.

    The record's step is drawn once: that is one epoch at noise smaller by sqrt(epochs), exactly.
    Bins vary in size: none may be cut. Relations: as of `RandomAllocation`. Source:
    arXiv:2412.16802; jax_privacy's `BallsInBinsSampling`.

    >>> import jaxdp as dp
    >>> scheme = dp.sampling.BallsInBins(235, 15)
    >>> run = dp.Mechanism(dp.Gaussian(1.1), 1.0, sampling=scheme, relation="add_remove")
    >>> print(f"{dp.privacy_loss(run).epsilon(1e-5):.2f}")
    15.10
    """

    epochs: Reals
    steps: int = static()

    def __init__(self, steps: int, epochs: ArrayLike):
        steps = checks.positive_integer("steps", steps)
        assign(self, epochs=checks.whole("epochs", epochs, 1.0), steps=steps)

    def require(self, release: Release) -> None:
        """See `Scheme.require`."""
        require_known(self, release, WITH_OR_WITHOUT)

    def pairs(self, release: Release) -> Pairs:
        """One pair; see `Scheme.pairs`."""
        ratio = _ratio(release) * xp.sqrt(self.epochs) * (1.0 + 2.0**-51)
        return ((allocation(ratio, self.steps), 1),)


def _ratio(release: Release) -> Reals:
    assert isinstance(release.noise, Gaussian)
    return ratio_of(checks.guard(release.sensitivity), release.noise.scale)
