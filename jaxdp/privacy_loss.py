"""The exact privacy loss of a composition: `a + b`, `n * a`, `.sum(axis)`."""

import functools
from typing import final

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.bracket import last_feasible_quick
from jaxdp._pytree import pytree
from jaxdp._types import RealLike, Reals, Shape
from jaxdp.guarantee.base import excess
from jaxdp.loss.base import Term, Terms, cumulant
from jaxdp.loss.bracket import POINTS, exp_down
from jaxdp.loss.bracket import in_lanes as bracket_in_lanes
from jaxdp.loss.contour import in_lanes
from jaxdp.loss.line import largest_epsilon
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import exp_up

# Two compilations of the sum differ by less than this in log delta, relatively.
_SLACK = 1e-12


@final
@pytree
class PrivacyLoss:
    """The privacy loss of releases made together or one after the other, batched.

    `a + b` composes, `n * a` repeats (n whole, may be traced), `a.sum(axis)` composes along a
    batch axis: K coordinates, or the steps of a plan. Made by `privacy_loss`.
    """

    terms: Terms

    @property
    def shape(self) -> Shape:
        """The batch."""
        return jnp.broadcast_shapes(*(term.shape for term in self.terms))

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of delta at `epsilon`, every real epsilon: an upper bound, see `loss.contour`.

        Exact for one release. Else the relative error of delta is below 1e-10 for noises whose
        loss has a density or one pair of atoms (with itself at most 512 times). Compositions of
        several different losses with atoms get a wider bound, an infinite loss gives delta = 1.
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

        Within 1e-11 of the epsilon that Markov's inequality gives, a few times the least one.
        """
        return _epsilon(self, _check.probability("delta", delta))

    def renyi(self, order: RealLike) -> Reals:
        """The Renyi divergence of an order > 1: the terms' divergences add."""
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

        return PrivacyLoss(tuple(jax.tree.map(merge, term.broadcast(shape)) for term in self.terms))

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        return PrivacyLoss(self.terms + other.terms)

    def __rmul__(self, count: RealLike) -> "PrivacyLoss":
        times = _check.whole("count", count)[..., None]
        return PrivacyLoss(
            tuple(Term(t.noise, t.shift, jnp.multiply(*_align(t.count, times))) for t in self.terms)
        )


def privacy_loss(mechanism: Mechanism) -> PrivacyLoss:
    """The privacy loss of one release of `mechanism`, batched like it."""
    noise = jax.tree.map(lambda x: jnp.asarray(x)[..., None], mechanism.noise)
    return PrivacyLoss((Term(noise, mechanism.sensitivity[..., None], jnp.ones(1)),))


def _align(a: Reals, b: Reals) -> tuple[Reals, Reals]:
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    return jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)


@jax.jit
def _log_delta(loss: PrivacyLoss, epsilon: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, epsilon.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    return in_lanes(terms, jnp.broadcast_to(epsilon, shape))


@functools.partial(jax.jit, static_argnums=2)
def _bounds(loss: PrivacyLoss, epsilon: Reals, points: int) -> tuple[Reals, Reals]:
    shape = jnp.broadcast_shapes(loss.shape, epsilon.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    return bracket_in_lanes(terms, jnp.broadcast_to(epsilon, shape), points)


@jax.jit
def _epsilon(loss: PrivacyLoss, delta: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, delta.shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    delta = jnp.broadcast_to(delta, shape)

    # Measured from -most: smooth down to epsilon = 0, where log epsilon is not.
    most = jax.lax.stop_gradient(largest_epsilon(terms, delta))
    most = jnp.where(jnp.isinf(most), 1.0, most)

    def residual(shifted: Reals) -> Reals:
        return excess(in_lanes(terms, shifted - most), delta)

    slack = _SLACK * (1.0 + jnp.abs(jnp.log(jnp.where(delta == 0, 1.0, delta))))
    return last_feasible_quick(residual, 2.0 * most, most, slack) - most


@jax.jit
def _renyi(loss: PrivacyLoss, order: Reals) -> Reals:
    shape = jnp.broadcast_shapes(loss.shape, order.shape)
    s = jnp.broadcast_to(order - 1.0, shape)
    terms = tuple(t.broadcast(shape) for t in loss.terms)
    return jnp.real(cumulant(terms, s[..., None])[..., 0]) / s
