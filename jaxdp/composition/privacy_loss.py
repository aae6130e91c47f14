"""The exact privacy loss of a composition: `a + b`, `n * a`, `.sum(axis)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.files import Format, Saved, sealed, unsealed
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import picked, xp
from jaxdp._core.neighbours import BOTH_DIRECTIONS, RELATIONS, Relation
from jaxdp._core.precision import narrowing
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals, Shape
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import Term, Terms, merged
from jaxdp.accountant.grid import POINTS
from jaxdp.accountant.steps import LogBounds, exp_down
from jaxdp.composition.stored import from_plain, to_plain
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair, is_symmetric
from jaxdp.dominating_pair.finite import (
    adds_histogram,
    finite_pair,
    pair_of_log_masses,
    with_worst_shifts,
)
from jaxdp.dominating_pair.known_guarantee import BoundedRange, Response
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Guarantee, is_no_release, require_both_directions
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise, exp_up
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import expanded
from jaxdp.proof.schema import require_keys
from jaxdp.sampling.base import Pairs

# What a stored loss says that it is.
_FORMAT = Format("jaxdp-privacy-loss")
_expanded = jitted(expanded)


@final
@in_float64
@pytree
class PrivacyLoss(Saved):
    """The privacy loss of releases made together or one after the other, batched.

    `a + b` composes (b may be a guarantee), `n * a` repeats (n whole, may be traced), `a.sum(axis)`
    composes along a batch axis: K coordinates, or the steps of a plan; `a[index]` is a part of the
    batch. Made by `privacy_loss`. Directions that differ are kept apart: "add_remove", "zero_out"
    and "replace_one" report the worse of the two compositions. A relation of None is that of pairs
    that are their own exchange.
    """

    terms: Terms
    relation: Relation | None = static(default=None)

    def __repr__(self) -> str:
        kinds = ", ".join(type(term.pair).__name__ for term in self.terms)
        return f"PrivacyLoss({kinds}; shape={self.shape}, relation={self.relation})"

    # An array of counts is no array of losses: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @property
    def both(self) -> bool:
        """True if the worse of two directions is reported."""
        if self.relation == "replace_one":
            return not all(is_symmetric(term.pair) for term in self.terms)
        return self.relation in BOTH_DIRECTIONS

    @property
    def shape(self) -> Shape:
        """The batch."""
        return xp.broadcast_shapes(*(term.shape for term in self.terms))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """Natural log of delta at any real `epsilon`: an upper bound, rounding included.

        `log_delta_error` bounds its distance from the truth; docs/accuracy.md lists the error of
        each kind of composition. Differentiable in every parameter.
        """
        return self._answer(evaluate.log_delta, checks.real("epsilon", epsilon)).upper

    def log_delta_error(self, epsilon: ArrayLike) -> Reals:
        """Error bound of `log_delta`: log_delta - error <= log delta <= log_delta.

        It is also the relative error of delta. Infinite if no lower bound is known.
        """
        bounds = self._answer(evaluate.log_delta, checks.real("epsilon", epsilon))
        # The last term: the caller's type may move log_delta up.
        error = (bounds.upper - bounds.lower) * (1.0 + 4.0 * ULP) + narrowing(bounds.upper)
        return xp.where(bounds.upper == -xp.inf, 0.0, error)

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def bounds(self, epsilon: ArrayLike, *, points: int = POINTS) -> tuple[Reals, Reals]:
        """(lower, upper) with lower <= delta(epsilon) <= upper, every error inside.

        From masses on a grid of `points` (`accountant.grid`); the lower one is 0 where exponential
        mechanisms reveal less than the worst pair of their range.
        """
        if not isinstance(points, int) or points < 256 or points & (points - 1):
            raise ValueError(f"points must be a power of 2 from 256 on, got {points!r}")
        log_bounds = partial(evaluate.log_bounds, points=points)
        bounds = self._answer(log_bounds, checks.real("epsilon", epsilon))
        if 0 in bounds.upper.shape:
            return tuple(bounds)
        return exp_down(bounds.lower), exp_up(bounds.upper)

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`, from the safe side.

        Its error is at most that of `log_delta` over its slope in epsilon, and 1e-9 in log delta.
        Infinite if no epsilon satisfies `delta`, which must be at least the probability of an
        infinite loss, up to (16 + releases + 4 |log delta|) ulp of rounding.
        """
        return self._answer(evaluate.epsilon, checks.probability("delta", delta)).upper

    def tradeoff(self, fpr: ArrayLike) -> Reals:
        """A lower bound on the false-negative rate at `fpr`: see `tradeoff_of_profile`.

        Its error is at most 1e-10, from a few batched evaluations.
        """
        require_both_directions(self)
        fpr = checks.probability("fpr", fpr, lift=True)
        if 0 in (*self.shape, *fpr.shape):
            return xp.zeros(xp.broadcast_shapes(self.shape, fpr.shape))
        return evaluate.tradeoff(self.terms, fpr, self.both)

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1: the terms' divergences add, the worse direction.

        Order 1 is the Kullback-Leibler divergence, infinite order the largest loss.
        """
        order = checks.real("order", order, 1.0)
        return self._answer(evaluate.renyi, order).upper

    def _answer(self, function: Callable[..., Any], argument: Reals) -> Any:
        """function(terms, argument, both); an empty answer of an empty batch."""
        if 0 in argument.shape or any(0 in term.shape for term in self.terms):
            shape = xp.broadcast_shapes(self.shape, argument.shape)
            return LogBounds(xp.zeros(shape), xp.zeros(shape))
        return function(self.terms, argument, self.both)

    def sum(self, axis: int = -1) -> PrivacyLoss:
        """The composition along a batch axis; along an empty one of no release, delta = 0."""
        shape = self.shape
        if not isinstance(axis, int | np.integer) or not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis must be one of the batch of shape {shape}, got {axis!r}")
        axis = axis % len(shape)
        if shape[axis] == 0:
            no_release = PureDP(xp.zeros(shape[:axis] + shape[axis + 1 :]))
            return PrivacyLoss(privacy_loss(no_release).terms, self.relation)

        def merge(x: Reals) -> Reals:
            x = xp.moveaxis(x, axis, -2)
            return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])

        terms = tuple(jax.tree.map(merge, term.broadcast(shape)) for term in self.terms)
        return PrivacyLoss(terms, self.relation)

    @classmethod
    def from_pmf(
        cls,
        losses: ArrayLike,
        masses_p: ArrayLike,
        masses_q: ArrayLike,
        relation: Relation = "add_remove",
    ) -> PrivacyLoss:
        """The loss of a pair of laws P and Q of finitely many losses, by their masses.

        Args:
            losses: losses[j] = log(masses_p[j] / masses_q[j]), to 1e-9; a vector of known numbers.
            masses_p: masses with the record, or with the first of two inputs.
            masses_q: masses without it, or with the second input.
            relation: "add_remove" (default), "zero_out" and "replace_one" report the worse of P
                against Q and of Q against P. "remove" reports P against Q alone, "add" Q against P
                alone; risks, trade-offs and statements refuse both.

        Mass that a total of 1 lacks lies at an infinite loss under P and at minus infinity under Q,
        unless half an ulp of each mass explains it. `ValueError` for masses and losses that
        contradict each other.

        >>> import jaxdp as dp
        >>> loss = dp.PrivacyLoss.from_pmf([-1.0, 1.0], [0.2689414213699951, 0.7310585786300049],
        ...                                [0.7310585786300049, 0.2689414213699951])
        >>> round(float((10 * loss).epsilon(1e-3)), 6) == round(
        ...     float((10 * dp.privacy_loss(dp.PureDP(1.0))).epsilon(1e-3)), 6)
        True
        """
        return privacy_loss(finite_pair(losses, masses_p, masses_q), relation)

    @classmethod
    def from_log_pmf(
        cls,
        log_masses_p: ArrayLike,
        log_masses_q: ArrayLike,
        relation: Relation = "add_remove",
    ) -> PrivacyLoss:
        """The loss of a pair of laws P and Q on a list of outcomes, by logarithms of their masses.

        Args:
            log_masses_p: natural logarithms of the probabilities with the record, one an outcome;
                -inf for an outcome that is impossible. A vector of known numbers.
            log_masses_q: the same without the record.
            relation: as in `from_pmf`.

        Each mass has an error of (2 + |log mass|) ulp. A total that is within this error of 1 is 1.
        Other missing mass has an infinite loss, and so do masses below 1e-307: subtract the log of
        the sum from logarithms that were rounded before. `ValueError` for totals above 1.

        >>> import numpy as np
        >>> import jaxdp as dp
        >>> k = np.arange(-200, 201)
        >>> weights = -0.5 * (k / 10.0) ** 2  # a discrete Gaussian, cut
        >>> pmf = weights - np.log(np.sum(np.exp(weights)))
        >>> loss = dp.PrivacyLoss.from_log_pmf(np.append(pmf, -np.inf), np.append(-np.inf, pmf))
        >>> print(f"{loss.epsilon(1e-6):.4f}")
        0.3968
        """
        return privacy_loss(pair_of_log_masses(log_masses_p, log_masses_q), relation)

    def to_json(self) -> str:
        """The loss as text; numbers are exact, so that `from_json` is the same loss.

        `ValueError` for traced values.
        """
        payload = {"relation": self.relation, "terms": to_plain(self.terms)}
        return sealed(_FORMAT, payload)

    @classmethod
    def from_json(cls, text: str) -> PrivacyLoss:
        """Loss from what `to_json` wrote; `ValueError` for anything else or changed text."""
        body = unsealed(_FORMAT, text)
        require_keys("text", body, ("relation", "terms"))
        return cls(from_plain(body["relation"], body["terms"]), body["relation"])

    def __len__(self) -> int:
        """The size of the first batch axis; `TypeError` without one."""
        if not self.shape:
            raise TypeError("a single loss has no length: its batch has shape ()")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # for a batch of any size

    def __iter__(self) -> Iterator[PrivacyLoss]:
        """The losses along the first batch axis."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> PrivacyLoss:
        """The losses of a part of the batch: indexed as an array of shape `shape` is.

        A known index outside the batch is an `IndexError`, a traced one gives NaN.
        """
        shape, index = self.shape, index if isinstance(index, tuple) else (index,)
        index = tuple(np.asarray(i) if isinstance(i, list) else i for i in index)
        if any(isinstance(i, bool | np.bool_) for i in index):
            raise IndexError(f"index must be whole numbers, slices and masks of axes, got {index}")
        if checks.all_concrete(index):
            try:
                np.broadcast_to(np.zeros(()), shape)[index]
            except OverflowError as error:
                raise IndexError(f"index must lie in the batch {shape}, got {index}") from error
        elif len(index) > len(shape):
            raise IndexError(f"index must have at most {len(shape)} entries, got {len(index)}")
        dots = () if any(i is Ellipsis for i in index) else (Ellipsis,)
        full_index = (*index, *dots, slice(None))

        pick = partial(picked, index=full_index)
        terms = (jax.tree.map(pick, term.broadcast(shape)) for term in self.terms)
        return PrivacyLoss(tuple(terms), self.relation)

    def __add__(self, other: Any) -> PrivacyLoss:
        """The composition of both, whose samples, if any, are drawn independently.

        Several Gaussian releases of one sample cost more. With noise multipliers m_i they cost one
        release with noise multiplier (sum m_i^-2)^(-1/2).
        """
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

    def __radd__(self, other: Any) -> PrivacyLoss:
        """`other` is a guarantee, or the 0 with which `sum` begins."""
        return self if is_no_release(other) else self + other

    def __mul__(self, count: ArrayLike) -> PrivacyLoss:
        return self.__rmul__(count)

    def __rmul__(self, count: ArrayLike) -> PrivacyLoss:
        times = checks.whole("count", count, upper=checks.LARGEST)[..., None]
        return PrivacyLoss(tuple(t.repeated(times) for t in self.terms), self.relation)


