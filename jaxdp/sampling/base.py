"""The protocol of a sampling scheme."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.random_key import checked_key, fold_in, key_for
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian

# Largest number of records. derived: larger whole numbers are not doubles
MOST_RECORDS = 2.0**53
# Largest number of records of one user. chosen: each is a component of a mixture
MOST_GROUP_SIZE = 128
# Relative excess over a whole number of steps that is not rounded up. chosen: far above rounding
_WHOLE = 1e-9
# Largest number of epochs. chosen: numbers of steps are exact
_MOST_EPOCHS = 1e12

# Pairs that compose one release, and the number of times that each does.
Pairs: TypeAlias = tuple[tuple[DominatingPair, int], ...]
# Indices and mask of a batch; the mask is False for padding.
Batch: TypeAlias = tuple[np.ndarray, np.ndarray]


class TrainingSizes(NamedTuple):
    """Sizes of a training, for `Scheme.of`."""

    rate: Reals  # batch_size / dataset_size, or sampling_prob
    dataset_size: ArrayLike | None
    batch_size: ArrayLike | None
    batch_size_limit: ArrayLike | None
    epochs: ArrayLike | None  # None if the number of steps was given
    steps: Reals  # from epochs: rounded up to whole steps, exactly if sizes are given

    @classmethod
    def given(
        cls,
        dataset_size: ArrayLike | None = None,
        batch_size: ArrayLike | None = None,
        sampling_prob: ArrayLike | None = None,
        batch_size_limit: ArrayLike | None = None,
        epochs: ArrayLike | None = None,
        steps: ArrayLike | None = None,
    ) -> TrainingSizes:
        """The sizes; `ValueError` if the rate or the length is missing or given twice."""
        sizes = [size is not None for size in (dataset_size, batch_size)]
        # A limit on batches has its effect at a size of the data set.
        unused = any(sizes) != all(sizes) and (batch_size_limit is None or sizes[1])
        if (sampling_prob is None) != all(sizes) or unused:
            raise ValueError(
                "give either dataset_size and batch_size or sampling_prob, got dataset_size="
                f"{dataset_size}, batch_size={batch_size}, sampling_prob={sampling_prob}"
            )
        if (epochs is None) == (steps is None):
            raise ValueError(f"give either epochs or steps, got epochs={epochs}, steps={steps}")
        number = None if epochs is None else checks.real("epochs", epochs, 0.0, _MOST_EPOCHS)
        count = xp.asarray(xp.nan)
        if steps is not None:
            count = checks.whole("steps", steps, upper=checks.LARGEST)
        if sampling_prob is not None:
            rate = checks.probability("sampling_prob", sampling_prob, lift=True)
            if number is not None:
                if checks.is_concrete(rate) and not bool(xp.all(rate > 0)):
                    raise ValueError(
                        f"sampling_prob must be above 0 where epochs are given, got {rate}"
                    )
                count = xp.ceil(number / rate * (1.0 - _WHOLE))
        else:
            assert batch_size is not None
            assert dataset_size is not None
            records = checks.whole("dataset_size", dataset_size, 1.0)
            batch = checks.positive("batch_size", batch_size)
            rate = checks.probability("batch_size / dataset_size", batch / records)
            if number is not None:
                count = xp.ceil(number * records / batch)
        return cls(rate, dataset_size, batch_size, batch_size_limit, epochs, count)

    def public_size(self, sampling: str) -> ArrayLike:
        """The size of the data set; `ValueError` without one."""
        if self.dataset_size is None:
            raise ValueError(f"dataset_size must be given with sampling={sampling!r}: it is public")
        return self.dataset_size


class SamplingStatement(NamedTuple):
    """Sentences of a privacy statement about a scheme."""

    sampling: str  # how batches are drawn, after "where"
    conditions: tuple[str, ...]


class Known(NamedTuple):
    """Relations under which theorems cover a scheme."""

    relations: tuple[str, ...]
    groups: tuple[str, ...] = ()  # under which a user may have several records
    any_noise: tuple[str, ...] = ()  # under which a single record allows noise that is not Gaussian


class Scheme(abc.ABC):
    """A distribution of the records that take part in each release: a pytree that broadcasts.

    A release is one draw of the scheme: a step, or an epoch where the steps of an epoch depend on
    each other. A subclass contains everything about one scheme.
    """

    known: ClassVar[Known]

    def __init_subclass__(cls) -> None:
        in_float64(cls)

    @classmethod
    @abc.abstractmethod
    def of(cls, training: TrainingSizes) -> tuple[Scheme, Reals]:
        """The scheme of `sampling="..."` for these sizes, and the number of steps."""

    @final
    def require(self, noise: Noise, relation: Relation, group_size: int) -> None:
        """`ValueError` with the supported arguments, unless a theorem covers the release."""
        name, (relations, groups, any_noise) = type(self).__name__, self.known
        if relation not in relations:
            raise ValueError(
                f"relation must be one of {', '.join(relations)} for {name}, got {relation!r}: "
                "no dominating pair is known of the others"
            )
        if group_size > 1 and relation not in groups:
            raise ValueError(
                f"group_size must be 1 for {name} under {relation!r}, got {group_size}: relations "
                f"whose groups are known: {', '.join(groups) or 'none'}"
            )
        if group_size > MOST_GROUP_SIZE:
            raise ValueError(f"group_size must lie in [1, {MOST_GROUP_SIZE}], got {group_size}")
        free = group_size == 1 and relation in any_noise
        if not free and not isinstance(noise, Gaussian):
            raise ValueError(
                f"noise must be Gaussian for {name} under {relation!r} with group_size "
                f"{group_size}, got {type(noise).__name__}: relations of single records that allow "
                f"any noise: {', '.join(any_noise) or 'none'}"
            )
        if relation == "replace_one" and not noise.log_concave:
            raise ValueError(
                "noise must be log-concave on the reals where sampled records are replaced, got "
                f"{type(noise).__name__}"
            )

    @abc.abstractmethod
    def pairs(self, noise: Noise, sensitivity: Reals, relation: Relation, group_size: int) -> Pairs:
        """The dominating pairs that compose one release, in the direction "remove".

        A record contributes at most `sensitivity`, and a user has `group_size` records.
        """

    @property
    @abc.abstractmethod
    def rate(self) -> Reals:
        """The expected batch size over the number of records."""

    def largest_shift(self, relation: Relation | None, group_size: int) -> ArrayLike:
        """Largest Euclidean shift of a release over all samples, in contributions.

        2 a record, which may displace another one, unless a scheme moves less.
        """
        return 2.0 * group_size

    def releases(self, steps: Reals) -> Reals:
        """The number of releases in `steps` steps; `ValueError` (traced: NaN) if not whole.

        One a step, unless the steps of an epoch depend on each other.
        """
        return steps

    @abc.abstractmethod
    def draw(self, key: Key, records: int) -> Callable[[int], Batch]:
        """The batch of each step, as a function of the step's index.

        Use the key once and keep it secret. `ValueError` if the scheme is for another number of
        records.
        """

    @abc.abstractmethod
    def statement(self) -> SamplingStatement:
        """Sentences of a privacy statement."""

    @property
    def takes_all(self) -> bool:
        """True if every record is known to take part in every release."""
        return False


def require_neighbour_size(dataset_size: Reals, records: int) -> None:
    """`ValueError` unless the data set is one of two neighbours, the larger of this size."""
    size = int(dataset_size)
    if records not in (size - 1, size):
        raise ValueError(
            f"data must hold dataset_size records, {size}, or one less, got {records}: its size is "
            "public"
        )


def step_key(key: Key, index: jax.Array | int | None) -> Key:
    """The key of one step's sample: a child of `key`, or of its own purpose where None."""
    return key_for("sample", key if index is None else fold_in(key, index))


