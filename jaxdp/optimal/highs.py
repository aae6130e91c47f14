"""HiGHS models, set up alike."""

from __future__ import annotations

from typing import Any

from jaxdp._core import checks

# Options of every model: silent, on one core, and as near to feasible as HiGHS goes.
OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


def new_model() -> tuple[Any, Any]:
    """An empty model, and the enumeration of what its solver may report."""
    highspy = checks.extra("highspy", "lp")
    model = highspy.Highs()
    for name, value in OPTIONS.items():
        model.setOptionValue(name, value)
    return model, highspy.HighsModelStatus
