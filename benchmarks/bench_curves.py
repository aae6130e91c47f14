"""Many questions of one loss: log deltas, epsilons, points of the trade-off, rates of an attack.

Brackets of some epsilons alone hold the values of all together before the clock starts. CPU seconds
are of all threads; nothing is compiled. The first row of a loss includes its contours.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import write
from jaxdp.accountant.contour import shared

COUNTS = (60, 200)
RATES = (1e-5, 0.98)


def losses() -> dict[str, dp.PrivacyLoss]:
    sampled = dp.Mechanism(dp.Gaussian(1.1), 1.0, 256 / 60000, "add_remove")
    laplace = dp.Mechanism(dp.Laplace(20.0), 1.0)
    return {
        "DP-SGD, 3,515 steps": 3515 * dp.privacy_loss(sampled),
        "100 Laplaces": 100 * dp.privacy_loss(laplace),
    }


def values_hold(loss: dp.PrivacyLoss, epsilon: np.ndarray) -> None:
    """Values together lie in brackets of each alone, and the other way round."""
    together, error = loss.log_delta(epsilon), loss.log_delta_error(epsilon)
    for i in range(0, epsilon.size, 15):
        alone, own = loss.log_delta(epsilon[i]), loss.log_delta_error(epsilon[i])
        assert together[i] >= alone - own - 1e-14 * abs(alone)
        assert alone >= together[i] - error[i] - 1e-14 * abs(alone)


def cpu(call: Callable[[], Any]) -> float:
    start = time.process_time()
    np.asarray(call())
    return time.process_time() - start


def curves(loss: dp.PrivacyLoss, count: int) -> dict[str, float]:
    """CPU seconds of each question, asked in turn."""
    delta, rate = np.logspace(-9, -1.5, count), np.geomspace(*RATES, count)
    epsilon = np.linspace(0.0, float(loss.epsilon(1e-9)), count)
    shared._kept.clear()
    return {
        "log deltas": cpu(lambda: loss.log_delta(epsilon)),
        "epsilons": cpu(lambda: loss.epsilon(delta)),
        "points of the trade-off": cpu(lambda: loss.tradeoff(rate)),
        "tpr_at_fpr": cpu(lambda: dp.risk.tpr_at_fpr(loss, rate)),
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    result: dict[str, Any] = {}
    for name, loss in losses().items():
        values_hold(loss, np.linspace(0.0, float(loss.epsilon(1e-9)), COUNTS[0]))
        result[name] = {str(count): curves(loss, count) for count in COUNTS}
        result[name]["one epsilon"] = cpu(lambda loss=loss: loss.epsilon(1e-6))
    write("curves", result)


if __name__ == "__main__":
    main()
