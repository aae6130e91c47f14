"""The flipped Huber's transform far up a vertical line: a sum over the edges of its loss.

M(z) = sum_j e^(z x_j) A_j(z) with at most six edges x_j, where segments of `flipped_huber_cgf` end.
Every A_j falls like a power of z and is analytic in the upper half-plane. What is left out, the
normal tails' own transform, is e^(-T^2 D^2 / 2) of M(Re z) at a height T.
"""

import jax.numpy as jnp

from jaxdp._numeric.decay import decay_mean
from jaxdp._numeric.faddeeva import faddeeva
from jaxdp._numeric.flipped_huber_cgf import Ends, Rows, log_kappa, normal_rows, segment_rows
from jaxdp._types import Complexes, Reals

# T D from where on exp(-(T D)^2 / 2) is below 1e-18; T from where on no row is reflected.
_FALLEN, _LEAST = 9.2, 2.0


def far_height(d: Reals) -> Reals:
    """The height from which on `far_parts` are all there is."""
    return jnp.maximum(_FALLEN / d, _LEAST)


def far_parts(a: Reals, d: Reals, z: Complexes) -> tuple[Reals, Complexes]:
    """x_j and log A_j, both (6, ...), -inf where there is no such edge; arguments of one shape.

    For Im z >= far_height(d), whatever Re z. On the line the parts add up to M(z) to 1e-14 of
    M(Re z), plus the rounding of the phase.
    """
    narrow, wide = d < a, d > 2.0 * a
    ends = Ends.of(a, d)
    segments, normals = (_values(rows(a, d, z)) for rows in (segment_rows, normal_rows))
    rate = (2.0 * z + 1.0) * a
    linear = jnp.where(wide, 0.0, 1.0 / jnp.where(wide, 1.0, rate))
    linear = jnp.stack([linear, -linear])
    inside = jnp.maximum(a - d, 0.0)
    atom = inside * decay_mean(a * inside)
    begin = jnp.exp(-a * inside)[None] * segments[0] + segments[3] + atom[None]
    left = segments[2] + normals[1] + linear
    both = (
        begin + jnp.where(narrow, left, 0.0),
        segments[1] + normals[0],
        jnp.where(narrow, 0.0, left),
    )
    at, log_parts = [], []
    for place, part in zip((0, 1, 2), both, strict=True):
        level = -log_kappa(a) - (0.0 if place == 0 else ends.rho[place])
        none = part == 0
        log_part = jnp.log(jnp.where(none, 1.0, part))
        for side, loss in enumerate((ends.loss[place], -ends.loss[place])):
            beyond = jnp.minimum(loss, 0.0) + level
            at.append(loss)
            log_parts.append(jnp.where(none[side], -jnp.inf, log_part[side] + beyond))
    return jnp.stack(at), jnp.stack(log_parts)


def _values(rows: Rows) -> Complexes:
    """factor w(y), reflected where Im y < 0: what the reflection adds is left out."""
    flip = jnp.imag(rows.y) < 0
    y = jnp.where(flip, -rows.y, rows.y)
    y = jnp.real(y) + 1j * jnp.maximum(jnp.imag(y), 0.0)
    return jnp.where(rows.present, jnp.where(flip, -rows.factor, rows.factor) * faddeeva(y), 0.0)
