"""Composed privacy losses next to dp_accounting, on the same work in the same run.

DP-SGD epsilons (16 noise multipliers x 2 deltas, 1,000 and 5,000 steps), 4,096 random runs of 5 to
100 epochs, mixed compositions, calibrations of the noise multiplier, Renyi divergences (64 orders
x 256 configurations). Accuracy against independent values is asserted before the clock starts.
"""

import functools
import importlib
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import medians, write
from reference_accountant import DELTAS, REFERENCE, SAMPLED, SCALES

import jaxdp as dp

# What peers are asked for afterwards, so that the memory measured before is not theirs.
Later = list[Callable[[], None]]


def sampled(scale: Any, q: Any, steps: Any) -> dp.PrivacyLoss:
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "add_remove"))


def accountant(interval: float, events: list[tuple[float, float, int]]) -> Any:
    accounting = importlib.import_module("dp_accounting")
    pld = importlib.import_module("dp_accounting.pld")
    one = pld.PLDAccountant(value_discretization_interval=interval)
    for scale, q, steps in events:
        event = accounting.PoissonSampledDpEvent(q, accounting.GaussianDpEvent(scale))
        one.compose(event, steps)
    return one


def first_result(call: Callable[[], Any]) -> tuple[Any, float]:
    """The value of a call that compiles, and its seconds."""
    start = time.perf_counter()
    value = jax.block_until_ready(call())
    return value, time.perf_counter() - start


def timed(call: Callable[[], Any], first: float, repeats: int = 5) -> dict[str, Any]:
    return {"first_call": first, "seconds": medians({"x": call}, repeats)["x"]}


def dpsgd(reference: dict[str, Any], later: Later) -> dict[str, Any]:
    result = {}
    for steps in (1000, 5000):
        loss = sampled(jnp.asarray(SCALES)[:, None], 0.01, float(steps))
        delta = jnp.asarray(DELTAS)[None]
        call = functools.partial(loss.epsilon, delta)
        values, first = first_result(call)
        truth = np.array(reference[f"S{steps}"])
        errors = values / truth - 1
        assert np.all((errors > -1e-14) & (errors < 5e-10)), errors
        row = timed(call, first)
        row |= {"epsilons": values.size, "worst_error": float(np.abs(errors).max())}
        result[str(steps)] = row

        def peers(row: dict[str, Any] = row, truth: Any = truth, steps: int = steps) -> None:
            for interval in (1e-3, 1e-4):
                few = (0, 5, 15) if interval > 5e-4 else (5,)

                def peer(few: Any = few, interval: float = interval) -> Any:
                    found = []
                    for i in few:
                        one = accountant(interval, [(float(SCALES[i]), 0.01, steps)])
                        found.append([one.get_epsilon(d) for d in DELTAS])
                    return np.array(found)

                theirs = float(medians({"peer": peer}, 1)["peer"]) / len(few)
                error = float(np.abs(peer() / truth[list(few)] - 1).max())
                row[f"dp_accounting_{interval:g}"] = {
                    "seconds_a_configuration": theirs,
                    "ratio": theirs / (row["seconds"] / len(SCALES)),
                    "worst_error": error,
                    "times_our_error": error / row["worst_error"],
                }

        later.append(peers)
    return result


