"""The cumulant generating function of the flipped Huber's privacy loss: at most seven segments.

In units of gamma (see `flipped_huber_delta`) M(z) = I(z) + I(-1 - z), where I(z) is the integral
of exp(f) over t >= -D/2, f = -rho(t) + z l(t), l = rho(t + D) - rho(t). Between the points where
t or t + D crosses 0 or +-a, f is a quadratic of curvature -1, 0 or z, and its integral is a
difference of exp(f) w(f' / sqrt(2 f'')) at the ends, w the Faddeeva function.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.crossing import TINY
from jaxdp._numeric.decay import decay_mean
from jaxdp._numeric.elementary import expm1
from jaxdp._numeric.faddeeva import faddeeva
from jaxdp._numeric.mills import mills
from jaxdp._numeric.small_cgf import small_cgf
from jaxdp._types import Bools, Complexes, Reals, RealsOrComplexes

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_SHORT = 1.5
_ROOT_PI = math.sqrt(math.pi)


class _End(NamedTuple):
    """A breakpoint t: rho(t), the loss l(t), and t + D."""

    rho: Reals
    loss: Reals
    far: Reals


class _Term(NamedTuple):
    """factor w(y) exp(exponent), absent where the mask is False; w(0) = 1."""

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


def _large(a: Reals, d: Reals, z: Complexes) -> Complexes:
    zeta = 1.0 + z
    narrow, wide = d < a, d > 2.0 * a
    edge = _End(a * a, a * d + 0.5 * d * d, a + d)
    crossing_loss = jnp.where(narrow, a * d, 0.5 * (d * d + a * a))
    crossing = _End(a * jnp.maximum(a - d, 0.0), crossing_loss, jnp.maximum(a, d))
    zero = _End(jnp.zeros_like(a), crossing_loss, d)
    left = _End(
        jnp.where(wide, a * a, a * jnp.maximum(d - a, 0.0)),
        jnp.where(wide, 0.5 * d * (d - 2.0 * a), a * jnp.minimum(2.0 * a - d, d)),
        jnp.where(wide, d - a, a),
    )
    middle = jnp.where(wide, 0.125 * d * d + 0.5 * a * a, 0.5 * a * d)  # rho at t = -D/2

    everywhere, has_left = a >= 0, d > a
    terms: list[_Term] = []
    grow, fall = jnp.sqrt(2.0 * z), 1j * jnp.sqrt(2.0 * zeta)
    vertex = -a * a - zeta * a * d - a * a / (2.0 * z)  # f where f' = 0, t < 0
    for start, end, side, present in (
        (crossing, edge, -1.0, everywhere),
        (left, zero, 1.0, has_left),
    ):
        for power, root in ((z, grow), (-zeta, fall)):
            low, high = (
                (power * e.loss - e.rho, power * (e.far + side * a) + side * a)
                for e in (start, end)
            )
            if power is not z:
                terms += _segment(low, high, root, None, present)
                continue
            # As z -> 0 its two terms grow and cancel; but then f hardly changes.
            length = jnp.where(present, end.far - start.far, 0.0)
            steepest = jnp.maximum(jnp.abs(low[1]), jnp.abs(high[1]))
            short = steepest * length < _SHORT
            mean = _short_mean(low[1], z, jnp.where(short, length, 0.0))
            terms.append(_Term(low[0], length * mean, jnp.zeros_like(z), present & short))
            terms += _segment(low, high, root, vertex if side > 0 else None, present & ~short)

    # Both ends linear: t < 0, then the atom t in [0, a - D].
    rate = (2.0 * z + 1.0) * a
    length = jnp.maximum(jnp.minimum(0.5 * d, a - 0.5 * d), 0.0)
    mean = length * _decay_mean(rate * length)
    atom = jnp.maximum(a - d, 0.0)
    atom = (atom * decay_mean(a * atom)).astype(z.dtype)
    zero_y = jnp.zeros_like(z)
    terms += [
        _Term(z * left.loss - left.rho, mean, zero_y, ~wide),
        _Term(-middle + 0.0 * z, mean, zero_y, ~wide),
        _Term(z * a * d, atom, zero_y, narrow),
        _Term(-zeta * a * d, atom, zero_y, narrow),
    ]
    terms += _normal_terms(a, d, z, edge, left, middle, wide)
    return _log_sum(terms) - log_kappa(a)


def _log_sum(terms: list[_Term]) -> Complexes:
    columns = [jnp.stack(column) for column in zip(*terms, strict=True)]
    # Without the barrier XLA forms every term anew in each loop that reads it: slow to compile.
    exponent, factor, y, present = lax.optimization_barrier(columns)
    largest = jnp.max(jnp.where(present, jnp.real(exponent), -jnp.inf), axis=0)
    powers = jnp.exp(jnp.where(present, exponent - largest[None], 0.0))
    # A constant has y = 0, which costs no second kernel.
    values = factor * faddeeva(y) * powers
    total = jnp.sum(jnp.where(present, values, 0.0), axis=0)
    # Far up a vertical line nothing may be left but rounding, or not even that.
    return jnp.log(jnp.where(total == 0, TINY, total)) + largest


def _segment(
    start: tuple[Complexes, Complexes],
    end: tuple[Complexes, Complexes],
    root: Complexes,
    vertex: Complexes | None,
    present: Bools,
) -> list[_Term]:
    """int exp(f) between two points with (f, f') given; `root` = sqrt(2 f''), Im root >= 0.

    `vertex` is f at f' = 0, wanted where an end may have Im f' / root < 0.
    """
    scale = (-1j * _ROOT_PI) / root
    terms, flips = [], []
    for (exponent, slope), sign in ((start, -1.0), (end, 1.0)):
        y = slope / root
        flip = (jnp.imag(y) < 0) & (vertex is not None)
        y = jnp.where(flip, -y, jnp.real(y) + 1j * jnp.maximum(jnp.imag(y), 0.0))
        value = sign * scale
        terms.append(_Term(exponent, jnp.where(flip, -value, value), y, present))
        flips.append(flip)
    if vertex is not None:
        # w(y) = 2 exp(-y^2) - w(-y), and f - y^2 is f at the vertex.
        sign = flips[1].astype(jnp.float64) - flips[0].astype(jnp.float64)
        factor = 2.0 * sign * scale
        terms.append(_Term(vertex, factor, jnp.zeros_like(factor), present & (sign != 0)))
    return terms


def _short_mean(low: Complexes, curvature: Complexes, length: Reals) -> Complexes:
    """The mean of exp(f - f(0)) over a length in which f changes by less than _SHORT."""
    h = jnp.stack([0.5 * (1.0 + node) * length for node in _NODES])
    weights = jnp.stack([jnp.full_like(length, 0.5 * weight) for weight in _WEIGHTS])
    curve = jnp.exp(h * (low[None] + 0.5 * h * curvature[None]))
    return lax.optimization_barrier(jnp.sum(weights * curve, axis=0))


def _normal_terms(
    a: Reals, d: Reals, z: Complexes, edge: _End, left: _End, middle: Reals, wide: Bools
) -> list[_Term]:
    """t > a, and t in [-D/2, -a] where there is such: f = -t^2/2 + z D t + constant."""
    zeta, start = 1.0 + z, -0.5 * d
    unit, none = jnp.full_like(z, math.sqrt(0.5 * math.pi)), jnp.zeros_like(z)
    centre = 0.5 * (z * zeta * d * d - a * a)  # f at its vertex z D
    right, before = a - z * d, a + z * d
    past, ahead = jnp.real(right) < 0, jnp.real(before) < 0
    everywhere = a >= 0

    def tail(loss: Complexes, rho: Reals, x: Complexes, flip: Bools, present: Bools, sign: float):
        """+-exp(loss - rho) R(x), R the Mills ratio, reflected where Re x < 0."""
        y = jnp.where(flip, -x, x) * math.sqrt(0.5)
        y = 1j * jnp.maximum(jnp.real(y), 0.0) - jnp.imag(y)
        return _Term(loss - rho, sign * jnp.where(flip, -unit, unit), y, present)

    never = a < 0
    return [
        tail(z * edge.loss, edge.rho, right, past, everywhere, 1.0),
        tail(z * left.loss, left.rho, before, ahead, wide, 1.0),
        _Term(centre, 2.0 * unit, none, past),
        _Term(centre, 2.0 * unit, none, wide & ahead),
        tail(-zeta * edge.loss, edge.rho, a + zeta * d, never, everywhere, 1.0),
        tail(-zeta * left.loss, left.rho, zeta * d - a, never, wide, -1.0),
        tail(none, middle, zeta * d + start, never, wide, 1.0),
        tail(none, middle, z * d - start, never, wide, -1.0),
    ]


def _decay_mean(x: Complexes) -> Complexes:
    """(1 - e^-x) / x for complex x."""
    zero = x == 0
    safe = jnp.where(zero, 1.0, x)
    return jnp.where(zero, 1.0, -expm1(-safe) / safe)
