"""Bounds of a single release from its own privacy profile.

Identity: the composition of one release is its pair, so delta is `DominatingPair.log_delta`. Plain
Gaussians compose to one release. Error: 2e-12 (1 + |log delta|), plus the pair's `profile_error`.
Chosen by `engines` for single releases and plain Gaussians.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.steps import LogBounds
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.guarantee.base import epsilon_of

_PROFILE = 2e-12  # relative error of log delta. derived: the pair's contract
_ARGUMENT = 32.0 * ULP  # of epsilon, which a profile can round down. derived: twice that rounding


def log_bounds(terms: Terms, epsilon: Reals, _: Any = None) -> LogBounds:
    """Bounds on log delta of single releases; infinite for several."""
    (term,) = terms
    found = bounds_of(term.pair, epsilon[..., None])
    return _if_single(term, LogBounds(*(x[..., 0] for x in found)))


def bounds_of(pair: DominatingPair, epsilon: Reals) -> LogBounds:
    """Bounds on a pair's own log delta at epsilon."""
    # A profile can exceed the truth at epsilon, but not the truth a few ulps of epsilon below.
    points = xp.stack([epsilon, epsilon * (1.0 + _ARGUMENT)])
    with jax.numpy_rank_promotion("allow"):
        log_deltas, error = pair.log_delta(points), pair.profile_error(points)
    upper, log_next = log_deltas[0], lax.stop_gradient(log_deltas[1])
    width = _PROFILE * (1.0 + xp.abs(xp.where(log_next > -xp.inf, log_next, 0.0)))
    width = width + lax.stop_gradient(xp.broadcast_to(error, log_deltas.shape)[1])
    return LogBounds(xp.minimum(log_next, upper) - width, upper)


def epsilon_bounds(terms: Terms, delta: Reals, _: Any = None) -> LogBounds:
    """Bounds on the least epsilon of single releases; infinite for several."""
    (term,) = terms
    pair = jax.tree.map(lambda x: x[..., 0], term.pair)
    upper = epsilon_of(pair.log_delta, delta)
    return _if_single(term, LogBounds(upper * (1.0 - _PROFILE), upper))


def _if_single(term: Term, bounds: LogBounds) -> LogBounds:
    count = term.count[..., 0]
    lower = xp.where(count == 1, bounds.lower, -xp.inf)
    upper = xp.where(count == 1, bounds.upper, xp.inf)
    return LogBounds(lower, xp.where(xp.isnan(count), xp.nan, upper))
