"""The sum along one line in a hurry: no Gaussian is added, no atoms are split off."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._types import Bools, Complexes, Index, Reals
from jaxdp.loss.base import Terms, on_line, rise
from jaxdp.loss.decay import probed
from jaxdp.loss.line import Line
from jaxdp.noise.base import Points

# Points at a time.
BLOCK = 64
# Of a block: its largest |phi| stands for what follows.
_WATCHED = 16
# Of the sum, what follows: where it is kept for other epsilons, whose sums may be smaller.
_TAIL, _KEPT_TAIL = 5e-11, 1e-12


class Summed(NamedTuple):
    """In units of |F(theta)|: shape (*batch,)."""

    summand: Complexes  # Re F is the sum's, (*batch, points), if kept
    start: Index  # points so far
    tail: Reals  # a bound on what follows
    value: Reals
    absolute: Reals
    done: Bools


def sum_along(terms: Terms, epsilon: Reals, line: Line, points: int, kept: bool = True) -> Summed:
    """Until what follows is negligible in every lane; `kept`: with the summands."""
    zero, known = jnp.zeros_like(epsilon), on_line(terms, line.theta, line.step)
    decay = probed(terms, line, False, zero > 0)
    everything = line.theta * (1.0 + line.theta)
    tilt, unit = line.theta[..., None], (everything * line.step / jnp.pi)[..., None]

    def unfinished(state: Summed) -> Bools:
        return (state.start < points) & ~jnp.all(state.done)

    def advance(state: Summed) -> Summed:
        indices = state.start + jnp.arange(BLOCK)
        at = Points(line.theta, line.step, jnp.full_like(epsilon, jnp.inf), indices)
        turn, falling, _ = rise(terms, at, known)
        turn, height = lax.optimization_barrier((turn, at.heights()))
        turn = jnp.where(state.done[..., None], -jnp.inf, turn)
        size = jnp.exp(jnp.real(turn))
        phase = jnp.imag(turn) - height * epsilon[..., None]
        # z (z + 1), whose complex quotient would cost more than all else.
        real, imaginary = (everything[..., None] - height**2), (tilt + tilt + 1.0) * height
        share = jnp.where(indices == 0, 0.5, 1.0)[(None,) * epsilon.ndim] * size * unit
        share /= real * real + imaginary * imaginary
        sine, cosine = (share * part for part in sine_cosine(phase))
        turned = cosine * real + sine * imaginary, sine * real - cosine * imaginary
        summand = lax.complex(*lax.optimization_barrier(turned))
        value = state.value + jnp.sum(jnp.real(summand), axis=-1)
        absolute = state.absolute + jnp.sum(jnp.abs(summand), axis=-1)
        keep = state.summand
        if kept:
            keep = lax.dynamic_update_slice(keep, summand, (*(0,) * epsilon.ndim, state.start))
        end = line.step * (state.start + BLOCK)
        seen = jnp.max(size[..., -_WATCHED:], axis=-1)
        beyond = falling + decay.log_beyond(zero + state.start + BLOCK)
        height = jnp.maximum(seen, jnp.exp(beyond))
        tail = jnp.where(state.done, state.tail, everything * height / (jnp.pi * end))
        return Summed(
            keep,
            state.start + BLOCK,
            tail,
            value,
            absolute,
            state.done
            | (tail <= (_KEPT_TAIL if kept else _TAIL) * jnp.abs(value))
            | jnp.isnan(value),
        )

    nothing = jnp.zeros((*epsilon.shape, points if kept else 0), complex)
    first = Summed(nothing, jnp.zeros((), int), zero + jnp.inf, zero, zero, zero > 0)
    return lax.while_loop(unfinished, advance, first)
