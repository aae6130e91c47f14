"""A noise bound to the sensitivity of what it is added to, perhaps over a sample of records."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import BOTH_DIRECTIONS, NEIGHBOURS, RELATIONS, Relation, shift_factor
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Key, Reals
from jaxdp._numeric.double_double import product_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.replaced import require_log_concave
from jaxdp.dominating_pair.replaced_profile import replaced_log_delta
from jaxdp.dominating_pair.sampled_profile import sampled_log_delta
from jaxdp.guarantee.base import epsilon_of
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import Noise, exp_up
from jaxdp.released import Released
from jaxdp.released import release as release_from_lattice
from jaxdp.sampling.base import Release, Scheme, pairs_of
from jaxdp.sampling.poisson import Poisson


@final
@in_float64
@pytree
class Mechanism:
    """One release of query + noise, batched: parameters broadcast, every element is a release.

    relation None: the query moves by at most `sensitivity` between neighbours. Else neighbours
    differ in one record, whose contribution is at most `sensitivity`: "add_remove" (the worse of
    "add" and "remove", which can be asked for alone) or "replace_one", where the query moves by
    twice that, or "zero_out": its contribution becomes 0, the number of records does not change.
    With sampling_prob < 1, where the relation is required, every record takes part with that
    probability, on its own (Poisson); `sampling` is any scheme of `dp.sampling`. A sampled
    replacement is for log-concave noise on the reals, see `dominating_pair.replaced`. `group_size`:
    neighbours differ in so many records of one user, where a theorem is there.

    Coordinates released together compose: see `privacy_loss`. The noises are symmetric.
    """

    noise: Noise
    sensitivity: Reals
    sampling_prob: Reals
    sampling: Scheme | None
    relation: Relation | None = static()
    group_size: int = static(default=1)

    def __init__(
        self,
        noise: Noise,
        sensitivity: ArrayLike,
        sampling_prob: ArrayLike = 1.0,
        relation: Relation | None = None,
        *,
        sampling: Scheme | None = None,
        group_size: int = 1,
    ):
        if not isinstance(noise, Noise):
            raise ValueError(
                f"noise must be a distribution such as Gaussian(scale), got {noise!r}: guarantees "
                "and the exponential mechanism go into privacy_loss as they are"
            )
        sensitivity = checks.nonnegative("sensitivity", sensitivity)
        group_size = checks.positive_integer("group_size", group_size)
        sampling_prob, sampling = _scheme(sampling_prob, sampling)
        # Known before it becomes an array: whether there is any sampling shapes the program.
        always = checks.is_concrete(sampling_prob) and bool(np.all(np.asarray(sampling_prob) == 1))
        sampling_prob = checks.probability("sampling_prob", sampling_prob, lift=True)
        always = always and sampling is None
        if relation is not None:
            checks.one_of("relation", relation, RELATIONS)
        elif not always:
            raise ValueError(
                f"relation must be one of {', '.join(RELATIONS)} where records are "
                "sampled: adding, removing and replacing one differ"
            )
        if relation == "replace_one" and not always and sampling is None:
            require_log_concave(noise)
        if not always and group_size > 1 and sampling is None:
            sampling = Poisson(sampling_prob)
        if sampling is not None and relation is not None:
            sampling.require(Release(noise, sensitivity, relation, group_size))
        if always:
            sensitivity = _times(sensitivity, shift_factor(relation) * group_size)
            # The batch of the probabilities is one of the mechanism, where nothing is sampled too.
            shape = xp.broadcast_shapes(sensitivity.shape, sampling_prob.shape)
            relation, sensitivity, group_size = None, xp.broadcast_to(sensitivity, shape), 1
        assign(
            self,
            noise=noise,
            sensitivity=sensitivity,
            sampling_prob=sampling_prob,
            sampling=sampling,
            relation=relation,
            group_size=group_size,
        )

    @property
    def sampled(self) -> bool:
        """True if records are sampled."""
        return self.relation is not None

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of the least delta at `epsilon`: an upper bound, as tight as its noise says."""
        if not self.sampled:
            return self.noise.log_delta(self.sensitivity, epsilon)
        epsilon = checks.real("epsilon", epsilon)
        if self.sampling is not None:
            return self._known(_worse_log_delta(self._both_pairs(), epsilon))
        if self.relation == "replace_one":
            shift = self.sensitivity
            return self._known(replaced_log_delta(self.noise, self.sampling_prob, shift, epsilon))
        whole = Additive(self.noise, self.sensitivity)
        bounds = [
            sampled_log_delta(whole, self.sampling_prob, added, epsilon)
            for added in directions(self.relation)
        ]
        return self._known(xp.maximum(bounds[0], bounds[-1]))

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up; never 0 where the true delta is not."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`: safe side, by a few ulps."""
        delta = checks.probability("delta", delta)
        if self.sampling is not None:
            return self._known(_epsilon_of_pairs(self._both_pairs(), delta))
        return self._known(_epsilon(self, delta))

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1, in nats; sampled: `privacy_loss(...).renyi`."""
        if self.sampled:
            raise ValueError("use privacy_loss(mechanism).renyi(order) with sampling_prob < 1")
        return self.noise.renyi(self.sensitivity, order)

    def zcdp(self) -> ZCDP:
        """The (xi, rho) of `noise.zcdp`; of a sampled release that of the whole one."""
        return ZCDP(*self.noise.zcdp(self._largest_shift))

    def pure_epsilon(self) -> Reals:
        """The least epsilon with delta = 0, inf where none; the whole release's if sampled."""
        return self.noise.pure_epsilon(self._largest_shift)

    def release(
        self,
        value: Any,
        key: Key | None = None,
        granularity: float | None = None,
        *,
        ledger: Any = None,
    ) -> Released:
        """`value` plus noise from a lattice, which may be published; see `release`."""
        if self.sampled:
            raise ValueError(
                "sampling_prob must be 1 for a release: draw the sample, and release what it gives"
            )

        def charge(sensitivity: Reals) -> None:
            if ledger is not None:
                ledger.charge(Mechanism(self.noise, sensitivity), name="release")

        noisy, lattice, secure = release_from_lattice(
            self.noise, self.sensitivity, value, key, granularity, charge
        )
        made = Mechanism(self.noise, lattice.sensitivity)
        return Released(noisy, made, lattice.coarse, lattice.error, secure)

    def _known(self, answer: Reals) -> Reals:
        """The answer; where that is no number, a `ValueError` if the noise contradicts itself."""
        if checks.is_concrete(answer) and not (np.asarray(answer) < np.inf).all():
            self.noise.is_consistent()
        return answer

    @property
    def _largest_shift(self) -> Reals:
        """Largest shift between neighbours, where all records take part."""
        if self.sampling is not None:
            return _times(self.sensitivity, 2.0 * self.group_size)
        return _times(self.sensitivity, shift_factor(self.relation))

    def _both_pairs(self) -> tuple[DominatingPair, ...]:
        """The pair of a release of a scheme, in the directions that count."""
        assert self.sampling is not None
        assert self.relation is not None
        release = Release(self.noise, self.sensitivity, self.relation, self.group_size)
        pairs = pairs_of(self.sampling, release)
        (pair, count), *others = pairs
        if others or count > 1:
            raise ValueError("use privacy_loss(mechanism): the release is a composition of pairs")
        return (pair, pair.reversed()) if self.relation in BOTH_DIRECTIONS else (pair,)