@in_float64
def privacy_loss(
    mechanism: Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
    relation: Relation | None = None,
) -> PrivacyLoss:
    """The privacy loss of one release of a mechanism: what `+` and `*` compose exactly.

    Args:
        mechanism: a `Mechanism`; an `ExponentialMechanism`; a guarantee (PureDP, ApproxDP, GDP),
            for the loss of the worst mechanism that satisfies it; or a dominating pair, such as
            `RandomisedResponse` or your own.
        relation: of a dominating pair. "add_remove", "zero_out" and "replace_one" report the worse
            of the pair and the exchanged pair. "remove" reports the pair alone, "add" the exchanged
            pair alone; risks, trade-offs and statements refuse both. None is "add_remove", or no
            relation for a pair that is its own exchange: `reversed` returns the pair itself.

    Returns:
        A `PrivacyLoss`, batched like the mechanism.

    Sampled coordinates that are summed are sampled independently. For a `Histogram`, whose
    sensitivity is one concrete number, the loss covers all shifts at once, which also bounds
    adaptive compositions.

    >>> import jaxdp as dp
    >>> loss = dp.privacy_loss(dp.Mechanism(dp.Gaussian(10.0), 1.0))
    >>> print(f"{(100 * loss).epsilon(1e-5):.4f}")
    4.3772
    """
    pairs, own_relation = _pairs_of(mechanism)
    if relation is not None:
        checks.one_of("relation", relation, RELATIONS)
        if not isinstance(mechanism, DominatingPair):
            raise ValueError(f"relation must be None where no pair is given, got {relation!r}")
    if isinstance(mechanism, DominatingPair):
        ((pair, count),) = pairs
        own_relation = relation or (None if is_symmetric(pair) else "add_remove")
        pairs = ((pair.reversed() if relation == "add" else pair, count),)
    one: Any = np.ones(1)  # of NumPy: JAX would trace a known count inside a trace
    terms = tuple(Term(pair, one * count) for pair, count in pairs)
    return PrivacyLoss(merged(terms), own_relation)


