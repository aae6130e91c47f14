"""The guarantee of a fit in words, and whether it is part of an ensemble by scikit-learn.

Parameters may change after `fit`; nothing here is read from them later.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from jaxdp.guarantee.drawn import Drawn

# Sentence of a fit whose noise comes from a fixed integer.
SEEDED = "; no guarantee against anyone who guesses random_state, a fixed integer"
# Function of scikit-learn that fits the members of a bag. It keeps no record of `bootstrap`.
_BAGGING = ("sklearn.ensemble._bagging", "_parallel_build_estimators")


class FitRecord(NamedTuple):
    """Parameters and guarantee with which a private estimator was fitted.

    relation: the neighbouring relation, None if the estimator has one only. bags: whether each
    ensemble around the fit drew records with replacement, and whether it drew all.
    """

    relation: str | None
    bags: tuple[tuple[bool, bool], ...]


def record_of(estimator: Any) -> FitRecord:
    """The record of the fit that is running."""
    bags, frame = [], sys._getframe()
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _BAGGING:
            ensemble = frame.f_locals["ensemble"]
            size = ensemble.max_samples
            is_whole = size is None or (isinstance(size, float) and size == 1.0)
            bags.append((bool(ensemble.bootstrap), is_whole))
        frame = frame.f_back
    return FitRecord(getattr(estimator, "relation", None), tuple(bags))


def text_of(estimator: Any, guarantee: Drawn, is_private: bool, is_seeded: bool) -> str:
    """The guarantee of the fit in words, with its assumptions."""
    if not is_private:
        return "no guarantee: epsilon is infinite, and the fit has no noise"
    kind, epsilon, delta = type(guarantee.exact).__name__, estimator.epsilon, estimator.delta
    text = f"delta {delta:g} at epsilon {epsilon:g}; at other epsilons see {kind}"
    if getattr(estimator, "release", "lattice") == "float":
        text = f"for research: floating-point noise leaks through its last bits; if exact, {text}"
    return text + SEEDED if is_seeded else text
