"""What a guarantee says to someone who is attacked: the best that any test of membership can do.

Each takes whatever has `log_delta(epsilon)`, and `tradeoff(fpr)` where it has that: guarantees,
mechanisms, privacy losses, batched as they are. Both must hold with the two neighbouring laws
exchanged, as here they all do. The attacker is never understated: rounding is included.
"""

from typing import Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.elementary import ULP, log1m, round_up
from jaxdp._types import RealLike, Reals
from jaxdp.noise.base import exp_up
from jaxdp.tradeoff import tradeoff_of_profile


@runtime_checkable
class HasProfile(Protocol):
    """What knows its delta at every real epsilon."""

    def log_delta(self, epsilon: RealLike) -> Reals:
        """log of an upper bound on delta at `epsilon`."""
        ...


def advantage(source: HasProfile) -> Reals:
    """delta(0), the total variation: no test has 1 - fpr - fnr above it. A bound from above.

    For a Gaussian of ratio mu it is 2 Phi(mu / 2) - 1.
    Source: Dong, Roth & Su, JRSS-B 84, 2022, for the trade-off; Kulynych et al., NeurIPS 2024,
    for the advantage.
    """
    return exp_up(source.log_delta(0.0))


def bayes_risk(source: HasProfile, prior: RealLike) -> Reals:
    """A lower bound on the error of any test when the alternative is true with prob. `prior`.

    prior fnr + (1 - prior) fpr >= m (1 - delta(log((1 - m) / m))), m = min(prior, 1 - prior):
    divide by m, and fnr + e^epsilon fpr >= 1 - delta(epsilon) by the definition of delta. It is
    the least error where delta is exact; without a test the error is m. For a Gaussian of ratio
    mu: m Phi(e / mu - mu / 2) + (1 - m) Phi(-e / mu - mu / 2), e the epsilon above.
    A `prior` outside [0, 1]: `ValueError`, or NaN where traced.
    """
    prior = _check.probability("prior", prior)
    least, epsilon = _epsilon_of_prior(prior)
    return _risk(least, source.log_delta(epsilon))


def tpr_at_fpr(source: HasProfile, fpr: RealLike) -> Reals:
    """An upper bound on the true-positive rate at `fpr`: 1 - tradeoff(fpr), an ulp of 1 up.

    A `fpr` outside [0, 1]: `ValueError`, or NaN where traced.
    """
    fpr = _check.probability("fpr", fpr)
    tradeoff = getattr(source, "tradeoff", None)
    if tradeoff is None:
        fnr = tradeoff_of_profile(source.log_delta, fpr)
    else:
        fnr = cast(Reals, tradeoff(fpr))
    return _power(*jnp.broadcast_arrays(fpr, fnr))


@jax.jit
def _power(fpr: Reals, fnr: Reals) -> Reals:
    # The difference is rounded; where nothing is risked and nothing found it is exact.
    return jnp.where((fpr == 0) & (fnr == 1), 0.0, jnp.minimum(1.0 - fnr + ULP, 1.0))


@jax.jit
def _epsilon_of_prior(prior: Reals) -> tuple[Reals, Reals]:
    """m and, rounded down, log((1 - m) / m): a smaller epsilon bounds the same error."""
    least = jnp.minimum(prior, 1.0 - prior)
    inside = jnp.where(least == 0, 0.5, least)
    high, low = log1m(inside), jnp.log(inside)
    return least, high - low - 8.0 * ULP * (jnp.abs(high) + jnp.abs(low))


@jax.jit
def _risk(least: Reals, log_delta: Reals) -> Reals:
    least, log_delta = jnp.broadcast_arrays(least, log_delta)
    risk = round_up(-least * jnp.expm1(log_delta), -16)
    return jnp.where((least == 0) & ~jnp.isnan(log_delta), 0.0, risk)
