"""Steps of DP-SGD to audit, every scheme as a training draws it, and trainings in one run."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp
from benchmarks._tools.audited import Case, Cases
from jaxdp import dpsgd

S = dp.sampling
DELTA = 1e-2
BUDGET = (2.0, DELTA)
TRIALS = 1500
# Of trainings in one run, whose delta times the canaries must be below the rate of false alarms.
CANARIES, ONE_RUN_DELTA, ONE_RUN_FALSE_ALARM = 1000, 1e-6, 1e-2


def steps(noise: str, allocation: str) -> Case:
    """Two steps on all records, in two groups, one of whose gradients is far too long."""
    params = {"a": jnp.zeros(1), "b": jnp.zeros(3)}
    plan = dpsgd.plan(
        BUDGET,
        params,
        clip=1.0,
        sampling_prob=1.0,
        steps=2,
        dataset_size=4,
        groups="leaf",
        noise=noise,
        allocation=allocation,
    )

    def once(gradients, key):
        sums, _ = dpsgd.clip_groups(plan).update(gradients, optax.EmptyState())
        noising = dpsgd.add_noise(plan, key)
        state, means = noising.init(params), []
        for _ in range(plan.steps):
            mean, state = noising.update(sums, state)
            means.append(mean)
        return means

    drawn = jax.jit(jax.vmap(once, (None, 0)))
    # A Laplace counts l1 norms: the longest has all entries alike.
    there = {"a": jnp.array([[9.0]]), "b": jnp.full((1, 3), 9.0)}
    pair = there, jax.tree.map(jnp.zeros_like, there)
    mechanism = lambda data, keys: jax.tree.leaves(drawn(data, keys))  # noqa: E731
    chunked = lambda data, keys: [np.asarray(x) for x in mechanism(data, keys)]  # noqa: E731
    return Case(chunked, pair, plan.guarantee, DELTA, 2 * TRIALS, 2 * TRIALS)


def scheme(
    sampling: Any, count: int, values: tuple[float, ...], likelihood: Callable | None
) -> Case:
    """Noisy sums of the records' `values`, the last of which is there or not.

    likelihood: log ratio of the outputs' densities, from those of unsampled steps; None: outputs.
    """
    params = {"w": jnp.zeros(1)}
    known: dict[str, Any] = {"sampling_prob": 0.3} if sampling is None else {"sampling": sampling}
    plan = dpsgd.plan(BUDGET, params, clip=1.0, steps=count, dataset_size=len(values), **known)

    @jax.jit
    def noisy(sums, key):
        noising = dpsgd.add_noise(plan, key)
        state, means = noising.init(params), []
        for index in range(count):
            mean, state = noising.update({"w": sums[index : index + 1]}, state)
            means += jax.tree.leaves(mean)
        return jnp.concatenate(means) * plan.expected_batch

    def mechanism(records, key):
        sampling_key, key = jax.random.split(key)
        sums = [
            np.where(mask, np.asarray(values)[indices], 0.0).sum()
            for indices, mask in batches(sampling_key, records)
        ]
        outputs = np.asarray(noisy(np.array(sums), key))
        if likelihood is None:
            return outputs
        return likelihood((outputs - 0.5) / float(plan.noise_multiplier) ** 2)

    def batches(key, records):
        return map(plan.sampling.draw(key, records), range(count))

    pair = len(values), len(values) - 1
    return Case(mechanism, pair, plan.guarantee, DELTA, TRIALS)


def poisson_ratio(logs: np.ndarray) -> float:
    return float(np.log1p(0.3 * np.expm1(logs)).sum())


def allocated_ratio(logs: np.ndarray) -> float:
    """Two epochs of four steps, each with a draw of its own."""
    return float(np.log(np.exp(logs.reshape(2, 4)).mean(axis=1)).sum())


def bins_ratio(logs: np.ndarray) -> float:
    """Two epochs of four steps, in the same order."""
    return float(np.log(np.exp(logs.reshape(2, 4).sum(axis=0)).mean()))


# Zero beside the record that is there or not, whose density ratio is known then; where batches
# have a limit the others push it out, and pull the other way.
_ALONE, _AMONG = (0.0, 1.0), (*(-1.0,) * 5, 1.0)
SCHEMES: Cases = {
    "all records, Gaussian": partial(steps, "gaussian", "inid"),
    "all records, equal scales": partial(steps, "gaussian", "iid"),
    "all records, Laplace": partial(steps, "laplace", "inid"),
    "Poisson": partial(scheme, None, 3, _ALONE, poisson_ratio),
    "truncated Poisson": partial(scheme, S.TruncatedPoisson(0.9, 3, 6), 1, _AMONG, None),
    "truncated Poisson, three steps": partial(
        scheme, S.TruncatedPoisson(0.9, 3, 6), 3, _AMONG, None
    ),
    "without replacement": partial(scheme, S.WithoutReplacement(3, 6), 1, _AMONG, None),
    "without replacement, three steps": partial(
        scheme, S.WithoutReplacement(3, 6), 3, _AMONG, None
    ),
    "random allocation, two epochs": partial(
        scheme, S.RandomAllocation(4), 8, _ALONE, allocated_ratio
    ),
    "balls in bins, two epochs": partial(scheme, S.BallsInBins(4, 2), 8, _ALONE, bins_ratio),
}


def one_run(key: jax.Array, *, count: int = 8, **known: Any) -> dp.audit.OneRunAudit:
    """A training whose canaries each pull a parameter of their own, as far as the clip lets them.

    A score is the parameter itself, which is the sum of all steps.
    """
    params, delta = {"w": jnp.zeros(CANARIES)}, ONE_RUN_DELTA
    plan = dpsgd.plan(
        (4.0, delta), params, clip=1.0, steps=count, dataset_size=CANARIES // 2, **known
    )

    def loss(params, canary):
        return -3.0 * params["w"][canary]

    def training(included, key):
        data = jnp.asarray(np.flatnonzero(included))
        return dpsgd.train(loss, params, data, plan, optax.sgd(1.0), key, part=64)["w"]

    return dp.audit.one_run(
        training,
        CANARIES,
        claim=plan.guarantee,
        delta=delta,
        confidence=1.0 - ONE_RUN_FALSE_ALARM,
        key=key,
    )


TRAININGS: dict[str, dict[str, Any]] = {
    "all records": {"sampling_prob": 1.0},
    "Poisson": {"sampling_prob": 0.25},
    "correlated noise": {"sampling_prob": 0.25, "bands": 2},
    "adaptive clipping": {"sampling_prob": 0.25, "clip_quantile": 0.5},
    "random allocation, two epochs": {"sampling": S.RandomAllocation(4)},
    "balls in bins, two epochs": {"sampling": S.BallsInBins(4, 2)},
}
