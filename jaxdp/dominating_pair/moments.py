"""Renyi divergences of a pair from the nodes of its law, rounded up."""

from __future__ import annotations

from collections.abc import Callable

from jaxdp._core import checks
from jaxdp._core.namespace import lax, logsumexp, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, expm1_minus, lifted, log1p, round_up
from jaxdp.dominating_pair.base import DominatingPair, is_whole

# Least order - 1; smaller ones use its divergence. chosen: K / s keeps its digits
_LEAST_EXCESS = 2.0**-30
# Difference of a moment by both rules, up to which it is resolved. chosen: above their rounding
_RESOLVED = 1e-11
# Largest exponent of a term with a mass beside it. derived: below the logarithm of any overflow
_LARGEST_EXPONENT = 650.0
# Relative error of a term. derived: a few ulps of the exponents of loss and mass
_TERM_ERROR = 4.0 * _LARGEST_EXPONENT * ULP
# Higher orders for the bound on the left-out moment, over the order. chosen: octaves
_HIGHER = (1.5, 2.0, 4.0, 8.0, 16.0)


def renyi_of_law(
    pair: DominatingPair,
    order: ArrayLike,
    otherwise: Callable[[Reals], Reals],
    beyond: Callable[[Reals, Reals], Reals] | None = None,
) -> Reals:
    """log E[e^((a - 1) L)] / (a - 1) of order a by nodes and `log_left_out`, or `otherwise`.

    Both are upper bounds. The second applies where it is smaller, or where the nodes do not resolve
    the integrand. `beyond` maps the order and `log_left_out` to a bound on the log of the left-out
    moment; by default, all probability left out has the largest finite loss. The result is infinite
    if a loss is infinite, the largest loss at infinite order, and NaN where the masses do not add
    up.
    """
    order = checks.real("order", order, 1.0)
    law = pair.law()
    order = xp.broadcast_to(order, xp.broadcast_shapes(order.shape, law.largest.shape))
    excess = xp.clip(order - 1.0, _LEAST_EXCESS, 1e300)
    # E[e^-L] = 1 less the probability of Q at L = -inf.
    mass_at_minus_infinity = xp.exp(pair.reversed().support().log_infinite)
    rules = (law.loss, law.log_mass), law.check
    (nodal, rounding), (check, _) = (
        _divergence(*x, order, excess, mass_at_minus_infinity) for x in rules
    )
    error = lax.stop_gradient(xp.abs(nodal - check) + rounding)
    resolved = (excess * error <= _RESOLVED) & xp.isfinite(nodal)
    nodal = nodal + error
    if beyond is None:
        leaves_out = law.log_left_out > -xp.inf
        left_out = xp.where(leaves_out, excess * law.largest + law.log_left_out, -xp.inf)
    else:
        left_out = beyond(order, law.log_left_out)
    nodal = nodal + xp.logaddexp(0.0, left_out - excess * nodal) / excess
    bound = xp.broadcast_to(otherwise(order), order.shape)
    value = xp.where(resolved & (nodal < bound), nodal, bound)
    largest = xp.where(law.log_infinite > -xp.inf, xp.inf, law.largest)
    largest = xp.where(xp.isnan(law.log_infinite), xp.nan, largest)
    largest = xp.broadcast_to(largest, order.shape)
    endless = (order == xp.inf) | (largest == xp.inf) & (law.log_infinite > -xp.inf)
    value = xp.where(endless, largest, value)
    value = xp.where(xp.broadcast_to(is_whole(law), order.shape), value, xp.nan)
    return lifted(round_up(xp.minimum(value, largest), 4), largest > 0)


def _divergence(
    loss: Reals, log_mass: Reals, order: Reals, excess: Reals, mass_at_minus_infinity: Reals
) -> tuple[Reals, Reals]:
    """log E[e^(s L)] / s and its rounding error, by positive terms where possible.

    With m = `mass_at_minus_infinity`, E[e^-L] = 1 - m, so E[e^(s L) - 1] is
    E[e^(s L) - 1 - s L] + s (E[e^-L - 1 + L] + m).
    """
    exponent = excess[..., None] * loss
    has_mass = log_mass > -xp.inf
    # Only growing exponentials overflow or round: e^-x - 1 + x has the error of x.
    size = xp.max(xp.where(has_mass, xp.maximum(exponent, -loss), 0.0), axis=-1, initial=0.0)
    near = size < _LARGEST_EXPONENT
    mass = xp.where(has_mass, xp.exp(log_mass), 0.0)
    safe = xp.where(has_mass & near[..., None], loss, 0.0)
    first = xp.sum(mass * expm1_minus(-safe), axis=-1) + mass_at_minus_infinity
    grown = xp.sum(mass * expm1_minus(excess[..., None] * safe), axis=-1) / excess
    # For order 1 only the first term remains.
    grown = xp.where(order == 1.0, 0.0, grown)
    summed = log1p(excess * (first + grown)) / excess
    far = logsumexp(log_mass + exponent, axis=-1) / excess
    far = xp.where(order == 1.0, xp.inf, far)
    far_error = (_TERM_ERROR + 4.0 * ULP * size) / excess
    value = xp.where(near, xp.where(order == 1.0, first, summed), far)
    return value, xp.where(near, _TERM_ERROR * xp.minimum(value, 1.0 / excess), far_error)


def renyi_beyond(divergence: Callable[[Reals], Reals], order: Reals, log_left_out: Reals) -> Reals:
    """log of a bound on E[e^((a - 1) L)] over outputs of probability e^log_left_out under P.

    By Hoelder's inequality, from a bound on the divergence of higher orders b: E[e^(s L); A] <=
    E[e^(r L)]^(s / r) P[A]^(1 - s / r), s = a - 1 < r = b - 1.
    """
    excess = xp.clip(order - 1.0, _LEAST_EXCESS, 1e150)
    bound = xp.full(order.shape, xp.inf)
    for factor in _HIGHER:
        higher = factor * excess + (factor - 1.0)
        share = excess / higher
        by_order = excess * divergence(1.0 + higher) + (1.0 - share) * log_left_out
        bound = xp.minimum(bound, xp.where(xp.isnan(by_order), xp.inf, by_order))
    return bound
