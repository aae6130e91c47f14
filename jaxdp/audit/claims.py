"""What an audit holds its bounds against: epsilon at a delta, and mu of Gaussian DP."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp.accountant.composition import is_gaussian, ratios_of
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.base import require_both_directions
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.mechanism import Mechanism


class Terms(NamedTuple):
    """delta and confidence of an audit, and the epsilon and the mu that were promised."""

    delta: float
    confidence: float
    claimed: float
    claimed_mu: float


def terms_of(claim: Any, delta: float, confidence: float) -> Terms:
    """The terms of a claim; a `ValueError` names what is out of range."""
    delta, level = checked_terms(delta, confidence)
    return Terms(delta, level, claimed_epsilon(claim, delta), claimed_mu(claim))


def checked_terms(delta: float, confidence: float) -> tuple[float, float]:
    """delta in [0, 1] and confidence in (0, 1)."""
    level = float(checks.probability("confidence", confidence))
    if not 0.0 < level < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {level}")
    return float(checks.probability("delta", delta)), level


def claimed_epsilon(claim: Any, delta: float) -> float:
    """The epsilon that is promised in both directions; infinite where nothing is."""
    if isinstance(claim, int | float):
        return float(checks.real("claim", claim, 0.0))
    require_both_directions(claim)
    promise = getattr(claim, "epsilon", None)
    return float(np.max(np.asarray(promise(delta)))) if callable(promise) else float("inf")


def claimed_mu(claim: Any) -> float:
    """The mu that is promised by a GDP, or by Gaussian noise without sampling; else infinite."""
    loss = privacy_loss(claim) if isinstance(claim, GDP | Mechanism) else claim
    if not isinstance(loss, PrivacyLoss) or not all(map(is_gaussian, loss.terms)):
        return float("inf")
    squares = [jnp.sum(term.count * ratios_of(term) ** 2, axis=-1) for term in loss.terms]
    return float(np.sqrt(np.max(np.asarray(sum(squares)))))
