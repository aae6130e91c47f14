"""What is audited, and one audit of it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxdp as dp

# Cases hold noises and schemes: before they are imported.

# Of each audit. chosen: one of a table of 60 is false once in 160 tables
FALSE_ALARM = 1e-4


class Case(NamedTuple):
    """Arguments of `dp.audit.run`; `trials` are those of the whole table."""

    mechanism: Any
    neighbours: tuple[Any, Any]
    claim: Any
    delta: float
    trials: int
    chunk: int | None = None


# Made when it is audited: plans and claims compile.
Cases = dict[str, Callable[[], Case]]


def audited(
    case: Case, key: jax.Array, trials: int | None = None, false_alarm: float = FALSE_ALARM
) -> dp.audit.Audit:
    """The audit, of all trials or of fewer."""
    return dp.audit.run(
        case.mechanism,
        case.neighbours,
        trials or case.trials,
        delta=case.delta,
        claim=case.claim,
        confidence=1.0 - false_alarm,
        key=key,
        chunk=case.chunk,
        progress=False,
    )


def row(make: Callable[[], Case], key: jax.Array) -> dict[str, Any]:
    """What an audit found, and CPU seconds of all threads, compilation included."""
    start = time.process_time()
    found = audited(make(), key)
    return {
        "claimed": figures(found.claimed),
        "lower": figures(found.epsilon_lower),
        "mu_lower": figures(found.mu_lower),
        "delta": found.delta,
        "trials": found.trials,
        "score": found.score,
        "is_refuted": found.is_refuted,
        "false_alarm": FALSE_ALARM,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def figures(value: float) -> float:
    """Four significant figures."""
    return float(np.format_float_positional(value, precision=4, fractional=False))
