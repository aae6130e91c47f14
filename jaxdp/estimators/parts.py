"""Private fits inside a fitted pipeline, whose cost is the sum of theirs.

A pipeline fits each of its steps once, on all records. An ensemble of scikit-learn may repeat
records, make fits that it does not keep, or learn once more from the predictions: it is refused,
and so is a subclass, which may do anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxdp._core import checks
from jaxdp.guarantee.drawn import Drawn

_PUBLIC_ENCODERS = ("OneHotEncoder", "OrdinalEncoder")


def private_fits(estimator: Any) -> list[Any]:
    """One fitted private estimator, or those within a pipeline; `ValueError` where unknown."""
    if isinstance(getattr(estimator, "guarantee_", None), Drawn):
        return [estimator]
    name = _name_in_sklearn(estimator)
    if name == "Pipeline":
        return _of_all(step for _, step in estimator.steps)
    if name == "ColumnTransformer" and hasattr(estimator, "transformers_"):
        return _of_all(step for _, step, _ in estimator.transformers_)
    if _learns_nothing(estimator, name):
        return []
    raise ValueError(f"fitted holds a {type(estimator).__name__}{_reason(estimator)}")


def _of_all(estimators: Iterable[Any]) -> list[Any]:
    return [fit for estimator in estimators for fit in private_fits(estimator)]


def _name_in_sklearn(estimator: Any) -> str:
    """Name of the class if it is one of scikit-learn's own, else ""."""
    kind = type(estimator)
    return kind.__name__ if kind.__module__.partition(".")[0] == "sklearn" else ""


def _learns_nothing(step: Any, name: str) -> bool:
    """True if a pipeline step is the same function for all records."""
    if step is None or isinstance(step, str):
        return step in (None, "passthrough", "drop")
    if hasattr(step, "costs_privacy"):
        return not step.costs_privacy
    if name in _PUBLIC_ENCODERS:
        return _has_given_categories(step)
    if name == "SimpleImputer":
        return not _learned_by_imputer(step)
    if name == "PolynomialFeatures":
        return True
    # A regression that needs no fit, such as a Gaussian process, still learns if fitted.
    if hasattr(step, "predict") or not hasattr(step, "__sklearn_tags__"):
        return False
    return not checks.extra("sklearn.utils", "learn").get_tags(step).requires_fit


def _has_given_categories(encoder: Any) -> bool:
    """True if the categories of a fitted encoder are the ones that were given, all of them."""
    given, fitted = encoder.categories, getattr(encoder, "categories_", ())
    counted = encoder.min_frequency is not None or encoder.max_categories is not None
    if isinstance(given, str) or counted or getattr(encoder, "_infrequent_enabled", False):
        return False
    pairs = zip(given, fitted, strict=False)
    same = all(
        len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))
        for a, b in pairs
    )
    return same and len(given) == len(fitted)


def _learned_by_imputer(imputer: Any) -> str:
    """Message that names what a `SimpleImputer` learned from the records, "" if nothing."""
    filled = getattr(imputer, "statistics_", None)
    given = imputer.fill_value
    constants = {"0", "'missing_value'", "nan"} if given is None else {repr(given), "nan"}
    # Of a constant, statistics_ holds the object that was given, and NaN for empty columns.
    if filled is None or filled.dtype != object or not constants.issuperset(map(repr, filled)):
        return "the values that it fills in"
    if getattr(imputer, "indicator_", None) is not None:
        return "which columns lack values: fit it with add_indicator=False"
    if not imputer.keep_empty_features:
        return "which columns are empty, and drops them: fit it with keep_empty_features=True"
    return ""


def _reason(estimator: Any) -> str:
    """Reason why the cost of an estimator is unknown, and a remedy."""
    name = _name_in_sklearn(estimator)
    if hasattr(estimator, "cv_results_"):
        folds = getattr(estimator, "n_splits_", 1)
        fits = len(estimator.cv_results_["params"]) * folds + bool(estimator.refit)
        return (
            f": it made {fits} fits, kept one, and chose by scores of records without noise, for "
            "which no guarantee holds. Search on public records and fit once; or, where no score "
            f"is used, count {fits} times guarantee_"
        )
    if name == "SimpleImputer" and estimator.strategy == "constant":
        return f", which learns from the records {_learned_by_imputer(estimator)}"
    if getattr(estimator, "costs_privacy", name == "ColumnTransformer"):
        return " that is not fitted: fit it first"
    settings = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    if any(hasattr(value, "costs_privacy") for value in settings) or hasattr(
        estimator, "estimators_"
    ):
        return (
            " around private estimators, and how often they saw a record is unknown: pass the "
            "fitted estimators inside, each as often as it was fitted to a record"
        )
    return (
        ", which learns from the records without noise: use DPStandardScaler or PublicScaler, or "
        "an encoder with given categories. If it learned nothing, give the private steps alone"
    )