@draws_in_float64(may_share=True)
def batch(scheme: Scheme, key: Key, records: int, size: int, *, step: int = 0) -> Batch:
    """The batch of one step of a sampling scheme, in parts of one size.

    Args:
        scheme: `Poisson`, `TruncatedPoisson`, `WithoutReplacement`, `RandomAllocation` or
            `BallsInBins`.
        key: of all steps; keep it secret, since who was sampled is not public.
        records: number of records, at least 1.
        size: number of entries in a part.
        step: index of the step; the steps of an epoch depend on each other in some schemes.

    Returns:
        Indices and mask, (parts, size), at least one part. The mask is False for padding. No batch
        is cut that the scheme does not cut.

    Bad sizes, and a scheme for another number of records: `ValueError`. Not under `jit`.

    >>> import jax
    >>> import jaxdp as dp
    >>> scheme = dp.sampling.Poisson(1.0)
    >>> indices, mask = dp.sampling.batch(scheme, jax.random.key(0), records=8, size=5)
    >>> indices.shape, int(mask.sum())
    ((2, 5), 8)
    """
    records = checks.positive_integer("records", records)
    size = checks.positive_integer("size", size)
    return in_parts(scheme.draw(checked_key(key), records)(step), size)


def in_parts(batch: Batch, size: int) -> Batch:
    """A batch as rows of `size` entries, at least one row, padded where the mask is False."""
    indices, mask = batch
    count = max(1, -(-indices.size // size))
    padding = (0, count * size - indices.size)
    return np.pad(indices, padding).reshape(count, size), np.pad(mask, padding).reshape(count, size)
