"""Costs of a training by DP-SGD without a key, next to one from a Threefry key.

python -m benchmarks.bench_training writes results/training.json: programs compiled and CPU seconds
of a first and a second training, and CPU milliseconds of a step, of its noise, and of a batch drawn
on its own. The network has 9,610 parameters in float32; 287 of 1,437 records are expected in a
batch.
"""

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp
from benchmarks._tools.measure import write

jax.config.update("jax_enable_x64", True)

STEPS, RECORDS, RATE = 160, 1437, 287 / 1437
REPEATS = 15
# At most, of a step less its noise: secure over Threefry.
MOST = 1.3
COMPILED: list[float] = []


def heard(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(duration_secs)


def problem() -> tuple[Any, Any]:
    """Parameters and records."""
    rng = np.random.default_rng(0)
    weights = {"in": rng.normal(size=(64, 128)) / 8.0, "out": rng.normal(size=(128, 10)) / 11.0}
    params = {
        name: {"w": jnp.asarray(w, jnp.float32), "b": jnp.zeros(w.shape[1], jnp.float32)}
        for name, w in weights.items()
    }
    features = rng.normal(size=(RECORDS, 64)).astype(np.float32)
    return params, (features, rng.integers(0, 10, RECORDS))


def training(params: Any, data: Any, plan: Any, key: Any = None) -> Any:
    """A training whose loss and optimiser are made anew, as a program that calls it does."""

    def loss(params: Any, example: Any) -> jax.Array:
        hidden = jnp.tanh(example[0] @ params["in"]["w"] + params["in"]["b"])
        scores = hidden @ params["out"]["w"] + params["out"]["b"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])

    return dp.dpsgd.train(loss, params, data, plan, optax.sgd(1.0), key, progress=False)


def without_key(params: Any, data: Any, plan: Any) -> dict[str, float]:
    """Programs and CPU seconds of one training."""
    before, start = len(COMPILED), time.process_time()
    jax.block_until_ready(training(params, data, plan))
    return {
        "programs_compiled": len(COMPILED) - before,
        "cpu_s": round(time.process_time() - start, 2),
    }


def noises(params: Any, plan: Any, key: Any) -> Any:
    """The noise of all steps and nothing else."""
    noising = dp.dpsgd.add_noise(plan, key)
    zero = jax.tree.map(jnp.zeros_like, params)
    step = jax.jit(lambda state: noising.update(zero, state))

    def run() -> Any:
        state, noisy = noising.init(params), None
        for _ in range(STEPS):
            noisy, state = step(state)
        return noisy

    return run


def cpu_seconds(calls: dict[str, Any]) -> dict[str, float]:
    """Medians of CPU seconds, the calls taking turns, after one each that compiles."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + REPEATS):
        for name, call in calls.items():
            start = time.process_time()
            jax.block_until_ready(call())
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def milliseconds(params: Any, data: Any, plan: Any) -> dict[str, dict[str, float]]:
    """CPU time of a step and of its noise, by generator, and of a batch of one's own."""
    calls: dict[str, Any] = {}
    keys = {"secure": dp.secure_key(), "threefry": jax.random.key(1)}
    for name, key in keys.items():
        calls[f"step {name}"] = lambda key=key: training(params, data, plan, key)
        calls[f"noise {name}"] = noises(params, plan, key)
        calls[f"batch {name}"] = lambda key=key: [
            dp.sampling.batch(dp.sampling.Poisson(RATE), key, RECORDS, 256, step=index)
            for index in range(STEPS)
        ]
    found = cpu_seconds(calls)
    return {
        name: {
            what: round(1e3 * found[f"{what} {name}"] / STEPS, 3)
            for what in ("step", "noise", "batch")
        }
        for name in keys
    }


def main() -> None:
    """Measure and write."""
    jax.monitoring.register_event_duration_secs_listener(heard)
    params, data = problem()
    known = {"clip": 1.0, "dataset_size": RECORDS, "groups": "all", "sampling_prob": RATE}
    plan = dp.dpsgd.plan((2.0, 1e-5), params, steps=STEPS, **known)
    first, second = (without_key(params, data, plan) for _ in range(2))
    steps = milliseconds(params, data, plan)
    beyond = {name: each["step"] - each["noise"] for name, each in steps.items()}
    ratio = round(beyond["secure"] / beyond["threefry"], 3)
    write(
        "training",
        {
            "steps": STEPS,
            "first_training": first,
            "second_training": second,
            "cpu_milliseconds": steps,
            "secure_over_threefry_less_noise": ratio,
        },
    )
    assert second["programs_compiled"] == 0, second
    assert ratio <= MOST, ratio


if __name__ == "__main__":
    main()
