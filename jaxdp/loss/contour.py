"""delta from the cumulant, by a sum along a vertical line: full relative accuracy at any size.

The transform of (1 - e^-x)_+ is 1 / (z (z + 1)), so with F(z) = exp(K(z) - z epsilon) / (z (z + 1))

    delta(epsilon) = 1 / (2 pi i) int F(z) dz along Re z = theta > 0,

and 1 - delta is minus the same integral along -1 < theta < 0. With theta at the saddle of |F|
nothing cancels, and the factor F(theta) stays a logarithm: delta = 1e-1000 costs what 1e-3 costs.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP, log1m
from jaxdp._types import Bools, Reals
from jaxdp.loss.base import (
    MORE_LANES,
    Terms,
    by_lanes,
    largest_finite,
    largest_loss,
    log_hit,
)
from jaxdp.loss.decay import ROUGH, Decay, decay_of, fallen_of
from jaxdp.loss.exchange import LogBounds
from jaxdp.loss.few import are_atoms, few_of
from jaxdp.loss.infinite import with_infinite
from jaxdp.loss.jump_parts import all_apply, applies, parameters_of
from jaxdp.loss.jumps import tightened
from jaxdp.loss.lattice import Lattice, lattice_of, on_lattice
from jaxdp.loss.line import Line, line_of
from jaxdp.loss.line_sum import Integrand, Limits, Sum, sum_of
from jaxdp.loss.parts import Parts
from jaxdp.loss.scattered import has_scattered, tail_beyond
from jaxdp.loss.slopes import with_slopes

# What a user's call asks for: the relative error, and the most points spent on it.
FINAL = (5e-11, 2**16)
# Where the cumulant is a sum over nodes: so many points, or terms if that leaves more points.
# From 128 nodes on their number does not matter, as it depends on what is traced.
_MOST_DEAR, _MOST_TERMS = 2**14, 2**21
# Of a few atoms, where nothing falls.
_MOST_CHEAP = 2**19
# Of the tolerance: where atoms are scattered what follows is bounded by powers that are lower, and
# to either side.
_NEARER, _SPARED = 1e-2, 0.4
# Of the error that is asked for: what is worth going on.
_WIDE = 10.0
# Of epsilon and the largest loss: what the positions of atoms are rounded by, on either side.
_ROUNDED = 16.0 * ULP
# Of log delta of one release, relatively: what its closed form may be above.
_CLOSED = 2e-12


class OneLine(NamedTuple):
    """What one line says: all of shape (*batch,)."""

    bounds: LogBounds
    slow: Bools  # where `tightened` can go on, perhaps nearer
    wide: Bools  # where the bound is not as near as was asked for


def in_lanes(terms: Terms, epsilon: Reals, limits: Limits = FINAL) -> LogBounds:
    """Of `log_delta` in any batch of one shape, worked off in chunks of lanes."""
    # Beside other releases a long line may settle what `tightened` does not.
    line = on_one_line(terms, epsilon, limits, hurried=all_apply(terms))
    return tightened(terms, epsilon, line.bounds, line.slow, limits[0])[0]


def on_one_line(
    terms: Terms, epsilon: Reals, limits: Limits = FINAL, hurried: bool = True
) -> OneLine:
    """The same by one line alone; `hurried`: broken off where `tightened` can go on."""
    limits = (limits[0], most_points(terms, limits[1]))
    terms, size = tuple(term.reversed(epsilon < 0) for term in terms), jnp.abs(epsilon)
    line = _forward(terms, size, epsilon > 0, hurried, limits)
    return line._replace(bounds=line.bounds.mirrored(epsilon < 0, size))


def most_points(terms: Terms, most: int = FINAL[1]) -> int:
    """Of `most`, those that are spent on a lane at last."""
    nodes = max(term.noise.summed for term in terms)
    if nodes == 0:
        return most
    cheap = _MOST_CHEAP if most == FINAL[1] else most
    return min(cheap, max(_MOST_DEAR, _MOST_TERMS // nodes))


def _forward(
    terms: Terms, epsilon: Reals, forward: Bools, hurried: bool, limits: Limits
) -> OneLine:
    """Logarithms of bounds on delta: epsilon (*batch,) >= 0, terms (*batch, n).

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
        return _forward_on(terms, *at, hurried, limits)

    return by_lanes(on, terms, (epsilon, lines, lattice, forward))


