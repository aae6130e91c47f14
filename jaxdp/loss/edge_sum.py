"""The sum over all atoms of a composition of `LossEdges`, in chunks of atoms."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.edge_profile import above, below
from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._types import Bools, Reals
from jaxdp.loss.chunked import chunked

# Densities whose products are summed explicitly.
ORDER = 4
# Of equal releases.
MOST_ALIKE = 2**14
_CHUNK = 1024


class Products(NamedTuple):
    """What is summed: (*batch, slots), and (*batch,)."""

    each: LossEdges
    epsilon: Reals
    log_size: Reals


class Fixed(NamedTuple):
    """What has no derivative."""

    fold: Reals  # (*batch, slots)
    total: Reals  # the number of atoms, (*batch,)
    mirror: Bools


class _Atoms(NamedTuple):
    """Some atoms: all (*batch, atoms)."""

    rest: Reals  # the digits of the slots to come
    log_ways: Reals
    down: Reals  # the way down from the largest
    even: Reals  # whether the sign is +
    leans: tuple[Reals, ...]  # of the odd powers: sum of (up - down) (a / p)^k


@functools.cache
def _log_factorials() -> np.ndarray:
    return np.array([math.lgamma(n + 1.0) for n in range(MOST_ALIKE + 1)])


def log_factorial(n: Reals) -> Reals:
    """Of whole n up to MOST_ALIKE."""
    return jnp.asarray(_log_factorials())[n.astype(int)]


class Found(NamedTuple):
    """Both (*batch,): the sum, and that of its terms' sizes."""

    value: Reals
    size: Reals


def explicit_sum(products: Products, fixed: Fixed) -> Found:
    """delta (where `mirror`: 1 - delta) over exp(log_size), of products of ORDER densities at most.

    The size has no derivative.
    """
    return Found(*chunked(_of_chunk, _CHUNK, products, fixed))


def _of_chunk(products: Products, first: Reals, fixed: Fixed) -> Found:
    each, count, total = products.each, fixed.fold, fixed.total
    bare = each.log_atom == -jnp.inf
    atom, density = (jnp.where(bare, 0.0, x) for x in (each.log_atom, each.log_density))
    odds = jnp.where(bare, 0.0, jnp.exp(density - atom))
    log_mass = jnp.where(bare, each.log_density, each.log_atom)
    index = first + jnp.arange(float(_CHUNK))[(None,) * total.ndim]
    start = jnp.broadcast_to(index, (*total.shape, _CHUNK))
    zero = jnp.zeros_like(start)
    odd = range(1, ORDER + 1, 2)

    def descend(atoms: _Atoms, slot: tuple[Reals | Bools, ...]) -> tuple[_Atoms, None]:
        n, height, ratio, alternating = slot
        later = jnp.floor(atoms.rest / (n + 1.0))
        down = atoms.rest - later * (n + 1.0)
        turns = jnp.where(alternating, down, 0.0) % 2.0
        return _Atoms(
            later,
            atoms.log_ways + log_factorial(n) - log_factorial(down) - log_factorial(n - down),
            atoms.down + down * height,
            jnp.where(turns == 1, 1.0 - atoms.even, atoms.even),
            tuple(x + (n - 2.0 * down) * ratio**k for x, k in zip(atoms.leans, odd, strict=True)),
        ), None

    slots = jax.tree.map(
        lambda x: jnp.moveaxis(x, -1, 0)[..., None], (count, each.height, odds, bare)
    )
    none = _Atoms(start, zero, zero, zero + 1.0, (zero,) * len(odd))
    atoms = lax.scan(descend, none, slots)[0]

    def over_slots(x: Reals) -> Reals:
        return jnp.sum(jnp.where(count > 0, count * x, 0.0), axis=-1)[..., None]

    highest = over_slots(each.height)
    epsilon, size = products.epsilon[..., None], products.log_size[..., None]
    x = highest - epsilon - 2.0 * atoms.down
    mirrored = fixed.mirror[..., None]
    inside = (start < total[..., None]) & (mirrored | (x > 0))
    level = jnp.where(mirrored, 0.5 * (epsilon - highest), -atoms.down)
    log_weight = level + atoms.log_ways + over_slots(log_mass) - size
    weight = jnp.exp(jnp.where(inside, log_weight, -jnp.inf))
    logs = [
        atoms.leans[k // 2] / k if k % 2 else -over_slots(odds**k) / k for k in range(1, ORDER + 1)
    ]
    missing = jnp.sum(jnp.where(bare, count, 0.0), axis=-1)[..., None]
    pairs = zip(above(jnp.where(mirrored, 1.0, x), ORDER), below(x, ORDER), strict=True)
    profile = [jnp.where(mirrored, y, g) for g, y in pairs]
    value = _combined(_exponential(logs), missing, profile)
    sizes = _combined(
        _exponential([jnp.abs(c) for c in logs]), missing, [jnp.abs(g) for g in profile]
    )
    signed = jnp.where(atoms.even == 1, weight, -weight) * value
    return Found(jnp.sum(signed, axis=-1), jnp.sum(weight * sizes, axis=-1))


def _exponential(logs: list[Reals]) -> list[Reals]:
    """The coefficients of exp(logs[0] w + logs[1] w^2 + ...)."""
    found = [jnp.ones_like(logs[0])]
    for k in range(1, ORDER + 1):
        terms = [i * logs[i - 1] * found[k - i] for i in range(1, k + 1)]
        found.append(functools.reduce(jnp.add, terms) / k)
    return found


def _combined(series: list[Reals], missing: Reals, profile: list[Reals]) -> Reals:
    """The sum of series[k] profile[k + missing]."""
    total = 0.0 * profile[0]
    for shift in range(ORDER + 1):
        shifted = zip(series[: ORDER + 1 - shift], profile[shift:], strict=True)
        terms = [c * g for c, g in shifted]
        total = total + jnp.where(missing == shift, functools.reduce(jnp.add, terms), 0.0)
    return total
