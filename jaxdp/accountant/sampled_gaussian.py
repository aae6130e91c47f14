"""Bounds on delta and epsilon of equal releases of a Poisson-sampled Gaussian (DP-SGD).

Chosen where every release is the same Gaussian with noise multiplier sigma and sampling
probability q, a record added or removed. A lane is inverted along one contour; those that this
does not serve, as few releases hit the record, have their law cut in two and are inverted along two
finer contours, the last of them along longer ones at several cuts, of which the best is kept. The
errors are the contours' own (`sampled_gaussian_line`); where they say little, the Chernoff bound
does, which is as safe. Derivatives hold tilts, steps and cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.sampled_gaussian_law import FULL, LIGHT, LONG, Nodes
from jaxdp.accountant.sampled_gaussian_line import Line, line
from jaxdp.accountant.sampled_gaussian_plan import GROUP_WIDTH, Plan, plan

CHUNK = 16  # lanes at once. chosen: their terms fit the second-level cache
SLACK = 5e-9  # of delta, kept by epsilon. measured: two contours' bounds differ by 2e-9
MOVES = (0.0, -1.0, 1.0)  # of the cut, in groups of nodes. measured: others serve 5 lanes in 4,000
LEAST = 1e-300  # of an upper bound in its unit. derived: still a normal number
ROUNDS = 7  # Newton's. chosen: from a tenth off to the last digit

Bracket: TypeAlias = tuple[Reals, Reals]
Kind: TypeAlias = Literal["plain", "cut", "cuts"]


class Releases(NamedTuple):
    """Equal releases, arrays (lanes,)."""

    sigma: Reals
    sampling_prob: Reals
    sign: Reals  # 1: the record is removed, -1: added
    number: Reals


def log_bounds(releases: Releases, epsilon: Reals, kind: Kind) -> LogBounds:
    """Bounds on log delta at epsilons >= 0 (lanes,), by one contour or with the law cut."""
    return _in_chunks(_log_delta_lane, releases, epsilon, kind, (-jnp.inf, 0.0))


def epsilon_bounds(releases: Releases, delta: Reals, kind: Kind) -> LogBounds:
    """Bounds on the least epsilon >= 0 at each delta (lanes,): safe above, inf if unknown."""
    return _in_chunks(_epsilon_lane, releases, jnp.log(delta), kind, (0.0, jnp.inf))


def _in_chunks(
    lane: Callable[..., Bracket],
    releases: Releases,
    values: Reals,
    kind: Kind,
    unknown: tuple[float, float],
) -> LogBounds:
    """`lane` of every lane, some at a time; `unknown` where all or none are sampled."""
    size = values.size
    chunk = min(CHUNK, size)
    inside = (releases.sampling_prob > 0) & (releases.sampling_prob < 1) & (releases.number > 0)
    inside |= jnp.isnan(releases.sampling_prob + releases.number)
    releases = Releases(*(jnp.where(inside, x, 0.5) for x in releases))
    moves = jnp.asarray(MOVES if kind == "cuts" else (0.0,))

    def padded(x: Reals) -> Reals:
        return jnp.pad(x, (0, -size % chunk), mode="edge").reshape(-1, chunk)

    def each(lanes: tuple[Reals, ...]) -> Bracket:
        def at(move: Reals) -> Bracket:
            return jax.vmap(lambda sigma, q, sign, n, y: lane(kind, sigma, q, n, y, sign, move))(
                *lanes
            )

        lower, upper = lax.map(at, moves)
        return jnp.max(lower, axis=0), jnp.min(upper, axis=0)

    found = lax.map(each, tuple(padded(x) for x in (*releases, values)))
    found = (x.ravel()[:size] for x in found)
    return LogBounds(*(jnp.where(inside, x, y) for x, y in zip(found, unknown, strict=True)))


def _moved(planned: Plan, move: Reals) -> Plan:
    """The plan with another cut, if it has one."""
    cut = jnp.where(planned.cut < planned.top, planned.cut + GROUP_WIDTH * move, planned.top)
    return lax.stop_gradient(planned._replace(cut=jnp.minimum(cut, planned.top)))


def _lines(kind: Kind, planned: Plan, sigma, q, sign, n, epsilon, size) -> list[Line]:
    args = (sigma, q, sign, n, planned.top)
    if kind == "plain":
        return [line(LIGHT, "plain", *args, planned.top, planned.tilt, epsilon, size)]
    nodes: Nodes = FULL if kind == "cut" else LONG
    return [
        line(nodes, "small", *args, planned.cut, planned.tilt, epsilon, size),
        line(nodes, "large", *args, planned.cut, planned.tilt, epsilon, size),
    ]


def _log_delta_lane(kind: Kind, sigma, q, n, epsilon, sign, move) -> Bracket:
    planned = _moved(plan(kind, sigma, q, sign, n, epsilon, None), move)
    size = planned.size
    lines = _lines(kind, planned, sigma, q, sign, n, epsilon, size)
    lower, upper = 0.0, 0.0
    for x in lines:
        value, _ = x.value(epsilon, size)
        short, excess, bound = lax.stop_gradient(x.errors(epsilon, size))
        serves = value + excess < bound
        lower += jnp.where(serves, jnp.maximum(value - short, 0.0), 0.0)
        upper += jnp.where(serves, value + excess, bound)
    # What underflows is not 0.
    upper = jnp.maximum(upper, LEAST)
    return size + jnp.log(lower), jnp.minimum(size + jnp.log(upper), 0.0)


def _epsilon_lane(kind: Kind, sigma, q, n, log_delta, sign, move) -> Bracket:
    planned = _moved(plan(kind, sigma, q, sign, n, None, log_delta), move)
    start = planned.epsilon
    lines = _lines(kind, planned, sigma, q, sign, n, start, lax.stop_gradient(log_delta))
    errors = [x.errors(start, planned.size) for x in lines]
    serve = [
        x.value(start, planned.size)[0] + e[1] < e[2] for x, e in zip(lines, errors, strict=True)
    ]

    def summed(at, lines=lines):
        found = [x.value(at, log_delta) for x in lines]
        value = sum(jnp.where(s, x[0], 0.0) for s, x in zip(serve, found, strict=True))
        return value, sum(jnp.where(s, x[1], 0.0) for s, x in zip(serve, found, strict=True))

    def safe(at):
        """Errors below and above at `at`, a bound where a line does not serve."""
        found = [x.errors(at, log_delta) for x in lines]
        short = sum(jnp.where(s, e[0], 0.0) for s, e in zip(serve, found, strict=True))
        return short, sum(jnp.where(s, e[1], e[2]) for s, e in zip(serve, found, strict=True))

    unit = 1.0 / lines[0].theta

    def newton(_, at):
        value, slope = summed(at)
        step = value * jnp.log(jnp.where(value > 0, value, 1.0)) / -slope
        most = 0.5 * jnp.maximum(at, 2.0 * unit)
        step = jnp.where((value > 0) & (slope < 0), jnp.clip(step, -most, most), -most)
        return jnp.maximum(at + step, -unit)

    held = lax.stop_gradient
    at = held(lax.fori_loop(0, ROUNDS, newton, start))
    value, slope = summed(at)
    moved = (value - held(value)) / -held(slope)
    value, slope, (short, excess) = held((value, slope, safe(at)))
    ends = []
    for error, side in ((-short, -1.0), (excess + SLACK, 1.0)):
        step = (value + error - 1.0) / -slope
        step += side * (1e-3 * jnp.abs(step) + 4.0 * ULP * jnp.abs(at))
        ends.append(held(jnp.maximum(at + step, 0.0)))
    lower, upper = ends
    is_lower = held(summed(lower)[0] - safe(lower)[0] >= 1.0)
    is_upper = held(summed(upper)[0] + safe(upper)[1] <= 1.0)
    lower = jnp.where(is_lower & (lower > 0), lower + moved, 0.0)
    upper = jnp.where(upper > 0, upper + moved, upper)
    return lower, jnp.where(is_upper, upper, jnp.inf)
