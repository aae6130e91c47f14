"""A batch of lanes: terms, the value of each lane, and the table of its different losses.

Lanes whose terms are equal, byte by byte, are one loss. Batches that are picked from a batch share
its table. Each loss is tabulated once, when an engine first reads it. A table holds arrays that are
the same for all kinds of pairs.

`require_consistent` raises where the definition of a noise or a law contradicts itself.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import kernel, xp
from jaxdp._core.types import Bools, Lanes, Reals
from jaxdp._numeric.elementary import log1mexp
from jaxdp.accountant.composition import Term, Terms, is_gaussian, ratios_of
from jaxdp.dominating_pair.base import DominatingPair, Law, is_on_lattice, is_whole, log_of_finite
from jaxdp.noise.base import Noise
from jaxdp.noise.structure import Kinks, Lattice

MANY = 5000  # releases from which on their nodes are counted. chosen: 1 GiB
MOST_NODES = 3e7  # of a composition. measured: 20 numbers of each take 5 GiB


class Loss(NamedTuple):
    """A loss, and its lanes in the batch."""

    key: Any  # its terms' kind and bytes
    lanes: np.ndarray


class Batch:
    """Terms (lanes, releases), and the epsilon or the delta of every lane."""

    def __init__(
        self, terms: Terms, values: Lanes, tables: _Tables | None = None, rows: Any = None
    ):
        self.terms, self.values = terms, values
        self._tables, self._rows = tables or _Tables(terms), rows

    def at(self, lanes: Any, values: Lanes | None = None) -> Batch:
        """Some concrete lanes, with other values if given."""
        rows = lanes if self._rows is None else self._rows[lanes]
        values = np.asarray(self.values)[lanes] if values is None else values
        terms = jax.tree.map(lambda x: x[lanes], self.terms)
        return Batch(terms, values, self._tables, rows)

    @property
    def table(self) -> Table:
        """The table of all lanes, which must be concrete; each loss is tabulated once."""
        return self._tables.at(self._rows)

    @property
    def losses(self) -> list[Loss]:
        """The different losses of concrete lanes."""
        numbers, keys = self._tables.losses
        numbers = numbers if self._rows is None else numbers[self._rows]
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        parts = np.split(order, starts[1:])
        return [Loss(keys[numbers[lanes[0]]], lanes) for lanes in parts if lanes.size]


class _Tables:
    """The tables of the different losses of concrete terms (lanes, releases)."""

    def __init__(self, terms: Terms):
        self._terms = terms
        self._table: Any = None

    @cached_property
    def losses(self) -> tuple[np.ndarray, list[Any]]:
        """Index of each lane's loss, and the keys of the losses (kind and bytes of their terms)."""
        leaves, tree = jax.tree.flatten(self._terms)
        size = leaves[0].shape[0]
        flat = [np.ascontiguousarray(x).reshape(size, -1).view(np.uint8) for x in leaves]
        found: dict[bytes, int] = {}
        rows = np.concatenate(flat, axis=1)
        numbers = np.array([found.setdefault(x.tobytes(), len(found)) for x in rows])
        kind = tree, tuple(x.shape[1:] for x in leaves)
        return numbers, [(*kind, row) for row in found]

    @cached_property
    def _places(self) -> np.ndarray:
        """Row of each loss in the table; -1 for a loss that is not tabulated yet."""
        return np.full(len(self.losses[1]), -1)

    def at(self, lanes: Any) -> Table:
        """The table of some lanes, or of all if None."""
        numbers = self.losses[0] if lanes is None else self.losses[0][lanes]
        wanted, first = np.unique(numbers, return_index=True)
        is_new = self._places[wanted] < 0
        if is_new.any():
            at = first[is_new] if lanes is None else lanes[first[is_new]]
            terms = jax.tree.map(lambda x: x[at], self._terms)
            new = jax.tree.map(np.asarray, joined(tuple(map(table_of, terms))))
            require_consistent(new.number, terms)
            self._places[wanted[is_new]] = np.sum(self._places >= 0) + np.arange(at.size)
            if self._table is not None:
                new = jax.tree.map(lambda *x: np.concatenate(x), *alike((self._table, new)))
            self._table = new
        return jax.tree.map(lambda x: x[self._places[numbers]], self._table)


