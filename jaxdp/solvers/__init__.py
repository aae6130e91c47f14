"""Private solvers. They consume scales and know nothing of epsilon beyond their plan.

A solver is a `plan`, made before a record is read, and a call that follows it. Statistics of a
record are bounded first and noisy second; nothing is divided by a count that is private. An
estimator (`jaxdp/estimators`) checks, clips to public bounds, splits the key and calls one of them.
"""

from jaxdp._core.lazy import attach as _attach

__all__ = _attach(__name__, __file__)  # pyright: ignore
