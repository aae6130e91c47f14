"""Different flipped Hubers, or these and Laplaces: the far part of the line over their edges.

Far up a line the transform of such a loss is a sum over a few edges of e^(z x) A(z),
`Loss.far_edges`, and so is that of a composition, over all sums of edges. The points up to there
are summed as they are; all that follow, whatever recurs among them, are two integrals that
converge at once (`ray_sum`).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP
from jaxdp._numeric.loss_edges import FarEdges
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.alike import Groups, alike
from jaxdp.loss.base import Term, Terms, leaves
from jaxdp.loss.chunked import chunked
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line, log_pole
from jaxdp.loss.ray_sum import (
    CHUNK,
    MOST_ALIKE,
    QUADRATURE,
    RADII,
    Fixed,
    Found,
    Summands,
    log_shares,
    of_chunk,
    ways_of,
)

# Sums of edges of a composition; of how many different releases.
_MOST, _SLOTS = 2.0**18, 16
# The points before the rays are a multiple of the first number, and no more than the other, which
# the derivatives sum (`contour`).
_BLOCK, _MOST_POINTS = 64, 512
# log of what is nothing next to the largest part of a release.
_FAINT = -46.0
# Of one release: more than its parts round by, and than they leave out.
_PART, _OUT = 1e-13, 1e-18


class Rays(NamedTuple):
    """Of a composition, equal releases together: (*batch, slots, ...), and (*batch,)."""

    at: Reals  # (*batch, slots, edges)
    log_size: Reals  # log A and its angle at the points of both rays, (*batch, slots, edges, nodes)
    angle: Reals
    fold: Reals  # (*batch, slots)
    kinds: Reals
    height: Reals
    points: Reals  # of the line, before the rays: infinite where there are none
    split: Bools

    @property
    def reach(self) -> Reals:
        """The largest sum of edges: their positions are rounded by parts of it."""
        return jnp.sum(self.fold * jnp.max(self.at, axis=-1), axis=-1)

    def far_part(self, epsilon: Reals, line: Line) -> tuple[Reals, Reals]:
        """The sum over all points from `points` on, over |F(theta)|; its error."""
        theta, step = line.theta, line.step
        log_unit = line.log_size + log_pole(theta) + 0.0 * epsilon
        total = jnp.prod(jnp.where(self.fold > 0, ways_of(self.fold, self.kinds), 1.0), axis=-1)
        total = jnp.where(self.split, total, 0.0)
        z = _rays(theta, step, self.height)
        shares = log_shares(theta, jnp.real(z), jnp.imag(z))
        fixed = Fixed(self.fold, self.kinds, total, theta, step, self.height, *shares)
        edges = Summands(self.at, self.log_size, self.angle, epsilon, log_unit)
        found = Found(*chunked(of_chunk, CHUNK, edges, lax.stop_gradient(fixed)))
        releases = jnp.sum(self.fold, axis=-1)
        turned = self.height * (self.reach + epsilon) + jnp.abs(theta) * self.reach
        rounding = _PART * releases + ULP * (64.0 + 4.0 * turned + 8.0 * jnp.abs(log_unit))
        off = QUADRATURE * found.first * self.height / step + rounding * found.size
        return found.value, jnp.where(self.split, off + _OUT * releases, 0.0)


def rays_of(terms: Terms, line: Line, lattice: Lattice | None) -> Rays | None:
    """None where some term has no such edges, whatever the values."""
    lowest = [term.noise.far_height(term.shift) for term in terms]
    known = [height for height in lowest if height is not None]
    releases = sum(term.shift.shape[-1] for term in terms)
    if len(known) < len(terms) or releases > _SLOTS:
        return None
    groups = [_together(term) for term in terms]
    fold = jnp.concatenate([group.fold for group in groups], axis=-1)
    used = fold > 0
    least = jnp.max(jnp.where(used, jnp.concatenate(known, axis=-1), 0.0), axis=-1)
    least = lax.stop_gradient(jnp.maximum(least, 4.0 * jnp.abs(line.theta) + 2.0))
    points = jnp.ceil((least / line.step + 0.5) / _BLOCK) * _BLOCK
    split = points <= _MOST_POINTS
    height = jnp.where(split, points - 0.5, 1e3) * line.step
    z = _rays(line.theta, line.step, height)
    found = [_far_edges(term, group, z) for term, group in zip(terms, groups, strict=True)]
    most = max(far.at.shape[-1] for far in found)
    at, log_part = (
        jnp.concatenate(x, axis=line.theta.ndim)
        for x in zip(*(_padded(far, most) for far in found), strict=True)
    )
    at, log_part, kinds = _present(at, log_part, line.theta)
    kinds = jnp.where(used, kinds, 1.0)
    good = jnp.all(jnp.isfinite(at), axis=-1) & jnp.all(jnp.isfinite(log_part), axis=(-2, -1))
    split &= jnp.any(used, axis=-1) & jnp.all((good & (kinds > 0)) | ~used, axis=-1)
    split &= jnp.all((fold <= MOST_ALIKE) & (fold == jnp.round(fold)), axis=-1)
    ways = jnp.where(used, ways_of(jnp.minimum(fold, MOST_ALIKE), kinds), 1.0)
    split &= jnp.prod(ways, axis=-1) <= _MOST
    if lattice is not None:
        split &= ~lattice.found
    some = (used & split[..., None])[..., None]
    at, log_part = jnp.where(some, at, 0.0), jnp.where(some[..., None], log_part, 0.0)
    return Rays(
        at,
        jnp.real(log_part),
        jnp.imag(log_part),
        jnp.where(some[..., 0], fold, 0.0),
        jnp.where(some[..., 0], kinds, 1.0),
        height,
        jnp.where(split, points, jnp.inf),
        split,
    )


def _rays(theta: Reals, step: Reals, height: Reals) -> Complexes:
    """The nodes of both rays, first to the right: (*batch, nodes)."""
    radii = jnp.asarray(RADII)[(None,) * theta.ndim] * step[..., None]
    both = jnp.concatenate([radii, -radii], axis=-1)
    return lax.complex(theta[..., None] + both, jnp.broadcast_to(height[..., None], both.shape))


def _together(term: Term) -> Groups:
    """The equal releases of a term; those whose loss is 0 are left out."""
    nothing = term.noise.pure_epsilon(term.shift) == 0
    keys = (*leaves(term.noise), term.shift)
    return alike(keys, jnp.where(nothing, 0.0, term.count))


def _far_edges(term: Term, group: Groups, z: Complexes) -> FarEdges:
    """Of every release, equal ones sharing their derivatives."""
    wide = jnp.broadcast_to(z[..., None, :], (*term.shift.shape, z.shape[-1]))
    noise, shift = term.noise, term.shift
    far = noise.far_edges(shift, wide)
    log_part = lax.complex(*(group.mean(x(far.log_part)) for x in (jnp.real, jnp.imag)))
    return FarEdges(group.mean(far.at), log_part)


def _padded(far: FarEdges, most: int) -> tuple[Reals, Complexes]:
    extra = most - far.at.shape[-1]
    ways = [(0, 0)] * (far.at.ndim - 1) + [(0, extra)]
    log_part = jnp.pad(far.log_part, [*ways, (0, 0)], constant_values=-jnp.inf)
    return jnp.pad(far.at, ways), log_part


def _present(at: Reals, log_part: Complexes, theta: Reals) -> tuple[Reals, Complexes, Reals]:
    """The edges that count, first; the others are 0. And how many count."""
    fixed_at, first = lax.stop_gradient((at, jnp.real(log_part[..., 0])))
    sizes = first + theta[..., None, None] * fixed_at
    largest = jnp.max(sizes, axis=-1, keepdims=True)
    counts = sizes > jnp.maximum(largest + _FAINT, -jnp.finfo(jnp.float64).max)
    order = jnp.argsort(~counts, axis=-1, stable=True)
    counts = jnp.take_along_axis(counts, order, axis=-1)
    at = jnp.where(counts, jnp.take_along_axis(at, order, axis=-1), 0.0)
    log_part = jnp.take_along_axis(log_part, order[..., None], axis=-2)
    log_part = jnp.where(counts[..., None], log_part, 0.0)
    return at, log_part, jnp.sum(counts, axis=-1, dtype=jnp.float64)
