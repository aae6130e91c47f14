"""Laplace noise of a scale a coordinate, composed, next to dp_accounting in the same run.

48 profiles of 5 and of 10 scales: delta at half of the largest loss.
Accuracy against all 32 atoms in 60 digits is asserted before the clock starts.

And one epsilon of many releases, each with a scale of its own, in warm CPU seconds.
"""

import functools
import importlib
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import first_call, medians, write

PROFILES, CHECKED, TIMED = 48, 12, 3
DELTA = 1e-5  # of one epsilon of many releases


def profiles(coordinates: int) -> np.ndarray:
    """Ratios of sensitivity to scale, whose sum is about 1."""
    random = np.random.default_rng(coordinates)
    return np.exp(random.uniform(-1.0, 1.0, (PROFILES, coordinates))) / coordinates


def loss_of(ratios: np.ndarray) -> dp.PrivacyLoss:
    return dp.privacy_loss(dp.Mechanism(dp.Laplace(jnp.asarray(1.0 / ratios)), 1.0)).sum(-1)


def exact_log_delta(scales: np.ndarray, epsilon: float) -> float:
    """With u = 1 / (2 z + 1) the moments are (e^(z r) (1 + u) + e^(-(z + 1) r) (1 - u)) / 2.

    Multiplied out; of every term e^(z x) u^k / (z (z + 1)) the residues at 0, -1 and -1/2, which
    are the series sum_j (x / 2)^(2 j + k + 1) / (2 j + k + 1)! of e^(x / 2) times that, times 2.
    """
    with mp.workdps(60):
        ratios = [1 / mp.mpf(float(x)) for x in scales]
        total = mp.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(ratios)):
            way = mp.fsum(s * r for s, r in zip(signs, ratios, strict=True)) - mp.mpf(epsilon)
            if way <= 0:
                continue
            powers = [mp.mpf(1)]
            for sign in signs:
                padded = [*powers, mp.mpf(0)], [mp.mpf(0), *powers]
                powers = [(a + sign * b) / 2 for a, b in zip(*padded, strict=True)]
            half = way / 2
            for k, power in enumerate(powers):
                terms = (half ** (2 * j + k + 1) / mp.factorial(2 * j + k + 1) for j in range(60))
                total += 2 * power * mp.fsum(terms)
        return float(mp.log(total) + (mp.mpf(epsilon) - mp.fsum(ratios)) / 2)


def peer_of(scales: np.ndarray, epsilon: float) -> float:
    accounting = importlib.import_module("dp_accounting")
    pld = importlib.import_module("dp_accounting.pld")
    one = pld.PLDAccountant(value_discretization_interval=1e-4)
    for scale in scales:
        one.compose(accounting.LaplaceDpEvent(float(scale)))
    return float(one.get_delta(epsilon))


def measure(coordinates: int) -> dict[str, Any]:
    ratios = profiles(coordinates)
    scales, epsilon = 1.0 / ratios, 0.5 * ratios.sum(-1)
    loss, at = loss_of(ratios), jnp.asarray(epsilon)
    first = first_call(lambda: loss.log_delta(at))
    values = np.asarray(loss.log_delta(at))
    row: dict[str, Any] = {"first_call": first}
    if coordinates <= 5:
        pairs = zip(scales[:CHECKED], epsilon[:CHECKED], strict=True)
        truth = np.array([exact_log_delta(s, float(e)) for s, e in pairs])
        errors = values[:CHECKED] - truth
        assert np.all((errors > -1e-14) & (errors < 5e-9)), errors
        row["worst_error"] = float(errors.max())
    row["seconds"] = medians({"x": lambda: loss.log_delta(at)}, 1)["x"]
    found: list[float] = []

    def peer() -> None:
        found[:] = [peer_of(scales[i], float(epsilon[i])) for i in range(TIMED)]

    row["dp_accounting_0.0001"] = medians({"peer": peer}, 3)["peer"] / TIMED
    row["dp_accounting_worst_error"] = float(np.abs(np.log(found) - values[:TIMED]).max())
    row["ratio"] = row["dp_accounting_0.0001"] * PROFILES / row["seconds"]
    return row


def many() -> dict[str, tuple[dp.PrivacyLoss, Callable[[Any], list[Any]]]]:
    """Losses of releases with different scales, and the same of dp_accounting's `pld` module."""
    random = np.random.default_rng(0)

    def scales(count: int, typical: float) -> np.ndarray:
        return np.exp(random.uniform(-1.0, 1.0, count)) * typical

    def of(mechanism: Any) -> dp.PrivacyLoss:
        return dp.privacy_loss(mechanism).sum(-1)

    rows: dict[str, Any] = {}
    for count in (10, 60, 120, 300):
        of_row = scales(count, 3.0 * count**0.5)
        rows[f"{count} Laplaces"] = (
            of(dp.Mechanism(dp.Laplace(of_row), 1.0)),
            partial(_peers, "from_laplace_mechanism", of_row),
        )
    whole = scales(60, 15.0)
    rows["60 discrete Laplaces"] = (
        of(dp.Mechanism(dp.DiscreteLaplace(whole), 1)),
        partial(_peers, "from_discrete_laplace_mechanism", 1.0 / whole),
    )
    wide = scales(60, 20.0)
    rows["60 discrete Gaussians"] = (
        of(dp.Mechanism(dp.DiscreteGaussian(wide), 1)),
        partial(_peers, "from_discrete_gaussian_mechanism", wide),
    )
    bounds = 1.0 / scales(60, 15.0)
    rows["60 randomised responses"] = (
        dp.privacy_loss(dp.PureDP(bounds)).sum(-1),
        partial(_response_peers, 2.0 / (1.0 + np.exp(bounds))),
    )
    sampled = scales(60, 2.0)
    rows["60 sampled Laplaces"] = (
        of(dp.Mechanism(dp.Laplace(sampled), 1.0, 0.1, "add_remove")),
        partial(_peers, "from_laplace_mechanism", sampled, sampling_prob=0.1),
    )
    return rows


def _peers(name: str, scales: np.ndarray, module: Any, **options: Any) -> list[Any]:
    make = getattr(module, name)
    return [make(float(s), value_discretization_interval=1e-4, **options) for s in scales]


def _response_peers(probabilities: np.ndarray, module: Any) -> list[Any]:
    make = partial(module.from_randomized_response, num_buckets=2)
    return [make(float(p), value_discretization_interval=1e-4) for p in probabilities]


def measure_many(loss: dp.PrivacyLoss, peers: Callable[[Any], list[Any]]) -> dict[str, float]:
    module = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")

    def peer() -> float:
        return float(
            functools.reduce(lambda a, b: a.compose(b), peers(module)).get_epsilon_for_delta(DELTA)
        )

    def cpu(function: Callable[[], float]) -> tuple[float, float]:
        function()
        start = time.process_time()
        value = function()
        return time.process_time() - start, value

    ours, epsilon = cpu(lambda: float(loss.epsilon(DELTA)))
    log_delta, error = cpu(lambda: float(loss.log_delta_error(epsilon)))
    theirs, theirs_epsilon = cpu(peer)
    return {
        "epsilon_cpu_s": ours,
        "log_delta_cpu_s": log_delta,
        "log_delta_error": error,
        "dp_accounting_cpu_s": theirs,
        "dp_accounting_excess": theirs_epsilon - epsilon,
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    single = {name: measure_many(*row) for name, row in many().items()}
    write("inid", {str(k): measure(k) for k in (5, 10)} | single)
