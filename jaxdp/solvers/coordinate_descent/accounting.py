"""Cost of a sequence of noisy updates, and the least noise that keeps it in a budget."""

from __future__ import annotations

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals, Vector
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.design.calibrate import calibrate
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.conversions import largest_laplace_ratio
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.guarantee.pure import PureDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram

# Before the first update: on scales or smoothness, by Laplace or by Gaussian noise.
Spent = PureDP | GDP


def composed(
    noise: Noise, ratios: Vector, visits: Vector, spent: Spent | None
) -> GDP | PrivacyLoss:
    """The guarantee of `visits[j]` updates of ratio sensitivity / scale = `ratios[j]`, and `spent`.

    Each update is a function of the records and of earlier updates, so that adaptive composition
    holds. Shifts below the largest are covered: the noise is log-concave, or a `Histogram`, whose
    worst shift is composed. Returns a GDP for Gaussians and a `PrivacyLoss` otherwise. Shapes:
    ratios (..., p), visits (p,); the result is batched like ratios without its last axis.
    """
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
) -> Reals:
    """The least c with composed(noise, relative / c, ...) within the budget; inf where none is."""
    if isinstance(noise, Gaussian) and not isinstance(spent, PureDP):
        squares = xp.sum(visits * (relative / noise.scale) ** 2)
        # By more than the sum, and `composed`, round.
        mu, needed = largest_gdp(budget).mu, round_up(xp.sqrt(squares), 16 + visits.size)
        if spent is None:
            return needed / mu
        mu_left = mu * (1.0 - 8.0 * ULP) - spent.mu
        return needed / (xp.sqrt(xp.maximum(mu_left, 0.0)) * xp.sqrt(mu + spent.mu))
    safe, unsafe = _bracket(noise, relative, visits, budget)

    def total(factor: Reals) -> GDP | PrivacyLoss:
        return composed(noise, relative / factor[..., None], visits, spent)

    return calibrate(total, budget, lower=unsafe, upper=safe)


def _bracket(noise: Noise, relative: Vector, visits: Vector, budget: Budget) -> tuple[Reals, Reals]:
    """A c with which, by a Gaussian or a Laplace as wide, the budget is met; one far below."""
    unit = xp.sqrt(noise.variance())
    smallest = xp.sqrt(xp.sum(visits * relative**2)) / unit
    largest = xp.sum(visits * relative) / unit
    rates = largest_gdp(budget).mu, largest_laplace_ratio(budget)
    usable = [xp.where(rate > 0, rate, xp.inf) for rate in rates]
    safe = xp.maximum(1e4 * largest / xp.minimum(*usable), smallest)
    return safe, 1e-4 * smallest / xp.maximum(xp.maximum(*rates), 1.0)
