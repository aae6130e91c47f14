"""What a composition reports: concrete batches in few shapes, by the engine that is fast enough.

`both` is static: whether the worse of two directions is reported. Traced values take the same steps
in one compilation.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp import _check
from jaxdp._compile import compiled, outside_traces
from jaxdp._numeric.bracket import excess, last_feasible_quick
from jaxdp._numeric.elementary import ULP
from jaxdp._numeric.secants import secants
from jaxdp._types import Bools, Reals
from jaxdp.loss import directions, jump_parts
from jaxdp.loss.base import Terms
from jaxdp.loss.bracket import POINTS
from jaxdp.loss.exchange import LogBounds
from jaxdp.loss.inverse import LONG, SHORT
from jaxdp.loss.shapes import few_sizes, in_few_shapes
from jaxdp.noise.base import may_be_zero

# Two compilations of the sum differ by less than this in log delta, relatively.
_SLACK = 1e-12
# Of log delta where few are hit, in two batches: the windows of `loss.jumps` hang on roundings.
_JUMPS = 5e-7
# Of a search: of log(epsilon + the most), and its evaluations.
_CLOSE, _STEPS = 1e-12, 100
# Of log delta: what is looked at on a grid as well where it may be wrong by more.
_SHARP = 1e-9
# Of log delta: what one line serves.
_SPAN = 14.0


def log_delta(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """An upper bound at every real epsilon."""
    return in_few_shapes(_log_delta, (both,), terms, epsilon).upper


def log_delta_error(terms: Terms, epsilon: Reals, both: bool) -> Reals:
    """By how much `log_delta` may be above the truth: what it sums says, or else the grid."""
    found = in_few_shapes(_log_delta, (both,), terms, epsilon)
    wide = found.upper - found.lower > _SHARP
    if not _check.all_concrete(terms, epsilon):
        at = terms, epsilon, both, POINTS
        grid = lax.cond(jnp.any(wide), lambda: log_bounds(*at).lower, lambda: found.lower)
        lower = jnp.maximum(found.lower, grid)
    elif np.any(wide):
        lower = _each(_above_grid, terms, epsilon, both, found.lower, ~wide)[0]
    else:
        lower = found.lower
    error = (found.upper - lower) * (1.0 + 4.0 * ULP)
    return jnp.where(found.upper == -jnp.inf, 0.0, error)


def _above_grid(terms: Terms, epsilon: Reals, both: bool, lower: Reals) -> tuple[Reals, Bools]:
    grid = log_bounds(terms, epsilon, both, POINTS).lower
    return jnp.maximum(lower, grid), lower == lower


def _below_grid(terms: Terms, epsilon: Reals, both: bool, upper: Reals) -> tuple[Reals, Bools]:
    grid = log_bounds(terms, epsilon, both, POINTS).upper
    return jnp.where(grid < upper, grid, upper), upper == upper


def _log_delta(terms: Terms, epsilon: Reals, both: bool) -> LogBounds:
    """Concrete: what few compositions need is compiled only where one does."""
    if _check.all_concrete(terms, epsilon) and any(term.noise.gridded for term in terms):
        found = _log_delta_on_lines(terms, epsilon, both, True)
        wide = directions.is_wide(found)
        if not np.any(wide):
            return found
        upper = _each(_below_grid, terms, epsilon, both, found.upper, ~wide)[0]
        return LogBounds(found.lower, upper)
    if not (_check.all_concrete(terms, epsilon) and jump_parts.applies(terms)):
        return _log_delta_at_once(terms, epsilon, both)
    line = _on_one_line(terms, epsilon, both, True)
    found, wide = line.bounds, line.wide & line.slow
    if np.any(line.slow):
        found, settled = _tightened(terms, epsilon, both, line)
        wide &= ~settled
    if np.any(wide):
        # At an infinite epsilon nothing is summed.
        at = jnp.where(jnp.any(wide, axis=0) if both else wide, epsilon, jnp.inf)
        again = _on_one_line(terms, at, both, False).bounds
        lower = jnp.where(wide & (again.lower > found.lower), again.lower, found.lower)
        upper = jnp.where(wide & (again.upper < found.upper), again.upper, found.upper)
        found = LogBounds(lower, upper)
    return directions.worse(found, both)


_log_delta_at_once = compiled(directions.log_delta, 2)
_log_delta_on_lines = compiled(directions.log_delta, (2, 3))
_on_one_line = compiled(directions.log_delta_on_one_line, (2, 3))
_tightened = compiled(directions.tightened, 2)
log_bounds = compiled(directions.log_bounds, (2, 3))
_renyi = compiled(directions.renyi, (2, 3))
_largest_loss = compiled(directions.largest_loss, 1)
_guess_epsilon = compiled(directions.guess_epsilon, (2, 3))
_quick_epsilon = compiled(directions.quick_epsilon, (3, 4, 5))
_rough_log_delta = compiled(directions.rough_log_delta, 2)
_quick_log_delta = compiled(directions.quick_log_delta, 3)


def renyi(terms: Terms, order: Reals, both: bool) -> Reals:
    """See `directions.renyi`."""
    kept = int(_many_of_one(terms, order))
    return in_few_shapes(_renyi, (both, may_be_zero(order - 1.0)), terms, order, kept=kept)


def rough_log_delta(terms: Terms, epsilon: Reals, both: bool) -> tuple[Reals, Reals]:
    """See `directions.rough_log_delta`."""
    return in_few_shapes(_rough_log_delta, (both,), terms, epsilon)


def quick_log_delta(
    terms: Terms, epsilon: Reals, tilts: Reals, both: bool
) -> tuple[Reals, Bools, Reals]:
    """See `directions.quick_log_delta`."""
    return in_few_shapes(_quick_log_delta, (both,), terms, epsilon, tilts)


def epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    """The least epsilon >= 0 that meets delta, from the safe side."""
    if not _check.all_concrete(terms, delta):
        return _epsilon(terms, delta, both)
    with outside_traces():
        return _epsilon_of_known(terms, delta, both)


def _epsilon_of_known(terms: Terms, delta: Reals, both: bool) -> Reals:
    never = np.asarray(delta) == 0
    if not never.any():
        return _epsilon_of_positive(terms, delta, both)
    # No line tells that nothing is left.
    largest = _largest_loss(terms, both) + jnp.zeros_like(delta)
    if never.all():
        return largest
    found = _epsilon_of_positive(terms, jnp.where(never, 1.0, delta), both)
    return jnp.where(never, largest, found)


def _epsilon_of_positive(terms: Terms, delta: Reals, both: bool) -> Reals:
    shared = _share_lines(terms, delta)
    static = both, shared
    found, settled = in_few_shapes(_by_short_line, static, terms, delta, kept=int(shared))
    # Where |phi| comes back up more points settle nothing.
    longer = not any(term.noise.recurs for term in terms)
    for slower in (_by_long_line, _by_search) if longer else (_by_search,):
        if not bool(jnp.all(settled)):
            found, settled = _each(slower, terms, delta, both, found, settled)
    return found


def _share_lines(terms: Terms, delta: Reals) -> bool:
    """Whether there are many deltas to each loss, along the last axis, and near each other."""
    known = np.asarray(delta)
    return _many_of_one(terms, delta) and bool(
        np.all(np.ptp(np.log(np.maximum(known, 1e-300)), axis=-1) < _SPAN)
    )


def _many_of_one(terms: Terms, values: Reals) -> bool:
    """Whether there are many values to each loss, along the last axis."""
    batch = jnp.broadcast_shapes(*(term.shape for term in terms))
    return values.ndim > 0 and values.shape[-1] > 1 and (not batch or batch[-1] == 1)


def _each(
    inverse: Callable[[Terms, Reals, bool, Reals], tuple[Reals, Bools]],
    terms: Terms,
    delta: Reals,
    both: bool,
    found: Reals,
    settled: Bools,
) -> tuple[Reals, Bools]:
    """`inverse` where it is not settled, every delta with a loss of its own."""
    missing = np.flatnonzero(~np.asarray(settled))
    index = np.resize(missing, few_sizes(missing.size))
    lanes = tuple(
        jax.tree.map(lambda x: x.reshape(-1, x.shape[-1])[index], term.broadcast(found.shape))
        for term in terms
    )
    deltas = jnp.broadcast_to(delta, found.shape).ravel()[index]
    values, sure = inverse(lanes, deltas, both, found.ravel()[index])
    found = found.ravel().at[index].set(values).reshape(found.shape)
    return found, settled.ravel().at[index].set(sure).reshape(found.shape)


def _by_short_line(terms: Terms, delta: Reals, both: bool, shared: bool) -> tuple[Reals, Bools]:
    near = _guess_epsilon(terms, delta, both, shared)
    return _quick_epsilon(terms, delta, near, both, shared, SHORT)


def _by_long_line(terms: Terms, delta: Reals, both: bool, _: Reals) -> tuple[Reals, Bools]:
    near = _guess_epsilon(terms, delta, both, False)
    return _quick_epsilon(terms, delta, near, both, False, LONG)


def _by_search(terms: Terms, delta: Reals, both: bool, near: Reals) -> tuple[Reals, Bools]:
    """A dozen calls of what is compiled for `log_delta`: a loop of them would be compiled anew."""
    safe, most, slack = _bracket(terms, delta, both)

    def residual(shifted: Reals, done: Bools, known: None) -> tuple[Reals, Bools, None]:
        # At an infinite epsilon nothing is summed.
        at = jnp.where(done, jnp.inf, shifted - most)
        value = excess(log_delta(terms, at, both), delta)
        return value, value == value, known

    near = jnp.where((near > 0) & (near < most), near, 0.4 * most)
    guess = most + near, jnp.log(jnp.clip(delta, 1e-300, 0.5)) * (most + near) / near
    found = secants(residual, 2.0 * most, most, slack, guess, _CLOSE, _STEPS, compiled=False)[0]
    return jnp.where(jnp.isnan(found), safe, found - most), delta == delta


@functools.partial(jax.jit, static_argnums=2)
def _bracket(terms: Terms, delta: Reals, both: bool) -> tuple[Reals, Reals, Reals]:
    """An epsilon that meets delta, or inf; a finite one; and the slack that a search keeps.

    Measured from minus that: smooth down to epsilon = 0, where log epsilon is not.
    """
    safe = directions.largest_epsilon(terms, delta, both)
    most = jnp.where(jnp.isinf(safe), 1.0, safe)
    size = 1.0 + jnp.abs(jnp.log(jnp.where(delta == 0, 1.0, delta)))
    return safe, most, _SLACK * size + search_slack(terms)


def search_slack(terms: Terms) -> float:
    """Of log delta: what a search keeps for the bounds that few hits have in another batch."""
    return _JUMPS if jump_parts.applies(terms) else 0.0


@functools.partial(jax.jit, static_argnums=2)
def _epsilon(terms: Terms, delta: Reals, both: bool) -> Reals:
    _, most, slack = _bracket(terms, delta, both)
    delta = jnp.broadcast_to(delta, most.shape)

    def residual(shifted: Reals) -> Reals:
        return excess(directions.log_delta(terms, shifted - most, both).upper, delta)

    def settled() -> tuple[Reals, Bools]:
        near = directions.guess_epsilon(terms, delta, both, False)
        found, sure = directions.quick_epsilon(terms, delta, near, both)
        return found + most, sure

    return last_feasible_quick(residual, 2.0 * most, most, slack, known=settled) - most
