"""A noise with the sensitivity of the query that it is added to, and the sampling of records."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64, in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import BOTH_DIRECTIONS, RELATIONS, Relation, shift_factor
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.double_double import product_up
from jaxdp._numeric.elementary import round_up
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import Term
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.finite import with_worst_shifts
from jaxdp.guarantee.base import epsilon_of
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.noise.base import Noise, exp_up, expanded
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.released import Released, release_from_lattice
from jaxdp.sampling.base import Pairs, Scheme
from jaxdp.sampling.poisson import Poisson


@final
@in_float64
@pytree
class Mechanism:
    """One release of query + noise, batched: parameters broadcast, every element is a release.

    Args:
        noise: the noise, symmetric.
        sensitivity: without a relation, the largest change of the query between neighbours; with
            one, the largest contribution of a record.
        sampling_prob: probability of each record to take part, independently (Poisson); the same
            as `sampling=dp.sampling.Poisson(sampling_prob)`.
        relation: required where records are sampled. "add_remove": neighbours differ by one record
            more or less, the worse of "add" and "remove", which are supported alone, too.
            "replace_one": one record is replaced, and the query moves by twice its contribution.
            "zero_out": the contribution becomes 0, the number of records does not change.
        sampling: a scheme of `dp.sampling`.
        group_size: neighbours differ in this number of records of one user, where a theorem
            covers it.
        coordinates: the number of answers that change between neighbours, at most, each by the
            sensitivity: the bounds l0 and linf. Of Gaussian noise, the sensitivity becomes
            sqrt(coordinates) times as large. Log-concave noise alone; without a relation.

    A sampled replacement requires log-concave noise on the reals, see `dominating_pair.replaced`.
    Coordinates released together compose: see `privacy_loss`.
    """

    noise: Noise
    sensitivity: Reals
    sampling: Scheme | None
    relation: Relation | None = static()
    group_size: int = static(default=1)
    coordinates: int = static(default=1)

    def __init__(
        self,
        noise: Noise,
        sensitivity: ArrayLike,
        sampling_prob: ArrayLike = 1.0,
        relation: Relation | None = None,
        *,
        sampling: Scheme | None = None,
        group_size: int = 1,
        coordinates: int = 1,
    ):
        if not isinstance(noise, Noise):
            raise ValueError(
                f"noise must be a distribution such as Gaussian(scale), got {noise!r}: guarantees "
                "and the exponential mechanism go into privacy_loss as they are"
            )
        sensitivity = checks.distance("sensitivity", sensitivity, noise.on_integers)
        group_size = checks.positive_integer("group_size", group_size)
        scheme = _scheme(sampling_prob, sampling)
        has_relation = relation is not None or group_size > 1
        if relation is not None:
            checks.one_of("relation", relation, RELATIONS)
        elif not scheme.takes_all:
            raise ValueError(
                f"relation must be one of {', '.join(RELATIONS)} where records are "
                "sampled: adding, removing and replacing one differ"
            )
        if scheme.takes_all:
            sensitivity = _times(sensitivity, shift_factor(relation) * group_size)
            # The batch of the probabilities is one of the mechanism.
            shape = xp.broadcast_shapes(sensitivity.shape, scheme.rate.shape)
            sensitivity = xp.broadcast_to(sensitivity, shape)
            scheme, relation, group_size = None, None, 1
        elif relation is not None:
            scheme.require(noise, relation, group_size)
        coordinates = checks.positive_integer("coordinates", coordinates)
        if coordinates > 1:
            if scheme is not None or has_relation:
                raise ValueError(
                    "coordinates must be 1 with a relation, sampled records or a group_size, got "
                    f"{coordinates}"
                )
            sensitivity, coordinates = _of_coordinates(noise, sensitivity, coordinates)
        assign(
            self,
            noise=noise,
            sensitivity=sensitivity,
            sampling=scheme,
            relation=relation,
            group_size=group_size,
            coordinates=coordinates,
        )

    def __add__(self, other: object) -> Any:
        """`TypeError`, which names the composition: a mechanism is one release."""
        raise TypeError(
            "a mechanism is one release; compose privacy losses: "
            "10 * dp.privacy_loss(mechanism) + dp.privacy_loss(other)"
        )

    __radd__ = __mul__ = __rmul__ = __add__

    @property
    def sampled(self) -> bool:
        """True if records are sampled."""
        return self.sampling is not None

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """Natural log of delta at `epsilon`: an upper bound, as tight as the pair's `log_delta`."""
        if not self.sampled and self.coordinates == 1:
            return self._pair().log_delta(epsilon)
        epsilon = checks.real("epsilon", epsilon)
        # No engine is tighter than the profile of one release.
        stop_when = (lambda x: x.upper < np.inf) if self.coordinates == 1 else None
        return evaluate.log_delta(self._terms(), epsilon, self._has_both, stop_when).upper

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up; never 0 where the true delta is not."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`, rounded up by a few ulps."""
        delta = checks.probability("delta", delta)
        if self.sampled or self.coordinates > 1:
            return evaluate.epsilon(self._terms(), delta, self._has_both).upper
        epsilon = _epsilon(self._pair(), delta)
        if checks.is_concrete(epsilon) and not (np.asarray(epsilon) < np.inf).all():
            self.noise.is_consistent()  # raises if the noise contradicts itself
        return epsilon

    def pairs(self) -> Pairs:
        """The dominating pairs that compose one release, with counts, in one direction.

        The direction is "add" under the relation "add", else "remove".
        """
        if self.sampling is None or self.relation is None:
            return ((Additive(self.noise, self.sensitivity), self.coordinates),)
        found = self.sampling.pairs(self.noise, self.sensitivity, self.relation, self.group_size)
        if self.relation != "add":
            return found
        return tuple((pair.reversed(), count) for pair, count in found)

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1, in nats; `ValueError` if sampled."""
        if self.sampled:
            raise ValueError("use privacy_loss(mechanism).renyi(order) with sampling_prob < 1")
        return self._of_all(self.noise.renyi(self.sensitivity, order))

    def zcdp(self) -> ZCDP:
        """(xi, rho) of `noise.zcdp`; for a sampled release, of the release without sampling."""
        return ZCDP(*map(self._of_all, self.noise.zcdp(self._largest_shift)))

    def pure_epsilon(self) -> Reals:
        """Least epsilon with delta = 0, else infinite; sampled: of the release without sampling."""
        return self._of_all(self.noise.pure_epsilon(self._largest_shift))

    @draws_in_float64
    def release(
        self,
        value: Any,
        key: Key | None = None,
        granularity: float | None = None,
        *,
        ledger: Any = None,
        disjoint: bool = False,
    ) -> Released:
        """`value` plus noise from a lattice, which may be published; see `release`."""
        if self.sampled:
            raise ValueError(
                "sampling_prob must be 1 for a release: take the sample, and release its value"
            )

        def charge(sensitivity: Reals) -> None:
            if ledger is not None:
                ledger.charge(of_lattice(sensitivity), name="release")

        of_lattice = partial(Mechanism, self.noise, coordinates=self.coordinates)
        move_alone = disjoint or self.coordinates > 1
        noisy, lattice, secure = release_from_lattice(
            self.noise, self.sensitivity, value, key, granularity, move_alone, charge
        )
        made = of_lattice(lattice.sensitivity)
        return Released(noisy, made, lattice.coarse, lattice.error, secure)

    def _terms(self) -> tuple[Term]:
        """The release as a composition of its coordinates."""
        pair: Any = expanded(self._pair())
        return (Term(pair, xp.full(1, float(self.coordinates))),)

    def _of_all(self, cost: Reals) -> Reals:
        """The cost of all coordinates, which add up."""
        return cost if self.coordinates == 1 else round_up(self.coordinates * cost, 1)

    @property
    def _largest_shift(self) -> Reals:
        """Largest shift between neighbours, where all records take part."""
        if self.sampling is None:
            return self.sensitivity
        factor = self.sampling.largest_shift(self.relation, self.group_size)
        return _times(self.sensitivity, factor)

    @property
    def _has_both(self) -> bool:
        """True if the worse of both directions counts."""
        return self.relation in BOTH_DIRECTIONS

    def _pair(self) -> DominatingPair:
        """The pair of a release, or of one of its coordinates."""
        (pair, count), *others = self.pairs()
        if others or count != self.coordinates:
            raise ValueError("use privacy_loss(mechanism): the release is a composition of pairs")
        return with_worst_shifts(pair)


def _times(sensitivity: Reals, factor: ArrayLike) -> Reals:
    """The product, rounded up: less would claim more noise."""
    if isinstance(factor, float | int) and factor == 1:
        return sensitivity
    return _product_up(sensitivity, xp.float64(factor))


def _of_coordinates(noise: Noise, sensitivity: Reals, coordinates: int) -> tuple[Reals, int]:
    """The sensitivity and the number of answers that change by it, 1 of Gaussian noise.

    Of log-concave noise, all at the sensitivity are the worst: each reveals more the more it moves.
    """
    if isinstance(noise, Gaussian):
        root = math.isqrt(coordinates)
        exact = root * root == coordinates
        return _times(sensitivity, root if exact else math.nextafter(coordinates**0.5, 1e9)), 1
    if not (noise.log_concave or isinstance(noise, DiscreteGaussian | DiscreteLaplace)):
        raise ValueError(
            f"coordinates must be 1 with {type(noise).__name__}, which is not log-concave, got "
            f"{coordinates}"
        )
    return sensitivity, coordinates


def _scheme(sampling_prob: ArrayLike, sampling: object) -> Scheme:
    """The scheme, from one of the two arguments."""
    if sampling is None:
        return Poisson(sampling_prob)
    if not isinstance(sampling, Scheme):
        raise ValueError(
            f"sampling must be a scheme such as dp.sampling.Poisson(0.01), got {sampling!r}"
        )
    if not checks.is_concrete(sampling_prob) or np.any(np.asarray(sampling_prob) != 1):
        raise ValueError("give either sampling_prob or sampling, got both")
    return sampling


def release(
    mechanism: Mechanism,
    value: Any,
    key: Key | None = None,
    granularity: float | None = None,
    *,
    ledger: Any = None,
    disjoint: bool = False,
) -> Released:
    """A value plus noise that may be published: multiples of a power of two, drawn exactly.

    Args:
        mechanism: a noise at a sensitivity, not sampled. One Gaussian covers a vector or a tree
            whose Euclidean norm moves by the sensitivity, one Laplace (discrete or not) one whose
            sum of absolute values does; any noise covers its own batch, each entry a release.
        value: an array, or a tree of them, finite; whole numbers (an integer dtype) for noise on
            the integers. Beyond 2^61 multiples of the lattice, 2^28 scales, it is clipped.
        key: of `jax.random`, one for each call. None (recommended) reads one of ChaCha20 from the
            operating system.
        granularity: a power of two that outputs are multiples of; None: 2^-32 of the scale.
        ledger: a `Ledger` that is charged before anything is drawn, and refuses when full.
        disjoint: True if a record can change only one entry of `value`, as it changes one count of
            a histogram when it is added or removed. Then one noise at the sensitivity of a single
            entry covers all entries, whatever the noise. If it can change several, at most, give
            the mechanism its `coordinates`.

    Returns:
        A `Released`: the noisy value and its guarantee. The sensitivity includes the rounding, and
        delta the sampling error.

    `ValueError` for noises without a lattice (staircases, your own that are not log-concave on the
    reals), shapes that do not fit and values that are not finite. A traced NaN counts as 0.

    Inside of `jit`, `vmap`, `grad` and loops, pass a key that is mapped as the value is. Without
    one, or with a constant, all calls and entries would share the same noise, which cancels in
    differences: `ValueError`, also within inner functions, and for a ledger there. If `vmap` maps
    the condition of `cond` or `switch`, JAX copies the key, and equal keys of a batch are replaced
    by different ones. Not detected, and to be avoided: one key that a loop carries unchanged, that
    is made from a constant inside of `jit`, that the function of a `pure_callback` closes over, or
    that `pmap` or `shard_map(..., check_vma=False)` passes to every device.
    Source: the modules `released` and `noise.kernels.whole_draws`.

    >>> import jaxdp as dp
    >>> released = dp.release(dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0), 42)
    >>> print(released.value.dtype, f"{released.epsilon(1e-6):.3f}")
    int64 0.500
    """
    if not isinstance(mechanism, Mechanism):
        raise ValueError(
            f"mechanism must be a dp.Mechanism(noise, sensitivity), got {type(mechanism).__name__}"
        )
    return mechanism.release(value, key, granularity, ledger=ledger, disjoint=disjoint)


_product_up = jitted(product_up)


@jitted
def _epsilon(pair: DominatingPair, delta: Reals) -> Reals:
    return epsilon_of(pair.log_delta, delta)
