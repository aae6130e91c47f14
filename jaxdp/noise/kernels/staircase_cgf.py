"""The cumulant generating function of the staircase's loss, from the atoms of `staircase_loss`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxdp._core.types import Bools, Reals, RealsOrComplexes
from jaxdp._numeric.elementary import expm1, log1p
from jaxdp.noise.kernels.staircase_loss import Atoms, atoms

# Squares of its exponential are finite.
_LARGE_EXPONENT = 300.0


class _Masses(NamedTuple):
    """Masses of the atoms of a loss of whole + 1, whole and whole - 1 units, and of the runs."""

    top: Reals
    middle: Reals
    behind: Reals
    even: Reals  # of the runs below: b^q times it at most - 2 q, over the drop
    odd: Reals


def _masses(p: Atoms) -> _Masses:
    b = p.decay
    return _Masses(
        top=(b * p.fraction + p.drop * p.ahead) / p.norm,
        middle=(b * p.rest + p.drop * p.level) / p.norm,
        behind=p.drop * p.behind / p.norm,
        even=b * p.part / p.norm,
        odd=b * p.other / p.norm,
    )


def _run_excess(
    most: Reals, unit: Reals, z: RealsOrComplexes, by_series: Bools
) -> RealsOrComplexes:
    """(1 - b) times the sum over q = 0..most of b^q (e^(z j unit) - 1), j = most - 2q."""
    b, drop = jnp.exp(-unit), -jnp.expm1(-unit)
    tau, half = z * unit, 0.5 * unit * (z + 1.0)
    # sum_j 2 sinh(j P) sinh(j N), P = half and N = tau / 2, by power sums of j.
    v, product = most, half * tau
    squares = half * half + 0.25 * tau * tau
    sixth = squares * squares / 120.0 + product * product / 360.0
    fourth = (3.0 * v * v + 6.0 * v - 4.0) / 90.0
    power_six = (((3.0 * v + 12.0) * v * v - 24.0) * v + 16.0) / 21.0
    sums = v * (v + 1.0) * (v + 2.0) * (1.0 / 3.0 + squares * fourth + sixth * power_six)
    series = drop * jnp.exp(-0.5 * v * unit) * product * sums
    last = jnp.exp(-(v + 1.0) * unit)
    kept = -jnp.expm1(-(v + 1.0) * unit)
    rise = expm1(tau * v)
    closed = drop * kept * rise - last * drop * (1.0 + rise) * expm1(-2.0 * tau * (v + 1.0))
    closed += b * kept * expm1(-2.0 * tau)
    fall = -expm1(jnp.where(by_series, -1.0, -2.0 * tau - unit))
    return jnp.where(by_series, series, closed / fall)


def _run_ratio(most: Reals, unit: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """The sum over q = 0..most of x^q, x = exp(-(2z + 1) unit), Re z >= -1/2."""
    w = -(2.0 * z + 1.0) * unit
    if jnp.iscomplexobj(w):
        turn = 2.0 * jnp.pi
        w = w - 1j * turn * jnp.round(jnp.imag(w) / turn)
    still = w == 0
    w = jnp.where(still, 1.0, w)
    return jnp.where(still, most + 1.0, expm1((most + 1.0) * w) / expm1(w))


def _near(p: Atoms, unit: Reals, z: RealsOrComplexes, by_series: Bools) -> RealsOrComplexes:
    """log(1 + (M - 1)), where nothing cancels: the atoms at j and -j are taken together."""

    def pair(j: Reals) -> RealsOrComplexes:
        j = jnp.maximum(j, 0.0)
        return -expm1(z * j * unit) * expm1(-(z + 1.0) * j * unit)

    mass, below = _masses(p), jnp.maximum(p.most - 1.0, -1.0)
    excess = mass.top * pair(p.whole + 1.0) + mass.middle * pair(p.whole)
    excess += mass.behind * pair(p.whole - 1.0)
    excess += mass.even * _run_excess(p.most, unit, z, by_series)
    excess += mass.odd * _run_excess(below, unit, z, by_series)
    return log1p(excess)


def _far(p: Atoms, unit: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """log M by its largest term."""
    b, m, mass, real = p.decay, p.whole, _masses(p), jnp.real(z)
    log_top = jnp.log(jnp.where(mass.top > 0, mass.top, 1.0))
    highest = (mass.top > 0) & (real * unit + log_top > 0) & (real >= 0)
    peak = jnp.where(highest, m + 1.0, jnp.where(real < 0, jnp.maximum(m - 1.0, 0.0), m))
    log_peak = jax.lax.stop_gradient(jnp.where(highest, log_top, 0.0))
    base = real * peak * unit + log_peak

    def forth(j: Reals, log_mass: Reals | float = 0.0) -> RealsOrComplexes:
        """exp(z j unit + log_mass - base): two products of a z of 1e20 differ by their rounding."""
        steps = (z - real) * j + real * (j - peak)
        return jnp.exp(steps * unit + (log_mass - log_peak))

    def both(j: Reals, log_mass: Reals | float, once: Reals | float = 1.0) -> RealsOrComplexes:
        there = forth(j, log_mass)
        back = jnp.exp(-(z + 1.0) * j * unit + (log_mass - base))
        return jnp.where(j > 0, there + back, jnp.where(j == 0, once * there, 0.0))

    value = jnp.where(mass.top > 0, both(m + 1.0, log_top), 0.0)
    value += b * p.rest / p.norm * both(m, 0.0, 2.0)
    value += p.drop * p.level / p.norm * both(m, 0.0)
    value += mass.behind * jnp.where(m >= 1, both(m - 1.0, 0.0), jnp.exp(0.0 * z - base))
    below = jnp.maximum(p.most - 1.0, -1.0)
    value += mass.even * p.drop * forth(p.most) * _run_ratio(p.most, unit, z)
    value += mass.odd * p.drop * forth(below) * _run_ratio(below, unit, z)
    return base + jnp.log(value)


@jax.jit
def cgf(
    unit: Reals, sensitivity: Reals, split: Reals, shift: Reals, z: RealsOrComplexes
) -> RealsOrComplexes:
    """`Staircase.cgf`; `unit` is its epsilon."""
    unit, sensitivity, split, shift, z = jnp.broadcast_arrays(unit, sensitivity, split, shift, z)
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)  # K(z) = K(-1 - z)
    p = atoms(unit, sensitivity, split, shift)
    reach = (p.whole + jnp.where(p.fraction > 0, 1.0, 0.0)) * unit
    size = jnp.abs(z)
    by_series = jnp.maximum(0.5 * size, 0.5 * jnp.abs(z + 1.0)) * p.most * unit < 0.02
    small = (size * reach <= 1.0) & ((jnp.real(z) >= -0.25) | by_series)
    # Without runs, and for real arguments, nothing cancels at larger z either.
    wide = jnp.real(z) >= 0
    if jnp.iscomplexobj(z):
        wide &= p.most <= 0
    small |= wide & (jnp.real(z) * reach <= _LARGE_EXPONENT)
    near = _near(p, unit, jnp.where(small, z, 0.0), by_series)
    far = _far(p, unit, jnp.where(small, 1.0, z))
    infinite = jnp.where(jnp.real(z) > 0, jnp.inf, jnp.where(z == 0, 0.0, jnp.nan))
    value = jnp.where(p.infinite & (unit > 0) & (split > 0), infinite, jnp.where(small, near, far))
    still = (shift == 0) & (unit > 0) & (sensitivity > 0) & (split > 0)
    return jnp.where(still, 0.0 * z, value)
