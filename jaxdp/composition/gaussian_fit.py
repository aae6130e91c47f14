"""The Gaussian guarantee nearest to a privacy loss, and its distance from it.

Between two epsilons delta lies below its chord in e^epsilon, and the trade-off function above two
lines 1 - delta(e) - exp(e) fpr. The Bayes risk at a prior p, the least p fpr + (1 - p) fnr of any
test, is (1 - p)(1 - delta(log(p / (1 - p)))) and concave in p: between two priors it lies below the
extended chords on either side, and above its own chord.
"""

from __future__ import annotations

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import special, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.accountant import evaluate
from jaxdp.accountant.composition import is_gaussian, merged, one_release, with_one_gaussian
from jaxdp.accountant.runner import StopWhen
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Budget, Guarantee, require_both_directions
from jaxdp.guarantee.gaussian_dp import GDP, largest_gdp
from jaxdp.mechanism import Mechanism

# Room for the rounding of a root, relatively, and of an epsilon. chosen: far above both
_ROOM = 1e-12


@in_float64
def gdp_with_regret(
    source: PrivacyLoss | Mechanism | Guarantee | ExponentialMechanism | DominatingPair,
    delta: ArrayLike = 1e-10,
    *,
    points: int = 129,
) -> tuple[Reals, Reals]:
    """mu of the Gaussian guarantee nearest to a privacy loss, and its distance from it.

    Args:
        source: a `PrivacyLoss`, or what `privacy_loss` takes; not one direction ("add", "remove")
            alone.
        delta: in (0, 1), the tail that mu leaves out; it broadcasts with `source`.
        points: number of evaluated epsilons, at least 3.

    Returns:
        (mu, regret), both rounded up, of the common shape. mu is the least with delta(epsilon) <=
        GDP(mu).delta(epsilon) at every epsilon where delta(epsilon) >= `delta`. Therefore, at every
        fpr,

            tradeoff(fpr) >= GDP(mu).tradeoff(fpr) - delta.

        regret is the largest difference over all priors between the error of the best membership
        test and its error against GDP(mu): near 0, mu says all. An infinite mu means that no
        epsilon is finite at `delta`.

    The tail is left out because it would rule mu: with Poisson sampling, mu at delta = 0 is
    sqrt(steps) / noise_multiplier, as without sampling, since a record may be in every batch.
    Exact, with regret 0, for Gaussians that are not sampled. Otherwise both errors fall with the
    square of `points`. With 129 (measured), mu is above the least by at most 5e-4 of it, and regret
    above the largest difference by 5e-4. `ValueError` for a bad delta and for one direction alone;
    NaN where delta is traced.
    Source: Gomez et al., Gaussian DP for reporting differential privacy guarantees in machine
    learning, SaTML 2026; regret: Kaissis et al., Beyond the calibration point, ICML 2024.

    >>> import jaxdp as dp
    >>> mechanism = dp.Mechanism(dp.Gaussian(9.4), 1.0, 0.328, relation="add_remove")
    >>> mu, regret = dp.gdp_with_regret(2000 * dp.privacy_loss(mechanism))
    >>> print(f"{mu:.4f} {regret:.4f}")
    1.5706 0.0017
    """
    loss = source if isinstance(source, PrivacyLoss) else privacy_loss(source)
    require_both_directions(loss)
    delta = checks.real("delta", delta, 0.0, 1.0, open_lower=True)
    if not isinstance(points, int) or points < 3:
        raise ValueError(f"points must be a whole number, 3 or more, got {points!r}")
    return nearest_gaussian(loss, delta, loss.epsilon(delta), points)


def nearest_gaussian(
    loss: PrivacyLoss,
    delta: Reals,
    largest: Reals,
    points: int,
    stop_when: StopWhen | None = None,
) -> tuple[Reals, Reals]:
    """mu and regret of a loss whose epsilon at delta is `largest`. `stop_when`: see `log_delta`."""
    shape = xp.broadcast_shapes(loss.shape, delta.shape)
    if all(map(is_gaussian, loss.terms)):
        (term,) = merged(with_one_gaussian(loss.terms))
        mu = one_release(term).pair.mean_distance()
        assert mu is not None
        return xp.broadcast_to(mu[..., 0], shape), xp.zeros(shape)
    largest = xp.broadcast_to(largest, shape)
    is_finite = largest < xp.inf
    shares = xp.linspace(0.0, 1.0, points).reshape(-1, *(1,) * len(shape))
    epsilon = shares * xp.where(is_finite, largest, 1.0)
    log_delta = evaluate.log_delta(loss.terms, epsilon, loss.both, stop_when)
    mu = xp.where(is_finite, _mu_above(epsilon, log_delta.upper), xp.inf)
    return mu, _largest_difference(epsilon, log_delta.lower, log_delta.upper, mu)


