"""Attack risk under a guarantee, and attack risks as targets of a calibration.

`advantage`, `bayes_risk` and `tpr_at_fpr` bound the success of every membership test. Each takes an
object with `log_delta(epsilon)`, and uses its `tradeoff(fpr)` if it has one: guarantees, mechanisms
and privacy losses, also batched. Both methods must also hold with the two neighbouring laws
exchanged, as all of this package do. Rounding is included, so a risk is never understated.
`dp.calibrate` takes a `Rate` instead of a budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast, final, runtime_checkable

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import shape_of, sigmoid, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp._numeric.search import bisect, zoom
from jaxdp.guarantee.base import Budget, require_both_directions, require_profile
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.guarantee.tradeoff import LARGEST_EPSILON, POINTS, ZOOMS, tradeoff_of_profile
from jaxdp.noise.base import exp_up

__all__ = [
    "Rate",
    "advantage",
    "bayes_risk",
    "tpr_at_fpr",
    "tradeoff_of_profile",
]

# Epsilons tried at once. chosen: the interval around the best shrinks to a quarter each time
_POINTS = 9
# Rounds of them. derived: 4^-5 of the interval, and the parameter is flat around its least value
_ROUNDS = 5
# Relative error of a trade-off and of its least mean. chosen: above that of `ZCDP` and `RDP`
_ERROR = 4e-10
# Largest logit of a rate. derived: its distance from 1 is an ulp
_LARGEST_LOGIT = 37.0
# Share of the interval that is searched. chosen: at its end delta is 0 and no noise is enough
_INSIDE = 0.98


@runtime_checkable
class HasProfile(Protocol):
    """Protocol of objects with a bound on delta at every real epsilon."""

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of an upper bound on delta at `epsilon`."""
        ...


@in_float64
def advantage(source: HasProfile) -> Reals:
    """Largest difference of true-positive and false-positive rate of any membership test.

    Args:
        source: a guarantee, a mechanism, a privacy loss or another object with
            `log_delta(epsilon)`; batched.

    Returns:
        An upper bound on delta(0), the total variation, in [0, 1].

    For a Gaussian of ratio mu it is 2 Phi(mu / 2) - 1. For ZCDP and RDP it comes from the trade-off
    function f, which is convex and symmetric: 1 - 2 x with f(x) = x. It is the same in both
    directions.
    Source: Dong, Roth & Su, JRSS-B 84, 2022, for the trade-off; Kulynych et al., NeurIPS 2024, for
    the advantage.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.advantage(dp.GDP(1.0)):.4f}")
    0.3829
    """
    require_profile("source", source)
    delta = exp_up(source.log_delta(0.0))
    return xp.minimum(delta, _advantage(source)) if isinstance(source, ZCDP | RDP) else delta


@in_float64(side=-1.0)
def bayes_risk(source: HasProfile, prior: ArrayLike) -> Reals:
    """A lower bound on the error of any membership test at a prior probability of membership.

    Args:
        source: as in `advantage`; not one direction ("add", "remove") alone.
        prior: probability that the alternative is true, in [0, 1]; broadcasts with `source`.

    Returns:
        A lower bound on the least prior fnr + (1 - prior) fpr; m (below) without a test.

    prior fnr + (1 - prior) fpr >= m (1 - delta(e)), m = min(prior, 1 - prior), e = log((1 - m) /
    m): divide by m, and fnr + e^epsilon fpr >= 1 - delta(epsilon) by the definition of delta. It is
    the least error where delta is exact. For a Gaussian of ratio mu: m Phi(e / mu - mu / 2) + (1 -
    m) Phi(-e / mu - mu / 2). For ZCDP and RDP it is computed from their trade-off, to 4e-10.
    `ValueError` for a `prior` outside [0, 1] (traced: NaN) and for one direction alone.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.bayes_risk(dp.GDP(1.0), 0.5):.4f}")
    0.3085
    """
    require_profile("source", source)
    require_both_directions(source)
    prior = checks.probability("prior", prior)
    rarer, epsilon = _epsilon_of_prior(prior)
    risk = _risk(rarer, source.log_delta(epsilon))
    return xp.maximum(risk, _least(source, prior)) if isinstance(source, ZCDP | RDP) else risk


@in_float64
def tpr_at_fpr(source: HasProfile, fpr: ArrayLike) -> Reals:
    """An upper bound on the true-positive rate of any membership test at a false-positive rate.

    Args:
        source: as in `advantage`; not one direction ("add", "remove") alone.
        fpr: false-positive rates in [0, 1]; broadcast with `source`.

    Returns:
        1 - tradeoff(fpr), an ulp of 1 up.

    A `fpr` outside [0, 1] or one direction alone: `ValueError`; NaN where a rate is traced.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.tpr_at_fpr(dp.GDP(1.0), 0.01):.4f}")
    0.0924
    """
    require_profile("source", source)
    fpr = checks.probability("fpr", fpr, lift=True)
    tradeoff = getattr(source, "tradeoff", None)
    if tradeoff is None:
        fnr = tradeoff_of_profile(source.log_delta, fpr)
    else:
        fnr = cast(Reals, tradeoff(fpr))
    return _power(*xp.broadcast_arrays(fpr, fnr))


