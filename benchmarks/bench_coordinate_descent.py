"""How long is a chain of 50 passes of DP coordinate descent, next to a NumPy loop?

California (LASSO, n = 20,640) and Electricity (logistic, n = 45,312), p = 8: 400 updates.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import compiled_cost, first_call, medians, write

import jaxdp as dp
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent

PASSES = 50
JOBS = (
    ("california_housing", "squared", dp.L1, 0.1, 0.464, 1.78),
    ("electricity", "logistic", dp.L2, 1 / 45312, 1.0, 2.57),
)


def numpy_chain(problem: dp.Problem, plan: coordinate_descent.Plan, unit: np.ndarray) -> np.ndarray:
    """The same algorithm and noise as a plain loop."""
    design, state = np.asarray(problem.design), np.array(problem.offset)
    clip, scales, steps = (np.asarray(a) for a in (plan.clip, plan.scales, plan.steps))
    strength, is_l1 = float(problem.penalty.strength), isinstance(problem.penalty, dp.L1)
    theta = np.zeros(len(steps))
    sequence = np.asarray(plan.sequence).ravel()
    for j, noise in zip(sequence, unit.ravel(), strict=True):
        slope = state if problem.loss == "squared" else -1.0 / (1.0 + np.exp(state))
        partial = np.clip(design[j] * slope, -clip[j], clip[j])
        point = theta[j] - steps[j] * (partial.mean() + scales[j] * noise)
        if is_l1:
            moved = np.sign(point) * max(abs(point) - strength * steps[j], 0.0)
        else:
            moved = point / (1.0 + strength * steps[j])
        state = state + design.dtype.type(moved - theta[j]) * design[j]
        theta[j] = moved
    return theta


def chain(job: tuple[Any, ...]) -> dict[str, Any]:
    name, loss, penalty, strength, step, clip = job
    data = datasets.load(name)
    records = len(data.targets)
    problems = {
        dtype: dp.glm(
            data.features, data.targets, loss=loss, penalty=penalty(strength), dtype=dtype
        )
        for dtype in ("float32", "float64")
    }
    curvature = dp.coordinate_smoothness(problems["float64"]).as_public()
    plan = coordinate_descent.plan(
        dp.Budget(1.0, float(records) ** -2),
        smoothness=curvature,
        clip=clip * float(jnp.sqrt(curvature.values.sum())),
        records=records,
        passes=PASSES,
        relation="replace_one",
        step=step,
        key=jax.random.key(0),
    )
    key = jax.random.key(1)
    unit = np.asarray(jax.random.normal(key, plan.sequence.shape, dtype=jnp.float64))
    result: dict[str, Any] = {"data": name, "records": records, "updates": plan.sequence.size}
    reference = numpy_chain(problems["float64"], plan, unit)
    for dtype, problem in problems.items():

        def ours(problem=problem):
            return coordinate_descent.run(problem, plan, key)

        compile_seconds = first_call(ours)
        error = float(np.abs(np.asarray(ours()) - reference).max() / np.abs(reference).max())
        assert error < (1e-4 if dtype == "float32" else 1e-10), error
        seconds = medians(
            {"jaxdp": ours, "numpy": lambda p=problem: numpy_chain(p, plan, unit)}, repeats=15
        )
        cost = compiled_cost(lambda p, k: coordinate_descent.run(p, plan, k), problem, key)
        # Two passes over state and row: read both, then read both and write the state.
        least_bytes = plan.sequence.size * 5 * records * np.dtype(dtype).itemsize
        result[dtype] = {
            "seconds": seconds["jaxdp"],
            "numpy_seconds": seconds["numpy"],
            "ratio_to_numpy": seconds["numpy"] / seconds["jaxdp"],
            "microseconds_per_update": 1e6 * seconds["jaxdp"] / plan.sequence.size,
            "first_call_seconds": compile_seconds,
            "theta_error_against_numpy": error,
            "megabytes_held": cost["bytes_held"] / 1e6,
            "gigabytes_per_second": least_bytes / seconds["jaxdp"] / 1e9,
        }
    keys = jax.random.split(key, 32)
    single = problems["float32"]
    looped = jax.jit(lambda k: jax.lax.map(lambda x: coordinate_descent.run(single, plan, x), k))
    mapped = jax.jit(jax.vmap(lambda x: coordinate_descent.run(single, plan, x)))
    batch = medians({"map": lambda: looped(keys), "vmap": lambda: mapped(keys)}, repeats=3)
    result["batch_of_32_float32"] = {f"{k}_seconds_per_chain": v / 32 for k, v in batch.items()}
    return result


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    write("coordinate_descent", {"chains": [chain(job) for job in JOBS]})


if __name__ == "__main__":
    main()