def _mu_above(epsilon: Reals, log_delta: Reals) -> Reals:
    """Least mu with delta of the Gaussian above the chords of delta in e^epsilon.

    Chord less delta is concave in e^epsilon: it is largest where the Gaussian's fpr is the chord's
    slope, and there its trade-off must lie below the point where both lines meet. Elsewhere the
    ends suffice, but near delta = 1, where a root in mu is lost in rounding, all points count.
    """
    slope, delta, rest = xp.exp(epsilon), xp.exp(log_delta), -xp.expm1(log_delta)
    steps = slope[1:] - slope[:-1]
    fall = xp.where(delta[1:] < 0.5, delta[:-1] - delta[1:], rest[1:] - rest[:-1])
    # The points may lie anywhere if they are below both lines: rounding of fpr costs no safety.
    fpr = xp.maximum(fall / xp.where(steps > 0, steps, 1.0), checks.LEAST_NORMAL)
    tpr, fnr = xp.zeros_like(fpr), xp.ones_like(fpr)
    for line in (slice(None, -1), slice(1, None)):
        cost = slope[line] * fpr
        tpr = xp.maximum(tpr, round_up(delta[line] + cost, 8))
        fnr = xp.minimum(fnr, rest[line] - cost - 8.0 * ULP * (rest[line] + cost))
    low, high = special.ndtri(fpr), -special.ndtri(xp.maximum(fnr, 0.0))
    high = xp.where(tpr < 0.5, special.ndtri(tpr), high)
    at_points = high - low + 64.0 * ULP * (1.0 + xp.abs(high) + xp.abs(low))
    diagonal = -2.0 * special.ndtri(round_up(0.5 * rest[0], -8))
    at_ends = xp.max(largest_gdp(Budget(epsilon, delta)).mu, axis=0)
    least = xp.maximum(diagonal, at_ends) * (1.0 + _ROOM)
    touched = -least * (low + 0.5 * least)  # epsilon with the Gaussian's fpr at the point
    is_inside = (touched >= epsilon[:-1] - _ROOM) & (touched <= epsilon[1:] + _ROOM)
    counts = (steps > 0) & (is_inside | (delta[:-1] > 0.5))
    return xp.maximum(least, xp.max(xp.where(counts, at_points, 0.0), axis=0))


def _largest_difference(epsilon: Reals, lower: Reals, upper: Reals, mu: Reals) -> Reals:
    """Upper bound on the loss's Bayes risk less the Gaussian's, over all priors."""
    prior = 1.0 / (1.0 + xp.exp(epsilon))
    high, low = (-prior * xp.expm1(x) for x in (lower, upper))
    log_delta = GDP(mu).log_delta(epsilon)
    gaussian = -prior * xp.expm1(log_delta)
    # Beyond the last epsilon the risk is at most the prior.
    tail = prior[-1] * xp.exp(log_delta[-1])
    end = xp.zeros_like(prior[:1])
    width = xp.concatenate([prior[:-1] - prior[1:], prior[-1:]])
    safe = xp.where(width > 0, width, 1.0)
    # Slopes of the chords, too small from above and too large from below; 0 at the prior 1 / 2.
    from_above = xp.concatenate([end, (low[:-1] - high[1:]) / safe[:-1]])[:-1]
    from_below = ((high - xp.concatenate([low[1:], end])) / safe)[1:]
    width, safe = width[:-1], safe[:-1]
    # Distance above the lower prior at which both lines meet.
    steeper = from_below - from_above
    meet = (high[:-1] - from_above * width - high[1:]) / xp.where(steeper > 0, steeper, 1.0)
    meet = xp.clip(xp.where(steeper > 0, meet, 0.0), 0.0, width)
    lines = high[:-1] - from_above * (width - meet), high[1:] + from_below * meet
    chord = gaussian[1:] + (gaussian[:-1] - gaussian[1:]) * meet / safe
    between = xp.minimum(*lines) - chord
    difference = xp.maximum(xp.max(high - gaussian, axis=0), xp.max(between, axis=0))
    return xp.maximum(xp.maximum(difference, tail) + 16.0 * ULP, 0.0)
