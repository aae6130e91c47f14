"""The part of an n-fold composition that does not decay along the contour, summed explicitly.

Where one loss has atoms at +-r, M = A + C with A(z) = p (e^(zr) + e^(-r - zr)) and C of its
density. The terms of M^n with at most one factor C, n A^(n-1) M - (n-1) A^n, are sums over n + 1
atoms of the single delta and of (1 - e^(epsilon - l))_+; what is left decays like 1 / |z|^2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.base import Term, Terms, cumulant

# Beyond this many releases the atoms hold a negligible part, or the bound says otherwise.
_MOST = 512


class Atoms(NamedTuple):
    """Of a composition of one term with itself, (*batch,): log p = -inf where nothing is split."""

    r: Reals
    log_mass: Reals
    fold: Reals
    lasting: Bools  # what is not split has atoms: |phi| does not decay, or not before it recurs


def atoms_of(terms: Terms) -> Atoms:
    """The atoms of a single term; a composition of different ones is not split."""
    every = jnp.concatenate([_log_masses(term) for term in terms], axis=-1)
    lasting = jnp.all((every > -jnp.inf) | jnp.isnan(every), axis=-1)
    term = terms[0]
    fold = term.count[..., 0]
    if len(terms) > 1 or term.shift.shape[-1] > 1:
        return Atoms(jnp.zeros_like(fold), jnp.full_like(fold, -jnp.inf), fold, lasting)
    r, log_mass = (x[..., 0] for x in term.noise.loss_atom(term.shift))
    split = (fold >= 1) & (fold <= _MOST) & (log_mass > -jnp.inf)
    return Atoms(
        jnp.where(split, r, 0.0),
        jnp.where(split, log_mass, -jnp.inf),
        fold,
        lasting & ~split & (fold <= _MOST),
    )


def _log_masses(term: Term) -> Reals:
    return jnp.where(term.count == 0, jnp.nan, term.noise.loss_atom(term.shift)[1])


def remainder(terms: Terms, atoms: Atoms, z: Complexes, gain: Reals) -> tuple[Complexes, Reals]:
    """(M^n - n A^(n-1) M + (n-1) A^n) e^-gain at z (lanes, points), and its terms' sizes added."""
    total = cumulant(terms, z)
    whole = jnp.exp(total - gain)
    r, log_mass, n = (x[..., None] for x in atoms[:3])
    has = log_mass > -jnp.inf
    safe_n = jnp.where(has, n, 1.0)
    log_atoms = jnp.where(has, log_mass, 0.0) + z * r + jnp.log1p(jnp.exp(-r - 2.0 * z * r))
    others = (safe_n - 1.0) * log_atoms
    one = jnp.where(has, safe_n * jnp.exp(others + total / safe_n - gain), 0.0)
    none = jnp.where(has, (safe_n - 1.0) * jnp.exp(others + log_atoms - gain), 0.0)
    return whole - one + none, jnp.abs(whole) + jnp.abs(one) + jnp.abs(none)


def explicit_part(
    terms: Terms, atoms: Atoms, epsilon: Reals, log_size: Reals, complement: Bools
) -> tuple[Reals, Reals]:
    """What `remainder` leaves out, as delta (or 1 - delta) over exp(log_size); and its error.

    The error is that of the weights, whose log-gamma functions are good to 2e-15 of their size.
    """
    term = terms[0]
    r, log_mass, n, e, size, mirror = (
        x[..., None] for x in (*atoms[:3], epsilon, log_size, complement)
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

    j = jnp.arange(_MOST + 1.0)[(None,) * epsilon.ndim]
    at = jnp.where(has & (j <= n - 1.0), e - (2.0 * j - n + 1.0) * r, 0.0)
    noise, shift = jax.tree.map(lambda x: x[..., :1], (term.noise, term.shift))
    single = noise.log_delta(shift, at)
    gap = jnp.minimum(e - (2.0 * j - n) * r, 0.0)
    one = n * share(j, n - 1.0, jnp.where(mirror, _log_complement(single), single))
    none = (n - 1.0) * share(j, n, jnp.where(mirror, gap, _log_complement(gap)))
    error = ULP * (16.0 + 8.0 * gammaln(n + 1.0)) * (one + none)
    return jnp.sum(one - none, axis=-1), jnp.sum(error, axis=-1)


def _log_complement(log_value: Reals) -> Reals:
    """log(1 - exp(log_value)), with a derivative that stays finite at log_value = 0."""
    below = (log_value < 0) & (log_value > -jnp.inf)
    found = log1mexp(jnp.where(below, -log_value, 1.0))
    ends = jnp.where(log_value < 0, 0.0, jnp.where(log_value == 0, -jnp.inf, jnp.nan))
    return jnp.where(below, found, ends)
