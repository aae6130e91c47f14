"""M(z) / M(theta) along a vertical line, in real arithmetic, with the error of every value.

Identity: with p_j the tilted masses and m their mean loss,

    phi(theta + it) / phi(theta) - 1 = sum_j p_j (e^(it (l_j - m)) - 1).

The rounding error of the sum scales with the losses, not with 1, so n-fold powers keep their
digits. All points t = h (a + B b) come from one product of matrices (points, nodes) and (nodes,
points), since

    e^(i(x + y)) - 1 = (e^(ix) - 1) (e^(iy) - 1) + (e^(ix) - 1) + (e^(iy) - 1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, vmap, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.contour_plan import Plan
from jaxdp.accountant.factors import (
    Factor,
    Factors,
    over_all,
    over_releases,
    rounding_of_nodes,
    tilted,
)

# Square root of the number of points of a line. measured: 32 leave more lanes wide, 128 no fewer
ROOT = 64
# Halvings of the end at which both rules are compared. chosen
_HALVINGS = 10
# Heights at which they are compared, in units of the end. chosen
_CHECKED = np.array([0.0, *(2.0 ** np.arange(-_HALVINGS, 0.0)), 0.75, 1.0])
# Radians between neighbouring nodes at which a panel's integral has no digit left. derived: the
# error of 16 nodes for e^(i x) grows like the 32nd power of the turn.
_TURN = 3.6

# Radians between neighbouring nodes up to which a smoothed contour extends. chosen: (2.7 / 3.6)^32
# is 1e-4
_RESOLVED = 2.7
# Mass of a node that can turn further. chosen: the error is at most this mass
_LEAST_ERROR = 1e-9


class Values(NamedTuple):
    """log of M(z) / M(theta) at heights step k (N,)."""

    log_size: Reals
    angle: Reals


class Errors(NamedTuple):
    """Errors of the values of a line."""

    value_error: Reals  # (N,): log of 1 + the relative error of each value
    mean: Reals  # loss under the tilted law: the angle of the values per unit of height


def values_on(factors: Factors, plan: Plan) -> Values:
    """Values at all points, with derivatives."""
    return over_all(factors, _start(factors, plan), lambda f: _logs(f, plan))


def values_and_errors(factors: Factors, plan: Plan) -> tuple[Values, Errors]:
    """Values at all points, and their errors.

    Errors come from rounding, from the difference of both rules, and from phases that turn too far.
    """

    def of_factor(factor: Factor) -> tuple[Values, Errors]:
        values = _logs(factor, plan)
        return values, _errors(factor, plan, values.log_size)

    mean_of_gaussian = xp.abs(factors.variance) * (1.0 + plan.tilt)
    start = _start(factors, plan), Errors(xp.zeros(ROOT * ROOT), mean_of_gaussian)
    return over_releases(factors, start, of_factor)


def _start(factors: Factors, plan: Plan) -> Values:
    heights = plan.step * xp.arange(1.0 * ROOT * ROOT)
    v = factors.variance
    return Values(-0.5 * v * heights**2, v * (plan.tilt + 0.5) * heights)


def _logs(factor: Factor, plan: Plan) -> Values:
    """releases times log of phi(theta + it) / phi(theta)."""
    weight, mean = tilted(factor.law, plan.tilt)
    log_size, angle = _log1p(*_excesses(weight, factor.law.loss - mean, plan.step))
    angle = angle + mean * plan.step * xp.arange(1.0 * ROOT * ROOT)
    return Values(factor.releases * log_size, factor.releases * angle)


def _errors(factor: Factor, plan: Plan, log_power: Reals) -> Errors:
    """Errors of phi^n: an error e of phi is a factor of at most (1 + e / |phi|)^n."""
    points, count = ROOT * ROOT, factor.releases
    heights, end = plan.step * xp.arange(1.0 * points), plan.step * (points - 0.5)
    weight, mean = tilted(factor.law, plan.tilt)
    # Rounding of the products that build a power, some ULP each.
    products = 8.0 * ROOT * ULP * xp.abs(factor.law.loss - mean)
    rounding = xp.sum(xp.where(weight > 0, weight * (rounding_of_nodes(factor) + products), 0.0))
    error = _quadrature(factor, plan.tilt, end, points)
    error = error + (_unresolved(factor, weight, plan.step) + rounding * heights)
    log_size = log_power / xp.where(count == 0, 1.0, count)
    return Errors(count * xp.log1p(error * xp.exp(-log_size)), count * xp.abs(mean))


def _log1p(real: Reals, imag: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary part of log(1 + real + i imag); the real part is at least log 1e-150."""
    excess = 2.0 * real + real * real + imag * imag
    near = excess > -0.5
    square = xp.maximum((1.0 + real) ** 2 + imag * imag, 1e-300)
    log_square = xp.where(near, log1p(xp.where(near, excess, 0.0)), xp.log(square))
    is_normal = square > 1e-300
    return 0.5 * log_square, xp.arctan2(
        xp.where(is_normal, imag, 0.0), xp.where(is_normal, 1.0 + real, 1.0)
    )


