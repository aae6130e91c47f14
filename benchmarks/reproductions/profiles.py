"""The i.n.i.d. paper's profiles of sensitivities."""

from collections.abc import Callable

import numpy as np

# Of the indices 1 to the number of coordinates; the base of the exponential one is taken as e.
PROFILES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.ones_like,
    "linear": lambda index: index,
    "quadratic": np.square,
    "exponential": lambda index: np.exp(-index),
    "one_hot": lambda index: np.where(index == 1.0, 1.0, 0.0),
}


def sensitivity_profile(name: str, count: int) -> np.ndarray:
    """Sensitivities of so many coordinates, (count,)."""
    return PROFILES[name](np.arange(1.0, count + 1.0))
