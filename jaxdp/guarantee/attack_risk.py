"""Attack risk that a guarantee leaves: the best that any test of membership can do.

Each function takes whatever has `log_delta(epsilon)`, and `tradeoff(fpr)` where it has that:
guarantees, mechanisms, privacy losses, batched as they are. Both must hold with the two
neighbouring laws exchanged, as here they all do. The attacker is never understated: rounding is
included.
"""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import ArrayLike, Index, Reals
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp.guarantee.base import require_both_directions, require_profile
from jaxdp.guarantee.renyi import RDP
from jaxdp.guarantee.tradeoff import profile_of_tradeoff, tradeoff_of_profile
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import exp_up

# Of an equal rate, in equal ratios. derived: from 1e-308 to an ulp
_BISECTIONS = 64


@runtime_checkable
class HasProfile(Protocol):
    """Protocol of objects that know their delta at every real epsilon."""

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
    >>> print(f"{dp.advantage(dp.GDP(1.0)):.4f}")
    0.3829
    """
    require_profile("source", source)
    delta = exp_up(source.log_delta(0.0))
    return xp.minimum(delta, _advantage(source)) if isinstance(source, ZCDP | RDP) else delta


@in_float64
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
    >>> print(f"{dp.bayes_risk(dp.GDP(1.0), 0.5):.4f}")
    0.3085
    """
    require_profile("source", source)
    require_both_directions(source)
    prior = checks.probability("prior", prior)
    rarer, epsilon = _epsilon_of_prior(prior)
    log_delta = source.log_delta(epsilon)
    if isinstance(source, ZCDP | RDP):
        by_tradeoff = xp.log(profile_of_tradeoff(source.tradeoff, epsilon))
        log_delta = xp.minimum(log_delta, by_tradeoff)
    return _risk(rarer, log_delta)


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
    >>> print(f"{dp.tpr_at_fpr(dp.GDP(1.0), 0.01):.4f}")
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


@jitted
def _advantage(source: ZCDP | RDP) -> Reals:
    """1 - 2 x, rounded up, with x <= tradeoff(x) by bisection."""

    def halve(_: Index, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
        low, high = ends
        middle = xp.sqrt(low) * xp.sqrt(high)
        below = source.tradeoff(middle) >= middle
        return xp.where(below, middle, low), xp.where(below, high, middle)

    # NaN where the guarantee is, and 0 where it promises nothing.
    ends = (0.0 * source.tradeoff(0.5) + end for end in (checks.LEAST_NORMAL, 0.5))
    low = lax.fori_loop(0, _BISECTIONS, halve, tuple(ends))[0]
    return xp.clip(1.0 - 2.0 * low + ULP, 0.0, 1.0)


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
