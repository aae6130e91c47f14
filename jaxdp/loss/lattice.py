"""Losses on one lattice: the line is periodic, and one period of it is the whole line.

Where every total is x + u j, j whole, F(z + 2 pi i m / u) differs from F(z) in the pole alone. So
the sum over all m folds into one kernel, and what recurs at large t is summed in closed form: with
g from epsilon up to the next total that there may be,

    sum_m exp(-2 pi i m g / u) / ((z + w_m) (z + 1 + w_m)),   w_m = 2 pi i m / u,
    = u (1 - e^-g + e^-zu (e^-g - e^-u)) / ((1 - e^-zu) (1 - e^-(z+1)u)),

times e^-zg. Poisson's summation: both sides are sums of (1 - e^-y)_+ e^-zy over y = g + u j.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.circular import sine_cosine
from jaxdp._numeric.elementary import ULP
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.base import Terms
from jaxdp.loss.line import SADDLE_MARGIN, Line, Others

# The common unit of different ones is a part of the largest, down to one in so many, where that
# fits to this.
_PARTS, _FITS = 1000.0, 3e-15
# In units: above such an epsilon nothing is folded.
_FINEST = 2.0**45
# Of epsilon: what the positions of the atoms are rounded by, or are off where a part only fits.
_ROUNDED = 16.0 * ULP


class Lattice(NamedTuple):
    """Of every lane: shape (*batch,)."""

    unit: Reals  # 1 where there is none
    gap: Reals  # from epsilon up to the next total that there may be, rounded up: in [0, unit]
    lifted: Reals  # by how much
    parts: Reals  # of the largest unit: 1 where all are equal
    found: Bools

    def middle(self, epsilon: Reals) -> Reals:
        """Between the totals on either side of epsilon: its saddle is no wall."""
        between = jnp.maximum(epsilon + self.gap - 0.5 * self.unit, 0.0)
        return jnp.where(self.found, between, epsilon)

    def moving(self, terms: Terms, epsilon: Reals) -> "Lattice":
        """The same, with derivatives."""
        again = lattice_of(terms, epsilon)
        assert again is not None
        return again._replace(found=self.found)

    def moved(self, step: Reals) -> Reals:
        """The step as a part of the period, which moves with the unit."""
        return step * lax.stop_gradient(self.unit) / self.unit

    def points(self, step: Reals) -> Reals:
        """Of half a period, the first among them: infinite without one."""
        half = jnp.round(jnp.pi / (step * self.unit) - 0.5)
        return jnp.where(self.found, half + 1.0, jnp.inf)

    def kernel(self, theta: Reals, height: Reals) -> Complexes:
        """What 1 / (z (z + 1)) folds into where it is found, at (*batch, points)."""
        unit, gap, theta = (x[..., None] for x in (self.unit, self.gap, theta))
        z = lax.complex(jnp.broadcast_to(theta, height.shape), height)
        first, second = (_one_less(x * unit, height * unit) for x in (theta, theta + 1.0))
        way = gap - self.lifted[..., None]
        turned = _turned(-theta * way, -height * way)
        above = -jnp.expm1(-gap) + (1.0 - first) * (jnp.exp(-gap) * -jnp.expm1(gap - unit))
        folded = unit * turned * above / (first * second)
        return jnp.where(self.found[..., None], folded, 1.0 / (z * (z + 1.0)))


def _turned(size: Reals, angle: Reals) -> Complexes:
    """exp(size + i angle)."""
    sine, cosine = sine_cosine(angle)
    return lax.complex(jnp.exp(size) * cosine, jnp.exp(size) * sine)


def _one_less(real: Reals, imag: Reals) -> Complexes:
    """1 - exp(-real - i imag), accurate near 0."""
    half, other = sine_cosine(0.5 * imag)
    left = jnp.exp(-real)
    return lax.complex(2.0 * left * half * half - jnp.expm1(-real), 2.0 * left * half * other)


def lattice_of(terms: Terms, epsilon: Reals) -> Lattice | None:
    """At epsilon >= 0 (*batch,): None where some term's losses lie on none, whatever the values."""
    each = [term.noise.lattice(term.shift) for term in terms]
    known = [lattice for lattice in each if lattice is not None]
    if len(known) < len(terms):
        return None
    units, odd = (jnp.concatenate(x, axis=-1) for x in zip(*known, strict=True))
    counts = jnp.concatenate([term.count for term in terms], axis=-1)
    used = (counts > 0) & (units != 0)
    largest = jnp.max(jnp.where(used, units, 0.0), axis=-1)
    ratios = lax.stop_gradient(jnp.where(used, units / largest[..., None], 1.0))
    parts, fits = _common(ratios)
    unit = largest / parts
    found = fits & jnp.any(used, axis=-1) & (epsilon < _FINEST * unit) & (unit < jnp.inf)
    unit = jnp.where(found, unit, 1.0)
    # An odd number of losses that are odd multiples of half a unit.
    halves = (counts % 2.0) * odd * (jnp.round(ratios * parts[..., None]) % 2.0)
    offset = 0.5 * (jnp.sum(jnp.where(used, halves, 0.0), axis=-1) % 2.0)
    lifted = lax.stop_gradient(_ROUNDED * epsilon)
    place = jnp.where(found, (epsilon - lifted) / unit - offset, 0.0)
    gap = unit * (lax.stop_gradient(jnp.ceil(place)) - place)
    return Lattice(unit, jnp.clip(gap, 0.0, unit), lifted, parts, found)


