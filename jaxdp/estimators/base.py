"""What the scikit-learn shells share: what they ask for, what they refuse, what they report.

* `epsilon`, `delta` and public bounds have no defaults. A bound that is computed from the records
  leaks them; it is the caller's word that a bound is public.
* Values beyond the bounds are clipped, and a `BoundsWarning` counts them. The count is not
  private, so it is kept nowhere: a fitted estimator holds released numbers and public ones only.
* No `sample_weight`: a weight scales what one record may do, and n weights leak.
* `privacy_` is what `fit` spent: it has `delta(epsilon)` and `epsilon(delta)`.
* `random_state` None draws the noise's key from the operating system. A number is for tests:
  whoever can guess it can take the noise off.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._key import fresh_key
from jaxdp._types import Key
from jaxdp.guarantee.base import Budget, Guarantee
from jaxdp.privacy_loss import PrivacyLoss, privacy_loss

_base = _check.extra("sklearn.base", "learn")
_validation = _check.extra("sklearn.utils.validation", "learn")

Spent = Guarantee | PrivacyLoss


class BoundsWarning(UserWarning):
    """Values lay outside the public bounds and were clipped. The message is not private."""


class DPEstimator(_base.BaseEstimator):
    """Parameters `epsilon`, `delta`, `random_state` of every private estimator, checked in `fit`.

    See the module for what they promise together.
    """

    epsilon: Any
    delta: Any
    random_state: Any
    n_features_in_: int

    def _budget(self) -> Budget:
        """epsilon in (0, inf), delta in [0, 1), each one concrete number."""
        for name, value, low_open, most in (
            ("epsilon", self.epsilon, True, np.inf),
            ("delta", self.delta, False, 1.0),
        ):
            real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not (real and (value > 0 if low_open else value >= 0) and value < most):
                bracket = "(" if low_open else "["
                raise ValueError(f"{name} must lie in {bracket}0, {most:g}), got {value!r}")
        return Budget(float(self.epsilon), float(self.delta))

    def _key(self) -> Key:
        """64 random bits of the operating system, or the key of a given `random_state`."""
        if self.random_state is None:
            return fresh_key()
        if isinstance(self.random_state, int | np.integer):
            return jax.random.key(int(self.random_state))
        words = _check.extra("sklearn.utils", "learn").check_random_state(self.random_state)
        bits = words.randint(0, 2**32, size=2, dtype=np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(bits), impl="threefry2x32")

    def _features(self, features: Any, *, reset: bool) -> np.ndarray:
        """Finite float64 of shape (n, p), as `fit` saw them where not `reset`."""
        return _validation.validate_data(self, features, reset=reset, dtype=np.float64)

    def _records(self, features: Any, targets: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        """Features and targets of `fit`; `checks` are those of `validate_data`."""
        return _validation.validate_data(self, features, targets, dtype=np.float64, **checks)

    def _require_fitted(self) -> None:
        _validation.check_is_fitted(self)


def public_bounds(feature_bounds: Any, coordinates: int) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), each of shape (p,), from a pair of numbers or of vectors."""
    if feature_bounds is None:
        raise ValueError(
            "feature_bounds must be a pair (lower, upper), public: bounds that are computed from "
            "the records leak them"
        )
    try:
        lower, upper = (np.asarray(b, dtype=np.float64) for b in feature_bounds)
        ends = [np.array(np.broadcast_to(b, (coordinates,))) for b in (lower, upper)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"feature_bounds must be a pair (lower, upper) of numbers or of vectors of length "
            f"{coordinates}, got {feature_bounds!r}"
        ) from error
    if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise ValueError(f"feature_bounds must be finite, lower below upper, got {feature_bounds}")
    return ends[0], ends[1]


def clip_to_bounds(values: np.ndarray, lower: Any, upper: Any, name: str) -> np.ndarray:
    """`values` within the bounds; a `BoundsWarning` counts those that were not."""
    outside = (values < lower) | (values > upper)
    if outside.any():
        columns = np.flatnonzero(outside.any(axis=0)) if values.ndim == 2 else []
        where = f" in {len(columns)} of {values.shape[1]} columns" if len(columns) else ""
        warnings.warn(
            f"{int(outside.sum())} of {values.size} values of {name}{where} lie outside their "
            "public bounds and were clipped; this count is not private",
            BoundsWarning,
            stacklevel=3,
        )
    return np.clip(values, lower, upper)


def composed(spent: Iterable[Spent]) -> Spent:
    """What releases of these guarantees cost together; GDPs stay a GDP, kinds compose exactly."""
    parts: list[Any] = list(spent)
    if len({type(part) for part in parts}) > 1:
        parts = [p if isinstance(p, PrivacyLoss) else privacy_loss(p) for p in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def total_privacy(*fitted: Any) -> Spent:
    """What fitted estimators cost together that saw the same records; pipelines are opened.

    Steps without `privacy_` cost nothing here: by the caller's word they learned nothing from the
    records. scikit-learn's own scalers do learn from them: use `DPStandardScaler`, or bounds.
    """
    parts = []
    for estimator in fitted:
        steps = getattr(estimator, "steps", None)
        inner = [step for _, step in steps] if steps is not None else [estimator]
        parts += [step.privacy_ for step in inner if hasattr(step, "privacy_")]
    if not parts:
        raise ValueError("fitted must hold an estimator with privacy_: fit it first")
    return composed(parts)