def _times(sensitivity: Reals, factor: float) -> Reals:
    """The product, rounded up: less would claim more noise."""
    return sensitivity if factor == 1 else _product_up(sensitivity, xp.float64(factor))


def _scheme(sampling_prob: ArrayLike, sampling: object) -> tuple[ArrayLike, Scheme | None]:
    """The sampling probability, and the scheme unless it is the Poisson one."""
    if sampling is None:
        return sampling_prob, None
    if not isinstance(sampling, Scheme):
        raise ValueError(
            f"sampling must be a scheme such as dp.sampling.Poisson(0.01), got {sampling!r}"
        )
    if not checks.is_concrete(sampling_prob) or np.any(np.asarray(sampling_prob) != 1):
        raise ValueError("give either sampling_prob or sampling, got both")
    return (sampling.sampling_prob, None) if isinstance(sampling, Poisson) else (1.0, sampling)


def release(
    mechanism: Mechanism,
    value: Any,
    key: Key | None = None,
    granularity: float | None = None,
    *,
    ledger: Any = None,
) -> Released:
    """A value plus noise that may be published: multiples of a power of two, drawn exactly.

    Args:
        mechanism: a noise at a sensitivity, not sampled. One Gaussian covers a vector or a tree
            whose Euclidean norm moves by the sensitivity, one Laplace (discrete or not) one whose
            sum of absolute values does; any noise covers its own batch, each entry a release.
        value: an array, or a tree of them, finite; whole numbers (an integer dtype) for noise on
            the integers. Beyond 2^61 multiples of the lattice, 2^28 scales, it is clipped.
        key: of `jax.random`, one for each call. None draws one of ChaCha20 from the operating
            system, as is right.
        granularity: a power of two that outputs are multiples of; None: 2^-32 of the scale.
        ledger: a `Ledger` that is charged before anything is drawn, and refuses when full.

    Returns:
        A `Released`: the noisy value, and the guarantee of what was released. The rounding is in
        its sensitivity, the draws' error in its delta.

    Noises without a lattice (staircases, Subbotin's, your own), shapes that do not fit and values
    that are not finite raise `ValueError`. A traced value that is no number counts as 0.

    Inside of `jit`, `vmap`, `grad` and loops a key must be passed, mapped as the value is: a key
    that is drawn there, or a constant, gives all calls and entries the same noise, and differences
    of what is released have none. Both raise `ValueError`, and so does a ledger there. JAX does not
    show one key that is passed to an inner `jit` under `vmap(..., in_axes=(0, None))`, carried
    unchanged by a loop, made from a constant inside of `jit`, or passed to every device: do not.
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
    return mechanism.release(value, key, granularity, ledger=ledger)


def directions(relation: Relation | None) -> tuple[Reals, ...]:
    """The values of `Poisson.added` whose worst a relation reports."""
    counted = ("remove",) if relation is None else NEIGHBOURS[relation].directions
    return tuple(xp.ones(()) if way == "add" else xp.zeros(()) for way in counted)


_product_up = jitted(product_up)


@jitted
def _epsilon(mechanism: Mechanism, delta: Reals) -> Reals:
    return epsilon_of(mechanism.log_delta, delta)


@jitted
def _worse_log_delta(pairs: tuple[DominatingPair, ...], epsilon: Reals) -> Reals:
    return _worse_of(tuple(pair.prepared() for pair in pairs), epsilon)


@jitted
def _epsilon_of_pairs(pairs: tuple[DominatingPair, ...], delta: Reals) -> Reals:
    prepared = tuple(pair.prepared() for pair in pairs)
    return epsilon_of(lambda epsilon: _worse_of(prepared, epsilon), delta)


def _worse_of(pairs: tuple[DominatingPair, ...], epsilon: Reals) -> Reals:
    bounds = [pair.log_delta(epsilon) for pair in pairs]
    return xp.maximum(bounds[0], bounds[-1])
