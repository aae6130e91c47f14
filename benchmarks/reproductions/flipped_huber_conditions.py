"""Published conditions on flipped Huber noise in K dimensions: sufficient, not exact.

Source: the flipped Huber slides (Muthukrishnan & Kalyani), "Flipped Huber strikes back in higher
dimensions". `privacy_loss` composes the same noise exactly; `notebooks` compares the two.
"""

from functools import partial

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp._numeric.mills import log_normal_survival
from jaxdp.design.least_error import Lanes, Residuals, excess_of, least_error
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.guarantee.base import BudgetLike, as_budget
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.noise.base import Noise
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian

# The largest double.
_LARGEST = float(np.finfo(np.float64).max)


def flatness(noise: FlippedHuber, shift: ArrayLike) -> Reals:
    """R(shift) = alpha^2 - (alpha - shift)_+^2: what the centre adds to the Gaussian loss."""
    alpha, shift = xp.broadcast_arrays(
        checks.guard(noise.alpha), checks.nonnegative("shift", shift)
    )
    inside = xp.minimum(shift, alpha)
    return inside * (2.0 * alpha - inside)


def offset(noise: FlippedHuber) -> Reals:
    """theta = gamma Q^-1(sqrt(pi/2) / omega), with P[T > x] <= Q((x - theta) / gamma).

    P[T > alpha] = (sqrt(2 pi) / omega) Q(alpha / gamma), so the ratio is known from the survival
    function.
    """
    alpha, gamma = xp.broadcast_arrays(checks.guard(noise.alpha), noise.gamma)
    tail = noise.log_survival(alpha) - log_normal_survival(alpha / gamma)
    return xp.maximum(-gamma * Gaussian(1.0).quantile(0.5 * xp.exp(xp.minimum(tail, 0.0))), 0.0)


@in_float64
def sufficient_log_delta(
    noise: FlippedHuber, sensitivity: JointSensitivity, epsilon: ArrayLike
) -> Reals:
    """log of the published bound on delta, rounded up; 0 (no claim) where A < 0.

    log(Q(A) - e^epsilon Q(B)) for i.i.d. noise on each of K coordinates, epsilon in nats. With
    S = K R(linf), R(t) = alpha^2 - (alpha - t)_+^2, theta as in `offset`:
      A = gamma epsilon / l2 - l2 / (2 gamma) - S / (2 gamma l2) >= 0 (else nothing is claimed),
      B = gamma epsilon / l2 + l2 / (2 gamma) + S / (2 gamma l2) + theta l1 / (gamma l2).
    The norms of the sensitivity count at their largest joint values. The printed "Delta" is linf.
    """
    size = sensitivity.tightened()
    epsilon = checks.real("epsilon", epsilon)
    k, l1, l2, linf, epsilon, gamma, theta = xp.broadcast_arrays(
        size.dimension, size.l1, size.l2, size.linf, epsilon, noise.gamma, offset(noise)
    )
    centre = k * flatness(noise, linf) / (gamma * l2)
    middle, half = gamma * epsilon / l2, 0.5 * (l2 / gamma + centre)
    a, b = middle - half, middle + half + theta * l1 / (gamma * l2)
    # Below doubles the bound is the least of them.
    upper = xp.maximum(log_normal_survival(a), -_LARGEST)
    gap = epsilon + log_normal_survival(b) - upper
    value = upper + log1m(xp.exp(xp.minimum(gap, 0.0)))
    error = ULP * (32.0 + 8.0 * (1.0 + xp.abs(a)) * (xp.abs(middle) + half) / -xp.expm1(gap))
    # Rounding alone can make the difference vanish: Q(A) is a bound, too.
    difference = xp.where(gap < 0, value + error, upper)
    claimed = xp.where(xp.isnan(gap), xp.nan, xp.minimum(difference, upper))
    rounded = xp.minimum(claimed + 16.0 * ULP * xp.abs(claimed), 0.0)
    return xp.where(a < 0, 0.0, rounded)


@in_float64
def sufficient_zcdp(noise: FlippedHuber, sensitivity: JointSensitivity) -> ZCDP:
    """The published (K R(t) / (2 gamma^2), l2^2 / (2 gamma^2))-zCDP in K dimensions, rounded up.

    t is the best argument of R, min(linf, l1 / K, l2 / sqrt(K)): R is concave, so that sum R(d_i)
    <= K R(t), which is never above the print.
    """
    size = sensitivity.tightened()
    k = size.dimension
    shift = xp.minimum(xp.minimum(size.linf, size.l1 / k), size.l2 / xp.sqrt(k))
    scale = 0.5 / noise.gamma**2
    return ZCDP(round_up(k * flatness(noise, shift) * scale, 16), round_up(size.l2**2 * scale, 8))


@in_float64
@partial(jitted, static_argnums=2)
def fit_by_condition(
    budget: BudgetLike, sensitivity: JointSensitivity, objective: str = "variance"
) -> Noise:
    """The flipped Huber noise with the least error that `sufficient_log_delta` certifies."""
    budget, size = as_budget(budget), sensitivity.tightened()
    lanes = Lanes(*xp.broadcast_arrays(budget.epsilon, budget.delta, size.linf, size.dimension))
    norms = [xp.broadcast_to(n, lanes.shift.shape) for n in (size.l1, size.l2)]

    def excess(noise: Noise, lanes: Lanes) -> Reals:
        assert isinstance(noise, FlippedHuber)
        l1, l2 = (xp.broadcast_to(n, lanes.shift.shape) for n in norms)
        joint = JointSensitivity(lanes.fold, l1=l1, l2=l2, linf=lanes.shift)
        return excess_of(sufficient_log_delta(noise, joint, lanes.epsilon), lanes.delta)

    return least_error("flipped_huber", objective, lanes, Residuals(excess, excess))
