"""Laplaces, responses, bounded ranges of different sizes: their edges are summed explicitly.

With s = z + 1/2 such a loss has M(z) = 2 e^(-h / 2) (p cosh(s h) + a sinh(s h) / s), `LossEdges`.
The product over all releases is a sum over atoms, at +-h_1 +-h_2 ..., of e^(s atom) times
prod (p_i +- a_i / s): multiplied out up to the fourth power of 1 / s, their deltas are known
(`edge_profile`). What is left falls like 1 / |z|^7, whatever recurs, and the line sums that. It is
the delta of a measure: of the densities of five releases or more, and the atoms of the others.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import LOG_2, ULP
from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.alike import alike
from jaxdp.loss.base import Terms
from jaxdp.loss.edge_sum import Products, explicit_sum, met
from jaxdp.loss.edge_table import MOST_ALIKE, ORDER, SIZE, log_factorial
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.noise.base import Points

# Sums of atoms that meet a table of others.
_MOST = 2**21
# Different heights, and releases that are compared with each other.
_SLOTS, _MOST_PARTS = int(math.log2(_MOST * SIZE)), 128
# The rest is compared at heights of 1, 2, 4, ... points.
_HEIGHTS = 18
# log of a bound that settles nothing.
_LARGEST = 500.0


class Edges(NamedTuple):
    """Of a composition, equal releases together: (*batch, slots), and (*batch,)."""

    each: LossEdges
    fold: Reals
    split: Bools  # whether there is anything to split off

    @property
    def apart(self) -> Reals:
        """The least way between two steps of one atom: 0 where nothing is split."""
        nearest = jnp.min(jnp.where(self.fold > 0, 2.0 * self.each.height, jnp.inf), axis=-1)
        return jnp.where(self.split, nearest, 0.0)

    @property
    def window(self) -> Reals:
        """The height by which all that recurs has been seen: what is left does not recur."""
        return jnp.zeros(self.split.shape)

    @property
    def reach(self) -> Reals:
        """The largest sum of losses: the atoms' positions are rounded by parts of it."""
        return jnp.sum(self.fold * self.each.height, axis=-1)

    def _shares(self, theta: Reals) -> tuple[Reals, Reals, Reals]:
        """tanh(s h) at s = theta + 1/2; the atoms' and the density's part of M(theta).

        The latter times s / tanh(s h). All (*batch, slots).
        """
        s, height = theta[..., None] + 0.5, self.each.height
        turn = jnp.tanh(s * height)
        small = jnp.abs(s * height) < 1e-5
        ratio = jnp.where(small, height, turn / jnp.where(small, 1.0, s))
        atom, density = jnp.exp(self.each.log_atom), jnp.exp(self.each.log_density)
        whole = atom + density * ratio
        return turn, atom / whole, density / whole

    def remainder(
        self, turn: Complexes, points: Points, log_total: Reals
    ) -> tuple[Complexes, Reals]:
        """M / M(theta) without its lowest powers of 1 / s; and its terms' sizes added."""
        del log_total
        whole = jnp.exp(turn)
        height, s = points.heights(), points.theta[..., None] + 0.5
        slots = (*self._shares(points.theta), self.each.height, self.fold)
        slots = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0)[..., None], slots)

        def times(products: Complexes, slot: tuple[Reals, ...]) -> tuple[Complexes, Reals]:
            lean, atom, density, h, n = slot
            sine, cosine = sine_cosine(h * height)
            atoms = lax.complex(atom * cosine, atom * lean * sine)
            still = height**2 + s**2 == 0
            real, imaginary = (x / jnp.where(still, 1.0, height**2 + s**2) for x in (s, height))
            up, across = lean * cosine, sine
            rest = lax.complex(
                density * jnp.where(still, h, up * real + across * imaginary),
                density * jnp.where(still, 0.0, across * real - up * imaginary),
            )
            powers, log_size = _powers(atoms, rest, n)
            return _product(products, powers), log_size

        one = jnp.zeros((ORDER + 1, *height.shape), complex).at[0].set(1.0)
        products, log_sizes = lax.scan(times, one, slots)
        low = jnp.where(self.split[..., None], jnp.sum(products, axis=0), 0.0)
        size = jnp.where(self.split[..., None], jnp.exp(jnp.sum(log_sizes, axis=0)), 0.0)
        return whole - low, jnp.abs(whole) + size

    def tail(self, line: Line) -> Callable[[Reals], Reals]:
        """A function of the height: a bound on int of what is left over pi t^2 from there on.

        Where |s| >= t the products of k densities are below c_k / t^k, the sum of all c_k w^k is
        P(w) = prod (atom_i + density_i w)^n_i, and those of more than ORDER of them are below
        (1 / (t w))^(ORDER + 1) P(w) for every w >= 1 / t. Infinite where nothing is split.
        """
        _, atom, density = self._shares(line.theta)
        order = ORDER + 1.0
        points = 2.0 ** jnp.arange(_HEIGHTS)[(None,) * line.step.ndim]
        probes = line.step[..., None] * points
        parts = atom[..., None, :] + density[..., None, :] / probes[..., None]
        above = jnp.sum(self.fold[..., None, :] * jnp.log(parts), axis=-1)

        def bound(height: Reals) -> Reals:
            way = jnp.maximum(height - 0.5 * line.step, 0.5 * line.step)[..., None]
            logs = above + order * jnp.log(probes / way)
            least = jnp.min(jnp.where(probes <= way, logs, jnp.inf), axis=-1)
            # Finite, however little is known: infinite means that nothing is split.
            tail = jnp.exp(jnp.minimum(least, _LARGEST)) / (jnp.pi * way[..., 0] * (order + 1.0))
            return jnp.where(self.split, tail, jnp.inf)

        return bound

    def log_unresolved(self, terms: Terms, theta: Reals, height: Reals) -> Reals:
        """log of a bound on what is summed from a height on: cumulants are all resolved."""
        del terms, theta
        return jnp.zeros_like(height)

    def explicit_part(
        self, terms: Terms, epsilon: Reals, theta: Reals, log_size: Reals, complement: Bools
    ) -> tuple[Reals, Reals]:
        """What `remainder` leaves out of delta over exp(log_size); its error."""
        del terms, theta, complement
        value, absolute = explicit_sum(
            Products(self.each, epsilon, log_size), self.fold, self.split
        )
        heavy = log_factorial(self.fold) + self.fold * (
            jnp.abs(self.each.log_mass()) + self.each.height
        )
        rounding = 256.0 + 4.0 * jnp.sum(heavy, axis=-1) + 4.0 * jnp.abs(log_size)
        return value, ULP * rounding * absolute


