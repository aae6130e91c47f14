"""The part of an n-fold composition that does not decay along the contour, summed explicitly.

Where one loss has two atoms, h and l, M = A + C with A(z) = p e^(zh) + q e^(zl) and C of its
density. The terms of M^n with at most one factor C, n A^(n-1) M - (n-1) A^n, are sums over n + 1
atoms of the single delta and of (1 - e^(epsilon - l))_+; what is left decays like 1 / |z|^2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Bools, Complexes, Reals, RealsOrComplexes
from jaxdp.loss.base import Terms, add_up
from jaxdp.loss.infinite import finite_log_delta
from jaxdp.loss.lattice import Lattice
from jaxdp.loss.line import Line
from jaxdp.noise.base import LossPair, Points

# Beyond this many releases the atoms stay in the sum.
_MOST = 4096
_SUMMED = 513


class Atoms(NamedTuple):
    """Of a composition of one term with itself, (*batch,)."""

    pair: LossPair  # log masses of -inf where nothing is split
    fold: Reals

    @property
    def split(self) -> Bools:
        """Whether there is anything to split off."""
        return self.pair.log_high > -jnp.inf

    @property
    def apart(self) -> Reals:
        """The distance of both: 0 where nothing is split."""
        return jnp.where(self.split, self.pair.high - self.pair.low, 0.0)

    @property
    def window(self) -> Reals:
        """The height at which both are in phase again: by then all that recurs has been seen."""
        return 2.0 * jnp.pi / jnp.where(self.split, self.apart, jnp.inf)

    @property
    def reach(self) -> Reals:
        """The largest sum of losses: the atoms' positions are rounded by parts of it."""
        each = jnp.maximum(jnp.abs(self.pair.high), jnp.abs(self.pair.low))
        return jnp.where(self.split, self.fold * each, 0.0)

    def log_moment(self, z: RealsOrComplexes) -> RealsOrComplexes:
        """log A(z), 0 where nothing is split; z (*batch, points)."""
        high, log_high, apart = (
            x[..., None] for x in (self.pair.high, self.pair.log_high, self.apart)
        )
        odds = jnp.where(self.split, self.pair.log_low - self.pair.log_high, 0.0)[..., None]
        value = log_high + z * high + jnp.log1p(jnp.exp(odds - z * apart))
        return jnp.where(self.split[..., None], value, 0.0)

    def log_unresolved(self, terms: Terms, theta: Reals, height: Reals) -> Reals:
        """log of a bound on what is summed, over M(theta)^n, from a height on: (*batch,).

        |M| <= |A| + |C|; of the terms with two factors C or more there are C(n, 2) pairs of those.
        """
        upper = add_up(terms, lambda term: term.log_beyond(theta, height))
        n = jnp.maximum(self.fold, 2.0)
        a, c = (x[..., 0] for x in terms[0].beyond(theta, height))
        pairs = jnp.log(0.5 * n * (n - 1.0)) + 2.0 * jnp.log(c)
        both = pairs + (n - 2.0) * jnp.log(jnp.minimum(a + c, 1.0))
        return jnp.where(self.split, jnp.minimum(both, 0.0), upper)

    def tail(self, line: Line) -> Callable[[Reals], Reals]:
        """Of what is left from a height on no more is known than what a window shows."""
        del line
        return lambda height: jnp.full_like(height, jnp.inf)

    def remainder(
        self, turn: Complexes, points: Points, log_total: Reals
    ) -> tuple[Complexes, Reals]:
        """(M^n - n A^(n-1) M + (n-1) A^n) / M(theta)^n at (lanes, points); its terms' sizes added.

        From K(z) - K(theta), `turn`; `log_total` is K(theta) of the composition.
        """
        whole = jnp.exp(turn)
        has, n = self.split[..., None], self.fold[..., None]
        log_atoms = self.log_moment(points.theta[..., None] + 1j * points.heights())
        gain = log_total[..., None]
        safe_n = jnp.where(has, n, 1.0)
        others = (safe_n - 1.0) * log_atoms
        one = jnp.where(has, safe_n * jnp.exp(others + (gain + turn) / safe_n - gain), 0.0)
        none = jnp.where(has, (safe_n - 1.0) * jnp.exp(others + log_atoms - gain), 0.0)
        return whole - one + none, jnp.abs(whole) + jnp.abs(one) + jnp.abs(none)

    def explicit_part(
        self,
        terms: Terms,
        epsilon: Reals,
        theta: Reals,
        log_size: Reals,
        complement: Bools,
    ) -> tuple[Reals, Reals]:
        """What `remainder` leaves out of delta (or 1 - delta) over exp(log_size); its error.

        The atoms next to the mean of the law tilted by theta are summed; Hoeffding's inequality
        bounds the others. The weights' log-gamma functions are good to 2e-15 of their size.
        """
        term, apart = terms[0], self.apart[..., None]
        pair = jax.tree.map(lambda x: x[..., None], self.pair)
        n, e, tilt, size, mirror, has = (
            x[..., None] for x in (self.fold, epsilon, theta, log_size, complement, self.split)
        )
        n = jnp.where(has, n, 1.0)
        log_high, log_low = (jnp.where(has, x, 0.0) for x in (pair.log_high, pair.log_low))

        def total(j: Reals, m: Reals) -> Reals:
            """The loss of j steps up and m - j down."""
            return j * pair.high + (m - j) * pair.low

        def share(j: Reals, m: Reals, log_value: Reals) -> Reals:
            """Of the atom of j steps up and m - j down, times exp(log_value - size)."""
            inside = has & (j <= m) & (log_value > -jnp.inf)
            j = jnp.where(inside, j, 0.0)
            log_ways = gammaln(m + 1.0) - gammaln(j + 1.0) - gammaln(m - j + 1.0)
            log_share = log_ways + j * log_high + (m - j) * log_low + log_value - size
            return jnp.where(inside, jnp.exp(jnp.where(inside, log_share, 0.0)), 0.0)

        mean = n / (1.0 + jnp.exp(log_low - log_high - tilt * apart))
        first = jnp.clip(jnp.floor(mean) - _SUMMED // 2, 0.0, jnp.maximum(n - _SUMMED + 1.0, 0.0))
        j = lax.stop_gradient(first) + jnp.arange(float(_SUMMED))[(None,) * epsilon.ndim]
        at = jnp.where(has & (j <= n - 1.0), e - total(j, n - 1.0), 0.0)
        noise, shift = jax.tree.map(lambda x: x[..., :1], (term.noise, term.shift))
        gap = jnp.minimum(e - total(j, n), 0.0)
        atomic = share(j, n, jnp.where(mirror, gap, _log_complement(gap)))
        single = noise.log_delta(shift, at)
        kept = finite_log_delta(noise, shift, at)[0]
        one = n * share(j, n - 1.0, jnp.where(mirror, _log_complement(single), kept))
        none = (n - 1.0) * atomic
        # Of all losses: the infinite ones were subtracted.
        rounded = n * share(j, n - 1.0, jnp.where(mirror, _log_complement(single), single))
        error = ULP * (16.0 + 8.0 * gammaln(n + 1.0)) * (rounded + none)
        log_atoms = self.log_moment(tilt)
        log_one = jnp.maximum(noise.cgf(shift, tilt) - log_atoms, 0.0)
        far = jnp.log(4.0 * n) - 2.0 * (_SUMMED // 2 - 2) ** 2 / n
        far = jnp.where(n < _SUMMED, -jnp.inf, far + log_one + n * log_atoms - tilt * e - size)
        return jnp.sum(one - none, axis=-1), jnp.sum(error, axis=-1) + jnp.exp(far[..., 0])


def atoms_of(terms: Terms, lattice: Lattice | None, settled: Bools) -> Atoms | None:
    """The atoms of a single term that may have any; a composition of different ones has none.

    Nor has what is on a `lattice`, or `settled`.
    """
    term = terms[0]
    if len(terms) > 1 or term.shift.shape[-1] > 1 or not term.noise.recurs:
        return None
    fold = lax.stop_gradient(term.count[..., 0])
    pair = jax.tree.map(lambda x: x[..., 0], term.noise.loss_pair(term.shift))
    split = (fold >= 1) & (fold <= _MOST) & (pair.log_high > -jnp.inf) & ~settled
    if lattice is not None:
        split &= ~lattice.found
    nothing = jnp.full_like(fold, -jnp.inf)
    either = (pair.high, 0.0), (pair.low, 0.0), (pair.log_high, nothing), (pair.log_low, nothing)
    return Atoms(LossPair(*(jnp.where(split, x, none) for x, none in either)), fold)


def _log_complement(log_value: Reals) -> Reals:
    """log(1 - exp(log_value)), with a derivative that stays finite at log_value = 0."""
    below = (log_value < 0) & (log_value > -jnp.inf)
    found = log1mexp(jnp.where(below, -log_value, 1.0))
    ends = jnp.where(log_value < 0, 0.0, jnp.where(log_value == 0, -jnp.inf, jnp.nan))
    return jnp.where(below, found, ends)
