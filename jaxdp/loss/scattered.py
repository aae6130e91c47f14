"""How high a line comes back up where losses have many atoms that lie on no lattice.

No few heights tell: all phases nearly meet again and again, at heights that nobody knows. But
phi(t) = E e^(it (L - EL)) of one release's tilted law changes slowly: |phi''| <= Var L. So what the
line may hold is bounded in cells that grow as |phi| falls, by phi and phi' in their middles, times
n in logarithm. Beyond the last cell Fejer's kernel bounds what follows (`line_sum`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.turning import Pair, Turned, excess_at
from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import Terms, add_up, on_line
from jaxdp.loss.decay import Decay
from jaxdp.loss.line import Line
from jaxdp.loss.tilted_nodes import TiltedNodes

# Cells of a block, and blocks.
_CELLS, _BLOCKS = 64, 2**11
# After so many blocks: whether the rest may settle it.
_PATIENCE = 128.0
# Of -log |phi| of all releases: what the half of a cell may add, where |phi| is near 1 and, times
# the mean of -log |phi| of each, elsewhere.
_SHARE, _MORE, _MOST = 0.05, 0.5, 0.3
# A block is looked at again in cells of a part of their width where their middles hold so much
# less than the cells may, and that matters beside what is wanted; down to a part of 1 / sd(total).
_PART, _LOOSE, _MATTERS, _FINEST = 0.25, 4.0, 1e-3, 0.1
# Of the transforms by all nodes and by every second one.
_AGREED = 1e-6


def has_scattered(terms: Terms) -> bool:
    """Whether there is such a loss."""
    return any(term.noise.scattered for term in terms)


class _Scan(NamedTuple):
    block: Index
    start: Reals  # where the next cell begins
    half: Reals  # of its width
    rest: Reals  # a bound on what the cells hold
    squares: tuple[Reals, Reals]  # sums of |phi|^2 of both halves of the releases over all points
    tail: Reals
    done: Bools


def tail_beyond(
    terms: Terms, line: Line, others: Decay, end: Reals, squares: tuple[Reals, Reals], wanted: Reals
) -> Reals:
    """A bound on what follows the height `end`, over |F(theta)|: (*batch,).

    `squares`: sums of |phi|^2 of both halves of the releases before; `others`: how losses of
    another kind, and a Gaussian on top, fall; `wanted`: what is good enough.
    """
    those = tuple(term for term in terms if term.noise.scattered)
    laws = [_Law.of(law) for law in on_line(those, line.theta, line.step)]
    everything = jnp.abs(line.theta * (1.0 + line.theta))

    def beyond(squares: tuple[Reals, Reals], height: Reals) -> Reals:
        """By Fejer's kernel, or by the others alone."""
        mean = jnp.sqrt(squares[0] * squares[1]) * line.step
        fejer = 2.0 * jnp.pi / 3.0 * everything * mean / height**2
        alone = jnp.exp(others.log_beyond(height / line.step))
        return jnp.minimum(fejer, everything * alone / (jnp.pi * height))

    number = add_up(those, lambda term: jnp.sum(term.count, axis=-1))
    ways = list(zip(those, laws, strict=True))
    bend = sum((term.total(0.5 * law.variance) for term, law in ways), start=0.0 * end)
    finest = _FINEST / jnp.sqrt(jnp.where(bend > 0, 2.0 * bend, 1.0))

    def half_of(fall: Reals, speed: Reals) -> Reals:
        """Of the next cells, from the sums of -log |phi| and of |phi'|."""
        allowed = fall * jnp.minimum(_SHARE + _MORE * fall / number, _MOST)
        root = jnp.sqrt(speed**2 + 4.0 * bend * allowed)
        return 2.0 * allowed / jnp.where(root > 0, speed + root, 1.0)

    def unfinished(state: _Scan) -> Bools:
        return (state.block < _BLOCKS) & ~jnp.all(state.done)

    def advance(state: _Scan) -> _Scan:
        half = state.half[..., None]
        middles = state.start[..., None] + half * _odd(end)
        nearest = jnp.maximum(middles - half, end[..., None])
        last = state.start + 2.0 * _CELLS * state.half
        zero = jnp.zeros_like(middles)
        halves, fall, speed = [zero, zero], zero, zero
        for term, law in ways:
            size, slope = law.look(middles[..., 0], 2.0 * state.half, state.block)
            log_size = jnp.log(size)
            moved = (
                half[..., None, :] * slope + 0.5 * law.variance[..., None] * half[..., None] ** 2
            )
            bound = jnp.minimum(log_size + jnp.log1p(moved / size), 0.0)
            first = term.first_half().total(bound)
            halves = [halves[0] + first, halves[1] + (term.total(bound) - first)]
            fall, speed = fall - term.total(log_size), speed + term.total(slope)
        outside = others.log_beyond(nearest[..., 0] / line.step)[..., None]
        # As many points as may lie in a cell.
        each = 2.0 * state.half / line.step + 1.0

        def sum_over(log_phi: Reals) -> Reals:
            size = jnp.sum(jnp.exp(log_phi + outside) / nearest**2, axis=-1)
            return everything * size * each * line.step / jnp.pi

        more = sum_over(halves[0] + halves[1])
        loose = more > _LOOSE * sum_over(-fall) + _MATTERS * wanted
        again = loose & (state.half > finest)
        rest = state.rest + more
        first, second = (
            known + each * jnp.sum(jnp.exp(2.0 * x), axis=-1)
            for known, x in zip(state.squares, halves, strict=True)
        )
        follows = beyond((first, second), last)
        tail = jnp.minimum(rest + follows, state.tail)
        lowest = jnp.argmin(fall, axis=-1)[..., None]
        at_lowest = (jnp.take_along_axis(x, lowest, axis=-1)[..., 0] for x in (fall, speed))
        wider = jnp.minimum(half_of(*at_lowest), state.half / _PART)
        # Later cells only add.
        done = (tail <= wanted) | (rest >= follows) | ~(wider > 0)
        left = _BLOCKS / (state.block + 1.0)
        done |= (state.block >= _PATIENCE) & (tail > left * left * wanted)
        now = _Scan(state.block + 1, last, wider, rest, (first, second), tail, state.done | done)
        back = state._replace(block=state.block + 1, half=_PART * state.half)
        now = jax.tree.map(lambda a, b: jnp.where(again, a, b) if a.ndim else b, back, now)
        return jax.tree.map(lambda a, b: jnp.where(state.done, a, b) if a.ndim else b, state, now)

    tail = beyond(squares, end)
    index = jnp.zeros((), int)
    looks = [(term, *law.look(end, line.step, index)) for term, law in ways]
    fall = sum((term.total(-jnp.log(size[..., 0])) for term, size, _ in looks), start=0.0 * end)
    speed = sum((term.total(slope[..., 0]) for term, _, slope in looks), start=0.0 * end)
    half = half_of(fall, speed)
    begin = _Scan(index, end, half, 0.0 * end, squares, tail, (tail <= wanted) | ~(half > 0))
    return lax.while_loop(unfinished, advance, begin).tail


