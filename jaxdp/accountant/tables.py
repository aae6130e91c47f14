"""Tables of a composition's releases for the engines: arrays, whatever the pairs are.

One small program for each kind of pair makes them; every engine behind is then one program for all
kinds, compiled once for each padded size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._core import checks
from jaxdp._core.compilation import FEW_LANES, compiled
from jaxdp._core.types import Bools, Reals, Shape
from jaxdp._numeric.elementary import log1mexp
from jaxdp.accountant.composition import Term, Terms, is_gaussian, ratios_of, with_unused
from jaxdp.accountant.refusal import require_consistent
from jaxdp.dominating_pair.base import Law, is_on_lattice, is_whole, log_of_finite
from jaxdp.noise.structure import Kinks, Lattice

# Numbers of nodes are multiples of this. chosen: nearly every law has as many, and one program does
_NODES = 1536
# Releases of such a table. chosen: the laws of so many take milliseconds
_FEW_RELEASES = 16


class Table(NamedTuple):
    """Arrays (*batch, F) of every release of a composition, nodes along a further axis."""

    law: Law
    number: Reals  # how many there are
    log_finite: Reals  # log P[L < inf]
    drift: Reals  # log_finite less that of the exchanged pair
    largest: Reals  # finite loss
    exchanged_infinite: Reals  # log Q[L = -inf]
    smallest: Reals  # minus the smallest finite loss
    log_infinite: Reals
    anchor: Reals  # a loss that a grid should meet
    spacing: Reals  # between atoms; 0 where there is nothing to align
    lattice: Bools  # True where every loss is anchor + j spacing
    log_missed: Reals  # log of the probability that a sample misses the record; -inf: all are seen
    variance: Reals  # mu^2 of a Gaussian that is not sampled, else 0

    @property
    def shape(self) -> Shape:
        """The batch."""
        return self.number.shape[:-1]

    @property
    def log_hit(self) -> Reals:
        """log of the probability that a sample holds the record, rounded up; 0 if all see it.

        delta at epsilon >= 0 is no more than that.
        """
        always_hit = self.log_missed == -jnp.inf
        # Infinite numbers are not multiplied: a product with one has no derivative.
        total_missed = self.total(jnp.where(always_hit, 0.0, self.log_missed))
        has_certain = jnp.any(always_hit & (self.number != 0), axis=-1)
        value = log1mexp(jnp.where(has_certain, 1.0, -total_missed)) * (1.0 - 2.0**-48)
        return jnp.where(has_certain, 0.0, value)

    @property
    def used(self) -> Reals:
        """The number of releases that take place."""
        return jnp.sum(jnp.where(self.number == 0, 0.0, 1.0), axis=-1)

    def total(self, values: Reals) -> Reals:
        """The sum of number times each (*batch, F); 0 releases are none, whatever their loss."""
        return jnp.sum(jnp.where(self.number == 0, 0.0, self.number * values), axis=-1)


def tabled(terms: Terms) -> Table:
    """The table of all terms; of concrete ones padded to a power of four of releases."""
    if not checks.all_concrete(terms):
        return _joined(tuple(map(_table_of, terms)), sum(t.count.shape[-1] for t in terms))
    terms = grown_terms(terms)
    releases = power_of_four(sum(term.count.shape[-1] for term in terms))
    table = _joined(tuple(_table_of(term) for term in terms), releases)
    require_consistent(table.number, terms)
    return table


def grown_terms(terms: Terms) -> Terms:
    """Known terms `padded`, a few lanes of one term to 16 releases or more.

    A schedule that grows finds its programs compiled; unused releases cost a contour nothing.
    """
    is_small = len(terms) == 1 and math.prod(terms[0].shape) <= FEW_LANES
    return padded(terms, _FEW_RELEASES if is_small else 1)


def padded(terms: Terms, fewest: int = 1) -> Terms:
    """Known terms with releases that are none, a power of four of them, and at least so many."""
    return tuple(with_unused(t, max(power_of_four(t.count.shape[-1]), fewest)) for t in terms)


def power_of_four(size: int) -> int:
    """The least power of four from `size` on."""
    return 4 ** -(-(size - 1).bit_length() // 2)


def table_of(term: Term) -> Table:
    """The releases of one term."""
    # XLA takes long chains of operations on what is broadcast for a stuck rewrite.
    term = lax.optimization_barrier(term)
    pair = term.pair.prepared()
    law, exchanged = pair.law(), pair.reversed().law()
    # Of a law that contradicts itself nothing is known: no number of releases.
    holds = is_whole(law) & is_on_lattice(law, term.pair.singularities())
    number = jnp.where(holds | (term.count == 0), term.count, jnp.nan)
    log_finite, log_other = (log_of_finite(x.log_infinite) for x in (law, exchanged))
    drift = log_finite - log_other
    anchor, spacing, lattice = _alignment(term, drift)
    log_missed = log1mexp(-term.pair.log_hit())
    variance = ratios_of(term) ** 2 if is_gaussian(term) else jnp.zeros_like(drift)
    columns = (
        *(number, log_finite, drift, law.largest, exchanged.log_infinite, exchanged.largest),
        *(law.log_infinite, anchor, spacing, lattice, log_missed, variance),
    )
    law = law._replace(log_left_out=jnp.broadcast_to(law.log_left_out, term.count.shape))
    # XLA compiles anew for every pattern of weak types.
    strong = (x if x.dtype == bool else x.astype(jnp.float64) for x in columns)
    return Table(_padded(law), *(jnp.broadcast_to(x, term.count.shape) for x in strong))


def joined(tables: tuple[Table, ...], releases: int) -> Table:
    """One table of all releases, padded to so many by releases that are none."""
    nodes = max(table.law.loss.shape[-1] for table in tables)
    checks = max(table.law.check[0].shape[-1] for table in tables)
    padded_tables = (t._replace(law=_to_nodes(t.law, nodes, checks)) for t in tables)
    axis = len(tables[0].shape)
    table = jax.tree.map(lambda *x: jnp.concatenate(x, axis=axis), *padded_tables)
    spare = releases - table.number.shape[-1]

    def pad(x: Reals | Bools) -> Reals | Bools:
        return jnp.pad(x, [(0, spare if i == axis else 0) for i in range(x.ndim)], mode="edge")

    is_used = jnp.arange(releases) < releases - spare
    table = jax.tree.map(pad, table)
    return table._replace(number=jnp.where(is_used[(None,) * axis], table.number, 0.0))


def _alignment(term: Term, drift: Reals) -> tuple[Reals, Reals, Bools]:
    singularities = term.pair.singularities()
    anchor, spacing = jnp.zeros_like(drift), jnp.zeros_like(drift)
    if isinstance(singularities, Lattice):
        anchor, spacing = 0.5 * singularities.odd * singularities.unit, singularities.unit
    elif isinstance(singularities, Kinks):
        atoms = singularities.atoms or (jnp.asarray(jnp.nan),)
        places = jnp.stack([jnp.broadcast_to(x, drift.shape) for x in atoms])
        anchor = jnp.max(places, axis=0)
        spacing = anchor - jnp.min(places, axis=0)
    valid = jnp.isfinite(anchor) & jnp.isfinite(spacing)
    lattice = valid if isinstance(singularities, Lattice) else jnp.zeros_like(valid)
    return jnp.where(valid, anchor - drift, 0.0), jnp.where(valid, spacing, 0.0), lattice


def _padded(law: Law) -> Law:
    sizes = (-(-x.shape[-1] // _NODES) * _NODES for x in (law.loss, law.check[0]))
    return _to_nodes(law, *sizes)


def _to_nodes(law: Law, nodes: int, checks: int) -> Law:
    """Law padded to more nodes, which have no mass and lie at the last loss."""

    def pad(x: Reals, to: int, mass: bool = False) -> Reals:
        width = [(0, 0)] * (x.ndim - 1) + [(0, to - x.shape[-1])]
        if mass:
            return jnp.pad(x, width, constant_values=-jnp.inf)
        return jnp.pad(x, width, mode="edge")

    loss, log_mass = law.check
    return law._replace(
        loss=pad(law.loss, nodes),
        log_mass=pad(law.log_mass, nodes, True),
        log_density=pad(law.log_density, nodes),
        check=(pad(loss, checks), pad(log_mass, checks, True)),
    )


_table_of, _joined = compiled(table_of, (), by_lanes=True), compiled(joined, 1)
