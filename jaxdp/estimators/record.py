"""The guarantee of a fit in words."""

from __future__ import annotations

from typing import Any

from jaxdp.guarantee.drawn import Drawn

# Sentence of a fit whose noise comes from a fixed integer.
SEEDED = "; no guarantee against anyone who guesses random_state, a fixed integer"


def text_of(estimator: Any, guarantee: Drawn, is_private: bool, is_seeded: bool) -> str:
    """The guarantee of the fit in words, with its assumptions."""
    if not is_private:
        return "no guarantee: epsilon is infinite, and the fit has no noise"
    kind, epsilon, delta = type(guarantee.exact).__name__, estimator.epsilon, estimator.delta
    text = f"delta {delta:g} at epsilon {epsilon:g}; at other epsilons see {kind}"
    if getattr(estimator, "release", "lattice") == "float":
        text = f"for research: floating-point noise leaks through its last bits; if exact, {text}"
    return text + SEEDED if is_seeded else text
