"""A plan followed on records: theta_j <- prox(theta_j - step_j (clipped mean gradient + noise_j)).

The mean is a sum of whole numbers. Each record's partial derivative is clipped to +-C_j and
rounded to a multiple of C_j / grid; blocks of 64 add up exactly in the data's precision, and the
blocks in float64. So the sensitivity holds as computed, in float32 too, in any order of summation.
The noise comes from a lattice to which the mean is rounded, see `solvers.lattice`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxdp._core import checks
from jaxdp._core.checks import number_of_records
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import checked_key, unshared
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp.solvers.blocks import SparseDesign
from jaxdp.solvers.coordinate_descent import compiled, host
from jaxdp.solvers.coordinate_descent.greedy import GreedyPlan, descend
from jaxdp.solvers.coordinate_descent.plan import Plan
from jaxdp.solvers.padding import padded
from jaxdp.solvers.problems import Problem

# Bytes of a batch of chains, each of about six arrays of n floats. chosen: any accelerator has them
_BATCH_BYTES = 4e9


class NotPrivateTrace(NamedTuple):
    """F after each pass, computed from the records without noise. NOT PRIVATE: never publish it."""

    objective: Reals


@draws_in_float64
def run(
    problem: Problem,
    plan: Plan | GreedyPlan,
    key: Key,
    *,
    start: ArrayLike | None = None,
    trace: bool = False,
) -> Vector | tuple[Vector, NotPrivateTrace]:
    """The model that a plan of coordinate descent trains on records, privately.

    Args:
        problem: made by `glm`, with the plan's numbers of records and coordinates.
        plan: made by `coordinate_descent.plan`.
        key: of the noise: use it once and keep it secret.
        start: the first theta, (p,), public or released (its cost is its own); 0 if None.
        trace: also return F after each pass, NOT PRIVATE.

    Returns:
        theta, (p,); with `trace`, also a `NotPrivateTrace`. Only theta is covered by the plan's
        guarantee.

    Batches over plans and problems by `jax.vmap`, with a key for each: one key for all of them is a
    `ValueError`. `run_many` picks the chunk. Time is linear in passes * p * n, for a sparse problem
    in passes times its entries. On a CPU, known records are computed by NumPy and only the noise is
    compiled, once. Elsewhere records are padded with zeros, so that other numbers of passes and
    records find the programs compiled. Raises `ValueError` for a problem that does not fit the
    plan, and for a sparse one that NumPy does not compute.

    >>> import jax
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.5)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], **ridge)
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> print(descent.run(problem, plan, jax.random.key(0)).round(4))
    [ 0.5 -0.5]
    """
    check(problem, plan)
    key = checked_key(key, problem, plan, start)
    if isinstance(plan, GreedyPlan):
        if trace:
            raise ValueError("trace must be False for a greedy plan")
        return descend(problem, plan, begin(plan, start), key)
    start, is_known = begin(plan, start), host.takes(problem, plan, start, key)
    row = compiled.in_a_row(plan, is_padded=not is_known)
    noise = compiled.drawn(row, key, plan.release)
    if is_known:
        theta, objective = host.descend(problem, plan, row, noise, start, trace)
    else:
        theta, objective = compiled.descend(
            padded(problem),
            row,
            start,
            noise,
            *compiled.sizes(problem, plan),
            **compiled.kind_of(plan, trace),
        )
    if objective is None:
        return theta
    return theta, NotPrivateTrace(compiled.first(objective, plan.sequence.shape[-2]))


@draws_in_float64
def run_many(problem: Problem, plans: Plan, keys: jax.Array, *, chunk: int | None = None) -> Reals:
    """The models of many chains on one problem, a few at a time.

    Args:
        problem: as in `run`.
        plans: a `Plan` with a leading axis of chains, as `jax.vmap` or `jax.tree.map` make one.
        keys: (chains,), of the noises.
        chunk: chains run at a time. If None, one on a CPU, where a chain's state stays in cache and
            batching slows it down; on an accelerator as many as 4 GB hold.

    Returns:
        theta of every chain, (chains, p).

    Plans and keys of different numbers, and plans that JAX has rounded to float32 (stack them with
    NumPy): `ValueError`.

    >>> import jax
    >>> import numpy as np
    >>> import jaxdp as dp
    >>> descent = dp.solvers.coordinate_descent
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.5)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], **ridge)
    >>> plan = descent.noiseless_plan([0.5, 0.5], passes=20)
    >>> plans = jax.tree.map(lambda x: np.stack([x] * 3), plan)
    >>> descent.run_many(problem, plans, jax.random.split(jax.random.key(0), 3)).shape
    (3, 2)
    """
    check(problem, plans)
    checks.require_float64(plans.steps.dtype, "plans")
    keys = unshared(keys, problem, plans)
    chains = keys.shape[0]
    if plans.steps.ndim != 2 or plans.steps.shape[0] != chains:
        raise ValueError(
            f"plans must have the leading axis of keys, {chains}, got steps {plans.steps.shape}"
        )
    if chunk is None:
        state = 6 * problem.offset.size * problem.offset.dtype.itemsize
        chunk = 1 if jax.default_backend() == "cpu" else max(1, int(_BATCH_BYTES / state))
    return compiled.many(
        padded(problem),
        compiled.in_a_row(plans),
        keys,
        *compiled.sizes(problem, plans),
        chunk=min(chunk, chains),
        release=plans.release,
        **compiled.kind_of(plans),
    )


def check(problem: Problem, plan: Plan | GreedyPlan) -> None:
    """The plan is for these coordinates and this many records."""
    coordinates, records = problem.design.shape[-2:]
    number_of_records({"problem.design": records, "problem.offset": problem.offset.shape[-1]})
    if isinstance(problem.design, SparseDesign) and not host.takes(problem, plan):
        raise ValueError("problem must be dense on an accelerator, in a batch and in a trace")
    if plan.steps.shape[-1] != coordinates:
        raise ValueError(f"plan has {plan.steps.shape[-1]} coordinates, problem {coordinates}")
    if plan.records not in (None, records):
        raise ValueError(
            f"plan is for {plan.records} records, problem has {records}: its noise would not fit"
        )
    if plan.records is not None and records * host.GRID["float64"] > 2.0**53:
        raise ValueError(f"records must be at most 2^23, or their sum is inexact, got {records}")


def begin(plan: Plan | GreedyPlan, start: ArrayLike | None) -> Vector:
    """The first theta: `start`, or 0."""
    theta = xp.zeros_like(plan.steps) if start is None else checks.real("start", start)
    if theta.shape != plan.steps.shape:
        raise ValueError(f"start must have shape {plan.steps.shape}, got {theta.shape}")
    return theta