def random_runs(later: Later, size: int = 4096) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    q = np.exp(rng.uniform(np.log(1e-3), np.log(0.1), size))
    steps = np.round(np.exp(rng.uniform(np.log(5.0), np.log(100.0), size)) / q)
    scale = rng.uniform(0.7, 3.0, size)
    delta = jnp.asarray(np.exp(rng.uniform(np.log(1e-8), np.log(1e-4), size)))
    loss = sampled(*(jnp.asarray(x) for x in (scale, q, steps)))
    epsilon, first = first_result(lambda: loss.epsilon(delta))
    few = np.arange(0, size, size // 16)
    part = sampled(*(jnp.asarray(x[few]) for x in (scale, q, steps)))
    gap = part.log_delta(epsilon[few]) - jnp.log(delta[few])
    assert bool(jnp.all((gap <= 0) & (gap > -1e-8))), gap
    row = timed(lambda: loss.epsilon(delta), first, 3) | {"runs": size}
    start = [(float(scale[i]), float(q[i]), int(steps[i]), float(delta[i])) for i in few[:4]]

    def peers() -> None:
        def peer() -> Any:
            return [accountant(1e-4, [run[:3]]).get_epsilon(run[3]) for run in start]

        theirs = float(medians({"peer": peer}, 1)["peer"]) / len(start)
        row["dp_accounting_0.0001_seconds_a_run"] = theirs
        row["ratio"] = theirs / (row["seconds"] / size)

    later.append(peers)
    return row


def heterogeneous(reference: dict[str, Any], later: Later) -> dict[str, Any]:
    columns = (jnp.array([float(run[i]) for run in SAMPLED]) for i in range(3))
    loss = sampled(*columns).sum()
    delta = jnp.asarray(DELTAS)
    values, first = first_result(lambda: loss.epsilon(delta))
    errors = np.asarray(values) / np.array(reference["HS"]) - 1
    assert np.all((errors > -1e-14) & (errors < 5e-10)), errors
    row = timed(lambda: loss.epsilon(delta), first)
    row["worst_error"] = float(np.abs(errors).max())

    def peers() -> None:
        def peer() -> Any:
            one = accountant(1e-4, list(SAMPLED))
            return [one.get_epsilon(d) for d in DELTAS]

        row["dp_accounting_0.0001"] = float(medians({"peer": peer}, 1)["peer"])
        row["ratio"] = row["dp_accounting_0.0001"] / row["seconds"]

    later.append(peers)
    return row


def calibrations(reference: dict[str, Any], later: Later) -> dict[str, Any]:
    rows = np.array(reference["calibration"])
    epsilon, q, steps, truth = (jnp.asarray(rows[:, i]) for i in range(4))

    def solve(epsilon: Any, q: Any, steps: Any) -> Any:
        return dp.calibrate(
            lambda scale: sampled(scale, q, steps),
            dp.Budget(epsilon, 1e-5),
            lower=0.3,
            upper=60.0,
        )

    found, first = first_result(lambda: solve(epsilon, q, steps))
    errors = np.asarray(found / truth - 1)
    assert np.abs(errors).max() < 1e-6, errors
    unsafe = int(jnp.sum(~(sampled(found, q, steps).delta(epsilon) <= 1e-5)))
    assert unsafe == 0, unsafe
    row = timed(lambda: solve(epsilon, q, steps), first, 3) | {
        "calibrations": len(rows),
        "unsafe": unsafe,
        "worst_error": float(np.abs(errors).max()),
        "dp_accounting_seconds_recorded": 5.88,
    }
    ours = row["seconds"] / len(rows)

    def peers() -> None:
        accounting = importlib.import_module("dp_accounting")
        seconds, theirs = [], []
        # One of each epsilon; of both the default tolerance, 1e-6 of the multiplier.
        for epsilon, q, steps, truth in rows[:: len(rows) // 8 + 1]:

            def event(scale: float, q: float = q, steps: float = steps) -> Any:
                one = accounting.PoissonSampledDpEvent(q, accounting.GaussianDpEvent(scale))
                return accounting.SelfComposedDpEvent(one, int(steps))

            start = time.perf_counter()
            scale = accounting.calibrate_dp_mechanism(
                lambda: accountant(1e-4, []), event, float(epsilon), 1e-5
            )
            seconds.append(time.perf_counter() - start)
            theirs.append(scale / truth - 1)
        median = float(np.median(seconds))
        row["dp_accounting_seconds"] = median
        row["dp_accounting_calibrations"] = len(seconds)
        row["dp_accounting_worst_error"] = float(np.abs(theirs).max())
        row["ratio"] = median / ours
        row["ratio_to_recorded"] = 5.88 / ours

    later.append(peers)
    return row


def renyi(later: Later) -> dict[str, Any]:
    scale, q = np.meshgrid(np.linspace(0.5, 5, 16), np.geomspace(1e-4, 0.2, 16))
    release = dp.Mechanism(
        dp.Gaussian(jnp.asarray(scale.ravel()[:, None])),
        1.0,
        jnp.asarray(q.ravel()[:, None]),
        "remove",
    )
    orders = jnp.arange(2.0, 66.0)[None]
    loss = dp.privacy_loss(release)
    values, first = first_result(lambda: loss.renyi(orders))
    values = np.asarray(values)
    from scipy.special import gammaln, logsumexp

    k = np.arange(0, 21)
    for i in (0, 100, 255):
        s, p, a = scale.ravel()[i], q.ravel()[i], 20.0
        ways: Any = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
        log_terms: Any = ways + (a - k) * np.log1p(-p) + k * np.log(p) + (k * k - k) / (2 * s * s)
        expected: Any = logsumexp(log_terms)
        np.testing.assert_allclose(values[i, 18] * (a - 1), expected, rtol=1e-8)
    row = timed(lambda: loss.renyi(orders), first) | {"values": values.size}

    def peers() -> None:
        rdp = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
        few = [(float(scale.ravel()[i]), float(q.ravel()[i])) for i in range(0, 256, 32)]

        def peer() -> Any:
            compute = rdp._compute_rdp_poisson_subsampled_gaussian
            return [compute(p, s, list(range(2, 66))) for s, p in few]

        theirs = float(medians({"peer": peer}, 1)["peer"]) / len(few)
        row["dp_accounting_seconds_a_configuration"] = theirs
        row["ratio"] = theirs / (row["seconds"] / 256)

    later.append(peers)
    return row


def gibibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    reference = json.loads(REFERENCE.read_text())
    later: Later = []
    results: dict[str, Any] = {
        "dpsgd": dpsgd(reference, later),
        "heterogeneous": heterogeneous(reference, later),
        "calibrations": calibrations(reference, later),
        "renyi": renyi(later),
        "random_runs": random_runs(later),
    }
    results["peak_memory_gib"] = gibibytes()
    for peers in later:
        peers()
    write("accountant", results | {"peak_memory_gib_with_peers": gibibytes()})
