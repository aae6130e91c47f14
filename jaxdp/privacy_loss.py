"""The exact privacy loss of a composition: `a + b`, `n * a`, `.sum(axis)`."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check, ledger, range_composition
from jaxdp._pytree import pytree, static
from jaxdp._types import RealLike, Reals, Shape
from jaxdp.exponential import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import Guarantee, is_no_release
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.loss.base import Term, Terms, merged
from jaxdp.loss.bracket import POINTS, exp_down
from jaxdp.loss.discrete import ApproxLoss, PureLoss, RangeLoss
from jaxdp.loss.finite import worst_loss
from jaxdp.loss.mixture import Mixture
from jaxdp.loss.replaced_gaussian import ReplacedGaussian
from jaxdp.loss.sampled import Sampled
from jaxdp.loss.sampled_kinds import require_composable
from jaxdp.loss.sampled_truncated import SampledTruncated
from jaxdp.loss.truncated import as_loss
from jaxdp.loss_file import fields_of, from_plain, to_plain
from jaxdp.mechanism import RELATIONS, Mechanism, Relation
from jaxdp.mechanism import directions as directions_of
from jaxdp.noise.base import Loss, Noise, exp_up
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.truncated_laplace import TruncatedLaplace
from jaxdp.tradeoff import tradeoff_of_profile

_FORMAT = "jaxdp-privacy-loss"


@final
@pytree
class PrivacyLoss:
    """The privacy loss of releases made together or one after the other, batched.

    `a + b` composes (b may be a guarantee), `n * a` repeats (n whole, may be traced), `a.sum(axis)`
    composes along a batch axis: K coordinates, or the steps of a plan; `a[index]` is a part of the
    batch. Made by `privacy_loss`. The directions of a
    sampled mechanism are kept apart: "add_remove" reports the worse of the two compositions.
    """

    terms: Terms
    relation: Relation | None = static(default=None)

    # An array of counts is no array of losses: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @property
    def both(self) -> bool:
        """Whether the worse of two directions is reported."""
        return self.relation == "add_remove"

    @property
    def shape(self) -> Shape:
        """The batch."""
        return jnp.broadcast_shapes(*(term.shape for term in self.terms))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of delta at `epsilon`, every real epsilon: an upper bound, see `loss.contour`.

        Exact for one release. Else the relative error of delta is about 1e-10 for losses with a
        density, and for Laplaces (truncated ones too), responses and bounded ranges of any sizes
        with at most 2^29 atoms between them (`loss.edges`; equal ones count once; up to 4e-7 with a
        few ranges below 0.01, and right below the largest loss the rounding of epsilon is more),
        2e-7 to 3e-4 with more (derivatives in a count to 3e-3); for flipped Hubers of any shapes,
        and these beside all of those, with at most 2^18 sums of edges (`loss.rays`; past the
        largest atom of one with alpha > 5 gamma up to several nats too high, which is stated);
        1e-11 for losses on one lattice, by one period of the line (`loss.lattice`: responses,
        staircases, discrete Laplace and Gaussian noise, whose units are parts of one, down to a
        thousandth of the largest; right below an atom the rounding of epsilon is more). Where other
        atoms meet, the bound is wider: 1e-7 to 1e-3, widest with epsilon at an atom (2,000 equal
        pairs behind a Gaussian of ratio 1e-6: 1.4e-2); of two or three sampled Laplaces 2e-11
        mostly, up to 4e-6. Where few releases of sampled Gaussians hit the record one large loss
        makes the total large: that is summed by its size (`loss.jumps`, compiled only where one
        line does not suffice; a record that is removed), beside whatever else is released, to 4e-9;
        what that leaves wide is summed along the whole line, where all is known. For scales below
        0.005 sensitivities, and where delta below e^-700 is owed to two such losses at once, the
        bound may be several nats too high; with atoms that nothing hides, at an epsilon that they
        reach alone, 1e-3 of delta. At epsilon beyond 1e7 it rounds by more than 1e-10. Few
        Subbotins, whose cumulant hardly falls, are added up one after the other (`loss.few`): two
        of powers 1.1 to 8 are off by less than 1e-9, three or four equal ones of powers 1.5 to 8 by
        1e-10 to 2e-7, of powers near 1 by up to 1e-3. Infinite losses add their probability. With a
        sampled staircase, lattice noise or truncated Laplace the upper one of `bounds`, without
        derivatives; of other noises than Gaussian and Laplace, and of replaced records, that where
        a line is wide by more than 1e-5 and it is lower (few hits, few releases with atoms).

        Concrete batches of up to 1,024 are padded to one of a few sizes: few shapes compile.
        """
        return self._asked(range_composition.log_delta, _check.real("epsilon", epsilon))

    def log_delta_error(self, epsilon: RealLike) -> Reals:
        """How far `log_delta` may lie above the truth: log_delta - error <= log delta <= log_delta.

        Of the sum that gave it: aliasing, truncation, quadrature and rounding; where that is more
        than 1e-9, from the lower one of `bounds` if that is nearer. Of delta this is the relative
        error, for one release 2e-12 (1 + |log delta|). Infinite where no lower bound is known.
        """
        return self._asked(range_composition.log_delta_error, _check.real("epsilon", epsilon))

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def bounds(self, epsilon: RealLike, *, points: int = POINTS) -> tuple[Reals, Reals]:
        """(lower, upper) with lower <= delta(epsilon) <= upper, every error inside.

        From masses on a grid of `points`, see `loss.bracket`; the lower one is 0 where exponential
        mechanisms tell less than the worst pair of their range.
        """
        if points < 256 or points & (points - 1):
            raise ValueError(f"points must be a power of 2 from 256 on, got {points}")
        epsilon = _check.real("epsilon", epsilon)
        shape = jnp.broadcast_shapes(self.shape, epsilon.shape)
        if 0 in shape:
            return jnp.zeros(shape), jnp.zeros(shape)
        lower, upper = range_composition.log_bounds(self.terms, epsilon, self.both, points)
        return exp_down(lower), exp_up(upper)

    def epsilon(self, delta: RealLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`, from the safe side.

        log_delta(epsilon) <= log(delta) by 6e-10 mostly, by less than 1e-8 where sums cancel, if
        the points of one line settle it (`loss.inverse`: 512, then 7,680, the 512 under a
        transformation; deltas along the last axis that one loss meets, up to a factor of 1e6
        apart, share the first); else, with 5e-7 more where few are hit, within 1e-11
        of the epsilon that Markov's inequality gives, a few times the least one, by repeated sums:
        slower.
        """
        delta = _check.probability("delta", delta)
        return self._asked(range_composition.epsilon, delta)

    def tradeoff(self, fpr: RealLike) -> Reals:
        """A lower bound on the false-negative rate at `fpr`: see `tradeoff_of_profile`."""
        return tradeoff_of_profile(self.log_delta, fpr)

    def renyi(self, order: RealLike) -> Reals:
        """The Renyi divergence of an order >= 1: the terms' divergences add, the worse direction.

        Of order 1 the Kullback-Leibler divergence, of infinite order the largest loss.
        """
        order = _check.real("order", order, 1.0)
        return self._asked(range_composition.renyi, order)

    def _asked(self, function: Callable[..., Reals], argument: Reals) -> Reals:
        """function(terms, argument, both); an empty answer of an empty batch."""
        shape = jnp.broadcast_shapes(self.shape, argument.shape)
        return function(self.terms, argument, self.both) if 0 not in shape else jnp.zeros(shape)

    def sum(self, axis: int = -1) -> "PrivacyLoss":
        """The composition along a batch axis; along an empty one of no release, delta = 0."""
        shape = self.shape
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis must lie in the batch of shape {shape}, got {axis}")
        axis %= len(shape)
        if shape[axis] == 0:
            nothing = PureDP(jnp.zeros(shape[:axis] + shape[axis + 1 :]))
            return PrivacyLoss(privacy_loss(nothing).terms, self.relation)

        def merge(x: Reals) -> Reals:
            x = jnp.moveaxis(x, axis, -2)
            return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])

        terms = tuple(jax.tree.map(merge, term.broadcast(shape)) for term in self.terms)
        return PrivacyLoss(terms, self.relation)

    def to_json(self) -> str:
        """The loss as text; numbers are exact, so that `from_json` is the same loss.

        `ValueError` for traced values.
        """
        payload = {"relation": self.relation, "terms": to_plain(self.terms)}
        return ledger.sealed(_FORMAT, payload)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyLoss":
        """What `to_json` wrote; `ValueError` for anything else or changed text."""
        body = fields_of("text", ledger.unsealed(_FORMAT, text), ("relation", "terms"))
        relation, terms = body[0], from_plain(body[1])
        if relation is not None or not all(term.noise.symmetric for term in terms):
            _check.one_of("relation", relation, RELATIONS)
        jnp.broadcast_shapes(*(term.shape for term in terms))
        return cls(terms, relation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """`to_json` into a file, all or nothing."""
        ledger.write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PrivacyLoss":
        """`from_json` of a file."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def __len__(self) -> int:
        """The size of the first batch axis; a `TypeError` where there is none."""
        if not self.shape:
            raise TypeError("a single loss has no length: its batch has shape ()")
        return self.shape[0]

    def __bool__(self) -> bool:
        """True: a loss is a record, whatever the size of its batch."""
        return True

    def __iter__(self) -> Iterator["PrivacyLoss"]:
        """The losses along the first batch axis."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> "PrivacyLoss":
        """The losses of a part of the batch: indexed as an array of shape `shape` is.

        A known index outside the batch is an `IndexError`, a traced one gives NaN.
        """
        shape, index = self.shape, index if isinstance(index, tuple) else (index,)
        index = tuple(np.asarray(i) if isinstance(i, list) else i for i in index)
        if _check.all_concrete(index):
            np.broadcast_to(np.zeros(()), shape)[index]
        elif len(index) > len(shape):
            raise IndexError(f"index must have at most {len(shape)} entries, got {len(index)}")
        dots = () if any(i is Ellipsis for i in index) else (Ellipsis,)
        at = (*index, *dots, slice(None))

        def pick(x: Reals) -> Reals:
            return x.at[at].get(mode="fill", fill_value=jnp.nan)

        terms = (jax.tree.map(pick, term.broadcast(shape)) for term in self.terms)
        return PrivacyLoss(tuple(terms), self.relation)

    def __add__(self, other: Any) -> "PrivacyLoss":
        if isinstance(other, Guarantee | ExponentialMechanism):
            other = privacy_loss(other)
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        if None not in (self.relation, other.relation) and self.relation != other.relation:
            raise ValueError(
                f"cannot compose relation {self.relation!r} with {other.relation!r}: the inputs "
                "that one calls neighbours differ from the other's"
            )
        return PrivacyLoss(merged(self.terms + other.terms), self.relation or other.relation)

    def __radd__(self, other: Any) -> "PrivacyLoss":
        """`other` is a guarantee, or the 0 with which `sum` begins."""
        return self if is_no_release(other) else self + other

    def __mul__(self, count: RealLike) -> "PrivacyLoss":
        return self.__rmul__(count)

    def __rmul__(self, count: RealLike) -> "PrivacyLoss":
        times = _check.whole("count", count)[..., None]
        return PrivacyLoss(
            tuple(
                Term(t.noise, t.shift, jnp.multiply(*_align(t.count, times))) for t in self.terms
            ),
            self.relation,
        )


def privacy_loss(mechanism: Mechanism | Guarantee | ExponentialMechanism) -> PrivacyLoss:
    """The privacy loss of one release of `mechanism`, batched like it.

    Sampled coordinates that are summed are sampled independently. Sampled noises compose on a
    contour, equal ones of up to five atoms one total after the other, truncated Laplaces on a grid:
    delta is the upper one of `bounds`. Sampled histograms do not compose: a `ValueError`.
    Of a `Histogram`: the worst of all shifts at once, which bounds adaptive compositions as well;
    its sensitivity is one number, known before tracing. Of a guarantee (PureDP, ApproxDP, GDP), or
    the exponential mechanism: the loss of the worst mechanism that keeps it.
    """
    if not isinstance(mechanism, Mechanism):
        return PrivacyLoss((_worst_of(mechanism),))
    if isinstance(mechanism.noise, Histogram | DiscreteHistogram) and not mechanism.sampled:
        worst = _worst_shift(mechanism.noise, mechanism.sensitivity)
        return PrivacyLoss((worst,), mechanism.relation)
    noise, shift, sampling_prob = jax.tree.map(
        lambda x: jnp.asarray(x)[..., None],
        (mechanism.noise, mechanism.sensitivity, mechanism.sampling_prob),
    )
    if mechanism.sampled:
        noise = _sampled(noise, sampling_prob, mechanism.relation)
    return PrivacyLoss((Term(as_loss(noise), shift, jnp.ones(1)),), mechanism.relation)


def _sampled(noise: Noise, sampling_prob: Reals, relation: Relation | None) -> Loss:
    added = directions_of(relation)[0]
    replaced = relation == "replace_one"
    require_composable(noise)
    if isinstance(noise, TruncatedLaplace):
        return SampledTruncated(noise, sampling_prob, added)
    if isinstance(noise, Gaussian | Laplace) and not replaced:
        return Sampled(noise, sampling_prob, added)
    if isinstance(noise, Gaussian) and replaced:
        return ReplacedGaussian(noise, sampling_prob)
    return Mixture(noise, sampling_prob, added, replaced)


def _worst_shift(noise: Histogram | DiscreteHistogram, sensitivity: Reals) -> Term:
    parameters = (*jax.tree.leaves(noise), sensitivity)
    known = all(_check.is_concrete(x) and jnp.ndim(x) == 0 for x in parameters)
    if not known:
        raise ValueError(
            "the width and the sensitivity of a Histogram must be one concrete number each: "
            "compose its releases by n * loss and a + b"
        )
    return Term(worst_loss(noise, float(sensitivity)), jnp.ones(1), jnp.ones(1))


def _worst_of(known: Guarantee | ExponentialMechanism) -> Term:
    known = jax.tree.map(lambda x: jnp.asarray(x)[..., None], known)
    if isinstance(known, GDP):
        return Term(Gaussian(1.0), known.mu, jnp.ones(1))
    if isinstance(known, PureDP):
        loss = PureLoss(known.epsilon_bound)
    elif isinstance(known, ApproxDP):
        loss = ApproxLoss(known.epsilon_bound, known.delta_bound)
    elif isinstance(known, ExponentialMechanism):
        loss = RangeLoss(known.epsilon_bound)
    else:
        raise TypeError(
            f"{type(known).__name__} has no worst mechanism: compose it as it is, or convert it"
        )
    return Term(loss, jnp.ones(1), jnp.ones(1))


def _align(a: Reals, b: Reals) -> tuple[Reals, Reals]:
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    return jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)
