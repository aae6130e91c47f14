"""The cumulant generating function of the flipped Huber's privacy loss: at most seven segments.

In units of gamma (see `flipped_huber_delta`) M(z) = I(z) + I(-1 - z), where I(z) is the integral
of exp(f) over t >= -D/2, f = -rho(t) + z l(t), l = rho(t + D) - rho(t). Between the points where
t or t + D crosses 0 or +-a, f is a quadratic of curvature -1, 0 or z, and its integral is a
difference of exp(f) w(f' / sqrt(2 f'')) at the ends, w the Faddeeva function.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Bools, Complexes, Reals, RealsOrComplexes
from jaxdp._numeric.decay import decay_mean
from jaxdp._numeric.elementary import expm1
from jaxdp._numeric.faddeeva import faddeeva
from jaxdp._numeric.mills import mills
from jaxdp.noise.kernels.monotone_loss import TINY
from jaxdp.noise.kernels.small_cgf import small_cgf

# Gauss-Legendre on [-1, 1] for short segments.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
# Change of the exponent below which a segment is summed by Gauss-Legendre. chosen: 10 nodes suffice
_SHORT = 1.5
_ROOT_PI = math.sqrt(math.pi)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
# Side of each end of a segment: f' = P lean + side a there.
_SIDE = np.array([-1.0, -1.0, 1.0, 1.0])
# Sign with which what is at an end counts.
_SIGN = np.array([-1.0, 1.0, -1.0, 1.0])
# Of the two powers at an end, the first may be reflected.
_FIRST = np.array([True, False])


class Ends(NamedTuple):
    """Ends of segments of curvature P, all (4, ...): crossing, edge, left, zero.

    From the crossing, where t passes 0 or t + D passes a, to t = a; where D > a, from the left,
    where t + D passes a or t passes -a, to t = 0. f = P loss - rho and f' = P lean + side a there.
    """

    rho: Reals
    loss: Reals
    lean: Reals

    @staticmethod
    def of(a: Reals, d: Reals) -> Ends:
        """The ends for a = alpha / gamma and d = shift / gamma."""
        wide, zero = d > 2.0 * a, jnp.zeros_like(a)
        crossing = jnp.where(d < a, a * d, 0.5 * (d * d + a * a))
        left = jnp.where(wide, 0.5 * d * (d - 2.0 * a), a * jnp.minimum(2.0 * a - d, d))
        above = jnp.where(wide, a * a, a * jnp.maximum(d - a, 0.0))
        rho = a * jnp.maximum(a - d, 0.0), a * a, above, zero
        loss = crossing, a * d + 0.5 * d * d, left, crossing
        lean = jnp.maximum(d - a, 0.0), d, jnp.where(wide, d, 2.0 * a), d + a
        return Ends(*(jnp.stack(rows) for rows in (rho, loss, lean)))


class Rows(NamedTuple):
    """factor w(y) exp(exponent), absent where the mask is False: all (ends, powers, ...)."""

    exponent: Complexes
    factor: Complexes
    y: Complexes
    present: Bools


def log_kappa(a: Reals) -> Reals:
    """log of the integral of exp(-rho)."""
    square = a * a
    return jnp.log(2.0 * (a * decay_mean(square) + jnp.exp(-square) * mills(a)))


def cgf(a: Reals, d: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    """K(z), arguments of one shape. See `FlippedHuber.cgf`."""
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)  # K(z) = K(-1 - z)
    small = ~(jnp.abs(z) * d * (1.0 + a + d) > 1.0)
    near, none = jnp.where(small, z, 0.0), jnp.zeros_like(z)
    above = jnp.real(z) + 1j * jnp.abs(jnp.imag(z))
    far = jnp.where(small, 1.0, above)

    def large() -> RealsOrComplexes:
        value = _large(a, jnp.where(small, 1.0, d), far)
        if not jnp.iscomplexobj(z):
            return jnp.real(value)
        return jnp.where(jnp.imag(z) < 0, jnp.conj(value), value)

    return jnp.where(
        small,
        lax.cond(jnp.any(small), lambda: _small(a, jnp.where(small, d, 0.0), near), lambda: none),
        lax.cond(jnp.all(small), lambda: none, large),
    )


def _small(a: Reals, d: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    normaliser, b, m = log_kappa(a)[None], a[None], d[None]

    def law(t: Reals) -> tuple[Reals, Reals]:
        near, far, span = jnp.abs(t), t + m, jnp.minimum(2.0 * t + m, m)
        near_out, far_out = jnp.maximum(near, b), jnp.maximum(far, b)
        outside = jnp.where(near >= b, span, jnp.maximum(far - b, 0.0))
        loss = b * (span - outside) + 0.5 * outside * (near_out + far_out)
        rho = jnp.where(near < b, b * near, 0.5 * (near * near + b * b))
        return -rho - normaliser, loss

    kinks = (a, a - d, -a)
    return small_cgf(law, d, 1.0 / jnp.maximum(a, 1.0), kinks, z)


def segment_rows(a: Reals, d: Reals, z: Complexes) -> Rows:
    """Rows of both ends of segments, of curvature z and then of -1 - z: (4, 2, ...)."""
    ends, powers = Ends.of(a, d), jnp.stack([z, -1.0 - z])
    side, sign = _like(_SIDE, powers), _like(_SIGN, powers)
    root = jnp.stack([jnp.sqrt(2.0 * z), 1j * jnp.sqrt(2.0 * (1.0 + z))])
    shape = (4, *powers.shape)
    return Rows(
        powers[None] * ends.loss[:, None] - ends.rho[:, None],
        jnp.broadcast_to(sign * (-1j * _ROOT_PI) / root[None], shape),
        (powers[None] * ends.lean[:, None] + side * a[None, None]) / root[None],
        jnp.broadcast_to((side < 0) | (d > a)[None, None], shape),
    )


def normal_rows(a: Reals, d: Reals, z: Complexes) -> Rows:
    """Rows of t > a, and of t in [-D/2, -a] if there is such: Mills ratios, (2, 2, ...)."""
    ends, powers = Ends.of(a, d), jnp.stack([z, -1.0 - z])
    one = jnp.ones_like(powers)
    sign = jnp.stack([one, jnp.stack([one[0], -one[1]])])
    start = sign * (a[None, None] + jnp.stack([-one, one]) * powers[None] * d[None, None])
    everywhere = jnp.broadcast_to(a >= 0, powers.shape)
    return Rows(
        powers[None] * ends.loss[1:3, None] - ends.rho[1:3, None],
        _ROOT_HALF_PI * sign,
        (1j * math.sqrt(0.5)) * start,
        jnp.stack([everywhere, jnp.broadcast_to(d > 2.0 * a, powers.shape)]),
    )


def _large(a: Reals, d: Reals, z: Complexes) -> Complexes:
    narrow, wide = d < a, d > 2.0 * a
    segments, normals = segment_rows(a, d, z), normal_rows(a, d, z)
    # As z -> 0 both ends of a segment grow and cancel; but then f hardly changes.
    slope = z[None] * Ends.of(a, d).lean + _like(_SIDE, a) * a[None]
    length = jnp.stack([jnp.minimum(a, d), jnp.where(wide, a, jnp.maximum(d - a, 0.0))])
    steepest = jnp.maximum(jnp.abs(slope[::2]), jnp.abs(slope[1::2]))
    short = segments.present[::2, 0] & (steepest * length < _SHORT)
    mean = length * _short_mean(slope[::2], z[None], jnp.where(short, length, 0.0))
    split = ~jnp.repeat(short, 2, axis=0)
    segments = segments._replace(
        present=segments.present & jnp.stack([split, jnp.ones_like(split)], axis=1)
    )
    # f - y^2, what the other half of a reflected row has, is f where f' = 0.
    vertex = -a * a - (1.0 + z) * a * d - a * a / (2.0 * z)
    centre = 0.5 * (z * (1.0 + z) * d * d - a * a)
    reflected = [_reflected(rows) for rows in (segments, normals)]
    curved = [
        jnp.concatenate([x.reshape(8, *z.shape), y.reshape(4, *z.shape)])
        for x, y in zip(*(rows for rows, _ in reflected), strict=True)
    ]
    # Both ends linear: t < 0, then the atom t in [0, a - D].
    rate = (2.0 * z + 1.0) * a
    span = jnp.maximum(jnp.minimum(0.5 * d, a - 0.5 * d), 0.0)
    linear = span * _decay_mean(rate * span)
    atom = jnp.maximum(a - d, 0.0)
    atom = (atom * decay_mean(a * atom)).astype(z.dtype)
    middle = -0.5 * a * d + 0.0 * z  # f at t = -D/2
    start = segments.exponent[::2, 0]
    plain = (
        (vertex, reflected[0][1], reflected[0][1] != 0),
        (centre, reflected[1][1], reflected[1][1] != 0),
        (start[0], mean[0], short[0]),
        (start[1], mean[1], short[1]),
        (start[1], linear, ~wide),
        (middle, linear, ~wide),
        (z * a * d, atom, narrow),
        (-(1.0 + z) * a * d, atom, narrow),
    )
    return _log_sum(Rows(*curved), plain) - log_kappa(a)


def _like(column: np.ndarray, x: RealsOrComplexes) -> np.ndarray:
    """A column along a new first axis of x."""
    return column.reshape(-1, *(1,) * x.ndim)


def _reflected(rows: Rows) -> tuple[Rows, Complexes]:
    """Rows with Im y >= 0, and the factor of exp(f - y^2) in all.

    Rows are reflected by w(y) = 2 exp(-y^2) - w(-y).
    """
    # For -1 - z it is rounding where Im y < 0.
    flip = (jnp.imag(rows.y) < 0) & _FIRST.reshape(1, 2, *(1,) * (rows.y.ndim - 2))
    y = jnp.where(flip, -rows.y, rows.y)
    y = jnp.real(y) + 1j * jnp.maximum(jnp.imag(y), 0.0)
    beside = jnp.sum(jnp.where(flip & rows.present, 2.0 * rows.factor, 0.0), axis=(0, 1))
    factor = jnp.where(flip, -rows.factor, rows.factor)
    return rows._replace(y=y, factor=factor), beside


def _log_sum(rows: Rows, plain: tuple[tuple[Complexes, Complexes, Bools], ...]) -> Complexes:
    exponents, factors, present = (jnp.stack(column) for column in zip(*plain, strict=True))
    factors = jnp.concatenate([rows.factor * faddeeva(rows.y), factors])
    exponents = jnp.concatenate([rows.exponent, exponents])
    present = jnp.concatenate([rows.present, present])
    # Without the barrier XLA forms every term anew in each loop that reads it: slow to compile.
    exponents, factors, present = lax.optimization_barrier((exponents, factors, present))
    largest = jnp.max(jnp.where(present, jnp.real(exponents), -jnp.inf), axis=0)
    powers = jnp.exp(jnp.where(present, exponents - largest[None], 0.0))
    total = jnp.sum(jnp.where(present, factors * powers, 0.0), axis=0)
    # Far up a vertical line nothing may be left but rounding, or not even that.
    return jnp.log(jnp.where(total == 0, TINY, total)) + largest


def _short_mean(low: Complexes, curvature: Complexes, length: Reals) -> Complexes:
    """The mean of exp(f - f(0)) over a length in which f changes by less than _SHORT."""
    h = jnp.stack([0.5 * (1.0 + node) * length for node in _NODES])
    weights = jnp.stack([jnp.full_like(length, 0.5 * weight) for weight in _WEIGHTS])
    curve = jnp.exp(h * (low[None] + 0.5 * h * curvature[None]))
    return lax.optimization_barrier(jnp.sum(weights * curve, axis=0))


def _decay_mean(x: Complexes) -> Complexes:
    """(1 - e^-x) / x for complex x."""
    zero = x == 0
    safe = jnp.where(zero, 1.0, x)
    return jnp.where(zero, 1.0, -expm1(-safe) / safe)