def require_consistent(answer: Any, terms: Terms) -> None:
    """Raise `ValueError` if concrete terms gave NaN or infinity and a noise or law is inconsistent.

    Engines return NaN, and some an infinite epsilon, for such a law, because a callback must not
    raise. Terms that already contain NaN raise no error.
    """
    answers = jax.tree.leaves(answer)
    if all((np.asarray(x) < np.inf).all() for x in answers):
        return
    unknown = any(np.isnan(x).any() for x in answers)
    for term in terms:
        for noise in jax.tree.leaves(term.pair, is_leaf=lambda x: isinstance(x, Noise)):
            if isinstance(noise, Noise):
                noise.is_consistent()
        if unknown:
            _require_law(term.pair)


def require_few(terms: Terms) -> None:
    """Raise `ValueError` if the laws of concrete terms have more nodes than memory holds."""
    for term in terms:
        releases = term.count.shape[-1]
        if releases < MANY or is_gaussian(term) or term.pair.mixtures():
            continue
        with kernel():
            one = jax.tree.map(lambda x: x[(0,) * (x.ndim - 1)][:1], term.pair)
            most = int(MOST_NODES // one.law().loss.shape[-1])
        if releases > most:
            raise ValueError(
                f"at most {most:,} different releases of this kind can be composed, got "
                f"{releases:,}. Equal releases count once: multiply their loss by their number"
            )


def _require_law(pair: DominatingPair) -> None:
    """Raise `ValueError` unless the law of the pair, and of each part of it, is consistent."""

    def is_part(x: object) -> bool:
        return isinstance(x, DominatingPair) and x is not pair

    for part in jax.tree.leaves(pair, is_leaf=is_part):
        if isinstance(part, DominatingPair):
            _require_law(part)
    with kernel():
        law = jax.tree.map(np.asarray, pair.law())
        total = np.sum(np.exp(law.log_mass), axis=-1) + np.exp(law.log_infinite)
        is_wrong = ~np.asarray(is_whole(law)) & ~np.isnan(total)
        fits = np.asarray(is_on_lattice(law, pair.singularities()))
        left_out = np.broadcast_to(np.exp(law.log_left_out), total.shape)
    if is_wrong.any():
        raise ValueError(
            f"the masses of the law of {type(pair).__name__} must add up to 1 less what it leaves "
            f"out, exp(log_left_out) = {left_out[is_wrong].flat[0]:.3g}: they add up to "
            f"{total[is_wrong].flat[0]:.12g}"
        )
    if not fits.all():
        raise ValueError(
            f"singularities() of {type(pair).__name__} must be a Lattice(unit, odd) of which every "
            "loss of law() is a whole multiple of unit, plus half of it where odd is 1: some are "
            "not. Kinks((nan,)) is right for atoms anywhere"
        )


class Table(NamedTuple):
    """Arrays (*batch, F) of every release of a composition, with nodes along a further axis."""

    law: Law
    number: Reals  # number of equal releases
    log_finite: Reals  # log P[L < inf]
    drift: Reals  # log_finite less log_finite of the exchanged pair
    largest: Reals  # largest finite loss
    exchanged_infinite: Reals  # log Q[L = -inf]
    smallest: Reals  # minus the smallest finite loss
    log_infinite: Reals
    anchor: Reals  # a loss that a grid point should meet
    spacing: Reals  # between atoms; 0 without atoms to align
    lattice: Bools  # True where every loss is anchor + j spacing
    log_missed: Reals  # log probability that a sample misses the record; -inf: no sampling
    variance: Reals  # mu^2 of a Gaussian that is not sampled, else 0

    @property
    def log_hit(self) -> Reals:
        """log of the probability that a sample holds the record, rounded up; 0 without sampling.

        It bounds log delta at every epsilon >= 0.
        """
        always_hit = self.log_missed == -xp.inf
        total_missed = self.total(xp.where(always_hit, 0.0, self.log_missed))
        has_certain = xp.any(always_hit & (self.number != 0), axis=-1)
        value = log1mexp(xp.where(has_certain, 1.0, -total_missed)) * (1.0 - 2.0**-48)
        return xp.where(has_certain, 0.0, value)

    @property
    def used(self) -> Reals:
        """Number of rows with a positive number of releases."""
        return xp.sum(xp.where(self.number == 0, 0.0, 1.0), axis=-1)

    def total(self, values: Reals) -> Reals:
        """Sum of number times each value (*batch, F); rows of 0 releases contribute 0."""
        return xp.sum(xp.where(self.number == 0, 0.0, self.number * values), axis=-1)


def table_of(term: Term) -> Table:
    """Table of the releases of one term."""
    law, other = term.pair.law(), term.pair.reversed()
    exchanged = law if other is term.pair else other.law()
    # A law that contradicts itself gets NaN as its number of releases.
    holds = is_whole(law) & is_on_lattice(law, term.pair.singularities())
    number = xp.where(holds | (term.count == 0), term.count, xp.nan)
    log_finite, log_other = (log_of_finite(x.log_infinite) for x in (law, exchanged))
    drift = log_finite - log_other
    anchor, spacing, lattice = _alignment(term, drift)
    log_missed = log1mexp(-term.pair.log_hit())
    variance = ratios_of(term) ** 2 if is_gaussian(term) else xp.zeros_like(drift)
    columns = (
        *(number, log_finite, drift, law.largest, exchanged.log_infinite, exchanged.largest),
        *(law.log_infinite, anchor, spacing, lattice, log_missed, variance),
    )
    law = law._replace(log_left_out=xp.broadcast_to(law.log_left_out, term.count.shape))
    typed = (x if x.dtype == bool else x.astype(float) for x in columns)
    return Table(law, *(xp.broadcast_to(x, term.count.shape) for x in typed))


def joined(tables: tuple[Table, ...]) -> Table:
    """One table of all releases."""
    if len(tables) == 1:
        return tables[0]
    axis = tables[0].number.ndim - 1
    return jax.tree.map(lambda *x: xp.concatenate(x, axis=axis), *alike(tables))


def alike(tables: tuple[Table, ...]) -> tuple[Table, ...]:
    """Tables padded to one number of nodes, which can depend on concrete parameters."""
    nodes = max(table.law.loss.shape[-1] for table in tables)
    check_nodes = max(table.law.check[0].shape[-1] for table in tables)
    return tuple(t._replace(law=_to_nodes(t.law, nodes, check_nodes)) for t in tables)


def _alignment(term: Term, drift: Reals) -> tuple[Reals, Reals, Bools]:
    singularities = term.pair.singularities()
    anchor, spacing = xp.zeros_like(drift), xp.zeros_like(drift)
    if isinstance(singularities, Lattice):
        anchor, spacing = 0.5 * singularities.odd * singularities.unit, singularities.unit
    elif isinstance(singularities, Kinks):
        atoms = singularities.atoms or (xp.asarray(xp.nan),)
        places = xp.stack([xp.broadcast_to(x, drift.shape) for x in atoms])
        anchor = xp.max(places, axis=0)
        spacing = anchor - xp.min(places, axis=0)
    valid = xp.isfinite(anchor) & xp.isfinite(spacing)
    lattice = valid if isinstance(singularities, Lattice) else xp.zeros_like(valid)
    return xp.where(valid, anchor - drift, 0.0), xp.where(valid, spacing, 0.0), lattice


def _to_nodes(law: Law, nodes: int, check_nodes: int) -> Law:
    """Law padded to more nodes, which have no mass and lie at the last loss."""

    def pad(x: Reals, to: int, mass: bool = False) -> Reals:
        width = [(0, 0)] * (x.ndim - 1) + [(0, to - x.shape[-1])]
        if mass:
            return xp.pad(x, width, constant_values=-xp.inf)
        return xp.pad(x, width, mode="edge")

    loss, log_mass = law.check
    return law._replace(
        loss=pad(law.loss, nodes),
        log_mass=pad(law.log_mass, nodes, True),
        log_density=pad(law.log_density, nodes),
        check=(pad(loss, check_nodes), pad(log_mass, check_nodes, True)),
    )
