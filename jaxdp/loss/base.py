"""The cumulant of a composition: K(z) = log E exp(z L) of the total loss, a sum of terms."""

import math
from collections.abc import Callable
from typing import Any, Literal, cast, final

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, log1m, log1mexp
from jaxdp._pytree import assign, pytree
from jaxdp._types import Bools, Complexes, Reals, RealsOrComplexes, Shape
from jaxdp.noise.base import Loss, Points

# A rough cumulant is a bound, as the full one; a loose one is a guess.
Accuracy = Literal["full", "rough", "loose"]
# Lanes that share one loop: all wait for the slowest.
_LANES = 256
# Where each point of a line is dear (on a CPU); on the axis no lane is much slower than others.
FEW_LANES, MORE_LANES = 2, 64
# Between two points that were looked at |phi| may be a little higher.
_MISSED = 0.9
# Over half a period.
_PROBES = 257


@final
@pytree
class Term:
    """`count` releases of `noise` at `shift`: arrays of one shape, whose last axis composes."""

    noise: Loss
    shift: Reals
    count: Reals

    def __init__(self, noise: Loss, shift: Reals, count: Reals):
        shape = jnp.broadcast_shapes(shift.shape, count.shape, *(x.shape for x in leaves(noise)))
        term = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (noise, shift, count))
        assign(self, noise=term[0], shift=term[1], count=term[2])

    @property
    def shape(self) -> Shape:
        """The batch; the last axis, which composes, is left out."""
        return self.shift.shape[:-1]

    def parts(self) -> tuple[Loss, Reals, Reals]:
        """noise, shift, count."""
        return self.noise, self.shift, self.count

    def broadcast(self, shape: Shape) -> "Term":
        """The same term in a batch of `shape`."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, x.shape[-1])), self)

    def reversed(self, where: Bools) -> "Term":
        """With the two inputs exchanged in some lanes."""
        return Term(self.noise.reversed(where[..., None]), self.shift, self.count)

    def total(self, each: RealsOrComplexes) -> RealsOrComplexes:
        """The sum of `count` times each, over the axis that composes, of values (*batch, n, ...).

        A count of 0 is no release, whatever its loss.
        """
        if jnp.iscomplexobj(each):
            # A complex product would make NaN of log 0 = -inf + i y.
            return lax.complex(self.total(jnp.real(each)), self.total(jnp.imag(each)))
        count = self.count.reshape(*self.count.shape, *(1,) * (each.ndim - self.count.ndim))
        return jnp.sum(jnp.where(count == 0, 0.0, count * each), axis=self.count.ndim - 1)

    def cgf(self, z: RealsOrComplexes, accuracy: Accuracy = "full") -> RealsOrComplexes:
        """K at z of shape (*batch, points)."""
        noise, shift = jax.tree.map(lambda x: x[..., None], (self.noise, self.shift))
        ways = {"full": noise.cgf, "rough": noise.rough_cgf, "loose": noise.loose_cgf}
        return self.total(ways[accuracy](shift, z[..., None, :]))

    def rough_and_above(self, z: Reals) -> tuple[Reals, Reals]:
        """The rough K at z of shape (*batch, points), and how far that may be above the truth."""
        noise, shift = jax.tree.map(lambda x: x[..., None], (self.noise, self.shift))
        each = noise.rough_and_above(shift, z[..., None, :])
        return cast(tuple[Reals, Reals], tuple(self.total(x) for x in each))

    def rough_rounding(self, z: Reals) -> Reals:
        """Of the rough K, in units of 64 ulp, at z of shape (*batch, points)."""
        noise, shift = jax.tree.map(lambda x: x[..., None], (self.noise, self.shift))
        shift, z = jnp.broadcast_arrays(shift, z[..., None, :])
        return cast(Reals, self.total(noise.rough_rounding(shift, z)))

    def nodes(self, theta: Reals) -> Reals:
        """About how many terms a point of the line through theta takes, (*batch,)."""
        line = jnp.broadcast_to(theta[..., None], self.shift.shape)
        return jnp.max(self.noise.nodes(self.shift, line), axis=-1)

    def on_line(self, theta: Reals, step: Reals) -> Any:
        """What `rise` needs at all points of the line through theta, of shape (*batch,)."""
        line = (jnp.broadcast_to(x[..., None], self.shift.shape) for x in (theta, step))
        return self.noise.on_line(self.shift, *line)

    def rise(self, points: Points, known: Any) -> tuple[Complexes, Reals, Reals]:
        """K(theta + it) - K(theta) at points of shape (*batch,), (*batch, points).

        And log of a bound on its exponential from the last point on: 0 where that may recur. And
        the real part of the first of about half of the releases.
        """
        theta, step, limit = (
            jnp.broadcast_to(x[..., None], self.shift.shape)
            for x in (points.theta, points.step, points.limit)
        )
        points = points._replace(theta=theta, step=step, limit=limit)
        each = self.noise.rise(self.shift, points, known)
        half = self.first_half().total(jnp.real(each))
        if self.noise.recurs:
            return self.total(each), jnp.zeros(self.shape), half
        last = points.heights()[..., -1], each[..., -1]
        return self.total(each), self.total(self.noise.falling(self.shift, theta, *last)), half

    def first_half(self) -> "Term":
        """Half of all counts, of odd ones a little more and a little less in turn."""
        odd = self.count % 2.0
        more = jnp.cumsum(odd, axis=-1) % 2.0
        return Term(self.noise, self.shift, jnp.floor(0.5 * self.count) + odd * more)

    def log_fallen(self, theta: Reals, heights: Reals, far: bool) -> Reals:
        """log of the largest |M(theta + it)| / M(theta) over t >= each of `heights`, increasing.

        Of releases that fall, by these heights alone; 0 where they are not resolved.
        """
        shape = (*self.shift.shape, heights.shape[-1])
        points = jnp.broadcast_to(heights[..., None, :], shape)
        line = jnp.broadcast_to(theta[..., None], self.shift.shape)
        fall = self.noise.fall(self.shift, line, points, far)
        fall = jnp.where(jnp.isnan(fall), 0.0, jnp.minimum(fall, 0.0))
        return cast(Reals, self.total(lax.cummax(fall, axis=fall.ndim - 1, reverse=True)))

    def log_decay(self, theta: Reals, heights: Reals, far: bool) -> Reals:
        """log of the largest |M(theta + it)| / M(theta) over t >= each of `heights`, increasing.

        Of every release on its own, then multiplied. Where a pair of atoms recurs is looked at as
        well; other atoms may recur anywhere. 0 where `rise` tells. Shape of `heights`.
        """
        if not self.noise.recurs:
            return 0.0 * heights
        recurrence = self.noise.recurrence(self.shift)[..., None]
        paired = jnp.isfinite(recurrence)
        again = jnp.where(paired, recurrence, 1.0)
        shape = (*self.shift.shape, heights.shape[-1])
        points = jnp.concatenate([jnp.broadcast_to(heights[..., None, :], shape), again], -1)
        line = jnp.broadcast_to(theta[..., None], self.shift.shape)
        fall = self.noise.fall(self.shift, line, points, far)
        # What the quadrature of a cumulant does not resolve says nothing.
        fall = jnp.where(jnp.isnan(fall), -jnp.inf, jnp.minimum(_MISSED * fall, 0.0))
        last = jnp.where(paired, fall[..., -1:], jnp.where(recurrence == jnp.inf, -jnp.inf, 0.0))
        largest = lax.cummax(fall[..., :-1], axis=fall.ndim - 1, reverse=True)
        return self.total(jnp.maximum(largest, last))

    def beyond(self, theta: Reals, height: Reals) -> tuple[Reals, Reals]:
        """Bounds on the parts of every |M(theta + it)| / M(theta) from a height on, (*batch, n)."""
        line = (jnp.broadcast_to(x[..., None], self.shift.shape) for x in (theta, height))
        return self.noise.beyond(self.shift, *line)

    def log_beyond(self, theta: Reals, height: Reals) -> Reals:
        """log of a bound on all releases' |phi| from a height on, (*batch,)."""
        atoms, density = self.beyond(theta, height)
        return self.total(jnp.log(jnp.minimum(atoms + density, 1.0)))

    def log_fall(self, theta: Reals, heights: Reals, unit: Reals) -> Reals:
        """log of a bound on |M(theta + it)| / M(theta) for t from each of `heights` to pi / unit.

        Of losses on the lattice of that unit (*batch,): half a period. |M| / M(theta) changes by no
        more than `pure_epsilon` times a step. Shape of `heights`.
        """
        noise, shift = jax.tree.map(lambda x: x[..., None], (self.noise, self.shift))
        end = (jnp.pi / unit)[..., None, None]

        def size(points: Reals) -> Reals:
            real = theta[..., None, None]
            return jnp.real(noise.cgf(shift, real + 1j * points)) - noise.cgf(shift, real)

        if self.noise.falls:
            at = jnp.minimum(heights[..., None, :], end)
            return self.total(
                jnp.minimum(size(jnp.broadcast_to(at, shift.shape[:-1] + at.shape[-1:])), 0.0)
            )
        probes = jnp.arange(_PROBES) / (_PROBES - 1.0)
        apart = 0.5 * end / (_PROBES - 1.0)
        points = jnp.broadcast_to(
            end * probes[(None,) * (end.ndim - 1)], (*self.shift.shape, _PROBES)
        )
        between = jnp.exp(size(points)) + apart * noise.pure_epsilon(shift)
        largest = lax.cummax(
            jnp.log(jnp.minimum(between, 1.0)), axis=between.ndim - 1, reverse=True
        )
        index = jnp.clip(jnp.floor(heights[..., None, :] / end * (_PROBES - 1.0)), 0, _PROBES - 1)
        index = jnp.broadcast_to(index.astype(int), (*self.shift.shape, heights.shape[-1]))
        return self.total(jnp.take_along_axis(largest, index, axis=-1))

    def pure_epsilon(self) -> Reals:
        """The largest loss: infinite where it is not bounded."""
        return self.total(self.noise.pure_epsilon(self.shift))

    def largest_finite(self) -> Reals:
        """The largest finite loss: infinite where they are not bounded."""
        return self.total(self.noise.largest_finite(self.shift))

    def summed(self) -> Reals:
        """The number of releases whose cumulant rounds as a sum does."""
        return self.total(jnp.full_like(self.shift, float(self.noise.summed > 0)))

    def log_finite(self) -> Reals:
        """log of the probability that no loss is infinite."""
        return self.total(self.noise.log_finite(self.shift))


