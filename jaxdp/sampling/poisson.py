"""Poisson sampling: every record takes part independently."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import RELATIONS, Relation, shift_factor
from jaxdp._core.precision import opened
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.random_key import is_known, key_for, uniform_of_steps
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.elementary import log1m, log_probability
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture, SampledGroup
from jaxdp.dominating_pair.poisson import Poisson as PoissonPair
from jaxdp.dominating_pair.replaced import Replaced
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.sampling.allocation import bins_of
from jaxdp.sampling.base import (
    Batch,
    Known,
    Pairs,
    SamplingStatement,
    Scheme,
    TrainingSizes,
    step_key,
)

# Steps whose samples NumPy draws together, and records up to which it does. measured: a step takes
# as long as by the program, which takes 1 s to compile
_STEPS, _FEW = 16, 2**12


@final
@pytree
class Poisson(Scheme):
    """Every record takes part with probability `sampling_prob`, independently.

    Args:
        sampling_prob: probability of each record, in [0, 1].
        cycle_length: number of groups that take turns, a concrete whole number; each record draws
            its group once, and is sampled in the steps of this group alone. One release is one
            step of each group: a record takes part in one step of `cycle_length` at most.

    Batches have any size. All relations are supported; "zero_out" uses the bound of "add_remove".
    Groups of up to 128 records of one user, each sampled independently, are supported for Gaussian
    noise by binomial mixtures, which are tight; not if the records take turns.
    Source of cycles: Choquette-Choo et al., arXiv:2306.08153, theorem 4.

    >>> import jaxdp as dp
    >>> step = dp.Mechanism(dp.Gaussian(1.0), 1.0, sampling=dp.sampling.Poisson(0.01),
    ...                     relation="add_remove", group_size=4)
    >>> print(f"{(100 * dp.privacy_loss(step)).epsilon(1e-6):.4f}")
    3.9930
    """

    known = Known(RELATIONS, RELATIONS, RELATIONS)
    sampling_prob: Reals
    cycle_length: int = static(default=1)

    def __init__(self, sampling_prob: ArrayLike, cycle_length: int = 1):
        prob = checks.probability("sampling_prob", sampling_prob, lift=True)
        length = checks.positive_integer("cycle_length", cycle_length)
        assign(self, sampling_prob=prob, cycle_length=length)

    @classmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """See `Scheme.of`."""
        return cls(training.rate), training.steps

    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """One pair a release; see `Scheme.pairs`."""
        q, replaced = self.sampling_prob, relation == "replace_one"
        if group_size > 1:
            if self.cycle_length > 1:
                raise ValueError(
                    f"group_size must be 1 where records take turns, got {group_size}: records of "
                    "one user may be in several of the groups"
                )
            assert isinstance(noise, Gaussian)
            rate = checks.guard(q, 1.0)
            pair = _binomial_group(noise, sensitivity, rate, group_size, replaced=replaced)
        elif replaced:
            pair = Replaced(noise, sensitivity, q)
        else:
            pair = PoissonPair(Additive(noise, sensitivity), q, xp.zeros(()))
        return ((pair, 1),)

    @property
    def rate(self) -> Reals:
        """See `Scheme.rate`."""
        return self.sampling_prob / self.cycle_length

    def releases(self, steps: Reals) -> Reals:
        """One a cycle, begun or whole."""
        return xp.ceil(steps / self.cycle_length)

    def largest_shift(self, relation: Relation | None, group_size: int) -> ArrayLike:
        """See `Scheme.largest_shift`."""
        return shift_factor(relation) * group_size

    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """See `Scheme.draw`."""
        sample = _samples(key, self.sampling_prob, records)
        if self.cycle_length == 1:
            return sample
        group_of = np.asarray(bins_of(key_for("turns", key), None, records, self.cycle_length))

        def batch(index: int) -> Batch:
            indices, mask = sample(index)
            in_turn = group_of[indices] == index % self.cycle_length
            return indices[in_turn], mask[in_turn]

        return batch

    def statement(self) -> SamplingStatement:
        """See `Scheme.statement`."""
        q, groups = float(np.asarray(self.sampling_prob).item()), self.cycle_length
        if groups > 1:
            return SamplingStatement(
                f"each record draws one of {groups:,} groups, which take turns, and takes part in "
                f"a step of its group with probability {q:g}, independently (cyclic Poisson)",
                (
                    "each record draws its group once, independently of the others, and batches "
                    "are Poisson samples of the group in turn, of varying size",
                ),
            )
        if self.takes_all:
            return SamplingStatement("all records take part in every step", ())
        return SamplingStatement(
            f"each record takes part in a step with probability {q:g}, independently (Poisson)",
            (
                "batches are really drawn by Poisson sampling, anew in every step, of varying "
                "size: not by shuffling and not of fixed size",
            ),
        )

    @property
    def takes_all(self) -> bool:
        """True if the probability is known to be 1, and no records take turns."""
        q = self.sampling_prob
        return self.cycle_length == 1 and checks.is_concrete(q) and bool(np.all(np.asarray(q) == 1))


def _binomial_group(
    noise: Gaussian, sensitivity: Reals, q: Reals, size: int, *, replaced: bool
) -> DominatingPair:
    """Binomially many records of a group take part: on one side, or on both if it is replaced."""
    log_q, log_not_q = log_probability(q), log1m(q)

    def log_share(k: int) -> Reals:
        # 0 log 0 is 0 here.
        sampled = xp.zeros_like(q) if k == 0 else k * log_q
        others = xp.zeros_like(q) if k == size else (size - k) * log_not_q
        return math.log(math.comb(size, k)) + sampled + others

    means = tuple(k * sensitivity for k in range(size + 1))
    shares = tuple(log_share(k) for k in range(size + 1))
    if not replaced:
        return SampledGroup(noise, sensitivity, shares)
    return GaussianMixture.from_fields(means, shares, means, shares, noise.scale)


def _samples(key: Key, sampling_prob: ArrayLike, records: int) -> Callable[[int], Batch]:
    """The Poisson sample of a step: of few records by NumPy, several steps at a time."""
    known: dict[int, np.ndarray] = {}

    @opened()
    def sample(index: int) -> Batch:
        if records <= _FEW and is_known(key):
            if index not in known:
                steps = np.arange(index, index + (_STEPS if known else 1))
                known.clear()
                drawn = uniform_of_steps(key, "sample", steps, records)
                known.update(zip(steps.tolist(), drawn < np.asarray(sampling_prob), strict=True))
            mask = known[index]
        else:
            mask = np.asarray(_mask(key, index, sampling_prob, records))
        sampled = np.flatnonzero(mask)
        return sampled, np.ones(sampled.shape, bool)

    return sample


# A step's key is derived inside: one program serves all steps.
@functools.partial(jax.jit, static_argnums=3)
def _mask(key: Key, index: jax.Array | int, sampling_prob: Reals, records: int) -> jax.Array:
    """True for the records that a Poisson sample takes."""
    return jax.random.uniform(step_key(key, index), (records,), dtype=jnp.float64) < sampling_prob