def _odd(like: Reals) -> Reals:
    return (1.0 + 2.0 * jnp.arange(_CELLS))[(None,) * like.ndim]


class _Law(NamedTuple):
    """Of one term, (*batch, n): the tilted law, less its mean."""

    weights: Complexes  # as `TiltedNodes` has them, then times L - EL: a first axis
    loss: Reals
    variance: Reals
    highest: Reals  # the height from which on nothing is resolved

    @staticmethod
    def of(tilted: TiltedNodes) -> "_Law":
        weight, loss = jnp.real(tilted.weights[0]), jnp.real(tilted.loss)
        apart = loss - jnp.sum(weight * loss, axis=-1, keepdims=True)
        weights = jnp.concatenate([tilted.weights, (weight * apart)[None].astype(complex)])
        highest = jnp.where(tilted.resolved, tilted.highest, 0.0)
        return _Law(weights, apart, jnp.sum(weight * apart**2, axis=-1), highest)

    def look(self, height: Reals, step: Reals, index: Index) -> tuple[Reals, Reals]:
        """|phi| and |phi'| at _CELLS heights from one on, (*batch, n, cells); 1, 0 where lost."""
        turn = lax.complex(jnp.zeros_like(self.loss), height[..., None, None] * self.loss)
        weights = self.weights * jnp.exp(turn)[None]
        turned = Turned.of(
            Pair.of(weights), Pair.of(self.loss[None]), step[None, ..., None, None], index
        )
        sums = excess_at(turned, jnp.arange(_CELLS)) + jnp.sum(weights, axis=-1)[..., None]
        value, off, slope = (jnp.abs(x) for x in sums)
        last = height + _CELLS * step
        lost = ~((off <= _AGREED) & (last[..., None, None] <= self.highest[..., None]))
        return jnp.where(lost, 1.0, jnp.clip(value, 1e-9, 1.0)), jnp.where(lost, 0.0, slope)