Terms = tuple[Term, ...]


def merged(terms: Terms) -> Terms:
    """The same composition: releases of one kind of noise in one term, which is evaluated once."""
    kinds: dict[Any, list[Term]] = {}
    for term in terms:
        kinds.setdefault(jax.tree.structure(term), []).append(term)
    return tuple(_joined(alike) for alike in kinds.values())


def _joined(alike: list[Term]) -> Term:
    if len(alike) == 1:
        return alike[0]
    shape = jnp.broadcast_shapes(*(term.shape for term in alike))
    wide = (term.broadcast(shape) for term in alike)
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *wide)


def leaves(noise: Loss) -> list[Reals]:
    """The parameters of a noise, as arrays."""
    return [jnp.asarray(x) for x in jax.tree.leaves(noise)]


def add_up(terms: Terms, value: Callable[[Term], RealsOrComplexes]) -> RealsOrComplexes:
    """The sum of `value` over the terms."""
    total = value(terms[0])
    for term in terms[1:]:
        total = total + value(term)
    return total


def on_line(terms: Terms, theta: Reals, step: Reals) -> tuple[Any, ...]:
    """`Term.on_line` of every term."""
    return tuple(term.on_line(theta, step) for term in terms)


def rise(terms: Terms, points: Points, known: tuple[Any, ...]) -> tuple[Complexes, Reals, Reals]:
    """`Term.rise` of the composition; `known` is `on_line` there."""
    turn, falling, half = terms[0].rise(points, known[0])
    for term, k in zip(terms[1:], known[1:], strict=True):
        more, further, share = term.rise(points, k)
        turn, falling, half = turn + more, falling + further, half + share
    return turn.astype(complex), falling, half


