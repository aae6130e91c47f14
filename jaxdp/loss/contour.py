"""delta from the cumulant, by a sum along a vertical line: full relative accuracy at any size.

The transform of (1 - e^-x)_+ is 1 / (z (z + 1)), so with F(z) = exp(K(z) - z epsilon) / (z (z + 1))

    delta(epsilon) = 1 / (2 pi i) int F(z) dz along Re z = theta > 0,

and 1 - delta is minus the same integral along -1 < theta < 0. With theta at the saddle of |F|
nothing cancels, and the factor F(theta) stays a logarithm: delta = 1e-1000 costs what 1e-3 costs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, log1m, log1mexp
from jaxdp._types import Bools, Index, Reals
from jaxdp.loss.atoms import Atoms, atoms_of, explicit_part, log_unresolved, remainder
from jaxdp.loss.base import (
    MORE_LANES,
    Term,
    Terms,
    add_up,
    by_lanes,
    cumulant,
    largest_finite,
    largest_loss,
    on_line,
    rise,
)
from jaxdp.loss.decay import ROUGH, Decay, decay_of
from jaxdp.loss.few import few_of
from jaxdp.loss.jump_parts import applies, parameters_of
from jaxdp.loss.jumps import tightened
from jaxdp.loss.lattice import Lattice, lattice_of, on_lattice
from jaxdp.loss.line import Line, line_of
from jaxdp.noise.base import Points

Limits = tuple[float, int]
# What a user's call asks for: the relative error, and the most points spent on it.
FINAL = (5e-11, 2**16)
# Where the cumulant is a sum over nodes: so many points, or terms if that leaves more points.
# From 128 nodes on their number does not matter, as it depends on what is traced.
_MOST_DEAR, _MOST_TERMS = 2**14, 2**21
_BLOCK = 64
# Points on one line where `tightened` can go on.
_ENOUGH = 2048
# Of the error that is asked for: what is worth going on.
_WIDE = 10.0
_SLOPE_NODES = 512


class Block(NamedTuple):
    """Some points in a row, in units of |F(theta)|."""

    value: Reals  # sum of Re F
    absolute: Reals  # sum of |F|
    moved: Reals  # sum of t |F|
    height: Reals  # largest |z (z + 1) F|
    reached: Reals  # points before the cumulant is not resolved any more
    falling: Reals  # log of a bound on the part of |phi| that does not recur, from the last one on


class OneLine(NamedTuple):
    """What one line says: all of shape (*batch,)."""

    log_delta: Reals  # an upper bound
    slow: Bools  # where the line was broken off, as `tightened` can go on
    wide: Bools  # where the bound is not as near as was asked for


class Sum(NamedTuple):
    """What has been summed so far, in units of |F(theta)|."""

    start: Index
    value: Reals
    absolute: Reals
    moved: Reals
    envelope: Reals  # largest |z (z + 1) F| in the window that is open
    opened: Reals  # where it was opened
    tail: Reals  # what lies beyond, if no later window is higher than the last that was closed
    points: Reals
    done: Bools


def in_lanes(terms: Terms, epsilon: Reals, limits: Limits = FINAL) -> Reals:
    """`log_delta` in any batch of one shape, worked off in chunks of lanes."""
    line = on_one_line(terms, epsilon, limits)
    return tightened(terms, epsilon, line.log_delta, line.slow, limits[0])[0]


def on_one_line(
    terms: Terms, epsilon: Reals, limits: Limits = FINAL, hurried: bool = True
) -> OneLine:
    """The same by one line alone; `hurried`: broken off where `tightened` can go on."""
    limits = (limits[0], most_points(terms, limits[1]))
    # delta(-e) = 1 - e^-e + e^-e delta'(e), delta' with the two inputs exchanged.
    terms, size = tuple(term.reversed(epsilon < 0) for term in terms), jnp.abs(epsilon)
    line = _forward(terms, size, (epsilon > 0) & hurried, limits)
    upper = line.log_delta
    mixture = -jnp.expm1(-size) + jnp.exp(-size + upper)
    near_one = mixture > 0.5
    large = log1m(jnp.where(near_one, -jnp.expm1(upper) * jnp.exp(-size), 0.0))
    mirrored = jnp.where(near_one, large, jnp.log(jnp.where(near_one, 1.0, mixture)))
    mirrored = jnp.minimum(mirrored + 8.0 * ULP * jnp.abs(mirrored), 0.0)
    return line._replace(log_delta=jnp.where(epsilon < 0, mirrored, upper))


def most_points(terms: Terms, most: int = FINAL[1]) -> int:
    """Of `most`, those that are spent on a lane at last."""
    nodes = max(term.noise.summed for term in terms)
    return min(most, max(_MOST_DEAR, _MOST_TERMS // max(nodes, 1)))


def _forward(terms: Terms, epsilon: Reals, may_stop: Bools, limits: Limits) -> OneLine:
    """log of an upper bound on delta: epsilon (*batch,) >= 0, terms (*batch, n).

    Relative error of delta about limits[0] where limits[1] points reach it; else the bound is
    wider: it contains the aliased terms, the rest of the line (from the largest |phi| of the last
    block and of the probes in `decay`, or |phi| <= 1 where the cumulant is not resolved any
    further), the Gaussian of `decay` where the points do not suffice, and the rounding of the
    cumulant.
    """

    def line_for(terms: Terms, epsilon: Reals) -> Line:
        return line_of(terms, epsilon, limits[0])

    fixed, at = lax.stop_gradient((terms, epsilon))
    lattice = lattice_of(fixed, at)
    lines = by_lanes(line_for, fixed, at if lattice is None else lattice.middle(at), MORE_LANES)
    if lattice is not None:
        lines, lattice = on_lattice(lines, lattice, at, *limits)

    def on(terms: Terms, at: tuple[Reals, Line, Lattice | None, Bools]) -> OneLine:
        return _forward_on(terms, *at, limits)

    return by_lanes(on, terms, (epsilon, lines, lattice, may_stop))


def _forward_on(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    may_stop: Bools,
    limits: Limits,
) -> OneLine:
    fixed, at = lax.stop_gradient((terms, epsilon))
    atoms = atoms_of(terms, lattice)
    split = jnp.zeros(epsilon.shape, dtype=bool) if atoms is None else atoms.split
    decay = decay_of(fixed, line, *limits, split, lattice)
    if lattice is not None:
        lattice = lattice.moving(terms, epsilon)
    line = line.softened(decay.mu, at)
    alone = len(terms) == 1 and terms[0].shift.shape[-1] == 1
    noise, shift, count = (jax.tree.map(lambda x: x[..., 0], x) for x in terms[0].parts())
    single = count == (1 if alone else jnp.nan)
    few = few_of(fixed, at, limits[0])
    skipped = few.settled | single | (epsilon >= largest_loss(terms))
    stopped = jnp.zeros_like(skipped)
    if applies(fixed):
        stopped = parameters_of(fixed).usable(at) & may_stop & ~skipped
    soft = decay.softened(terms)
    found = _log_delta_on(soft, epsilon, line, lattice, decay, atoms, limits, skipped, stopped)
    upper = few.tightened(found.log_delta)
    # 1 - delta counts finite losses only; else what is infinite comes on top.
    beyond = epsilon >= largest_finite(terms)
    upper = jnp.where(beyond, -jnp.inf, upper)
    whole = _with_infinite(terms, upper)
    upper = jnp.minimum(jnp.where(line.complement & ~beyond, upper, whole), 0.0)
    if alone:
        upper = jnp.where(single, noise.log_delta(shift, epsilon), upper)
    upper = jnp.where(epsilon >= largest_loss(terms), -jnp.inf, upper)
    return found._replace(log_delta=upper, wide=found.wide & ~skipped)


def _with_infinite(terms: Terms, log_delta: Reals) -> Reals:
    """log(delta + the probability of an infinite loss), rounded up."""
    finite = add_up(terms, Term.log_finite)
    some = finite < 0
    infinite = log1mexp(jnp.where(some, -finite, 1.0)) + 32.0 * ULP
    return jnp.where(some, jnp.logaddexp(log_delta, infinite), log_delta)


def _block(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    atoms: Atoms | None,
    known: tuple[Any, ...],
    start: Index | int,
    nodes: int,
    limit: Reals,
    far: bool,
) -> Block:
    """At points start, ... below `limit`, up to the first whose cumulant is not resolved (NaN)."""
    indices = start + jnp.arange(nodes)
    points = Points(line.theta, line.step, limit, indices, far)
    height = points.heights()
    z = line.theta[..., None] + 1j * height
    turn, falling = rise(terms, points, known)
    phi, size = remainder(turn, atoms, points, line.log_total(epsilon))
    used = indices[(None,) * epsilon.ndim] < limit[..., None]
    phi, size = jnp.where(used, phi, 0.0), jnp.where(used, size, 0.0)
    alive = jnp.cumsum(jnp.isnan(phi), axis=-1) == 0
    reached = jnp.sum(alive, axis=-1, dtype=jnp.float64)
    phi = jnp.where(alive, phi * jnp.exp(-1j * height * epsilon[..., None]), 0.0)
    size = jnp.where(alive, size, 0.0)
    kernel = 1.0 / (z * (z + 1.0)) if lattice is None else lattice.kernel(line.theta, height)
    kernel *= (line.theta * (1.0 + line.theta))[..., None]
    share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * epsilon.ndim] * used
    weight = line.step[..., None] / jnp.pi * share
    envelope = jnp.max(jnp.abs(phi), axis=-1)
    value = jnp.sum(weight * jnp.real(phi * kernel), axis=-1)
    sizes = weight * size * jnp.abs(kernel)
    return Block(
        jnp.where(reached > 0, value, jnp.nan),
        jnp.sum(sizes, axis=-1),
        jnp.sum(sizes * height, axis=-1),
        envelope * jnp.abs(line.theta * (1.0 + line.theta)),
        reached,
        falling,
    )


def _sum(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    decay: Decay,
    atoms: Atoms | None,
    limits: Limits,
    skipped: Bools,
    stopped: Bools,
) -> Sum:
    known = on_line(terms, line.theta, line.step)
    zero, far = jnp.zeros_like(epsilon), limits[0] < ROUGH
    # Split atoms leave what recurs where both are in phase: only a window as long shows it.
    window = zero
    last = zero + jnp.inf if lattice is None else lattice.points(line.step)
    if atoms is not None:
        window = 2.0 * jnp.pi / jnp.where(atoms.split, atoms.apart, jnp.inf)

    def unfinished(state: Sum) -> Bools:
        return (state.start < limits[1]) & ~jnp.all(state.done)

    def advance(state: Sum) -> Sum:
        at = terms, epsilon, line, lattice, atoms, known
        block = _block(*at, state.start, _BLOCK, last, far)
        broken = block.reached < _BLOCK
        keep = state.done | ((block.reached == 0) & (state.start > 0))
        end = line.step * (state.start + block.reached)
        everything = jnp.abs(line.theta * (1.0 + line.theta))
        log_beyond = block.falling + decay.log_beyond(state.start + block.reached)
        probed = everything * jnp.exp(log_beyond)
        # A block that breaks off is too short to tell how high what follows may be.
        unresolved = everything * jnp.exp(log_unresolved(terms, atoms, line.theta, end))
        height = jnp.where(broken, unresolved, jnp.maximum(block.height, probed))
        envelope = jnp.where(broken, height, jnp.maximum(state.envelope, height))
        late = state.start + _BLOCK >= _ENOUGH
        full = broken | (end - state.opened >= window)
        tail = jnp.where(full, envelope / (jnp.pi * end), state.tail)
        tail = jnp.where((state.start + _BLOCK >= last) & ~broken, 0.0, tail)
        total = jnp.where(keep, state.value, state.value + block.value)
        now = Sum(
            state.start + _BLOCK,
            total,
            state.absolute + block.absolute,
            state.moved + block.moved,
            jnp.where(full, 0.0, envelope),
            jnp.where(full, end, state.opened),
            tail,
            state.points + block.reached,
            broken | (tail <= limits[0] * jnp.abs(total)) | jnp.isnan(total) | (stopped & late),
        )
        kept = state._replace(start=state.start + _BLOCK, done=keep | broken)
        return jax.tree.map(lambda a, b: jnp.where(keep, a, b) if a.ndim else b, kept, now)

    start = Sum(jnp.asarray(0), zero, zero, zero, zero, zero, zero + jnp.inf, zero, skipped)
    return lax.while_loop(unfinished, advance, start)


@jax.custom_jvp
def _attach(value: Reals, slope_of: Reals) -> Reals:
    """`value`, with the derivative of `slope_of`."""
    del slope_of
    return value


@_attach.defjvp
def _attach_jvp(primals, tangents):
    return primals[0], tangents[1]


def _log_delta_on(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    decay: Decay,
    atoms: Atoms | None,
    limits: Limits,
    skipped: Bools,
    stopped: Bools,
) -> OneLine:
    fixed = lax.stop_gradient((terms, epsilon, atoms))
    ends = line, lax.stop_gradient(lattice), decay, fixed[2], limits
    found = _sum(fixed[0], fixed[1], *ends, skipped, stopped)
    exact, off = explicit_part(
        fixed[0], fixed[2], fixed[1], line.theta, line.log_size, line.complement
    )
    error = found.tail + off + line.rounding * (found.absolute + jnp.abs(exact))
    # The phase of every point: of t epsilon, and of K, which cancels that.
    error += 8.0 * ULP * fixed[1] * found.moved
    both = found.value + exact
    # 1 - delta is rounded down: there aliasing counts as well.
    lower = jnp.maximum(both - error - line.aliasing, 0.0) * jnp.exp(line.log_size)
    upper = jnp.where(
        line.complement,
        log1m(jnp.minimum(lower, 1.0)),
        line.log_size + jnp.log(both + error),
    )
    upper += 4.0 * ULP * jnp.abs(jnp.maximum(upper, -jnp.finfo(jnp.float64).max))
    # Where the sum breaks down (epsilon beyond 1e15, or at the largest loss) Markov's bound stands.
    markov = line.markov(fixed[1])
    # Of the finite losses.
    markov = jnp.where(line.complement, _with_infinite(terms, markov), markov)
    upper = jnp.where(upper <= markov, upper, markov)
    # Derivatives run over a fixed number of points, all on one side of the kinks of the atoms.
    if atoms is not None:
        epsilon = epsilon + 5e-12 * lax.stop_gradient(atoms.apart)
    far = limits[0] < ROUGH
    # The block is in units of exp(K(theta) - theta epsilon), which move as well.
    unit = jnp.real(cumulant(terms, line.theta[..., None]))[..., 0] - line.theta * epsilon
    move = unit - lax.stop_gradient(unit)
    moving = line._replace(log_size=line.log_size + move)
    points = jnp.where(skipped, jnp.inf, found.points)
    if lattice is not None:
        points = jnp.minimum(points, lattice.points(line.step))
        moving = moving._replace(step=lattice.moved(line.step))
    known = on_line(terms, line.theta, moving.step)
    at = terms, epsilon, moving, lattice, atoms, known
    value = _block(*at, 0, _SLOPE_NODES, points, far).value
    value *= jnp.exp(move)
    value += explicit_part(terms, atoms, epsilon, line.theta, line.log_size, line.complement)[0]
    now = lax.stop_gradient(value)
    share = jnp.where(now > 0, 1.0 / now, 0.0)
    share = jnp.where(line.complement, -jnp.exp(line.log_size - upper), share)
    # A wide Gaussian on top is no exact answer either.
    wide = ~(error + line.aliasing <= _WIDE * limits[0] * jnp.abs(both))
    slow = stopped & (wide | (decay.mu > 0))
    return OneLine(_attach(upper, share * value), slow, wide)