def _pairs_of(
    release: Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
) -> tuple[Pairs, Relation | None]:
    """Dominating pairs of a release (last axis: releases) with their counts, and its relation."""
    one: Any = _expanded(release)
    if isinstance(one, Mechanism):
        return tuple((_composable(pair), count) for pair, count in one.pairs()), one.relation
    pair = one if isinstance(one, DominatingPair) else _worst_of(one)
    return ((pair, 1),), None


def _composable(pair: DominatingPair) -> DominatingPair:
    """The pair, with the worst of all shifts of each histogram."""
    found = with_worst_shifts(pair)
    if any(map(adds_histogram, jax.tree.leaves(found, is_leaf=adds_histogram))):
        raise ValueError(
            "the width and the sensitivity of a Histogram must be one concrete number each: "
            "compose its releases by n * loss and a + b"
        )
    return found


def _worst_of(guarantee: Guarantee | ExponentialMechanism) -> DominatingPair:
    """The pair of the worst mechanism that satisfies a guarantee."""
    if isinstance(guarantee, GDP):
        return Additive(Gaussian(1.0), guarantee.mu)
    if isinstance(guarantee, PureDP):
        return Response(guarantee.epsilon_bound, 0.0)
    if isinstance(guarantee, ApproxDP):
        return Response(guarantee.epsilon_bound, guarantee.delta_bound)
    if isinstance(guarantee, ExponentialMechanism):
        return BoundedRange(guarantee.epsilon_bound)
    name = type(guarantee).__name__
    hint = ""
    if isinstance(guarantee, Noise):
        hint = f": write dp.Mechanism({name}(...), sensitivity)"
    elif hasattr(guarantee, "log_delta"):
        hint = ": compose it by + and * as it is"
    raise TypeError(
        "mechanism must be a Mechanism, an ExponentialMechanism, a PureDP, ApproxDP or GDP, or a "
        f"dominating pair, got {name}{hint}"
    )
