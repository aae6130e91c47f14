"""Published conditions on flipped Huber noise in K dimensions: sufficient, not exact.

Source: the flipped Huber slides (Muthukrishnan & Kalyani), "Flipped Huber strikes back in higher
dimensions". `privacy_loss` composes the same noise exactly; `notebooks` compares the two.
"""

from __future__ import annotations

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp._numeric.mills import log_normal_survival
from jaxdp.design.sensitivity import JointSensitivity
from jaxdp.guarantee.zcdp import ZCDP
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
    """log of the published, sufficient bound on delta for flipped Huber noise in K dimensions.

    Args:
        noise: on each of the K coordinates, i.i.d.
        sensitivity: a `JointSensitivity`, whose norms are used at their largest joint values.
        epsilon: nats; broadcasts.

    Returns:
        log(Q(A) - e^epsilon Q(B)), rounded up; 0 (no claim) where A < 0.

    With S = K R(linf), R(t) = alpha^2 - (alpha - t)_+^2, theta as in
    `design.flipped_huber_conditions`:
      A = gamma epsilon / l2 - l2 / (2 gamma) - S / (2 gamma l2) >= 0 (else nothing is claimed),
      B = gamma epsilon / l2 + l2 / (2 gamma) + S / (2 gamma l2) + theta l1 / (gamma l2).
    `privacy_loss` composes the same noise exactly. The printed "Delta" is linf.
    Source: Muthukrishnan & Kalyani, "Flipped Huber strikes back in higher dimensions".

    >>> import jaxdp as dp
    >>> size = dp.JointSensitivity(3, linf=1.0)
    >>> print(f"{dp.sufficient_log_delta(dp.FlippedHuber(1.0, 5.0), size, 2.0):.4f}")
    -17.4952
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
    """The published zero-concentrated guarantee of flipped Huber noise in K dimensions.

    Args:
        noise: on each of the K coordinates, i.i.d.
        sensitivity: a `JointSensitivity`, whose norms are used at their largest joint values.

    Returns:
        (K R(t) / (2 gamma^2), l2^2 / (2 gamma^2))-zCDP, rounded up, with t its best argument,
        min(linf, l1 / K, l2 / sqrt(K)), and R(t) = alpha^2 - (alpha - t)_+^2.

    R is concave, so sum R(d_i) <= K R(t): never above the print.
    Source: as in `sufficient_log_delta`.

    >>> import jaxdp as dp
    >>> found = dp.sufficient_zcdp(dp.FlippedHuber(1.0, 5.0), dp.JointSensitivity(3, linf=1.0))
    >>> print(f"{found.xi:.3f} {found.rho:.3f}")
    0.060 0.060
    """
    size = sensitivity.tightened()
    k = size.dimension
    shift = xp.minimum(xp.minimum(size.linf, size.l1 / k), size.l2 / xp.sqrt(k))
    scale = 0.5 / noise.gamma**2
    return ZCDP(round_up(k * flatness(noise, shift) * scale, 16), round_up(size.l2**2 * scale, 8))
