"""Moments of the Poisson-sampled Laplace's likelihood ratio, along a vertical line.

G(w) of `sampled_laplace` at w = w0 + it, t >= 0. Where e^(itL) turns too often between both ends
the integral goes around: up from l = -r to Im l = pi / 2, along that and down to l = r, where
e^(itL) falls instead, as fast as it turned. The detour is ours.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.nn import sigmoid

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import LOG_2
from jaxdp._numeric.off_axis import Angle, log_mixture
from jaxdp._numeric.sampled_laplace import LOG_WEIGHT, ROOM, UNIT, law
from jaxdp._numeric.turning import Pair, Turned, excess_at, excess_once
from jaxdp._types import Bools, Complexes, Indices, Reals

# Radians that an interval of nodes on the axis resolves.
_MOST_TURN = 110.0
# On the way up: what the nodes resolve.
_MOST_TURN_UP = 60.0
# Along Im l = pi / 2: two intervals of nodes reach so far.
_LONGEST = 90.0
_QUARTER = 0.5 * jnp.pi
_NEVER = 2.0**40
_LEAST = 1e-300
# A height, of what is not used.
_SOME = 1.0


def excess(r: Reals, q: Reals, w0: Reals, t: Reals) -> Complexes:
    """G(w0 + it) / G(w0) - 1 at t >= 0, all of one shape; NaN if lost."""
    nodes, detour = _tilted(r, q, w0)
    near = detour.most >= t
    on_axis = excess_once(*nodes, t[..., None])
    weight, _, resolved = detour.nodes(jnp.where(near, _SOME, t))
    around = jnp.sum(lax.complex(*weight), axis=-1) - 1.0
    return jnp.where(near, on_axis, jnp.where(resolved, around, jnp.nan))


class TiltedLaplace(NamedTuple):
    """The law tilted by e^(w0 L), for a line w0 + i k step: of one shape."""

    near: Turned
    detour: "_Detour"
    step: Reals

    @staticmethod
    def of(r: Reals, q: Reals, w0: Reals, step: Reals) -> "TiltedLaplace":
        nodes, detour = _tilted(r, q, w0)
        near = Turned.of(*nodes, step[..., None], jnp.argmax(w0))
        return TiltedLaplace(near, detour, step)

    def excess(self, indices: Indices) -> Complexes:
        """G(w0 + i k step) / G(w0) - 1 for consecutive k, along a new last axis; NaN if lost."""
        last = jnp.minimum(jnp.floor(self.detour.most / self.step), _NEVER)
        near = indices[(None,) * last.ndim] <= last[..., None]
        nothing = jnp.zeros(near.shape, complex)
        on_axis = lax.cond(jnp.any(near), lambda: excess_at(self.near, indices), lambda: nothing)
        around = lax.cond(jnp.all(near), lambda: nothing, lambda: self._around(indices, last + 1.0))
        return jnp.where(near, on_axis, around)

    def _around(self, indices: Indices, first: Reals) -> Complexes:
        """From the index `first` on."""
        first = jnp.maximum(indices[0], first)
        weight, loss, resolved = self.detour.nodes(first * self.step)
        turned = Turned.of(weight, loss, self.step[..., None], indices[0])
        begun = jnp.sum(lax.complex(*weight), axis=-1, keepdims=True)
        found = begun + excess_at(turned, jnp.arange(indices.size)) - 1.0
        found = jnp.where(resolved[..., None], found, jnp.nan)
        place = indices[(None,) * first.ndim] - first[..., None]
        place = jnp.clip(place, 0, indices.size - 1).astype(int)
        return jnp.take_along_axis(found, place, axis=-1)


def _tilted(r: Reals, q: Reals, w0: Reals) -> tuple[tuple[Pair, Pair], "_Detour"]:
    """Weights and losses on the axis, and what the way around needs."""
    nothing = (q == 0) | (r == 0)
    r, q = (jnp.where(nothing, 0.5, x) for x in (r, q))
    known = law(r, q, w0)
    exponents = known.exponents(w0)
    top = jnp.max(exponents, axis=-1)
    weight = jnp.exp(exponents - top[..., None])
    total = jnp.sum(weight, axis=-1)
    loss = jnp.where(nothing[..., None], 0.0, known.loss)
    most = lax.stop_gradient(jnp.where(nothing, jnp.inf, _MOST_TURN / known.turn))
    along = jnp.where(w0 > 0.5, 2.0 * r, known.reach[..., 0])
    rest = top + jnp.log(total)
    detour = _Detour(r, q, w0, known.best, rest, along, known.rise, most)
    return (Pair.of(weight / total[..., None]), Pair.of(loss)), detour


class _Detour(NamedTuple):
    """Around the axis."""

    r: Reals
    q: Reals
    w0: Reals
    best: Reals  # log G(w0) = w0 best + rest
    rest: Reals
    along: Reals  # how far along Im l = pi / 2 anything may count
    rise: Reals  # of the integrand from l = -r to r, in nats
    most: Reals  # the height up to which the axis serves

    def nodes(self, t: Reals) -> tuple[Pair, Pair, Bools]:
        """Atoms and nodes for heights from t on: weight, L, and whether they serve."""
        length, resolved = self._lengths(t)
        r, q, w0, best, rest, t = (
            x[..., None] for x in (self.r, self.q, self.w0, self.best, self.rest, t)
        )
        arc = (None,) * self.r.ndim
        flat = jnp.array([0.0, 0.0, 1.0, 1.0])[arc][..., None]
        moved = length[..., None] * UNIT[arc][..., None, :]
        ends = jnp.concatenate([-r, r], axis=-1)
        begin = jnp.concatenate([ends, -r, length[..., 2:3] - r], axis=-1)
        real = begin[..., None] + flat * moved
        angle = (1.0 - flat) * moved + flat * _QUARTER
        onward = jnp.array([_QUARTER, -_QUARTER, 0.0, 0.0])[arc][..., None]
        log_length = jnp.log(length)[..., None] + LOG_WEIGHT[arc][..., None, :]
        nodes = real, angle, onward + 0.0 * moved, log_length
        # An atom has twice the density at its place.
        atoms = ends, 0.0 * ends, 0.0 * ends, 0.0 * ends + LOG_2
        flattened = (x.reshape(*self.r.shape, -1) for x in nodes)
        real, angle, onward, log_length = (
            jnp.concatenate(x, axis=-1) for x in zip(atoms, flattened, strict=True)
        )
        loss = log_mixture(real, Angle.of(angle), q)
        log_size = log_length - 2.0 * LOG_2 - 0.5 * (real + r) - rest
        size = jnp.exp(log_size + w0 * (loss.real - best) - t * loss.imag)
        sine, cosine = sine_cosine(onward - 0.5 * angle + w0 * loss.imag + t * loss.real)
        return Pair(size * cosine, size * sine), loss, resolved

    def _lengths(self, t: Reals) -> tuple[Reals, Bools]:
        """How far up at either end and along anything counts; whether the nodes resolve that."""
        r, q, w0, t = lax.stop_gradient((self.r, self.q, self.w0, t))
        odds = jnp.log(q) - jnp.log1p(-q)
        slope = sigmoid(odds[..., None] + jnp.stack([-r, r], axis=-1))
        up = jnp.minimum(_QUARTER, _QUARTER * ROOM / (t[..., None] * slope))
        turns = up * jnp.abs(w0[..., None] * slope - 0.5) > _MOST_TURN_UP
        above = jnp.stack([-self.rise, self.rise], axis=-1)
        # arg(1 - q + i q e^l) = ROOM / t.
        steep = jnp.minimum(ROOM / t, 1.5)
        as_likely = r - odds
        reach = jnp.maximum(as_likely + jnp.log(jnp.tan(steep)), _LEAST)
        along = jnp.minimum(self.along, jnp.where(steep < 1.5, reach, jnp.inf))
        resolved = ~jnp.any(turns & (above > -ROOM), axis=-1) & (along <= _LONGEST)
        # Where L bends nodes are near each other.
        first = jnp.clip(as_likely, 0.25 * along, 0.75 * along)
        parts = jnp.stack([first, along - first], axis=-1)
        return jnp.concatenate([up, parts], axis=-1), resolved