def _excesses(weight: Reals, offset: Reals, step: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary part of sum_j w_j (e^(it l_j) - 1) at all points."""
    far, near = _powers(step * ROOT * offset, ROOT), _powers(step * offset, ROOT)
    # Without the barrier, XLA recomputes the operands for every block of the product.
    far, near = lax.optimization_barrier((weight[None] * far, near))
    product = (far @ near.T).reshape(2, ROOT, 2, ROOT)
    of_far, of_near = xp.sum(far, axis=-1).reshape(2, ROOT), (near @ weight).reshape(2, ROOT)
    real = product[0, :, 0] - product[1, :, 1] + of_far[0][:, None] + of_near[0][None]
    imag = product[0, :, 1] + product[1, :, 0] + of_far[1][:, None] + of_near[1][None]
    return real.ravel(), imag.ravel()


def _powers(turn: Reals, size: int) -> Reals:
    """Real and then imaginary parts of e^(i k turn) - 1 for k < size: (2 size, J)."""
    first_power = _minus_one(turn)

    def step(power: Any, _: None) -> tuple[Any, Any]:
        return _times(power, first_power), power

    start = xp.zeros_like(turn), xp.zeros_like(turn)
    return xp.concatenate(lax.scan(step, start, None, length=size)[1])


def _minus_one(turn: Reals) -> tuple[Reals, Reals]:
    half = xp.sin(0.5 * turn)
    return -2.0 * half**2, 2.0 * half * xp.cos(0.5 * turn)


def _times(x: tuple[Reals, Reals], y: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
    """(1 + x) (1 + y) - 1 for complex x and y, as real and imaginary part."""
    (a, b), (c, d) = x, y
    return a * c - b * d + a + c, a * d + b * c + b + d


def resolved_end(factors: Factors, plan: Plan) -> Reals:
    """The height up to which phases of neighbouring nodes differ by `_RESOLVED` at most."""

    def gap_of(factor: Factor) -> Reals:
        weight, _ = tilted(factor.law, plan.tilt)
        largest_gap = xp.abs(xp.diff(factor.law.loss, append=factor.law.loss[-1:]))
        matters = factor.releases * weight > _LEAST_ERROR
        matters = matters & xp.isfinite(factor.law.log_density)
        return xp.max(xp.where(matters & (factor.releases != 0), largest_gap, 0.0))

    # The largest of all factors, not their sum.
    largest_gap = xp.max(vmap(gap_of)(factors.each))
    return xp.where(largest_gap > 0, _RESOLVED / largest_gap, xp.inf)


def _unresolved(factor: Factor, weight: Reals, step: Reals) -> Reals:
    """Error of phi at all points from the phase differences of neighbouring nodes.

    Each block of heights takes the error at its end, where the phases differ most.
    """
    offset = factor.law.loss
    ends = step * ROOT * (1.0 + xp.arange(1.0 * ROOT))
    turn = xp.abs(xp.diff(offset, append=offset[-1:]))[None] * ends[:, None]
    spread = xp.where(xp.isfinite(factor.law.log_density), weight, 0.0)
    return xp.repeat(2.0 * xp.minimum((turn / _TURN) ** 32, 1.0) @ spread, ROOT)


def _quadrature(factor: Factor, tilt: Reals, end: Reals, points: int) -> Reals:
    """Running maximum of the difference between both quadrature rules, at all points."""

    def sums(factor: Factor) -> Reals:
        weight, _ = tilted(factor.law, tilt)

        def doubled(power: Any, _: None) -> tuple[Any, Any]:
            return _times(power, power), power

        first = _minus_one(end * 2.0**-_HALVINGS * factor.law.loss)
        full_turn, powers = lax.scan(doubled, first, None, length=_HALVINGS)
        half, quarter = (tuple(part[-i] for part in powers) for i in (1, 2))
        three_quarters = _times(half, quarter)
        parts = zip(powers, three_quarters, full_turn, strict=True)
        return xp.stack([xp.concatenate([x, y[None], z[None]]) @ weight for x, y, z in parts])

    gap = sums(factor) - sums(factor.by_check())
    error = lax.cummax(xp.pad(xp.hypot(gap[0], gap[1]), (1, 0))) + factor.mass_gap
    return error[np.searchsorted(_CHECKED, np.arange(points) / (points - 0.5))]
