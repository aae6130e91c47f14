"""M(z) of the density proportional to exp(-|t|^p / p), far from the real axis.

M(z) = int exp(z V - (z + 1) U) dt / C with U = |t|^p / p and V = |t + shift|^p / p: on the real
line it oscillates with Im z times the loss V - U. U and V are analytic but at t = 0 and -shift.
Between them, and to the right of 0, the path is moved up to where the oscillation turns into decay
(Im (V - U) > 0); the part to the left of -shift is the conjugate of one on the right:

    M(z) C = between(z) + right(z) + conj right(-1 - conj z).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Complexes, Reals
from jaxdp._numeric.quadrature import Rule, graded_gauss_legendre

# Nodes from -shift to 0 and from 0 on.
_INNER = 160
_OUTER = 320
# The largest p arg t on a path: Re t^p keeps a half of its modulus.
_ANGLE = float(np.pi / 3.0)
# Where the integrand has lost this many nats from its top, a ray ends.
_DROP = 42.0
# Nodes within this many nats of the top have to resolve the oscillation: steps below _TURN.
_SEEN = 30.0
_TURN = 2.5
# Stands for 0 where a logarithm or a quotient is taken.
_LEAST = 1e-300
# Where the end of a ray is looked for, as shares of the longest it may be.
_SHARES = np.exp(np.linspace(np.log(1e-12), 0.0, 64))
# Ratio of two neighbours among them.
_RATIO = float(_SHARES[1] / _SHARES[0])


class _Sum(NamedTuple):
    """State of a ray: the sum so far, the largest turn between two nodes, and the last phase."""

    total: Complexes
    widest: Reals
    phase: Reals


class _Lane(NamedTuple):
    """Parameters that the rays of one sum share."""

    shift: Reals
    power: Reals
    z: Complexes  # Re z >= -1/2, Im z >= 0
    top: Reals


def _losses_on(
    part: str, s: Reals, shift: Reals, power: Reals, direction: Complexes, turned: Complexes
) -> tuple[Complexes, Complexes]:
    """U and V - U at the distance s along a ray; `turned` is direction^p / p."""
    step = s * direction
    near = turned * s**power
    if part == "out":
        return near, jnp.exp(power * jnp.log(step + shift)) / power - near
    far = jnp.exp(power * jnp.log(shift - step)) / power
    return (far, near - far) if part == "rise" else (near, far - near)


def _add_ray(part: str, rule: Rule, lane: _Lane, slant: Reals, longest: Reals, sum_: _Sum) -> _Sum:
    """Add one ray: "rise" from -shift up to the middle, "fall" to 0, "out" from 0 on."""
    shift, power, z, top = lane
    real, height = jnp.real(z), jnp.imag(z)
    direction = 1.0 + 1j * (-slant if part == "fall" else slant)
    turned = jnp.exp(power * jnp.log(direction)) / power

    shares = jnp.asarray(_SHARES)[(None,) * shift.ndim]
    row = (x[..., None] for x in (shift, power, direction, turned))
    cost, loss = _losses_on(part, longest[..., None] * shares, *row)
    counts = jnp.real(z[..., None] * loss - cost) > top[..., None] - _DROP
    length = longest * jnp.max(jnp.where(counts, shares, 0.0), axis=-1) * _RATIO
    length = jnp.clip(length, longest * _SHARES[0], longest)

    def step(state: _Sum, point: tuple[Reals, Reals]) -> tuple[_Sum, None]:
        node, weight = point
        s = jnp.maximum(length * node, _LEAST)
        cost, loss = _losses_on(part, s, shift, power, direction, turned)
        exponent = z * loss - cost - top
        phase = height * jnp.real(loss)
        turn = jnp.where(jnp.real(exponent) > -_SEEN, jnp.abs(phase - state.phase), 0.0)
        turn = jnp.where(state.phase == jnp.inf, 0.0, turn)
        value = jnp.exp(exponent)
        if part == "out":
            mirror = direction * value * jnp.exp(-(2.0 * real + 1.0) * loss)
            value = direction * value + jnp.conj(mirror)
        else:
            value = direction * value
        total = state.total + weight * length * value
        return _Sum(total, jnp.maximum(state.widest, turn), phase), None

    points = (jnp.asarray(rule.nodes), jnp.asarray(rule.weights))
    return lax.scan(step, sum_._replace(phase=jnp.full_like(real, jnp.inf)), points)[0]


def _slants(lane: _Lane, high: Reals) -> tuple[Reals, Reals]:
    """Slopes of the rays between -shift and 0, and beyond."""
    shift, power, height = lane.shift, lane.power, jnp.imag(lane.z)
    tilt = jnp.maximum(jnp.real(lane.z), 0.0)
    steepest = jnp.tan(_ANGLE / power)
    # With y E'' below Im z V' the decay of first order outweighs the growth of second order.
    inner = jnp.minimum(steepest, 0.5 * height / ((power - 1.0) * (tilt + 1.0)))
    s, m, p, a, h = (x[..., None] for x in (high, shift, power, tilt, height))
    s = s * jnp.asarray(_SHARES)[(None,) * high.ndim]
    pull = (p - 1.0) * jnp.abs(a * (s + m) ** (p - 2.0) - (a + 1.0) * s ** (p - 2.0)) * s
    slope = (s + m) ** (p - 1.0) * -jnp.expm1(-(p - 1.0) * jnp.log1p(m / s))
    usable = jnp.min(0.5 * h * slope / jnp.maximum(pull, _LEAST), axis=-1)
    return inner, jnp.minimum(steepest, usable)


def log_moment_far(shift: Reals, z: Complexes, power: Reals, high: Reals, top: Reals) -> Complexes:
    """log(M(z) C), Re z >= -1/2, by 640 nodes; NaN where they do not follow the oscillation.

    `high` is the end of what counts on the real line, `top` the largest exponent there: the error
    is relative to exp(top), not to M(z).
    """
    lane = _Lane(shift, power, jnp.real(z) + 1j * jnp.abs(jnp.imag(z)), top)
    inner, outer = _slants(lane, high)
    middle = graded_gauss_legendre(_INNER)
    state = _Sum(jnp.zeros_like(z), jnp.zeros_like(shift), shift)
    state = _add_ray("rise", middle, lane, inner, 0.5 * shift, state)
    state = _add_ray("fall", middle, lane, inner, 0.5 * shift, state)
    state = _add_ray("out", graded_gauss_legendre(_OUTER), lane, outer, 2.0 * high, state)
    total = jnp.where(state.total == 0, jnp.finfo(jnp.float64).tiny, state.total)
    value = jnp.where(state.widest > _TURN, jnp.nan, top + jnp.log(total))
    return jnp.where(jnp.imag(z) < 0, jnp.conj(value), value)
