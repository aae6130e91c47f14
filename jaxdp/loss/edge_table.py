"""All sums of some releases' edges, sorted: what those above each of them add up to.

Of atoms at b_j with weights g_j and series c_m(j) in 1 / s, `EdgeTable` holds at every atom b_i

    sum_(j: b_j >= b_i) g_j c_m(j) e^(-(b_j - b_i) / 2) G_k(b_j - b_i),   k = -1 ... ORDER,

G_k as in `edge_profile`, G_-1 = cosh(x / 2). These functions are closed under translations, by
matrices without negative entries: nothing cancels on the way from one atom to the next, nor on that
to an epsilon between two of them.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.edge_profile import above
from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._types import Bools, Reals

# Densities whose products are summed explicitly.
ORDER = 4
# Of equal releases.
MOST_ALIKE = 2**14
# Sums in a table: so many blocks of so many.
_BLOCKS, _LONG = 16, 16
SIZE = _BLOCKS * _LONG


@functools.cache
def _log_factorials() -> np.ndarray:
    return np.array([math.lgamma(n + 1.0) for n in range(MOST_ALIKE + 1)])


def log_factorial(n: Reals) -> Reals:
    """Of whole n up to MOST_ALIKE."""
    return jnp.asarray(_log_factorials())[n.astype(int)]


class EdgeSums(NamedTuple):
    """Some sums of edges: all (*batch, sums)."""

    log_weight: Reals  # of the ways to one, and of e^-down; -inf where there is none
    down: Reals  # the way down from the largest
    series: tuple[Reals, ...]  # in powers of 1 / s up to ORDER, with its sign
    sizes: tuple[Reals, ...]  # of what the series adds up, without any signs or derivative


class _Digits(NamedTuple):
    rest: Reals  # of the slots to come
    log_ways: Reals
    down: Reals
    odd: Reals  # whether the sign is -
    leans: tuple[Reals, ...]  # of the odd powers: sum of (up - down) (a / p)^k


def edge_sums(each: LossEdges, fold: Reals, index: Reals) -> EdgeSums:
    """Of `fold` (*batch, slots) releases of each kind, those of an index (*batch, sums)."""
    bare = each.log_atom == -jnp.inf
    odds = jnp.where(bare, 0.0, jnp.exp(each.log_density - jnp.where(bare, 0.0, each.log_atom)))
    powers = range(1, ORDER + 1, 2)

    def descend(sums: _Digits, slot: tuple[Reals | Bools, ...]) -> tuple[_Digits, None]:
        n, height, ratio, alternating = slot
        later = jnp.floor(sums.rest / (n + 1.0))
        down = sums.rest - later * (n + 1.0)
        turns = jnp.where(alternating, down, 0.0) % 2.0
        lean = n - 2.0 * down
        return _Digits(
            later,
            sums.log_ways + log_factorial(n) - log_factorial(down) - log_factorial(n - down),
            sums.down + down * height,
            jnp.where(turns == 1, 1.0 - sums.odd, sums.odd),
            tuple(x + lean * ratio**k for x, k in zip(sums.leans, powers, strict=True)),
        ), None

    slots = jax.tree.map(
        lambda x: jnp.moveaxis(x, -1, 0)[..., None], (fold, each.height, odds, bare)
    )
    zero = jnp.zeros_like(index)
    start = _Digits(index, zero, zero, zero, tuple(zero for _ in powers))
    found = lax.scan(descend, start, slots)[0]
    even = [-jnp.sum(fold * odds**k, axis=-1)[..., None] / k for k in range(2, ORDER + 1, 2)]
    logs = [found.leans[k // 2] / k if k % 2 else even[k // 2 - 1] for k in range(1, ORDER + 1)]
    sign = 1.0 - 2.0 * found.odd
    sizes = _exponential([jnp.abs(lax.stop_gradient(x)) for x in logs])
    total = jnp.prod(fold + 1.0, axis=-1)[..., None]
    return EdgeSums(
        jnp.where(index < total, found.log_ways - found.down, -jnp.inf),
        found.down,
        tuple(sign * c for c in _exponential(logs)),
        tuple(sizes),
    )


def _exponential(logs: list[Reals]) -> list[Reals]:
    """The coefficients of exp(logs[0] w + logs[1] w^2 + ...)."""
    found = [jnp.ones_like(logs[0])]
    for k in range(1, ORDER + 1):
        terms = [i * logs[i - 1] * found[k - i] for i in range(1, k + 1)]
        found.append(functools.reduce(jnp.add, terms) / k)
    return found


# For k = -1 ... ORDER: (..., 2 (ORDER + 1)), the powers of 1 / s of the series and of its sizes.
Profiles = tuple[Reals, ...]


class EdgeTable(NamedTuple):
    """Sums of edges from the largest on, and all above each of them."""

    down: Reals  # (*batch, SIZE), increasing
    log_unit: Reals  # of `profiles`: the largest weight so far, without a derivative
    profiles: Profiles  # (*batch, SIZE, 2 (ORDER + 1)) each

    @staticmethod
    def of(each: LossEdges, fold: Reals) -> "EdgeTable":
        """Of at most SIZE sums."""
        index = jnp.arange(float(SIZE))[(None,) * (fold.ndim - 1)]
        sums = edge_sums(each, fold, jnp.broadcast_to(index, (*fold.shape[:-1], SIZE)))
        there = sums.log_weight > -jnp.inf
        order = jnp.argsort(jnp.where(there, lax.stop_gradient(sums.down), jnp.inf), axis=-1)
        sums, there = jax.tree.map(lambda x: jnp.take_along_axis(x, order, -1), (sums, there))
        # Those that are none stay at the lowest, where they add nothing.
        lowest = jnp.max(jnp.where(there, sums.down, 0.0), axis=-1, keepdims=True)
        down = jnp.where(there, sums.down, lowest)
        unit = lax.cummax(lax.stop_gradient(sums.log_weight), axis=down.ndim - 1)
        weight = jnp.exp(sums.log_weight - unit)
        added = jnp.stack([weight * c for c in (*sums.series, *sums.sizes)], axis=-1)
        return EdgeTable(down, unit, _accumulated(down, unit, added))


class Translation(NamedTuple):
    """The matrix of a way d >= 0 further from an epsilon, times e^(-d / 2): (...,) each."""

    hyperbolic: tuple[Reals, ...]  # G_-1(d) ... G_ORDER(d)
    powers: tuple[Reals, ...]  # d^n / n!

    @staticmethod
    def of(way: Reals) -> "Translation":
        """Of any shape."""
        fade = jnp.exp(-0.5 * way)
        powers = tuple(fade * way**n / math.factorial(n) for n in range(ORDER))
        return Translation((0.5 + 0.5 * jnp.exp(-way), *above(way, ORDER)), powers)

    def parts(self) -> tuple["Translation", ...]:
        """Those along the first axis."""
        ways = self.powers[0].shape[0]
        return tuple(jax.tree.map(lambda x, k=k: x[k], self) for k in range(ways))

    def moved(self, profiles: Profiles) -> Profiles:
        """G_k(x + d) from all G_j(x), j <= k; one more axis than the way has."""
        hyperbolic, powers = jax.tree.map(lambda x: x[..., None], tuple(self))
        cosine, sine, *rest = profiles
        moved = [hyperbolic[0] * cosine + 0.25 * hyperbolic[1] * sine]
        for k in range(ORDER + 1):
            total = hyperbolic[k + 1] * cosine + hyperbolic[k] * sine
            for j in range(k):
                total = total + powers[k - 1 - j] * rest[j]
            moved.append(total)
        return tuple(moved)


def _accumulated(down: Reals, unit: Reals, added: Reals) -> Profiles:
    """The profiles at all sums, `added` (*batch, SIZE, 2 (ORDER + 1)) at each.

    Block by block, of which each is started with nothing; then from one block to the next.
    """
    down, unit, added = _blocked(down), _blocked(unit), _blocked(added)
    steps, falls = (jnp.diff(x, axis=0, prepend=x[:1]) for x in (down, unit))
    # Of the block before, from its last sum.
    ends = (jnp.concatenate([x[:1, :1], x[-1:, :-1]], axis=1) for x in (down, unit))
    ways, drops = (x - end for x, end in zip((down, unit), ends, strict=True))
    near, far = Translation.of(2.0 * jnp.stack([steps, ways])).parts()
    near_fade, far_fade = (jnp.exp(-x)[..., None] for x in (falls, drops))
    nothing = jnp.zeros_like(added[0])

    def follow(profiles: Profiles, here: tuple[Translation, Reals, Reals]) -> Any:
        way, fade, more = here
        first, *rest = (fade * x for x in way.moved(profiles))
        return (first + more, *rest), (first + more, *rest)

    within = lax.scan(follow, (nothing,) * (ORDER + 2), (near, near_fade, added))[1]

    def carry(profiles: Profiles, here: tuple[Translation, Reals, Profiles]) -> Any:
        way, fade, more = here
        moved = (fade * x + m for x, m in zip(way.moved(profiles), more, strict=True))
        return tuple(moved), profiles

    last = jax.tree.map(lambda x: x[-1], (far, far_fade, within))
    before = lax.scan(carry, (nothing[0],) * (ORDER + 2), last)[1]
    more = far.moved(tuple(x[None] for x in before))
    return tuple(_whole(x + far_fade * y) for x, y in zip(within, more, strict=True))


def _blocked(x: Reals) -> Reals:
    """(*batch, SIZE, ...), of one batch axis, as (_LONG, _BLOCKS, batch, ...)."""
    x = x.reshape(x.shape[0], _BLOCKS, _LONG, *x.shape[2:])
    return jnp.moveaxis(x, (2, 1), (0, 1))


def _whole(x: Reals) -> Reals:
    x = jnp.moveaxis(x, (0, 1), (2, 1))
    return x.reshape(x.shape[0], SIZE, *x.shape[3:])