@final
@in_float64
@pytree
class Rate:
    """Target of a calibration: at false-positive rate `fpr` no test has more than `tpr`.

    Args:
        tpr, fpr: rates in (0, 1) with fpr < tpr; they broadcast.

    A trade-off function f lies above each line 1 - delta(epsilon) - e^epsilon x and, by symmetry,
    e^-epsilon (1 - delta(epsilon) - x). If one of them reaches 1 - tpr at x = fpr, the target is
    met: the target is the weakest of the budgets

        delta(epsilon) <= tpr - e^epsilon fpr   or   delta(epsilon) <= 1 - fpr - e^epsilon (1 - tpr)

    over epsilon >= 0. Every epsilon gives a safe parameter; the best is found to about 1e-6.
    `ValueError` unless tpr > fpr.
    Source: Dong, Roth & Su, JRSS-B 84, 2022, proposition 2.13.

    >>> import jaxdp as dp
    >>> target = dp.risk.Rate(tpr=0.05, fpr=0.01)
    >>> scale = dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), target)
    >>> print(f"{scale:.4f}")
    1.4674
    """

    tpr: Reals
    fpr: Reals

    def __init__(self, tpr: ArrayLike, fpr: ArrayLike):
        tpr, fpr = checks.probability("tpr", tpr), checks.probability("fpr", fpr)
        is_ordered = (fpr > 0) & (tpr < 1) & (fpr < tpr)
        if checks.all_concrete(tpr, fpr) and not bool(xp.all(is_ordered)):
            raise ValueError(f"tpr must lie above fpr, both in (0, 1), got {tpr} and {fpr}")
        tpr, fpr = (xp.where(is_ordered, x, xp.nan) for x in (tpr, fpr))
        assign(self, tpr=tpr, fpr=fpr)

    def solved(self, least: Callable[[Budget], Reals], largest: bool = False) -> Reals:
        """The best parameter that `least` finds for one of the budgets."""
        tpr, fpr = xp.broadcast_arrays(self.tpr, self.fpr)
        # Both lines as delta <= high - e^epsilon low, in a first axis.
        high = xp.stack([tpr, 1.0 - fpr])[:, None] * (1.0 - ULP)
        low = xp.stack([fpr, 1.0 - tpr])[:, None] * (1.0 + ULP)
        shares = xp.linspace(0.0, 1.0, _POINTS).reshape(1, -1, *(1,) * tpr.ndim)
        start, end = xp.zeros_like(high), _INSIDE * xp.log(high / low)
        side = -1.0 if largest else 1.0
        best = xp.asarray(xp.inf)
        for _ in range(_ROUNDS):
            epsilon = start + (end - start) * shares
            delta = high - xp.exp(epsilon) * low * (1.0 + 4.0 * ULP)
            found = side * least(Budget(epsilon, xp.clip(delta, 0.0, 1.0)))
            # An unknown parameter is the safe end: infinite noise, or nothing at all.
            found = xp.where(xp.isnan(found), 0.0 if largest else xp.inf, found)
            best = xp.minimum(best, xp.min(found, axis=(0, 1)))
            best_line = xp.argmin(xp.min(found, axis=1), axis=0)[None, None]
            epsilon, high, low = (xp.broadcast_to(x, found.shape) for x in (epsilon, high, low))
            found, epsilon, high, low = (
                xp.take_along_axis(x, best_line, axis=0) for x in (found, epsilon, high, low)
            )
            best_share = xp.argmin(found, axis=1)[:, None]
            sides = xp.maximum(best_share - 1, 0), xp.minimum(best_share + 1, _POINTS - 1)
            start, end = (xp.take_along_axis(epsilon, at, axis=1) for at in sides)
            high, low = high[:, :1], low[:, :1]
        return side * best


@jitted
def _advantage(source: ZCDP | RDP) -> Reals:
    """1 - 2 x, rounded up, with x <= tradeoff(x) by bisection."""

    # NaN where the guarantee is, and 0 where it promises nothing.
    ends = (0.0 * source.tradeoff(0.5) + end for end in (checks.LEAST_NORMAL, 0.5))
    low = bisect(lambda x: source.tradeoff(x) >= x, *ends, geometric=True)[0]
    return xp.clip(1.0 - 2.0 * low + ULP, 0.0, 1.0)


@jitted
def _least(source: ZCDP | RDP, prior: Reals) -> Reals:
    """The least prior f(x) + (1 - prior) x of a trade-off f, which is convex, rounded down."""
    shape = xp.broadcast_shapes(prior.shape, shape_of(source.tradeoff, prior).shape)
    prior = xp.broadcast_to(prior, shape)

    def mean(logit: Reals) -> Reals:
        fpr = sigmoid(logit)
        return prior[None] * source.tradeoff(fpr) + (1.0 - prior[None]) * fpr

    ends = xp.full(shape, -LARGEST_EPSILON), xp.full(shape, _LARGEST_LOGIT)
    # A rate below the least one has at most this much less.
    least = zoom(mean, *ends, POINTS, ZOOMS)[1] * (1.0 - _ERROR) - sigmoid(-LARGEST_EPSILON)
    return xp.where((prior == 0) | (prior == 1), 0.0, xp.maximum(least, 0.0))


@jitted
def _power(fpr: Reals, fnr: Reals) -> Reals:
    # The difference is rounded; where nothing is risked and nothing found it is exact.
    return xp.where((fpr == 0) & (fnr == 1), 0.0, xp.minimum(1.0 - fnr + ULP, 1.0))


@jitted
def _epsilon_of_prior(prior: Reals) -> tuple[Reals, Reals]:
    """m and, rounded down, log((1 - m) / m): a smaller epsilon bounds the same error."""
    rarer = xp.minimum(prior, 1.0 - prior)
    inside = xp.where(rarer == 0, 0.5, rarer)
    high, low = log1m(inside), xp.log(inside)
    return rarer, high - low - 8.0 * ULP * (xp.abs(high) + xp.abs(low))


@jitted
def _risk(rarer: Reals, log_delta: Reals) -> Reals:
    rarer, log_delta = xp.broadcast_arrays(rarer, log_delta)
    risk = round_up(-rarer * xp.expm1(log_delta), -16)
    return xp.where((rarer == 0) & ~xp.isnan(log_delta), 0.0, risk)
