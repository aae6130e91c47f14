"""The exact privacy loss of a composition: `a + b`, `n * a`, `.sum(axis)`."""

import functools
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._numeric.bracket import last_feasible_quick
from jaxdp._pytree import pytree, static
from jaxdp._types import Bools, RealLike, Reals, Shape
from jaxdp.exponential import ExponentialMechanism
from jaxdp.guarantee.approximate import ApproxDP
from jaxdp.guarantee.base import excess
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import PureDP
from jaxdp.loss.base import Term, Terms, add_up, by_lanes, cumulant
from jaxdp.loss.bracket import POINTS, exp_down
from jaxdp.loss.bracket import in_lanes as bracket_in_lanes
from jaxdp.loss.contour import in_lanes
from jaxdp.loss.discrete import ApproxLoss, PureLoss, RangeLoss
from jaxdp.loss.finite import worst_loss
from jaxdp.loss.inverse import quick_epsilon
from jaxdp.loss.inverse import rough_log_delta as saddle_log_delta
from jaxdp.loss.line import largest_epsilon
from jaxdp.loss.sampled import Sampled, nodes_for
from jaxdp.mechanism import Mechanism, Relation, directions
from jaxdp.noise.base import exp_up
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.laplace import Laplace
from jaxdp.tradeoff import tradeoff_of_profile

# Two compilations of the sum differ by less than this in log delta, relatively.
_SLACK = 1e-12


@final
@pytree
class PrivacyLoss:
    """The privacy loss of releases made together or one after the other, batched.

    `a + b` composes, `n * a` repeats (n whole, may be traced), `a.sum(axis)` composes along a
    batch axis: K coordinates, or the steps of a plan. Made by `privacy_loss`. The directions of a
    sampled mechanism are kept apart: "add_remove" reports the worse of the two compositions.
    """

    terms: Terms
    relation: Relation | None = static(default=None)

    # An array of counts is no array of losses: NumPy leaves the product to `__rmul__`.
    __array_ufunc__ = None

    @property
    def shape(self) -> Shape:
        """The batch."""
        return jnp.broadcast_shapes(*(term.shape for term in self.terms))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of delta at `epsilon`, every real epsilon: an upper bound, see `loss.contour`.

        Exact for one release. Else the relative error of delta is about 1e-10 for losses with a
        density, and for one pair of atoms repeated (1e-8 from 512 to 4,096 times; 3e-9 for twofold
        flipped Huber). Where atoms of different losses meet, the bound is wider: 1e-7
        to 1e-3, widest with epsilon at an atom. Few Subbotins, whose cumulant hardly falls, are
        added up one after the other (`loss.few`): two of powers 1.1 to 8 are off by less than 1e-9,
        three or four equal ones of powers 1.5 to 8 by 1e-10 to 2e-7, of powers near 1 by up to
        1e-3. An infinite loss gives delta = 1.
        """
        return _log_delta(self, _check.real("epsilon", epsilon))

    def delta(self, epsilon: RealLike) -> Reals:
        """exp(log_delta), rounded up."""
        return exp_up(self.log_delta(epsilon))

    def bounds(self, epsilon: RealLike, *, points: int = POINTS) -> tuple[Reals, Reals]:
        """(lower, upper) with lower <= delta(epsilon) <= upper, every error inside.

        From masses on a grid of `points`, see `loss.bracket`.
        """
        if points < 256 or points & (points - 1):
            raise ValueError(f"points must be a power of 2 from 256 on, got {points}")
        lower, upper = _bounds(self, _check.real("epsilon", epsilon), points)
        return exp_down(lower), exp_up(upper)

    def epsilon(self, delta: RealLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`, from the safe side.

        log_delta(epsilon) <= log(delta) by less than 7e-10, where 512 points of one line settle
        it (`loss.inverse`); else, and under a transformation, within 1e-11 of the epsilon that
        Markov's inequality gives, a few times the least one, by repeated sums: slower.
        """
        delta = _check.probability("delta", delta)
        if not all(_check.is_concrete(x) for x in jax.tree.leaves((self, delta))):
            return _epsilon(self, delta)
        found, settled = _quick_epsilon(self, delta)
        missing = np.flatnonzero(~np.asarray(settled))
        if not missing.size:
            return found
        # Few shapes, few compilations.
        index = np.resize(missing, 1 << int(missing.size - 1).bit_length())
        terms = tuple(
            jax.tree.map(lambda x: x.reshape(-1, x.shape[-1])[index], term.broadcast(found.shape))
            for term in self.terms
        )
        slow = _epsilon(
            PrivacyLoss(terms, self.relation), jnp.broadcast_to(delta, found.shape).ravel()[index]
        )
        return found.ravel().at[index].set(slow).reshape(found.shape)

    def tradeoff(self, fpr: RealLike) -> Reals:
        """A lower bound on the false-negative rate at `fpr`: see `tradeoff_of_profile`."""
        if self.relation in ("add", "remove"):
            raise ValueError("a trade-off function needs relation 'add_remove': both directions")
        return tradeoff_of_profile(self.log_delta, fpr)

    def renyi(self, order: RealLike) -> Reals:
        """The Renyi divergence of an order > 1: the terms' divergences add, the worse direction.

        Of infinite order: the largest loss.
        """
        return _renyi(self, _check.real("order", order, 1.0, open_lower=True))

    def sum(self, axis: int = -1) -> "PrivacyLoss":
        """The composition along a batch axis."""
        shape = self.shape
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis must lie in the batch of shape {shape}, got {axis}")
        axis %= len(shape)

        def merge(x: Reals) -> Reals:
            x = jnp.moveaxis(x, axis, -2)
            return x.reshape(*x.shape[:-2], -1)

        terms = tuple(jax.tree.map(merge, term.broadcast(shape)) for term in self.terms)
        return PrivacyLoss(terms, self.relation)

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        if None not in (self.relation, other.relation) and self.relation != other.relation:
            raise ValueError(
                f"cannot compose relation {self.relation!r} with {other.relation!r}: the inputs "
                "that one calls neighbours differ from the other's"
            )
        return PrivacyLoss(self.terms + other.terms, self.relation or other.relation)

    def __rmul__(self, count: RealLike) -> "PrivacyLoss":
        times = _check.whole("count", count)[..., None]
        return PrivacyLoss(
            tuple(
                Term(t.noise, t.shift, jnp.multiply(*_align(t.count, times))) for t in self.terms
            ),
            self.relation,
        )


