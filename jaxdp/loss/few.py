"""Compositions whose cumulant hardly falls: their totals are added up one after the other.

Two to four Subbotins: `_numeric.power_fold`. The other engines cover them as well, but where the
loss nearly has atoms (a power near 1, or far above 2, where most of the noise is flat) a line or a
grid that follows it takes more points than there are. And equal sampled releases whose loss has two
to five atoms (a discrete Laplace, a staircase): `_numeric.multinomial`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.multinomial import ATOMS, Law, log_delta_of_atoms
from jaxdp._numeric.power_fold import (
    MOST,
    Bound,
    Release,
    log_delta_of_several,
    log_delta_of_two,
)
from jaxdp._types import Bools, Reals
from jaxdp.loss.base import Term, Terms
from jaxdp.loss.mixture import Mixture
from jaxdp.loss.sampled_kinds import ATOMIC
from jaxdp.noise.base import ratio_of
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.subbotin import Subbotin

# Nodes of an interval, by the relative error that is asked for.
_ROUGH, _FINE, _FINEST = 65, 129, 161
# Good enough to look no further, in units of what is asked for.
_SETTLED = 100.0
_LARGEST_POWER = 50.0


class Few(NamedTuple):
    """Bounds on log delta, (*batch,), and where nothing else need be looked at."""

    log_delta: Reals  # from above
    log_lower: Reals
    settled: Bools

    @staticmethod
    def nothing(like: Reals) -> "Few":
        """Where none applies."""
        infinite = jnp.full_like(like, jnp.inf)
        return Few(infinite, -infinite, jnp.zeros(like.shape, dtype=bool))

    def tightened(self, upper: Reals, moves: bool) -> Reals:
        """The lower of both bounds; `moves`: with derivatives of its own, else those of `upper`."""
        better = self.log_delta < lax.stop_gradient(upper)
        better |= self.settled
        own = self.log_delta if moves else upper + lax.stop_gradient(self.log_delta - upper)
        return jnp.where(better, own, upper)


def few_of(terms: Terms, epsilon: Reals, tilt: Reals, tolerance: float) -> Few:
    """At epsilon >= 0, (*batch,), near whose saddle is `tilt`: infinite where it does not apply."""
    if are_atoms(terms):
        return _of_atoms(terms[0], epsilon, tilt, tolerance)
    return _of_powers(*lax.stop_gradient((terms, epsilon)), tolerance)


def are_atoms(terms: Terms) -> bool:
    """Whether there is nothing but equal releases that may have a few atoms."""
    if len(terms) != 1 or terms[0].shift.shape[-1] != 1 or not isinstance(terms[0].noise, Mixture):
        return False
    noise = terms[0].noise.noise
    return isinstance(noise, ATOMIC) and not isinstance(noise, DiscreteGaussian)


def _of_atoms(term: Term, epsilon: Reals, tilt: Reals, tolerance: float) -> Few:
    """Of a count of equal releases."""
    mixture, shift, count = jax.tree.map(lambda x: x[..., 0], term.parts())
    log_mass, loss, known = mixture.atoms(shift)
    present = lax.stop_gradient(log_mass) > -jnp.inf
    known &= jnp.sum(present, axis=-1) <= ATOMS
    first = jnp.argsort(~present, axis=-1, stable=True)[..., :ATOMS]
    log_mass, loss, present = (jnp.take_along_axis(x, first, -1) for x in (log_mass, loss, present))
    law = Law(jnp.where(present, log_mass, -jnp.inf), jnp.where(present, loss, 0.0))
    # Where nothing is looked at there are no totals.
    at = jnp.where(known, count, jnp.nan), epsilon, jnp.maximum(tilt, 0.0)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[epsilon.ndim :]), (law, *at))
    found = lax.map(lambda lane: log_delta_of_atoms(*lane), flat)
    upper, lower = (x.reshape(epsilon.shape) for x in found)
    upper = jnp.where(jnp.isnan(upper), jnp.inf, upper)
    settled = upper - lower < _SETTLED * tolerance
    return Few(upper, jnp.where(settled, lower, -jnp.inf), lax.stop_gradient(settled))


def _of_powers(terms: Terms, epsilon: Reals, tolerance: float) -> Few:
    """Of two Subbotins, equal or not, and of three or four equal ones."""
    parts = [_ratio_and_power(term) for term in terms if isinstance(term.noise, Subbotin)]
    if len(parts) < len(terms):
        return Few.nothing(epsilon)
    ratio, power = (jnp.concatenate(x, axis=-1) for x in zip(*parts, strict=True))
    count = jnp.concatenate([term.count for term in terms], axis=-1)
    count = jnp.where(ratio == 0, 0.0, count)
    total, used = jnp.sum(count, axis=-1), count > 0
    first = jnp.argmax(used, axis=-1)[..., None]
    last = count.shape[-1] - 1 - jnp.argmax(used[..., ::-1], axis=-1)[..., None]
    m, p = (jnp.take_along_axis(x, first, -1) for x in (ratio, power))
    equal = jnp.all(~used | ((ratio == m) & (power == p)), axis=-1)
    usable = ~used | ((power > 1) & (power <= _LARGEST_POWER) & (ratio < jnp.inf))
    usable = jnp.all(usable & (count >= 0), axis=-1)
    case = jnp.where(total == 2, 1.0, jnp.where((total > 2) & (total <= MOST) & equal, 2.0, 0.0))
    case = jnp.where(usable, case, 0.0)
    one = Release(m[..., 0], p[..., 0])
    other = Release(*(jnp.take_along_axis(x, last, -1)[..., 0] for x in (ratio, power)))
    rough = tolerance > 1e-8

    def lane(of: tuple[Reals, Release, Release, Reals, Reals]) -> Bound:
        case, one, other, total, e = of
        nothing = Bound(jnp.inf + 0.0 * e, jnp.inf + 0.0 * e)
        return lax.switch(
            case.astype(int),
            [
                lambda: nothing,
                lambda: log_delta_of_two(one, other, e, _ROUGH if rough else _FINEST),
                lambda: log_delta_of_several(one, total, e, _ROUGH if rough else _FINE),
            ],
        )

    flat = jax.tree.map(jnp.ravel, (case, one, other, total, epsilon))
    found = jax.tree.map(lambda x: x.reshape(epsilon.shape), lax.map(lane, flat))
    value = found.log_delta + found.error
    known = value < jnp.inf
    return Few(
        jnp.where(known, value, jnp.inf),
        jnp.where(known, found.log_delta - found.error, -jnp.inf),
        known & (found.error < _SETTLED * tolerance),
    )


def _ratio_and_power(term: Term) -> tuple[Reals, Reals]:
    assert isinstance(term.noise, Subbotin)
    return ratio_of(term.shift, term.noise.scale), term.noise.power
