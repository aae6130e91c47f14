"""The part of an n-fold composition that does not decay along the contour, summed explicitly.

Where one loss has atoms at +-r, M = A + C with A(z) = p (e^(zr) + e^(-r - zr)) and C of its
density. The terms of M^n with at most one factor C, n A^(n-1) M - (n-1) A^n, are sums over n + 1
atoms of the single delta and of (1 - e^(epsilon - l))_+; what is left decays like 1 / |z|^2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.base import Terms
from jaxdp.loss.lattice import Lattice
from jaxdp.noise.base import Points

# Beyond this many releases the atoms stay in the sum.
_MOST = 4096
_SUMMED = 513


class Atoms(NamedTuple):
    """Of a composition of one term with itself, (*batch,): log p = -inf where nothing is split."""

    r: Reals
    log_mass: Reals
    fold: Reals

    @property
    def split(self) -> Bools:
        """Whether there is anything to split off."""
        return self.log_mass > -jnp.inf


def atoms_of(terms: Terms, lattice: Lattice | None) -> Atoms | None:
    """The atoms of a single term that may have any; a composition of different ones has none.

    Nor has what is on a `lattice`.
    """
    term = terms[0]
    if len(terms) > 1 or term.shift.shape[-1] > 1 or not term.noise.recurs:
        return None
    fold = term.count[..., 0]
    r, log_mass = (x[..., 0] for x in term.noise.loss_atom(term.shift))
    split = (fold >= 1) & (fold <= _MOST) & (log_mass > -jnp.inf)
    if lattice is not None:
        split &= ~lattice.found
    return Atoms(jnp.where(split, r, 0.0), jnp.where(split, log_mass, -jnp.inf), fold)


def remainder(
    turn: Complexes, atoms: Atoms | None, points: Points, log_total: Reals
) -> tuple[Complexes, Reals]:
    """(M^n - n A^(n-1) M + (n-1) A^n) / M(theta)^n at (lanes, points), and its terms' sizes added.

    From K(z) - K(theta), `turn`; `log_total` is K(theta) of the composition.
    """
    whole = jnp.exp(turn)
    if atoms is None:
        return whole, jnp.exp(jnp.real(turn))
    r, log_mass, n = (x[..., None] for x in atoms)
    z = points.theta[..., None] + 1j * points.heights()
    gain = log_total[..., None]
    has = log_mass > -jnp.inf
    safe_n = jnp.where(has, n, 1.0)
    log_atoms = jnp.where(has, log_mass, 0.0) + z * r + jnp.log1p(jnp.exp(-r - 2.0 * z * r))
    others = (safe_n - 1.0) * log_atoms
    one = jnp.where(has, safe_n * jnp.exp(others + (gain + turn) / safe_n - gain), 0.0)
    none = jnp.where(has, (safe_n - 1.0) * jnp.exp(others + log_atoms - gain), 0.0)
    return whole - one + none, jnp.abs(whole) + jnp.abs(one) + jnp.abs(none)


def explicit_part(
    terms: Terms,
    atoms: Atoms | None,
    epsilon: Reals,
    theta: Reals,
    log_size: Reals,
    complement: Bools,
) -> tuple[Reals, Reals]:
    """What `remainder` leaves out, as delta (or 1 - delta) over exp(log_size); and its error.

    The atoms next to the mean of the law tilted by theta are summed; Hoeffding's inequality bounds
    the others. The weights' log-gamma functions are good to 2e-15 of their size.
    """
    if atoms is None:
        return jnp.zeros_like(epsilon), jnp.zeros_like(epsilon)
    term = terms[0]
    r, log_mass, n, e, tilt, size, mirror = (
        x[..., None] for x in (*atoms, epsilon, theta, log_size, complement)
    )
    has = log_mass > -jnp.inf
    n = jnp.where(has, n, 1.0)
    log_p = jnp.where(has, log_mass, 0.0)

    def share(j: Reals, m: Reals, log_value: Reals) -> Reals:
        """Of the atom of j steps up and m - j down, times exp(log_value - size)."""
        inside = has & (j <= m) & (log_value > -jnp.inf)
        j = jnp.where(inside, j, 0.0)
        log_ways = gammaln(m + 1.0) - gammaln(j + 1.0) - gammaln(m - j + 1.0)
        log_share = log_ways + m * log_p - (m - j) * r + log_value - size
        return jnp.where(inside, jnp.exp(jnp.where(inside, log_share, 0.0)), 0.0)

    mean = n / (1.0 + jnp.exp(-(1.0 + 2.0 * tilt) * r))
    first = jnp.clip(jnp.floor(mean) - _SUMMED // 2, 0.0, jnp.maximum(n - _SUMMED + 1.0, 0.0))
    j = lax.stop_gradient(first) + jnp.arange(float(_SUMMED))[(None,) * epsilon.ndim]
    at = jnp.where(has & (j <= n - 1.0), e - (2.0 * j - n + 1.0) * r, 0.0)
    noise, shift = jax.tree.map(lambda x: x[..., :1], (term.noise, term.shift))
    loss = (2.0 * j - n) * r
    gap = e - loss
    gap = jnp.minimum(gap, 0.0)
    atomic = share(j, n, jnp.where(mirror, gap, _log_complement(gap)))
    single = noise.log_delta(shift, at)
    one = n * share(j, n - 1.0, jnp.where(mirror, _log_complement(single), single))
    none = (n - 1.0) * atomic
    error = ULP * (16.0 + 8.0 * gammaln(n + 1.0)) * (one + none)
    log_atoms = log_p + tilt * r + jnp.log1p(jnp.exp(-r - 2.0 * tilt * r))
    log_one = jnp.maximum(noise.cgf(shift, tilt) - log_atoms, 0.0)
    far = jnp.log(4.0 * n) - 2.0 * (_SUMMED // 2 - 2) ** 2 / n
    far = jnp.where(n < _SUMMED, -jnp.inf, far + log_one + n * log_atoms - tilt * e - size)
    return jnp.sum(one - none, axis=-1), jnp.sum(error, axis=-1) + jnp.exp(far[..., 0])


def _log_complement(log_value: Reals) -> Reals:
    """log(1 - exp(log_value)), with a derivative that stays finite at log_value = 0."""
    below = (log_value < 0) & (log_value > -jnp.inf)
    found = log1mexp(jnp.where(below, -log_value, 1.0))
    ends = jnp.where(log_value < 0, 0.0, jnp.where(log_value == 0, -jnp.inf, jnp.nan))
    return jnp.where(below, found, ends)
