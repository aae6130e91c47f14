"""The derivatives of a sum along a line: of the sum itself, traced only where they are asked for.

Where the line runs, how far it is summed and what it leaves out have none.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._types import Reals
from jaxdp.loss.base import Term, Terms, cumulant
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.loss.line_sum import Integrand
from jaxdp.loss.parts import Parts

_NODES = 512
# Where atoms are left in the sum.
_BARE_NODES = 8192

_Moving = tuple[Terms, Reals, Lattice | None, Parts]


def with_slopes(log_delta: Reals, summed: Integrand, points: Reals) -> Reals:
    """`log_delta`, with the derivatives of what is `summed` up to so many points."""
    moving = summed.terms, summed.epsilon, summed.lattice, summed.parts
    return _sloped(summed.far, log_delta, moving, (summed.line, points))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sloped(far: bool, log_delta: Reals, moving: _Moving, fixed: tuple[Line, Reals]) -> Reals:
    del far, moving, fixed
    return log_delta


@_sloped.defjvp
def _sloped_jvp(far, primals, tangents):
    log_delta, moving, (line, points) = primals

    def value(terms: Terms, epsilon: Reals, lattice: Lattice | None, parts: Parts) -> Reals:
        return _value(Integrand(terms, epsilon, line, lattice, parts, far), points)

    now, slope = jax.jvp(value, moving, tangents[1])
    now = lax.stop_gradient(now)
    share = jnp.where(now > 0, 1.0 / now, 0.0)
    share = jnp.where(line.complement, -jnp.exp(line.log_size - log_delta), share)
    return log_delta, share * slope


def _value(summed: Integrand, points: Reals) -> Reals:
    """delta (or 1 - delta) over |F(theta)|, for its derivatives: from a fixed number of points.

    The expansion around the atoms is one for whole counts only, whose derivatives come from the
    bare line.
    """
    terms, parts = summed.terms, summed.parts
    if parts.nothing:
        return _of_line(summed, points)
    fixed = tuple(Term(t.noise, t.shift, lax.stop_gradient(t.count)) for t in terms)
    # On one side of the kinks at the atoms.
    epsilon = summed.epsilon + 5e-12 * lax.stop_gradient(parts.apart(points))
    value = _of_line(summed._replace(terms=fixed, epsilon=epsilon), points)
    value += parts.explicit_part(fixed, epsilon, summed.line)[0]
    moving = tuple(Term(*lax.stop_gradient((t.noise, t.shift)), t.count) for t in terms)
    epsilon, lattice = lax.stop_gradient((summed.epsilon, summed.lattice))
    bare = summed._replace(terms=moving, epsilon=epsilon, lattice=lattice, parts=Parts())
    by_count = _of_line(bare, jnp.full_like(points, jnp.inf), _BARE_NODES)
    return value + (by_count - lax.stop_gradient(by_count))


def _of_line(summed: Integrand, points: Reals, nodes: int = _NODES) -> Reals:
    terms, line, lattice = summed.terms, summed.line, summed.lattice
    # The block is in units of exp(K(theta) - theta epsilon), which move as well.
    unit = jnp.real(cumulant(terms, line.theta[..., None]))[..., 0] - line.theta * summed.epsilon
    move = unit - lax.stop_gradient(unit)
    moving = line._replace(log_size=line.log_size + move)
    if lattice is not None:
        points = jnp.minimum(points, lattice.points(line.step))
        moving = moving._replace(step=lattice.moved(line.step))
    moved = summed._replace(line=moving)
    return jnp.exp(move) * moved.block(moved.on_line(), 0, nodes, points).value
