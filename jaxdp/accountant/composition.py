"""Compositions: releases of one kind of pair stacked in a term, which is evaluated at once."""

from __future__ import annotations

from typing import Any, final

import jax

from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import Bools, Reals, Shape
from jaxdp._numeric.elementary import round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.noise.gaussian import Gaussian


@final
@pytree
class Term:
    """`count` releases of each pair: arrays of one shape, whose last axis composes."""

    pair: DominatingPair
    count: Reals

    def __init__(self, pair: DominatingPair, count: Reals):
        shapes = {xp.shape(x) for x in jax.tree.leaves((pair, count))}
        if len(shapes) > 1:
            shape = xp.broadcast_shapes(*shapes)
            pair, count = jax.tree.map(lambda x: xp.broadcast_to(x, shape), (pair, count))
        assign(self, pair=pair, count=count)

    @property
    def shape(self) -> Shape:
        """Shape of the batch: all axes but the last, which composes."""
        return self.count.shape[:-1]

    def broadcast(self, shape: Shape) -> Term:
        """The same term in a batch of `shape`."""
        return jax.tree.map(lambda x: xp.broadcast_to(x, (*shape, x.shape[-1])), self)

    def repeated(self, times: Reals) -> Term:
        """Every release repeated `times` times; the last axis of the array `times` composes."""
        return Term(self.pair, xp.multiply(*xp.broadcast_arrays(self.count, times)))

    def total(self, values: Reals) -> Reals:
        """Sum of `count` times each value; a count of 0 contributes 0, whatever its loss."""
        return xp.sum(xp.where(self.count == 0, 0.0, self.count * values), axis=-1)


Terms = tuple[Term, ...]


def merged(terms: Terms) -> Terms:
    """The same composition with the releases of one kind in one term."""
    kinds: dict[Any, list[Term]] = {}
    for term in terms:
        kinds.setdefault(jax.tree.structure(term), []).append(term)
    return tuple(_joined(terms_of_kind) for terms_of_kind in kinds.values())


def _joined(terms: list[Term]) -> Term:
    if len(terms) == 1:
        return terms[0]
    shape = xp.broadcast_shapes(*(term.shape for term in terms))
    broadcast = (term.broadcast(shape) for term in terms)
    return jax.tree.map(lambda *x: xp.concatenate(x, axis=-1), *broadcast)


def with_one_gaussian(terms: Terms) -> Terms:
    """The same composition with all Gaussians that are not sampled as one, of their summed mu^2.

    Source: Dong, Roth & Su, JRSS B 2022, corollary 3.3.
    """
    return tuple(one_release(term) if is_gaussian(term) else term for term in terms)


def is_gaussian(term: Term) -> bool:
    """True if the releases are Gaussians that are not sampled."""
    return term.pair.mean_distance() is not None


def ratios_of(term: Term) -> Reals:
    """Sensitivity over scale of each Gaussian that is not sampled."""
    ratios = term.pair.mean_distance()
    assert ratios is not None
    return ratios


def one_release(term: Term) -> Term:
    """One Gaussian release equivalent to all Gaussian releases of the term."""
    ratio, count = ratios_of(term), xp.where(term.count == 0, 0.0, xp.sqrt(term.count))
    sizes = xp.where(count == 0, 0.0, count * ratio)
    largest = xp.max(xp.where(xp.isnan(sizes), 0.0, sizes), axis=-1, keepdims=True)
    safe = xp.where((largest > 0) & xp.isfinite(largest), largest, 1.0)
    mu = safe * xp.sqrt(xp.sum((sizes / safe) ** 2, axis=-1, keepdims=True))
    # A single release keeps its own mu, without rounding.
    is_single = (xp.sum(term.count, axis=-1, keepdims=True) == 1.0) & (mu == largest)
    mu = xp.where(is_single, mu, round_up(mu, 4))
    return Term(Additive(Gaussian(xp.ones_like(mu)), mu), xp.ones_like(mu))


def exchanged(terms: Terms) -> Terms:
    """The lanes of a batch along one axis, followed by the same lanes with P and Q exchanged."""
    pairs = ((term, _reversed(term)) for term in terms)
    return tuple(jax.tree.map(lambda *x: xp.concatenate(x), *pair) for pair in pairs)


def _reversed(term: Term) -> Term:
    """The term with P and Q exchanged."""
    return jax.tree.unflatten(
        jax.tree.structure(term), jax.tree.leaves((term.pair.reversed(), term.count))
    )


def reversed_where(terms: Terms, is_reversed: Bools) -> Terms:
    """The terms with P and Q exchanged in some lanes of the batch."""

    def choose(x: Reals, y: Reals) -> Reals:
        return xp.where(is_reversed[..., None], y, x)

    return tuple(jax.tree.map(choose, term, _reversed(term)) for term in terms)