def edges_of(terms: Terms, line: Line, lattice: Lattice | None) -> Edges | None:
    """None where some term is of no such kind, whatever the values."""
    found = [term.noise.edges(term.shift) for term in terms]
    known = [edges for edges in found if edges is not None]
    if len(known) < len(terms):
        return None
    each = jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *known)
    count = lax.stop_gradient(jnp.concatenate([term.count for term in terms], axis=-1))
    if count.shape[-1] > _MOST_PARTS:
        return None
    groups = alike(tuple(each), jnp.where(each.is_nothing(), 0.0, count))
    each, count = LossEdges(*(groups.mean(x) for x in each)), groups.fold
    several = jnp.sum(count > 0, axis=-1) <= _SLOTS
    if count.shape[-1] > _SLOTS:
        first = jnp.argsort(-count, axis=-1)[..., :_SLOTS]
        each, count = jax.tree.map(lambda x: jnp.take_along_axis(x, first, axis=-1), (each, count))
    used = count > 0
    good = jnp.isfinite(each.height) & (each.log_mass() > -jnp.inf)
    split = jnp.any(used, axis=-1) & several & jnp.all(good | ~used, axis=-1)
    split &= jnp.all((count <= MOST_ALIKE) & (count == jnp.round(count)), axis=-1)
    split &= (met(count) <= _MOST) & ~line.complement
    if lattice is not None:
        split &= ~lattice.found
    used &= split[..., None]
    either = (each.height, 0.0), (each.log_atom, -LOG_2), (each.log_density, -jnp.inf)
    each = LossEdges(*(jnp.where(used, x, none) for x, none in either))
    return Edges(each, jnp.where(used, count, 0.0), split)


def _powers(atoms: Complexes, rest: Complexes, n: Reals) -> tuple[list[Complexes], Reals]:
    """binomial(n, k) atoms^(n - k) rest^k for k = 0 ... ORDER; log (|atoms| + |rest|)^n."""
    beyond, none = jnp.maximum(n - ORDER, 0.0), atoms == 0
    some = jnp.where(none, 1.0, atoms)
    sine, cosine = sine_cosine(beyond * jnp.angle(some))
    power = jnp.where(none & (beyond > 0), 0.0, jnp.exp(beyond * jnp.log(jnp.abs(some))))
    of_atoms = [lax.complex(power * cosine, power * sine)]
    for k in range(ORDER - 1, -1, -1):
        of_atoms.append(jnp.where(k + 1 <= n, of_atoms[-1] * atoms, 1.0))
    ways, of_rest, powers = jnp.ones_like(n), jnp.ones_like(rest), []
    for k in range(ORDER + 1):
        powers.append(ways * of_atoms[ORDER - k] * of_rest)
        ways, of_rest = ways * jnp.maximum(n - k, 0.0) / (k + 1), of_rest * rest
    sizes = jnp.abs(lax.stop_gradient(atoms)) + jnp.abs(lax.stop_gradient(rest))
    return powers, n * jnp.log(sizes)


def _product(products: Complexes, powers: list[Complexes]) -> Complexes:
    """Of two polynomials, up to the power ORDER."""
    rows = []
    for k in range(ORDER + 1):
        total = products[0] * powers[k]
        for q in range(1, k + 1):
            total = total + products[q] * powers[k - q]
        rows.append(total)
    return jnp.stack(rows)
