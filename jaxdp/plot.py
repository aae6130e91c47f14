"""Pictures on axes that the caller gives. Needs the extra `plot`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdp.mechanism import Mechanism

_LOG_10 = float(np.log(10.0))


def profile(axes: Any, mechanisms: Mapping[str, Mechanism], epsilon: np.ndarray) -> None:
    """log10 delta against epsilon, one line a mechanism; a delta of 0 leaves the picture."""
    for label, mechanism in mechanisms.items():
        values = np.asarray(mechanism.log_delta(epsilon)) / _LOG_10
        axes.plot(epsilon, np.where(np.isfinite(values), values, np.nan), label=label)
    axes.set_xlabel("epsilon (nats)")
    axes.set_ylabel("log10 delta")
    axes.set_title("Privacy profiles")
    axes.legend()


def training(axes: Any, curves: Mapping[str, np.ndarray], title: str) -> None:
    """Relative error after each pass, mean over the first axis of each curve, log scale."""
    for label, curve in curves.items():
        passes = np.arange(1, curve.shape[-1] + 1)
        axes.plot(passes, np.mean(np.atleast_2d(curve), axis=0), label=label)
    axes.set_yscale("log")
    axes.set_xlabel("passes")
    axes.set_ylabel("relative error")
    axes.set_title(title)
    axes.legend()
