"""Traced answers: engines in turn in one program, lanes side by side where engines can."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Lanes, Reals
from jaxdp.accountant.bounds import LogBounds, nearer
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.engines import Step

# What ends a traced lane: from (bounds, terms, values) of its directions, better bounds.
Last: TypeAlias = Callable[[LogBounds, Terms, Lanes], LogBounds]


def traced_bounds(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    terms: Terms,
    values: Lanes,
    ways: int,
    last: Last | None,
) -> LogBounds:
    """Bounds by one program: each lane, with its directions, goes on to the next engine alone."""
    if all(step.takes_batches for step in steps[1:]):
        return _side_by_side(steps, width, terms, values, ways)

    def lane(at: tuple[Terms, Reals]) -> LogBounds:
        terms, values = at
        found = steps[0].engine(terms, values)
        for engine, above, _ in steps[1:]:
            worse = LogBounds(*(jnp.max(x) for x in found))
            found = lax.cond(
                width(worse) > above,
                lambda known, engine=engine: nearer(known, engine(terms, values)),
                lambda known: known,
                found,
            )
        return last(found, terms, values) if last else found

    def by_lane(x: Reals) -> Reals:
        return jnp.moveaxis(x.reshape(ways, -1, *x.shape[1:]), 1, 0)

    found = lax.map(lane, jax.tree.map(by_lane, (terms, values)))
    return LogBounds(*(x.T.ravel() for x in found))


def _side_by_side(
    steps: tuple[Step, ...],
    width: Callable[[LogBounds], Reals],
    terms: Terms,
    values: Lanes,
    ways: int,
) -> LogBounds:
    """Bounds of all lanes at once; of those that are near enough the next engine sees none."""
    found = steps[0].engine(terms, values)
    for engine, above, _ in steps[1:]:
        worse = LogBounds(*(jnp.max(x.reshape(ways, -1), axis=0) for x in found))
        wide = jnp.tile(width(worse) > above, ways)
        asked = tuple(Term(t.pair, jnp.where(wide[:, None], t.count, 0.0)) for t in terms)
        better = nearer(found, engine(asked, values))
        found = LogBounds(*(jnp.where(wide, x, y) for x, y in zip(better, found, strict=True)))
    return found
