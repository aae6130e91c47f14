"""Cost of a sequence of noisy updates, and the least noise that keeps it in a budget."""

from __future__ import annotations

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._numeric.search import secant_bracket
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget, excess_log_delta
from jaxdp.guarantee.conversions import largest_laplace_ratio, to_zcdp
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram

# What `plan` takes; see there.
ACCOUNTING = ("exact", "zcdp")
# Before the first update: on scales or smoothness, by Laplace or by Gaussian noise.
Spent = PureDP | GDP
# Relative slack of a search in log delta. chosen: above the rounding of log delta
_SLACK = 4e-12
# Relative difference below which ratios count as equal. chosen: far above rounding
_SAME = 1e-9
# The largest epsilon of an update, nats. derived: `dp.optimal.noise` takes no larger ones
_LARGEST_EPSILON = 30.0


def composed(
    noise: Noise, ratios: Vector, visits: Vector, spent: Spent | None, accounting: str
) -> GDP | ZCDP | PrivacyLoss:
    """The guarantee of `visits[j]` updates of ratio sensitivity / scale = `ratios[j]`, and `spent`.

    Each update is a function of the records and of earlier updates, so that adaptive composition
    holds. Shifts below the largest are covered: the noise is log-concave, or a `Histogram`, whose
    worst shift is composed. "exact" returns a GDP for Gaussians and a `PrivacyLoss` otherwise,
    "zcdp" the sum of `noise.zcdp`. Shapes: ratios (..., p), visits (p,); the result is batched like
    ratios without its last axis.
    """
    if accounting == "zcdp":
        xi, rho = noise.zcdp(ratios)
        total = ZCDP(*(round_up(xp.sum(visits * x, axis=-1), 2 * visits.size) for x in (xi, rho)))
        return total if spent is None else total + to_zcdp(spent)
    if isinstance(noise, Histogram):
        # One ratio for all, known before tracing: the worst of its shifts is found on the host.
        total = xp.sum(visits) * privacy_loss(Mechanism(noise, float(ratios[0])))
    elif isinstance(noise, Gaussian):
        squares = xp.sum(visits * (ratios / noise.scale) ** 2, axis=-1)
        gdp = GDP(round_up(xp.sqrt(squares), 4 + visits.size))
        if spent is None or isinstance(spent, GDP):
            return gdp if spent is None else gdp + spent
        total = privacy_loss(gdp)
    else:
        total = (visits * privacy_loss(Mechanism(noise, ratios))).sum(axis=-1)
    return total if spent is None else total + privacy_loss(spent)


def least_factor(
    noise: Noise,
    relative: Vector,
    visits: Vector,
    budget: Budget,
    spent: Spent | None,
    accounting: str,
) -> Reals:
    """The least c with composed(noise, relative / c, ...) within the budget; inf where none is."""
    if isinstance(noise, Gaussian) and not isinstance(spent, PureDP) and accounting == "exact":
        squares = xp.sum(visits * (relative / noise.scale) ** 2)
        # By more than the sum, and `composed`, round.
        mu, needed = largest_gdp(budget).mu, round_up(xp.sqrt(squares), 16 + visits.size)
        if spent is None:
            return needed / mu
        mu_left = mu * (1.0 - 8.0 * ULP) - spent.mu
        return needed / (xp.sqrt(xp.maximum(mu_left, 0.0)) * xp.sqrt(mu + spent.mu))
    safe, unsafe = _bracket(noise, relative, visits, budget)

    def total(factor: Reals) -> GDP | ZCDP | PrivacyLoss:
        return composed(noise, relative / factor[..., None], visits, spent, accounting)

    if accounting == "exact":
        return calibrate(total, budget, lower=unsafe, upper=safe)
    return _least_by_zcdp(noise, relative, visits, budget, spent, safe, unsafe)


def _bracket(noise: Noise, relative: Vector, visits: Vector, budget: Budget) -> tuple[Reals, Reals]:
    """A c with which, by a Gaussian or a Laplace as wide, the budget is met; one far below."""
    unit = xp.sqrt(noise.variance())
    smallest = xp.sqrt(xp.sum(visits * relative**2)) / unit
    largest = xp.sum(visits * relative) / unit
    rates = largest_gdp(budget).mu, largest_laplace_ratio(budget)
    usable = [xp.where(rate > 0, rate, xp.inf) for rate in rates]
    safe = xp.maximum(1e4 * largest / xp.minimum(*usable), smallest)
    return safe, 1e-4 * smallest / xp.maximum(xp.maximum(*rates), 1.0)


@jax.jit
def _least_by_zcdp(
    noise: Noise,
    relative: Vector,
    visits: Vector,
    budget: Budget,
    spent: Spent | None,
    safe: Reals,
    unsafe: Reals,
) -> Reals:
    def residual(factor: Reals) -> Reals:
        total = composed(noise, relative / factor[..., None], visits, spent, "zcdp")
        return excess_log_delta(total.log_delta(budget.epsilon), budget.delta)

    slack = _SLACK * (1.0 + xp.abs(xp.log(xp.where(budget.delta == 0, 1.0, budget.delta))))
    return secant_bracket(lambda factor: residual(factor) + slack, safe, unsafe)


@in_float64
def update_budget(budget: BudgetLike, updates: int) -> Budget:
    """Budget of one update such that all updates satisfy a budget, for any noise.

    Args:
        budget: a `Budget` or (epsilon, delta) of all updates, epsilon in nats.
        updates: how many.

    Returns:
        A `Budget`. Half of delta is shared equally by the updates; epsilon is the largest in [1e-9,
        30] with which the worst mechanisms (`ApproxDP`) compose to the budget.

    For `dp.optimal.noise`, which meets one pair.

    >>> import jaxdp as dp
    >>> each = dp.solvers.coordinate_descent.update_budget((1.0, 1e-5), 10)
    >>> print(f"{each.epsilon:.4f} {each.delta:.1e}")
    0.1003 5.0e-07
    """
    budget = as_budget(budget)
    delta = xp.minimum(0.5 * budget.delta / updates, 1.0)
    largest = calibrate(
        lambda epsilon: updates * privacy_loss(ApproxDP(epsilon, delta)),
        budget,
        lower=1e-9,
        upper=_LARGEST_EPSILON,
        largest=True,
    )
    return Budget(largest, delta)


def checked_histogram(noise: Histogram, shape: Vector, sensitivities: Vector) -> float:
    """The sensitivity that `noise` was made for, if scales of `shape` keep every ratio equal."""
    if noise.certificate is None:
        raise ValueError(
            "noise must say what sensitivity it was made for: use `dp.optimal.noise`, whose "
            "Histogram has a certificate"
        )
    if not all(checks.is_concrete(a) for a in (shape, sensitivities)):
        raise ValueError("a plan with a Histogram must be made outside of a transformation")
    ratios = np.asarray(sensitivities) / np.asarray(shape)
    if np.ptp(ratios) > _SAME * ratios.max():
        raise ValueError("allocation must be 'spr' with a Histogram: its ratio is fixed")
    return noise.certificate.sensitivity
