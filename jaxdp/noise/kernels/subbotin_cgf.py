"""log E exp(z L) of the density proportional to exp(-|t|^p / p), p > 1, by quadrature.

M(z) - 1 = int g(t) e^(z l) (1 - e^(-z l)) (1 - e^(-(z + 1) l)) dt over t > -shift / 2, where the
loss l >= 0; for real z > 0 no term is negative. M(z) = M(-1 - z).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Bools, Complexes, Index, Reals, RealsOrComplexes
from jaxdp._numeric.elementary import LOG_2, ULP, log1p
from jaxdp._numeric.gamma import gamma_excess
from jaxdp._numeric.quadrature import accumulate_exponentials, graded_gauss_legendre
from jaxdp.noise.kernels.subbotin_far_cgf import log_moment_far

# Nodes left and right of 0.
_LEFT = 128
_RIGHT = 384
# Where the integrand has lost this many nats from its top, it is cut off.
_DROP = 44.0
# Secant steps for the end of a range. chosen: only its order matters
_STEPS = 8
# Nodes within this many nats of the top have to resolve the oscillation: steps below _TURN.
_SEEN = 30.0
_TURN = 2.5
# Stands for 0 where a logarithm or a quotient is taken.
_LEAST = 1e-300


def losses(near: Reals, width: Reals, power: Reals) -> tuple[Reals, Reals]:
    """near^p / p and ((near + width)^p - near^p) / p, near > 0, width >= 0."""
    fall = -jnp.expm1(-power * jnp.log1p(width / near))
    return near**power / power, (near + width) ** power * fall / power


def _reach(drop: Callable[[Reals], Reals], start: Reals, largest: Reals) -> Reals:
    """A length where `drop`, which rises from 0, is about _DROP; at most `largest`.

    Secants of log drop against log length: a few, as only the order matters.
    """

    def improve(_: Index, length: Reals) -> Reals:
        value, above = drop(length), drop(1.01 * length)
        usable = (value > 0) & (above > value) & jnp.isfinite(above)
        value, above = jnp.where(usable, value, 1.0), jnp.where(usable, above, 2.0)
        slope = jnp.maximum(jnp.log(above / value) / np.log(1.01), 0.3)
        step = jnp.where(usable, jnp.log(_DROP / value) / slope, 0.0)
        return jnp.minimum(length * jnp.exp(jnp.clip(step, -4.0, 4.0)), largest)

    start = jnp.minimum(start, largest)
    return jnp.minimum(1.05 * lax.fori_loop(0, _STEPS, improve, start), largest)


class _Steps(NamedTuple):
    """The widest step of the loss between two nodes that count, and the last loss."""

    widest: Reals
    before: Reals


class _Ranges(NamedTuple):
    """The integrand counts where -t or t lies in these; `top` is near its largest exponent."""

    left: tuple[Reals, Reals]
    right: tuple[Reals, Reals]
    top: Reals


def _ranges(shift: Reals, tilt: Reals, power: Reals) -> _Ranges:
    """Ranges of the integral of exp(tilt l(t) - |t|^p / p), tilt >= -1/2.

    The exponent's only top: t / (t + shift) = (tilt / (tilt + 1))^(1 / (p - 1)), at t > 0 for
    tilt > 0 and, with signs changed, at -shift / 2 <= t < 0 for tilt < 0.
    """
    up, down = jnp.maximum(tilt, _LEAST), jnp.maximum(-tilt, _LEAST)
    ratio = jnp.minimum(jnp.log1p(1.0 / up) / (power - 1.0), 600.0)
    mode = jnp.maximum(shift / jnp.expm1(ratio), _LEAST)
    curvature = (power - 1.0) * up * (mode + shift) ** (power - 2.0) * jnp.expm1(ratio)
    # At least 1e-9 of the mode: narrower tops, exponents of 1e18, lie in the rounding.
    normal = jnp.sqrt(2.0 * _DROP / jnp.maximum(curvature, _LEAST))
    normal = jnp.maximum(normal, 1e-9 * mode)
    free = (power * _DROP) ** (1.0 / power)

    def exponent(t: Reals) -> Reals:
        cost, loss = losses(jnp.maximum(t, _LEAST), shift, power)
        return tilt * loss - cost

    top = exponent(mode)
    start = jnp.where((normal < mode) & (mode > free), normal, free)
    above = _reach(lambda y: top - exponent(mode + y), start, jnp.full_like(mode, jnp.inf))
    below = _reach(lambda y: top - exponent(mode - y), normal, mode)
    odds = jnp.minimum((down / (1.0 - down)) ** (1.0 / (power - 1.0)), 1.0)
    inner = shift * (odds / (1.0 + odds))

    def exponent_left(a: Reals) -> Reals:
        cost, loss = losses(jnp.maximum(a, _LEAST), jnp.maximum(shift - 2.0 * a, 0.0), power)
        return tilt * loss - cost

    peak = exponent_left(inner)
    span = 0.5 * shift - inner
    outward = _reach(lambda a: peak - exponent_left(inner + a), free, span)
    inward = _reach(lambda a: peak - exponent_left(inner - a), free, inner)
    left, right = (inner - inward, inner + outward), (mode - below, mode + above)
    return _Ranges(left, right, jnp.maximum(top, peak))


def _held_ranges(shift: Reals, tilt: Reals, power: Reals) -> _Ranges:
    """`_ranges`, constant but for an end in the middle: the others lie where nothing is left."""
    ranges = lax.stop_gradient(_ranges(shift, tilt, power))
    low, high = ranges.left
    in_middle = high >= 0.5 * shift * (1.0 - 8.0 * ULP)
    return ranges._replace(left=(low, jnp.where(in_middle, 0.5 * shift, high)))


def _factor(z: RealsOrComplexes, whole: Bools, loss: Reals) -> RealsOrComplexes:
    """(e^(z l) - 1)(1 - e^(-(z + 1) l)) e^(-l max(Re z, 0)).

    Where `whole`, e^(z l) + e^(-(z + 1) l), over e^(l Re z).
    """
    real, imaginary = jnp.real(z), jnp.imag(z)
    positive = real >= 0
    first, second = jnp.expm1(-jnp.abs(real) * loss), jnp.expm1(-(real + 1.0) * loss)
    mirror = jnp.exp(-(2.0 * real + 1.0) * loss)
    if not jnp.iscomplexobj(z):
        rest = jnp.where(positive, first, -first) * second
        return jnp.where(whole, 1.0 + mirror, rest)
    sine, cosine = jnp.sin(0.5 * imaginary * loss), jnp.cos(0.5 * imaginary * loss)
    lift, turn = 2.0 * sine * sine, 2.0 * sine * cosine
    shrunk = jnp.where(positive, 1.0, 1.0 + first)
    rise = jnp.where(positive, -first, first) - shrunk * lift + 1j * (shrunk * turn)
    rest = rise * ((1.0 + second) * (lift + 1j * turn) - second)
    both = (1.0 + mirror) * (1.0 - lift) + 1j * ((1.0 - mirror) * turn)
    return jnp.where(whole, both, rest)


def _integral(
    shift: Reals, z: RealsOrComplexes, power: Reals, whole: Bools, ranges: _Ranges
) -> tuple[Reals, RealsOrComplexes, Reals]:
    """log of a scale, the integral of exp(-|t|^p / p) `_factor` over it, and the widest step."""
    tilt = jnp.where(whole, jnp.real(z), jnp.maximum(jnp.real(z), 0.0))

    def point(
        near: Reals, width: Reals, length: Reals, memory: _Steps
    ) -> tuple[Reals, RealsOrComplexes, _Steps]:
        cost, loss = losses(jnp.maximum(near, _LEAST), width, power)
        exponent = tilt * loss - cost
        step = jnp.where(exponent > ranges.top - _SEEN, jnp.abs(loss - memory.before), 0.0)
        step = jnp.where(memory.before < 0, 0.0, step)
        memory = _Steps(jnp.maximum(memory.widest, step), loss)
        return exponent, length * _factor(z, whole, loss), memory

    def to_the_left(node: Reals, memory: _Steps) -> tuple[Reals, RealsOrComplexes, _Steps]:
        low, high = ranges.left
        a = low + (high - low) * node
        return point(a, jnp.maximum(shift - 2.0 * a, 0.0), high - low, memory)

    def to_the_right(node: Reals, memory: _Steps) -> tuple[Reals, RealsOrComplexes, _Steps]:
        low, high = ranges.right
        return point(low + (high - low) * node, shift, high - low, memory)

    begin = _Steps(jnp.zeros_like(shift), jnp.full_like(shift, -1.0))
    state = (ranges.top, jnp.zeros_like(z), begin)
    top, total, steps = accumulate_exponentials(graded_gauss_legendre(_LEFT), to_the_left, state)
    state = (top, total, steps._replace(before=begin.before))
    top, total, steps = accumulate_exponentials(graded_gauss_legendre(_RIGHT), to_the_right, state)
    return top, total, steps.widest


def _log_of(top: Reals, mean: RealsOrComplexes, whole: Bools) -> RealsOrComplexes:
    """log(1 + mean e^top), or log(mean) + top where `whole`."""
    low = (top < 1.0) & ~whole
    small = log1p(jnp.exp(jnp.where(low, top, 0.0)) * jnp.where(low, mean, 0.0))
    rest = jnp.where(whole, 0.0, jnp.exp(-jnp.where(low | whole, 1.0, top)))
    inside = jnp.where(low, 1.0, mean + rest)
    inside = jnp.where(inside == 0, jnp.finfo(jnp.float64).tiny, inside)
    return jnp.where(low, small, top + jnp.log(inside))


def cgf(shift: Reals, z: RealsOrComplexes, power: Reals, far: bool = False) -> RealsOrComplexes:
    """`Subbotin.cgf` at scale 1, 0 < shift < inf, for arrays of one shape; 1 < power < inf."""
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)
    real, imaginary = jnp.real(z), jnp.imag(z)
    # Where M(Re z) may be far below 1 it is not formed from M - 1. The bound is of -K.
    whole = -real * (shift**power / power + power * shift * shift) > 0.5
    ranges = _held_ranges(shift, jnp.where(whole, real, jnp.maximum(real, 0.0)), power)
    top, total, widest = _integral(shift, z, power, whole, ranges)
    beta = (power - 1.0) / power
    mean = total * (0.5 * jnp.exp(beta * jnp.log(power)) / (1.0 + gamma_excess(beta)))
    value = _log_of(top, mean, whole)
    lost = jnp.abs(imaginary) * widest > _TURN
    if not (far and jnp.iscomplexobj(z)):
        return jnp.where(lost, jnp.nan, value)

    def resolved() -> Complexes:
        at = jnp.where(lost, z, real + 1e9j)
        moved = log_moment_far(shift, at, power, ranges.right[1], ranges.top)
        log_unit = LOG_2 - beta * jnp.log(power) + log1p(gamma_excess(beta))
        return jnp.where(lost, moved - log_unit, value)

    return lax.cond(jnp.any(lost), resolved, lambda: value)
