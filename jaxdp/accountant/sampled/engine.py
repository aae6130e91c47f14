"""Bounds on delta and epsilon of sampled Gaussians in few phases, beside plain Gaussians.

A release that samples everything is a plain Gaussian. Derivatives are those of the contour's sum,
with nodes and contour held, and of its inverse; they are found only when they are asked for, and
second ones are an error. A mapped batch becomes more lanes.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.types import Lanes, Reals
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms, is_gaussian, is_sampled_gaussian, with_unused
from jaxdp.accountant.mapped import in_traces
from jaxdp.accountant.sampled import ladder
from jaxdp.accountant.sampled.ladder import Batch, Enough, Question
from jaxdp.accountant.sampled.law import Releases
from jaxdp.accountant.sampled.releases import releases_of

MOST_PHASES = 8  # chosen: beyond, the general contour costs less
FEW_LANES = 8  # of several phases that are padded to as many. chosen: a compilation is saved
LARGEST_EPSILON = 1e9  # at which delta is bounded for larger ones. chosen


def serves(terms: Terms) -> bool:
    """True of sampled Gaussians in few phases, beside Gaussians that are not sampled."""
    sampled = [term for term in terms if is_sampled_gaussian(term)]
    others = [term for term in terms if not is_sampled_gaussian(term)]
    phases = sum(term.count.shape[-1] for term in sampled)
    return 0 < phases <= MOST_PHASES and all(map(is_gaussian, others))


def log_bounds(terms: Terms, epsilon: Lanes, ways: int, enough: Enough | None = None) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; lanes in the order of their `ways`, or directions.

    `enough`: true of bounds of the worse direction that need not be any nearer.
    """
    releases, log_hit = releases_of(_padded(terms))
    at = jnp.minimum(epsilon, LARGEST_EPSILON)
    found = _bounds("log delta", ways, Batch(releases, at), enough)
    bad = jnp.isnan(_sum_of(releases) + epsilon)
    upper = jnp.where(bad, jnp.nan, jnp.minimum(found.upper, log_hit))
    lower = jnp.where(epsilon <= LARGEST_EPSILON, found.lower, -jnp.inf)
    return LogBounds(jnp.minimum(lower, upper), upper)


def epsilon_bounds(terms: Terms, delta: Lanes, ways: int) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta: safe above."""
    releases, log_hit = releases_of(_padded(terms))
    inside = (delta > 0) & (delta < 1)
    safe = jnp.where(inside, delta, 0.5)
    found = _bounds("epsilon", ways, Batch(releases, safe))
    bad = jnp.isnan(_sum_of(releases) + delta)
    met = inside & (jnp.log(safe) >= log_hit)
    lower, upper = (jnp.where(met, 0.0, x) for x in (found.lower, found.upper))
    lower, upper = jnp.where(inside, lower, 0.0), jnp.where(inside, upper, jnp.inf)
    upper = jnp.where(bad, jnp.nan, upper)
    return LogBounds(jnp.minimum(lower, upper), upper)


def _padded(terms: Terms) -> Terms:
    """Known terms in few numbers of phases: a schedule that grows finds its programs compiled."""
    phases = sum(term.count.shape[-1] for term in terms if is_sampled_gaussian(term))
    if phases == 1 or not checks.all_concrete(terms):
        return terms
    few = math.prod(terms[0].shape) <= FEW_LANES
    spare = (MOST_PHASES if few else 1 << (phases - 1).bit_length()) - phases
    first = next(i for i, term in enumerate(terms) if is_sampled_gaussian(term))
    wide = with_unused(terms[first], terms[first].count.shape[-1] + spare)
    return (*terms[:first], wide, *terms[first + 1 :])


def _bounds(question: Question, ways: int, lanes: Batch, enough: Enough | None = None) -> LogBounds:
    if not checks.all_concrete(lanes):
        return in_traces(partial(_answered, question, ways), ways, lanes)
    found = ladder.answered(question, lanes, ways, False, enough)
    return LogBounds(jnp.asarray(found.lower), jnp.asarray(found.upper))


def _answered(
    question: Question, ways: int, lanes: Batch, with_slopes: bool
) -> tuple[LogBounds, Batch | None]:
    found = ladder.answered(question, lanes, ways, with_slopes)
    slopes = found.slopes
    if question == "epsilon":  # It does not fall below 0.
        above = found.upper > 0
        slopes = jax.tree.map(
            lambda x: jnp.where(above.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), slopes
        )
    return LogBounds(found.lower, found.upper), slopes


def _sum_of(releases: Releases) -> Reals:
    """Sum of a lane's parameters: NaN where one is bad."""
    releases = releases._replace(sign=jnp.zeros_like(releases.sign))
    parts = (jnp.sum(x, tuple(range(1, x.ndim))) for x in releases)
    return sum(parts, start=jnp.zeros(()))