def _common(ratios: Reals) -> tuple[Reals, Bools]:
    """The least number whose products with all ratios (*batch, n) are whole, and whether it is."""

    def fitting(parts: Reals) -> Bools:
        multiples = ratios * parts
        return jnp.all(jnp.abs(multiples - jnp.round(multiples)) <= _FITS * multiples, axis=-1)

    def unfinished(state: tuple[Reals, Reals]) -> Bools:
        return (state[0] < _PARTS) & ~jnp.all(state[1] > 0)

    def advance(state: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        parts, found = state[0] + 1.0, state[1]
        return parts, jnp.where((found == 0) & fitting(parts), parts, found)

    found = lax.while_loop(unfinished, advance, (jnp.zeros(()), jnp.zeros(ratios.shape[:-1])))[1]
    return jnp.maximum(found, 1.0), found > 0


def on_lattice(
    line: Line, lattice: Lattice, epsilon: Reals, tolerance: float, most: int
) -> tuple[Line, Lattice]:
    """The line of `Lattice.middle` for epsilon, an odd number of whose steps are a period.

    Found where half a period takes no more than `most` points, or all units are equal: then |phi|
    falls over it.
    """
    moved = lattice.middle(epsilon) - epsilon
    theta, tilts = line.theta, line.tilts
    log_size = line.log_size + theta * moved
    exponents = line.exponents + tilts * moved[..., None]
    others = Others.of(theta[..., None], log_size[..., None], tilts, exponents, epsilon)
    # What is summed is less than |F| by the way to the next total.
    digits = SADDLE_MARGIN - math.log(tolerance) + jnp.maximum(theta, 0.0) * lattice.gap
    half = jnp.ceil(0.5 * (others.period(digits[..., None]) / lattice.unit - 1.0))
    half = jnp.maximum(half, 1.0)
    found = lattice.found & ((half < most) | (lattice.parts == 1.0))
    period = jnp.where(found, (2.0 * half + 1.0) * lattice.unit, 2.0 * jnp.pi / line.step)
    moved_line = line._replace(
        step=2.0 * jnp.pi / period,
        log_size=log_size,
        aliasing=others.aliasing(period[..., None]),
        exponents=exponents,
    )
    return moved_line, lattice._replace(found=found)
