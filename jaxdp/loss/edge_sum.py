"""The sum over all atoms of a composition of `LossEdges`: a table of some, met by all others."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._types import Bools, Reals
from jaxdp.loss.chunked import chunked
from jaxdp.loss.edge_table import ORDER, SIZE, EdgeTable, Translation, edge_sums

_CHUNK = 128
_FULL = math.log(SIZE) + 1e-9


class Products(NamedTuple):
    """What is summed: (*batch, slots), and (*batch,)."""

    each: LossEdges
    epsilon: Reals
    log_size: Reals


class Found(NamedTuple):
    """Both (*batch,): the sum, and that of its terms' sizes."""

    value: Reals
    size: Reals


class _Moving(NamedTuple):
    each: LossEdges
    table: EdgeTable
    room: Reals  # half of the way from epsilon up to the largest atom, (lanes,)
    log_unit: Reals


class _Fixed(NamedTuple):
    fold: Reals  # of what is not in the table, (lanes, slots)
    total: Reals  # the number of its sums, (lanes,)
    missing: Reals  # releases without atoms


def in_table(fold: Reals) -> Bools:
    """The slots (*batch, slots) whose sums are kept in a table: those with the fewest, first."""
    order = jnp.argsort(fold, axis=-1)
    fits = jnp.cumsum(jnp.log1p(jnp.take_along_axis(fold, order, axis=-1)), axis=-1) <= _FULL
    return jnp.take_along_axis(fits, jnp.argsort(order, axis=-1), axis=-1)


def met(fold: Reals) -> Reals:
    """How many sums meet the table, (*batch,)."""
    return jnp.prod(jnp.where(in_table(fold), 0.0, fold) + 1.0, axis=-1)


def explicit_sum(products: Products, fold: Reals, split: Bools) -> Found:
    """delta over exp(log_size), where `split`, of products of ORDER densities at most.

    The size has no derivative.
    """
    batch = split.shape
    products, fold, split = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[len(batch) :]), (products, fold, split)
    )
    each, near = products.each, in_table(fold)
    bare = each.log_atom == -jnp.inf
    log_mass = jnp.where(bare, each.log_density, each.log_atom)

    def over_slots(x: Reals) -> Reals:
        return jnp.sum(jnp.where(fold > 0, fold * x, 0.0), axis=-1)

    apart = jnp.where(near, 0.0, fold)
    moving = _Moving(
        each,
        EdgeTable.of(each, jnp.where(near, fold, 0.0)),
        0.5 * (over_slots(each.height) - products.epsilon),
        over_slots(log_mass) - products.log_size,
    )
    total = jnp.where(split, jnp.prod(apart + 1.0, axis=-1), 0.0)
    fixed = _Fixed(apart, total, jnp.sum(jnp.where(bare, fold, 0.0), axis=-1))
    found = chunked(_of_chunk, _CHUNK, moving, fixed)
    return Found(*(x.reshape(batch) for x in found))


def _of_chunk(moving: _Moving, first: Reals, fixed: _Fixed) -> Found:
    total = fixed.total
    index = jnp.broadcast_to(first + jnp.arange(float(_CHUNK))[None], (*total.shape, _CHUNK))
    sums = edge_sums(moving.each, fixed.fold, index)
    # What is left of the way down, for the sums of the table.
    room = moving.room[:, None] - sums.down
    downs, rooms = lax.stop_gradient((moving.table.down, room))
    above = jax.vmap(jnp.searchsorted)(downs, rooms)
    inside = (above > 0) & (index < total[:, None])
    last = jnp.maximum(above - 1, 0)
    down, unit = (
        jnp.take_along_axis(x, last, axis=1) for x in (moving.table.down, moving.table.log_unit)
    )
    profiles = tuple(jnp.take_along_axis(x, last[..., None], axis=1) for x in moving.table.profiles)
    way = 2.0 * jnp.where(inside, room - down, 0.0)
    moved = Translation.of(way).moved(profiles)[1:]
    log_weight = sums.log_weight + unit + moving.log_unit[:, None]
    weight = jnp.exp(jnp.where(inside, log_weight, -jnp.inf))
    powers = ORDER + 1
    value = _combined(sums.series, [x[..., :powers] for x in moved], fixed.missing)
    size = _combined(sums.sizes, [x[..., powers:] for x in moved], fixed.missing)
    return Found(jnp.sum(weight * value, axis=-1), jnp.sum(weight * size, axis=-1))


def _combined(series: tuple[Reals, ...], moved: list[Reals], missing: Reals) -> Reals:
    """The sum of series[k - missing] moved[k + m][m] over k + m <= ORDER."""
    total = jnp.zeros_like(series[0])
    for k in range(ORDER + 1):
        terms = [moved[k + m][..., m] for m in range(ORDER + 1 - k)]
        shifted = jnp.zeros_like(total)
        for j in range(k + 1):
            shifted = jnp.where(missing[:, None] == k - j, series[j], shifted)
        total = total + shifted * functools.reduce(jnp.add, terms)
    return total
