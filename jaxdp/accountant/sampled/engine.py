"""Bounds on delta and epsilon of sampled Gaussians in few phases, beside plain Gaussians.

A release that samples everything is a plain Gaussian. Derivatives are those of the contour's sum,
with nodes and contour held, and of its inverse; they are found only when they are asked for, and
second ones are an error. A mapped batch becomes more lanes.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import Lanes, Reals
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.composition import Terms, is_gaussian, is_sampled_gaussian
from jaxdp.accountant.mapped import in_traces
from jaxdp.accountant.sampled import ladder
from jaxdp.accountant.sampled.ladder import Batch, Enough, Question
from jaxdp.accountant.sampled.law import Releases
from jaxdp.accountant.sampled.releases import releases_of

MOST_PHASES = 8  # chosen: beyond, the general contour costs less
LARGEST_EPSILON = 1e9  # at which delta is bounded for larger ones. chosen


def serves(terms: Terms) -> bool:
    """True of sampled Gaussians, traced ones in few phases, beside Gaussians not sampled."""
    sampled = [term for term in terms if is_sampled_gaussian(term)]
    others = [term for term in terms if not is_sampled_gaussian(term)]
    phases = sum(term.count.shape[-1] for term in sampled)
    most = np.inf if checks.all_concrete(terms) else MOST_PHASES
    return 0 < phases <= most and all(map(is_gaussian, others))


def log_bounds(terms: Terms, epsilon: Lanes, ways: int, enough: Enough | None = None) -> LogBounds:
    """Bounds on log delta at epsilons >= 0; lanes in the order of their `ways`, or directions.

    `enough`: true of bounds of the worse direction that need not be any nearer.
    """
    releases, log_hit = releases_of(terms)
    at = xp.minimum(epsilon, LARGEST_EPSILON)
    found = _bounds("log delta", ways, Batch(releases, at), enough)
    bad = xp.isnan(_sum_of(releases) + epsilon)
    upper = xp.where(bad, xp.nan, xp.minimum(found.upper, log_hit))
    lower = xp.where(epsilon <= LARGEST_EPSILON, found.lower, -xp.inf)
    return LogBounds(xp.minimum(lower, upper), upper)


def epsilon_bounds(terms: Terms, delta: Lanes, ways: int) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta: safe above."""
    releases, log_hit = releases_of(terms)
    inside = (delta > 0) & (delta < 1)
    safe = xp.where(inside, delta, 0.5)
    found = _bounds("epsilon", ways, Batch(releases, safe))
    bad = xp.isnan(_sum_of(releases) + delta)
    met = inside & (xp.log(safe) >= log_hit)
    lower, upper = (xp.where(met, 0.0, x) for x in (found.lower, found.upper))
    lower, upper = xp.where(inside, lower, 0.0), xp.where(inside, upper, xp.inf)
    upper = xp.where(bad, xp.nan, upper)
    return LogBounds(xp.minimum(lower, upper), upper)


def _bounds(question: Question, ways: int, lanes: Batch, enough: Enough | None = None) -> LogBounds:
    if not checks.all_concrete(lanes):
        return in_traces(partial(_answered, question, ways), ways, lanes)
    found = ladder.answered(question, lanes, ways, False, enough)
    return LogBounds(xp.asarray(found.lower), xp.asarray(found.upper))


def _answered(
    question: Question, ways: int, lanes: Batch, with_slopes: bool
) -> tuple[LogBounds, Batch | None]:
    found = ladder.answered(question, lanes, ways, with_slopes)
    slopes = found.slopes
    if question == "epsilon":  # It does not fall below 0.
        above = found.upper > 0
        slopes = jax.tree.map(
            lambda x: xp.where(above.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), slopes
        )
    return LogBounds(found.lower, found.upper), slopes


def _sum_of(releases: Releases) -> Reals:
    """Sum of a lane's parameters: NaN where one is bad."""
    releases = releases._replace(sign=xp.zeros_like(releases.sign))
    parts = (xp.sum(x, tuple(range(1, x.ndim))) for x in releases)
    return sum(parts, start=xp.zeros(()))