def _forward_on(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    forward: Bools,
    hurried: bool,
    limits: Limits,
) -> OneLine:
    fixed, at = lax.stop_gradient((terms, epsilon))
    parts = Parts.of(terms, line, lattice)
    split = parts.split(at)
    decay = decay_of(fixed, line, *limits, split, lattice)
    if lattice is not None:
        lattice = lattice.moving(terms, epsilon)
    # An atom right above epsilon may round to below it.
    lowered = jnp.where(split, _ROUNDED * (at + parts.reach(at)), 0.0)
    below = epsilon - lowered
    line = line.softened(decay.mu, lowered, lax.stop_gradient(below))
    alone = len(terms) == 1 and terms[0].shift.shape[-1] == 1
    noise, shift, count = (jax.tree.map(lambda x: x[..., 0], x) for x in terms[0].parts())
    single = count == (1 if alone else jnp.nan)
    few = few_of(terms, epsilon, lax.stop_gradient(line.theta), limits[0])
    skipped = few.settled | single | (epsilon >= largest_loss(terms))
    usable = jnp.zeros_like(skipped)
    if applies(fixed):
        usable = parameters_of(fixed).usable(at) & forward & ~skipped
    soft, stopped = decay.softened(terms), usable & hurried
    found, wide = _log_delta_on(soft, below, line, lattice, decay, parts, limits, skipped, stopped)
    # What another Gaussian adds is not bounded.
    lower = jnp.where(skipped | (decay.mu > 0), -jnp.inf, found.lower)
    found = LogBounds(
        jnp.maximum(lower, few.log_lower), few.tightened(found.upper, are_atoms(terms))
    )
    # 1 - delta counts finite losses only; else what is infinite comes on top.
    beyond = epsilon >= largest_finite(terms)
    found = LogBounds(*(jnp.where(beyond, -jnp.inf, x) for x in found))
    ways = zip(found, with_infinite(terms, found), strict=True)
    lower, upper = (
        jnp.minimum(jnp.where(line.complement & ~beyond, x, whole), 0.0) for x, whole in ways
    )
    if alone:
        closed = functools.partial(noise.log_delta, shift, epsilon)
        exact = lax.cond(jnp.any(single), closed, lambda: jnp.zeros_like(epsilon))
        upper = jnp.where(single, exact, upper)
        lower = jnp.where(single, exact - _CLOSED * (1.0 + jnp.abs(exact)), lower)
    none = epsilon >= largest_loss(terms)
    lower, upper = (jnp.where(none, -jnp.inf, x) for x in (lax.stop_gradient(lower), upper))
    bounds = LogBounds(lower, jnp.minimum(upper, log_hit(terms)))
    return OneLine(bounds, usable & (wide | (decay.mu > 0)), wide & ~skipped)


def _verified(found: Sum, summed: Integrand, wanted: Reals) -> Reals:
    """The tail where atoms are scattered: that of the sum was told by a few heights."""
    others = tuple(term for term in summed.terms if not term.noise.scattered)
    fallen = fallen_of(others, summed.line, summed.far)
    end = found.points * summed.line.step
    return tail_beyond(summed.terms, summed.line, fallen, end, found.squares, wanted)


def _placed(epsilon: Reals, lattice: Lattice | None, parts: Parts) -> Reals:
    """By how much atoms, or epsilon, may lie elsewhere: where they are known, they are rounded."""
    known = parts.split(epsilon)
    if lattice is not None:
        known |= lattice.found
    return jnp.where(known, 2.0 * _ROUNDED * (epsilon + parts.reach(epsilon)), 0.0)


def _log_delta_on(
    terms: Terms,
    epsilon: Reals,
    line: Line,
    lattice: Lattice | None,
    decay: Decay,
    parts: Parts,
    limits: Limits,
    skipped: Bools,
    stopped: Bools,
) -> tuple[LogBounds, Bools]:
    """And where they are wide."""
    far = limits[0] < ROUGH
    fixed = lax.stop_gradient((terms, epsilon, parts))
    summed = Integrand(fixed[0], fixed[1], line, lax.stop_gradient(lattice), fixed[2], far)
    exact, off = fixed[2].explicit_part(fixed[0], fixed[1], line)
    reach = fixed[2].reach(fixed[1])
    scattered = has_scattered(fixed[0])
    nearer = (_NEARER * limits[0], limits[1]) if scattered else limits
    found = sum_of(summed, decay, nearer, skipped, stopped, exact)
    if scattered:
        tail = _verified(found, summed, _SPARED * limits[0] * jnp.abs(found.value + exact))
        found = found._replace(tail=jnp.where(skipped, found.tail, tail))
    error = found.tail + off + line.rounding * (found.absolute + jnp.abs(exact))
    # The phase of every point: of t epsilon, and of K, which cancels that.
    error += 8.0 * ULP * (fixed[1] + reach) * found.moved
    both = found.value + exact
    # Aliased terms are positive.
    least, most = jnp.maximum(both - error - line.aliasing, 0.0), both + error
    size, mirrored = jnp.exp(line.log_size), line.complement
    placed = _placed(fixed[1], lattice, parts)
    # The probability of a larger loss is below exp(K(theta) - theta epsilon).
    less = jnp.maximum(least - placed * jnp.abs(line.theta * (1.0 + line.theta)), 0.0)
    lower = jnp.where(
        mirrored,
        log1m(jnp.minimum(most * (1.0 + placed) * size, 1.0)),
        line.log_size + jnp.log(less),
    )
    upper = jnp.where(
        mirrored, log1m(jnp.minimum(least * size, 1.0)), line.log_size + jnp.log(most)
    )
    lower, upper = (
        x + side * ULP * jnp.abs(jnp.maximum(x, -jnp.finfo(jnp.float64).max))
        for x, side in ((lower, -8.0), (upper, 4.0))
    )
    # Where the sum breaks down (epsilon beyond 1e15, or at the largest loss) Markov's bound stands.
    markov = line.markov(fixed[1])
    # Of the finite losses.
    infinite = with_infinite(terms, LogBounds(markov, markov)).upper
    markov = jnp.where(mirrored, infinite, markov)
    lower = jnp.where(lower <= markov, lower, -jnp.inf)
    upper = jnp.where(upper <= markov, upper, markov)
    points = jnp.where(skipped, jnp.inf, found.points)
    moved = Integrand(terms, epsilon, line, lattice, parts, far)
    # A wide Gaussian on top is no exact answer either.
    wide = ~(error + line.aliasing <= _WIDE * limits[0] * jnp.abs(both))
    return LogBounds(lower, with_slopes(upper, moved, points)), wide
