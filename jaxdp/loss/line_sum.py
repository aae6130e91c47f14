"""The sum along one vertical line, in blocks of points, until what follows is negligible."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Bools, Index, Reals
from jaxdp.loss.base import Terms, add_up, on_line, rise
from jaxdp.loss.decay import Decay
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.loss.parts import Parts
from jaxdp.noise.base import Points

Limits = tuple[float, int]
_BLOCK = 64
# Points on one line where `jumps.tightened` can go on.
_ENOUGH = 2048


class _Block(NamedTuple):
    """Some points in a row, in units of |F(theta)|."""

    value: Reals  # sum of Re F
    absolute: Reals  # sum of |F|
    moved: Reals  # sum of t |F|
    height: Reals  # largest |z (z + 1) F|
    reached: Reals  # points before the cumulant is not resolved any more
    falling: Reals  # log of a bound on the part of |phi| that does not recur, from the last one on
    squares: tuple[Reals, Reals]  # sums of |phi|^2 of both halves of the releases


class Integrand(NamedTuple):
    """F on a line, in units of |F(theta)|, without the atoms that are split off."""

    terms: Terms
    epsilon: Reals
    line: Line
    lattice: Lattice | None
    parts: Parts
    far: bool  # whether dear cumulants are evaluated far out as well

    def on_line(self) -> tuple[Any, ...]:
        """What `block` needs at all points."""
        return on_line(self.terms, self.line.theta, self.line.step)

    def block(self, known: tuple[Any, ...], start: Index | int, nodes: int, limit: Reals) -> _Block:
        """At points start, ... below `limit`, to the first whose cumulant is not resolved (NaN)."""
        line, lattice = self.line, self.lattice
        indices = start + jnp.arange(nodes)
        points = Points(line.theta, line.step, limit, indices, self.far)
        height = points.heights()
        z = line.theta[..., None] + 1j * height
        turn, falling, half = rise(self.terms, points, known)
        phi, size = jnp.exp(turn), jnp.exp(jnp.real(turn))
        if self.parts.atoms is not None:
            phi, size = self.parts.atoms.remainder(turn, points, line.log_total(self.epsilon))
        used = indices[(None,) * limit.ndim] < limit[..., None]
        phi, size = jnp.where(used, phi, 0.0), jnp.where(used, size, 0.0)
        alive = jnp.cumsum(jnp.isnan(phi), axis=-1) == 0
        reached = jnp.sum(alive, axis=-1, dtype=jnp.float64)
        phi = jnp.where(alive, phi * jnp.exp(-1j * height * self.epsilon[..., None]), 0.0)
        size = jnp.where(alive, size, 0.0)
        kernel = 1.0 / (z * (z + 1.0)) if lattice is None else lattice.kernel(line.theta, height)
        kernel *= (line.theta * (1.0 + line.theta))[..., None]
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * limit.ndim] * used
        halves = half, jnp.real(turn) - half
        seen = jnp.where(alive, share, 0.0)
        first, second = (
            jnp.sum(seen * jnp.exp(jnp.where(alive, 2.0 * x, 0.0)), -1) for x in halves
        )
        weight = line.step[..., None] / jnp.pi * share
        envelope = jnp.max(jnp.abs(phi), axis=-1)
        value = jnp.sum(weight * jnp.real(phi * kernel), axis=-1)
        sizes = weight * size * jnp.abs(kernel)
        return _Block(
            jnp.where(reached > 0, value, jnp.nan),
            jnp.sum(sizes, axis=-1),
            jnp.sum(sizes * height, axis=-1),
            envelope * jnp.abs(line.theta * (1.0 + line.theta)),
            reached,
            falling,
            (first, second),
        )


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
    squares: tuple[Reals, Reals]
    done: Bools


def sum_of(
    summed: Integrand,
    decay: Decay,
    limits: Limits,
    skipped: Bools,
    stopped: Bools,
    exact: Reals,
) -> Sum:
    """Of the whole line, or of limits[1] points; nothing where `skipped`, soon where `stopped`.

    `exact` is what was split off, or follows on rays: the error that is asked for is relative to
    both together.

    However atoms recur, of |phi|^2 = E cos(t X) no J points in a row sum up to more than four times
    the first J (Fejer's kernel is positive); of a product |phi_1 phi_2| of two halves of the
    releases to no more than the root of both sums (Cauchy & Schwarz).
    """
    line, lattice, atoms = summed.line, summed.lattice, summed.parts.atoms
    known, zero = summed.on_line(), jnp.zeros_like(summed.epsilon)
    last = zero + jnp.inf if lattice is None else lattice.points(line.step)
    if summed.parts.rays is not None:
        last = jnp.minimum(last, summed.parts.rays.points)
    everything = jnp.abs(line.theta * (1.0 + line.theta))
    window = zero if atoms is None else atoms.window
    rest_from = None if atoms is None else atoms.tail(line)

    def unfinished(state: Sum) -> Bools:
        return (state.start < limits[1]) & ~jnp.all(state.done)

    def advance(state: Sum) -> Sum:
        block = summed.block(known, state.start, _BLOCK, last)
        broken = block.reached < _BLOCK
        keep = state.done | ((block.reached == 0) & (state.start > 0))
        end = line.step * (state.start + block.reached)
        log_beyond = block.falling + decay.log_beyond(state.start + block.reached)
        probed = everything * jnp.exp(log_beyond)
        # A block that breaks off is too short to tell how high what follows may be.
        unresolved = everything * jnp.exp(_log_unresolved(summed, end))
        height = jnp.where(broken, unresolved, jnp.maximum(block.height, probed))
        envelope = jnp.where(broken, height, jnp.maximum(state.envelope, height))
        late = state.start + _BLOCK >= _ENOUGH
        full = broken | (end - state.opened >= window)
        tail = jnp.where(full, envelope / (jnp.pi * end), state.tail)
        first, second = (a + b for a, b in zip(state.squares, block.squares, strict=True))
        mean = jnp.sqrt(first * second) * everything * line.step
        in_mean = jnp.minimum(tail, 2.0 * jnp.pi / 3.0 * mean / end**2)
        tail = in_mean if atoms is None else jnp.where(atoms.split, tail, in_mean)
        if rest_from is not None:
            rest = everything * rest_from(end)
            tail = jnp.where(rest < jnp.inf, rest, tail)
        if summed.parts.rays is not None:
            tail = jnp.where(summed.parts.rays.split, jnp.inf, tail)
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
            (first, second),
            broken
            | (tail <= limits[0] * jnp.abs(total + exact))
            | jnp.isnan(total)
            | (stopped & late),
        )
        kept = state._replace(start=state.start + _BLOCK, done=keep | broken)
        return jax.tree.map(lambda a, b: jnp.where(keep, a, b) if a.ndim else b, kept, now)

    start = Sum(
        jnp.asarray(0), zero, zero, zero, zero, zero, zero + jnp.inf, zero, (zero, zero), skipped
    )
    return lax.while_loop(unfinished, advance, start)


def _log_unresolved(summed: Integrand, end: Reals) -> Reals:
    """log of a bound on what is summed, over |F(theta)|, where the cumulant is not resolved."""
    terms, theta = summed.terms, summed.line.theta
    if summed.parts.atoms is not None:
        return summed.parts.atoms.log_unresolved(terms, theta, end)
    return add_up(terms, lambda term: term.log_beyond(theta, end))