def cumulant(terms: Terms, z: RealsOrComplexes, accuracy: Accuracy = "full") -> RealsOrComplexes:
    """K(z) of the composition of all terms; z of shape (*batch, points)."""
    return add_up(terms, lambda term: term.cgf(z, accuracy))


def largest_loss(terms: Terms) -> Reals:
    """The epsilon from which on delta is 0."""
    return add_up(terms, Term.pure_epsilon)


def by_lanes(
    function: Callable[[Terms, Any], Any],
    terms: Terms,
    values: Any,
    dear: int = FEW_LANES,
    alike: Reals | None = None,
) -> Any:
    """function(terms, values) in any batch of the terms' shape, worked off in chunks of lanes.

    The arrays of `values` may have axes of their own after those of the batch; results have the
    batch's first. `dear`: the lanes of a chunk where cumulants are sums over nodes. `alike`: of
    near values where lanes take about as long, so that few wait.
    """
    batch = terms[0].shape
    size = math.prod(batch)
    dear = dear if jax.default_backend() == "cpu" else MORE_LANES
    lanes = dear if any(term.noise.summed for term in terms) else _LANES
    if size <= lanes:
        return function(terms, values)
    # Of one size, so that none is mostly padding.
    lanes = -(-size // -(-size // lanes))
    order = jnp.arange(size) if alike is None else jnp.argsort(alike.ravel())
    padded = jnp.concatenate([order, jnp.repeat(order[-1:], -size % lanes)]).reshape(-1, lanes)

    def chunk(x: Reals | Bools) -> Reals | Bools:
        return x.reshape(size, *x.shape[len(batch) :])[padded]

    def whole(x: Reals | Bools) -> Reals | Bools:
        flat = x.reshape(-1, *x.shape[2:])[:size]
        flat = flat if alike is None else flat[jnp.argsort(order)]
        return flat.reshape(*batch, *flat.shape[1:])

    chunks = jax.tree.map(chunk, (terms, values))
    return jax.tree.map(whole, lax.map(lambda c: function(*c), chunks))


def largest_finite(terms: Terms) -> Reals:
    """The epsilon from which on delta is the probability of an infinite loss."""
    return add_up(terms, Term.largest_finite)


def log_hit(terms: Terms) -> Reals:
    """log of the probability that a sample holds the record; 0 where a release is not sampled.

    Else nothing tells the inputs apart: delta at epsilon >= 0 is no more than that.
    """
    if not all(hasattr(term.noise, "sampling_prob") for term in terms):
        return jnp.zeros(terms[0].shape)

    def log_missed(term: Term) -> Reals:
        return cast(Reals, term.total(log1m(getattr(term.noise, "sampling_prob"))))  # noqa: B009

    return log1mexp(-add_up(terms, log_missed)) * (1.0 - 16.0 * ULP)
