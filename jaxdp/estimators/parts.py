"""Private fits inside a fitted estimator, if its cost is the sum of theirs.

An ensemble costs the sum of its parts if each part saw each record at most once and nothing else
was learned from the records. That is known of the classes named here, and of no other: subclasses
may do anything. Sampling without replacement (`max_samples`) is not credited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxdp._core import checks
from jaxdp.guarantee.drawn import Drawn

# scikit-learn's ensembles that fit each of `estimators_` once, on all records or on some of them.
_ADDED_UP = (
    *("OneVsRestClassifier", "MultiOutputClassifier", "MultiOutputRegressor"),
    *("VotingClassifier", "VotingRegressor", "BaggingClassifier", "BaggingRegressor"),
)
# Reasons why an ensemble's cost is not the sum of its parts.
_CHAIN = "with cross-validation it makes fits that it does not keep"
_STACKING = "its final estimator learns from predictions for the records, without noise"
_REASONS = {
    "StackingClassifier": _STACKING,
    "StackingRegressor": _STACKING,
    "OneVsOneClassifier": "each fit reveals the number of records of its two classes",
    "ClassifierChain": _CHAIN,
    "RegressorChain": _CHAIN,
    "_ConstantPredictor": "it reveals whether every record is of one class",
}
_PUBLIC_ENCODERS = ("OneHotEncoder", "OrdinalEncoder")


def private_parts(estimator: Any) -> list[Drawn]:
    """The guarantees of one fitted estimator, or of those within it; `ValueError` where unknown."""
    privacy = getattr(estimator, "guarantee_", None)
    if isinstance(privacy, Drawn):
        return [privacy]
    name = _name_in_sklearn(estimator)
    if name == "Pipeline":
        return _of_all(step for _, step in estimator.steps)
    if name == "ColumnTransformer" and hasattr(estimator, "transformers_"):
        return _of_all(step for _, step, _ in estimator.transformers_)
    if name in _ADDED_UP and hasattr(estimator, "estimators_"):
        _require_no_repeats(estimator)
        return _of_all(estimator.estimators_)
    if _learns_nothing(estimator, name):
        return []
    raise ValueError(f"fitted holds a {type(estimator).__name__}{_reason(estimator)}")


def _of_all(estimators: Iterable[Any]) -> list[Drawn]:
    return [part for estimator in estimators for part in private_parts(estimator)]


def _name_in_sklearn(estimator: Any) -> str:
    """Name of the class if it is one of scikit-learn's own, else ""."""
    kind = type(estimator)
    return kind.__name__ if kind.__module__.partition(".")[0] == "sklearn" else ""


def _require_no_repeats(ensemble: Any) -> None:
    """Bags must hold each record at most once, and differ as the records do."""
    if not hasattr(ensemble, "bootstrap"):
        return
    kind = type(ensemble).__name__
    if ensemble.bootstrap:
        raise ValueError(
            f"fitted holds a {kind} with bootstrap=True: a bag may hold a record several times, "
            "and its fit costs as often what its guarantee_ states. Fit it with bootstrap=False"
        )
    if getattr(ensemble, "_sample_weight", None) is not None:
        raise ValueError(
            f"fitted holds a {kind} fitted with sample_weight: weights decide which records are "
            "in a bag. Fit it without them"
        )
    is_whole = ensemble.max_samples is None or (
        isinstance(ensemble.max_samples, float) and ensemble.max_samples == 1.0
    )
    settings = ensemble.get_params(deep=True).items()
    adds = any(key.endswith("relation") and value == "add_remove" for key, value in settings)
    if adds and not is_whole:
        raise ValueError(
            f"fitted holds a {kind} with max_samples={ensemble.max_samples!r} and "
            'relation="add_remove": a record that is added takes the place of another one in a '
            'bag. Fit its parts with relation="replace_one", or on all records'
        )


def _learns_nothing(step: Any, name: str) -> bool:
    """True if a pipeline step is the same function for all records."""
    if step is None or isinstance(step, str):
        return step in (None, "passthrough", "drop")
    if hasattr(step, "costs_privacy"):
        return not step.costs_privacy
    if name in _PUBLIC_ENCODERS:
        counted = step.min_frequency is not None or step.max_categories is not None
        return not isinstance(step.categories, str) and not counted
    if name == "PolynomialFeatures":
        return True
    # A regression that needs no fit, such as a Gaussian process, still learns if fitted.
    if hasattr(step, "predict") or not hasattr(step, "__sklearn_tags__"):
        return False
    return not checks.extra("sklearn.utils", "learn").get_tags(step).requires_fit


def _reason(estimator: Any) -> str:
    """Reason why the cost of an estimator is unknown, and a remedy."""
    name = type(estimator).__name__
    if hasattr(estimator, "cv_results_"):
        folds = getattr(estimator, "n_splits_", 1)
        fits = len(estimator.cv_results_["params"]) * folds + bool(estimator.refit)
        return (
            f": it made {fits} fits, kept one, and chose by scores of records without noise, for "
            "which no guarantee holds. Search on public records and fit once; or, where no score "
            f"is used, count {fits} times guarantee_"
        )
    if name in _REASONS:
        return f": {_REASONS[name]}, so that its cost is not the sum of its parts"
    if getattr(estimator, "costs_privacy", name in (*_ADDED_UP, "ColumnTransformer")):
        return " that is not fitted: fit it first"
    settings = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    around = any(hasattr(value, "costs_privacy") for value in settings)
    if around or hasattr(estimator, "estimators_"):
        return (
            " around private estimators, and how often they saw a record is unknown: pass the "
            "fitted estimators inside, each as often as it was fitted; or use one-vs-rest, "
            "multi-output, voting or bagging without bootstrap"
        )
    return (
        ", which learns from the records without noise: use DPStandardScaler or PublicScaler, or "
        "an encoder with given categories. If it learned nothing, give the private steps alone"
    )
