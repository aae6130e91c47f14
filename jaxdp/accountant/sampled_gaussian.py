"""Bounds on delta and epsilon of equal releases of a Poisson-sampled Gaussian (DP-SGD).

Chosen where every release is the same Gaussian with noise multiplier sigma and sampling
probability q, in the add-or-remove relation. Every lane is inverted along one contour; those that
this does not serve, as few releases hit the record, have their law cut in two and are inverted
along two finer contours. The errors are the contours' own (`sampled_gaussian_line`); where they
say little, the Chernoff bound does, which is as safe. Derivatives hold tilts, steps and cuts.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP
from jaxdp._types import Bools, Reals
from jaxdp.accountant.sampled_gaussian_law import FULL, LIGHT
from jaxdp.accountant.sampled_gaussian_line import Line, line
from jaxdp.accountant.sampled_gaussian_plan import plan
from jaxdp.loss.exchange import LogBounds

CHUNK = 16  # lanes at once. chosen: their terms fit the second-level cache
ROUNDS = 7  # Newton's. chosen: from a tenth off to the last digit
WIDE = 3e-7  # of log delta, or of epsilon: what a bracket may be wide before a lane is cut

Bracket = tuple[Reals, Reals]


def log_delta(sigma: Reals, q: Reals, count: Reals, epsilon: Reals) -> LogBounds:
    """Bounds on log delta at epsilon >= 0; the leading axis holds "remove" and "add".

    Args are of one shape, 0 < q < 1. A bracket is wide where the engine does not serve.
    """

    def is_wide(lower: Reals, upper: Reals) -> Bools:
        return ~(upper - lower < WIDE)

    return LogBounds(*_in_chunks(_log_delta_lane, is_wide, sigma, q, count, epsilon))


def epsilon(sigma: Reals, q: Reals, count: Reals, log_delta: Reals) -> Bracket:
    """Bounds on the least epsilon >= 0 at each log delta; the leading axis as in `log_delta`.

    The upper one is safe, and infinite where the engine does not serve.
    """

    def is_wide(lower: Reals, upper: Reals) -> Bools:
        return ~((upper - lower <= WIDE * upper) & jnp.isfinite(upper))

    return _in_chunks(_epsilon_lane, is_wide, sigma, q, count, log_delta)


def _in_chunks(lane: Callable, is_wide: Callable, *args: Reals) -> Bracket:
    """Every lane and direction along one contour, then those along two whose bracket is wide."""
    shape = jnp.shape(args[0])
    sign = jnp.repeat(jnp.array([1.0, -1.0]), args[0].size)
    lanes = (*(jnp.tile(x.ravel(), 2) for x in args), sign)
    size = sign.size
    chunk = min(CHUNK, size)

    def padded(x: Reals) -> Reals:
        return jnp.pad(x, (0, -size % chunk), mode="edge").reshape(-1, chunk)

    def plain(x):
        return jax.vmap(lambda *y: lane("plain", *y))(*x)

    def finer(x):
        lanes, (lower, upper), wide = x
        cut = jax.vmap(lambda *y: lane("cut", *y))(*lanes)
        is_lower, is_upper = wide & (cut[0] > lower), wide & (cut[1] < upper)
        return jnp.where(is_lower, cut[0], lower), jnp.where(is_upper, cut[1], upper)

    lanes = tuple(padded(x) for x in lanes)
    found = lax.map(plain, lanes)
    wide = is_wide(*lax.stop_gradient(found))
    order = jnp.argsort(~wide.ravel())
    sort = lambda x: x.ravel()[order].reshape(x.shape)  # noqa: E731
    chunks = jax.tree.map(sort, (lanes, found, wide))
    found = lax.map(lambda x: lax.cond(jnp.any(x[2]), finer, lambda y: y[1], x), chunks)
    back = jnp.argsort(order)
    lower, upper = (x.ravel()[back][:size].reshape(2, *shape) for x in found)
    return lower, upper


def _lines(kind: str, planned, sigma, q, sign, n, epsilon, size) -> list[Line]:
    args = (sigma, q, sign, n, planned.top)
    if kind == "plain":
        return [line(LIGHT, "plain", *args, planned.top, planned.tilt, epsilon, size)]
    return [
        line(FULL, "small", *args, planned.cut, planned.tilt, epsilon, size),
        line(FULL, "large", *args, planned.cut, planned.tilt, epsilon, size),
    ]


def _log_delta_lane(kind, sigma, q, n, epsilon, sign) -> Bracket:
    planned = lax.stop_gradient(plan(kind, sigma, q, sign, n, epsilon, None))
    size = planned.size
    lines = _lines(kind, planned, sigma, q, sign, n, epsilon, size)
    lower, upper = 0.0, 0.0
    for x in lines:
        value, _ = x.value(epsilon, size)
        short, excess, bound = lax.stop_gradient(x.errors(epsilon, size))
        serves = value + excess < bound
        lower += jnp.where(serves, jnp.maximum(value - short, 0.0), 0.0)
        upper += jnp.where(serves, value + excess, bound)
    return size + jnp.log(lower), jnp.minimum(size + jnp.log(upper), 0.0)


def _epsilon_lane(kind, sigma, q, n, log_delta, sign) -> Bracket:
    planned = lax.stop_gradient(plan(kind, sigma, q, sign, n, None, log_delta))
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
    for error, side in ((-short, -1.0), (excess, 1.0)):
        step = (value + error - 1.0) / -slope
        step += side * (1e-3 * jnp.abs(step) + 4.0 * ULP * jnp.abs(at))
        ends.append(held(jnp.maximum(at + step, 0.0)))
    lower, upper = ends
    is_lower = held(summed(lower)[0] - safe(lower)[0] >= 1.0)
    is_upper = held(summed(upper)[0] + safe(upper)[1] <= 1.0)
    lower = jnp.where(is_lower & (lower > 0), lower + moved, 0.0)
    upper = jnp.where(upper > 0, upper + moved, upper)
    return lower, jnp.where(is_upper, upper, jnp.inf)
