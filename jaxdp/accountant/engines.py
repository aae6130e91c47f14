"""Which engine answers a composition: the one decision table.

| composition                                         | engine           | error stated            |
|-----------------------------------------------------|------------------|-------------------------|
| one release; Gaussians, which are one               | its own profile  | 2e-12 (1 + |log delta|) |
| every loss on a lattice                             | `grid`, exact    | 1e-10                   |
| everything else: first                              | `contour`        | 1e-8, or what it finds  |
| where that is wide (few releases, atoms, rare hits) | `grid`           | the bracket             |

The engine depends on the kinds of pairs alone, so that traced values take the same one. What is
wide goes on to the next engine; the higher of the lower bounds and the lower of the upper ones is
reported. An engine maps (terms, epsilon), arrays of one batch, to bounds on log delta, and its
inverse (terms, delta) to bounds on epsilon.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp import _check
from jaxdp._types import Reals
from jaxdp.accountant import contour, grid
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import (
    Term,
    Terms,
    is_gaussian,
    largest_finite,
    log_finite,
    log_hit,
    reversed_where,
)
from jaxdp.accountant.factors import factors_of
from jaxdp.dominating_pair.base import Lattice, log_of_infinite
from jaxdp.guarantee.base import epsilon_of

Engine: TypeAlias = Callable[[Terms, Reals], LogBounds]

# Width of a bracket beyond which more points are tried, and beyond which the grid is.
_SETTLED, _NEAR = 1e-8, 1e-6
# Points of a grid on a lattice, where they suffice. measured: 4,000 responses need 2,000.
_FEW_POINTS = 2**12
# Relative error of log delta that a profile states.
_PROFILE = 2e-12


class Step(NamedTuple):
    """An engine, and the width of a bracket above which it is asked."""

    engine: Engine
    above: float = 0.0


def engines_of(terms: Terms) -> tuple[Step, ...]:
    """The engines that are asked for log delta, in turn."""
    return _single_first(terms, _by_profile, _ON_LATTICE if is_on_lattice(terms) else _ON_CONTOUR)


def inverses_of(terms: Terms) -> tuple[Step, ...]:
    """The engines that are asked for epsilon, in turn."""
    others = _INVERSE_ON_LATTICE if is_on_lattice(terms) else _INVERSE_ON_CONTOUR
    return _single_first(terms, _epsilon_by_profile, others)


def _single_first(terms: Terms, single: Engine, others: tuple[Step, ...]) -> tuple[Step, ...]:
    """With the profile of one release where there may be one release."""
    counts = [term.count for term in terms]
    if len(counts) > 1 or counts[0].shape[-1] > 1:
        return others
    count, first = counts[0], Step(single)
    if is_gaussian(terms[0]):
        return (first,)
    if not _check.is_concrete(count):
        return first, *others
    ones = np.asarray(count) == 1
    return (first,) if ones.all() else (first, *others) if ones.any() else others


def is_on_lattice(terms: Terms) -> bool:
    """True if the losses of every kind of pair lie on a lattice."""
    found = (jax.eval_shape(lambda pair: pair.singularities(), term.pair) for term in terms)
    return all(isinstance(singularities, Lattice) for singularities in found)


def by_lanes(
    function: Callable[[Terms, Reals], LogBounds], terms: Terms, values: Reals
) -> LogBounds:
    """function(terms, value) of every lane, one after the other: each fills the cache."""

    def flat(x: Reals) -> Reals:
        return x.reshape(-1, *x.shape[values.ndim :])

    lanes = jax.tree.map(flat, (terms, values))
    found = lax.map(lambda lane: function(*lane), lanes)
    return jax.tree.map(lambda x: x.reshape(values.shape), found)


def _by_profile(terms: Terms, epsilon: Reals) -> LogBounds:
    """Of one release; nothing where there are more."""
    (term,) = terms
    upper = term.pair.log_delta(epsilon[..., None])[..., 0]
    width = _PROFILE * (1.0 + jnp.abs(jnp.where(upper > -jnp.inf, upper, 0.0)))
    return _only_one(term, LogBounds(upper - lax.stop_gradient(width), upper))


def _epsilon_by_profile(terms: Terms, delta: Reals) -> LogBounds:
    """Of one release; nothing where there are more."""
    (term,) = terms
    pair = jax.tree.map(lambda x: x[..., 0], term.pair)
    upper = epsilon_of(pair.log_delta, delta)
    return _only_one(term, LogBounds(upper * (1.0 - _PROFILE), upper))


def _only_one(term: Term, found: LogBounds) -> LogBounds:
    one = term.count[..., 0] == 1
    lower, upper = jnp.where(one, found.lower, -jnp.inf), jnp.where(one, found.upper, jnp.inf)
    return LogBounds(lower, jnp.where(jnp.isnan(term.count[..., 0]), jnp.nan, upper))


def _by_contour(terms: Terms, epsilon: Reals, root: int) -> LogBounds:
    """At every real epsilon: infinite losses are added, negative epsilons exchanged."""
    negative, size = epsilon < 0, jnp.abs(epsilon)
    way = reversed_where(terms, negative)
    found = by_lanes(lambda t, e: contour.log_bounds(factors_of(t), e, root), way, size)
    none = size >= largest_finite(way)
    found = LogBounds(*(jnp.where(none, -jnp.inf, x) for x in found))
    log_infinite = log_of_infinite(log_finite(way))
    some = log_infinite > -jnp.inf
    found = LogBounds(*(jnp.where(some, jnp.logaddexp(x, log_infinite), x) for x in found))
    upper = jnp.minimum(found.upper, log_hit(way))
    found = LogBounds(jnp.minimum(found.lower, upper), upper)
    return found.mirrored(negative, size)


def _epsilon_by_contour(terms: Terms, delta: Reals, root: int) -> LogBounds:
    """Around the least epsilon >= 0; infinite where some loss is with a larger probability."""
    left = delta + jnp.expm1(log_finite(terms))
    possible = left > 0
    at = jnp.where(possible, left, 0.5)
    found = by_lanes(lambda t, d: contour.epsilon_bounds(factors_of(t), d, root), terms, at)
    largest = largest_finite(terms)
    never = jnp.where(left == 0, largest, jnp.where(jnp.isnan(left), jnp.nan, jnp.inf))
    return LogBounds(*(jnp.where(possible, jnp.minimum(x, largest), never) for x in found))


def _along(by_contour: Callable[..., LogBounds], on_grid: Engine) -> tuple[Step, ...]:
    short, long = (partial(by_contour, root=root) for root in contour.ROOTS)
    return Step(short), Step(long, _SETTLED), Step(on_grid, _NEAR)


def _exactly(on_grid: Callable[..., LogBounds]) -> tuple[Step, ...]:
    return Step(partial(on_grid, points=_FEW_POINTS)), Step(on_grid, _SETTLED)


_ON_CONTOUR = _along(_by_contour, grid.log_bounds)
_INVERSE_ON_CONTOUR = _along(_epsilon_by_contour, grid.epsilon_bounds)
_ON_LATTICE, _INVERSE_ON_LATTICE = map(_exactly, (grid.log_bounds, grid.epsilon_bounds))