def privacy_loss(
    mechanism: Mechanism | PureDP | ApproxDP | GDP | ExponentialMechanism,
) -> PrivacyLoss:
    """The privacy loss of one release of `mechanism`, batched like it.

    Sampled: Gaussian and Laplace noise. Coordinates that are summed are sampled independently.
    Of a `Histogram`: the worst of all shifts at once, which bounds adaptive compositions as well;
    its sensitivity is one number, known before tracing. Of a guarantee, or the exponential
    mechanism: the loss of the worst mechanism that keeps it.
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
        if not isinstance(noise, Gaussian | Laplace):
            raise ValueError(
                "noise must be Gaussian or Laplace to compose sampled releases, got "
                f"{type(noise).__name__}"
            )
        added = directions(mechanism.relation)[0]
        noise = Sampled(noise, sampling_prob, added, nodes_for(noise, shift))
    return PrivacyLoss((Term(noise, shift, jnp.ones(1)),), mechanism.relation)


def _worst_shift(noise: Histogram | DiscreteHistogram, sensitivity: Reals) -> Term:
    parameters = (*jax.tree.leaves(noise), sensitivity)
    known = all(_check.is_concrete(x) and jnp.ndim(x) == 0 for x in parameters)
    if not known:
        raise ValueError(
            "the width and the sensitivity of a Histogram must be one concrete number each: "
            "compose its releases by n * loss and a + b"
        )
    return Term(worst_loss(noise, float(sensitivity)), jnp.ones(1), jnp.ones(1))


def _worst_of(known: PureDP | ApproxDP | GDP | ExponentialMechanism) -> Term:
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


def _worst_log_delta(loss: PrivacyLoss, terms: Terms, epsilon: Reals) -> Reals:
    """Of the directions, which are worked off in one batch; terms and epsilon of one shape."""
    values = in_lanes(*_in_directions(loss, terms, epsilon))
    return jnp.max(values, axis=0) if loss.relation == "add_remove" else values


def _in_directions(loss: PrivacyLoss, terms: Terms, epsilon: Reals) -> tuple[Terms, Reals]:
    """With a new first axis for the two directions, if there are two."""
    if loss.relation != "add_remove":
        return terms, epsilon
    both = (2, *epsilon.shape)
    exchanged = jnp.broadcast_to(jnp.arange(2).reshape(2, *(1,) * epsilon.ndim) == 1, both)
    pair = tuple(term.broadcast(both).reversed(exchanged) for term in terms)
    return pair, jnp.broadcast_to(epsilon, both)


@jax.jit
def _log_delta(loss: PrivacyLoss, epsilon: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, epsilon.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    return _worst_log_delta(loss, terms, jnp.broadcast_to(epsilon, shape))


@jax.jit
def rough_log_delta(loss: PrivacyLoss, epsilon: Reals) -> Reals:
    """log delta to a few percent of delta, no bound: where a search may begin."""
    shape = jnp.broadcast_shapes(loss.shape, epsilon.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    terms, epsilon = _in_directions(loss, terms, jnp.broadcast_to(epsilon, shape))
    found = by_lanes(saddle_log_delta, terms, epsilon)
    return jnp.max(found, axis=0) if loss.relation == "add_remove" else found


@functools.partial(jax.jit, static_argnums=2)
def _bounds(loss: PrivacyLoss, epsilon: Reals, points: int) -> tuple[Reals, Reals]:
    shape = jnp.broadcast_shapes(loss.shape, epsilon.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    terms, epsilon = _in_directions(loss, terms, jnp.broadcast_to(epsilon, shape))
    lower, upper = bracket_in_lanes(terms, epsilon, points)
    if loss.relation == "add_remove":
        return jnp.max(lower, axis=0), jnp.max(upper, axis=0)
    return lower, upper


@jax.jit
def _quick_epsilon(loss: PrivacyLoss, delta: Reals) -> tuple[Reals, Bools]:
    shape = jnp.broadcast_shapes(loss.shape, delta.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    terms, delta = _in_directions(loss, terms, jnp.broadcast_to(delta, shape))
    found, settled = by_lanes(quick_epsilon, terms, delta)
    if loss.relation == "add_remove":
        return jnp.max(found, axis=0), jnp.all(settled, axis=0)
    return found, settled


@jax.jit
def _epsilon(loss: PrivacyLoss, delta: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, delta.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    delta = jnp.broadcast_to(delta, shape)

    # Measured from -most: smooth down to epsilon = 0, where log epsilon is not.
    most = jax.lax.stop_gradient(largest_epsilon(terms, delta))
    if loss.relation == "add_remove":
        everywhere = jnp.ones_like(delta, dtype=bool)
        other = tuple(term.reversed(everywhere) for term in terms)
        most = jnp.maximum(most, jax.lax.stop_gradient(largest_epsilon(other, delta)))
    most = jnp.where(jnp.isinf(most), 1.0, most)

    def residual(shifted: Reals) -> Reals:
        return excess(_worst_log_delta(loss, terms, shifted - most), delta)

    slack = _SLACK * (1.0 + jnp.abs(jnp.log(jnp.where(delta == 0, 1.0, delta))))
    return last_feasible_quick(residual, 2.0 * most, most, slack) - most


@jax.jit
def _renyi(loss: PrivacyLoss, order: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, order.shape)
    s = jnp.broadcast_to(jnp.where(order == jnp.inf, 2.0, order) - 1.0, shape)
    if shape and (not loss.shape or loss.shape[-1] == 1):
        # Many orders of one loss.
        terms = tuple(_drop_axis(t).broadcast(shape[:-1]) for t in loss.terms)
    else:
        terms, s = tuple(t.broadcast(shape) for t in loss.terms), s[..., None]
    largest = jnp.real(cumulant(terms, s))
    other = terms
    if loss.relation == "add_remove":
        other = tuple(t.reversed(jnp.ones(t.shape, dtype=bool)) for t in terms)
        largest = jnp.maximum(largest, jnp.real(cumulant(other, s)))
    finite = add_up(terms, Term.log_finite)[..., None]
    value = jnp.where(finite < 0, jnp.inf, largest / s).reshape(shape)
    most = add_up(terms, Term.pure_epsilon)
    most = jnp.maximum(most, add_up(other, Term.pure_epsilon))
    most = jnp.broadcast_to(most[..., None] if most.ndim < len(shape) else most, shape)
    return jnp.where(jnp.broadcast_to(order == jnp.inf, shape), most, value)


def _drop_axis(term: Term) -> Term:
    """Without the batch's last axis, which has size 1, if there is one."""
    return jax.tree.map(lambda x: x[..., 0, :] if x.ndim > 1 else x, term)
