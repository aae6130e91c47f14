"""What the solvers reach on real data: the design's acceptance numbers, each with its own target.

20 fresh seeds and standard errors; epsilon = 1, delta = 1 / n^2, one record replaced; 50 passes.
Errors are evaluation, and smoothness is taken as public, as in the papers: NOT PRIVATE.
"""

import dataclasses
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools import regressions
from benchmarks._tools.measure import RESULTS, write
from benchmarks._tools.regressions import REGRESSIONS, Regression
from benchmarks.reproductions import cylinder_bands, sufficient_statistics
from jaxdp.solvers import Problem, coordinate_descent, coordinate_smoothness
from jaxdp.solvers.coordinate_descent.plan import least_factor

SEEDS = 20
EXPONENTS = (0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)
# What the design measured: mean and standard error.
DESIGN = {
    ("California raw, l1 0.1", "iid"): (1.053, 0.052),
    ("California raw, l1 0.1", "spr"): (0.0249, 0.0020),
    ("California raw, l1 0.1", "inid"): (0.1531, 0.0082),
    ("California standardised, l1 0.1", "spr"): (0.00051, 0.00007),
    ("Electricity raw, l2 1/n", "iid"): (0.254, 0.074),
    ("Electricity raw, l2 1/n", "spr"): (0.00425, 0.00028),
    ("Electricity raw, l2 1/n", "inid"): (0.0114, 0.0017),
    ("Electricity standardised, l2 1/n", "spr"): (0.0016, 0.0002),
}


def accounting() -> dict[str, Any]:
    """A2 and A3: the Gaussian level, and standard deviation over sensitivity of others."""
    budget = dp.Budget(1.0, 20640.0**-2)
    level = dp.largest_gdp(budget)
    deviations: dict[str, dict[str, float]] = {}
    for updates in (8, 40, 400):
        row = {}
        for name, noise in (
            ("gaussian", dp.Gaussian(1.0)),
            ("laplace", dp.Laplace(1.0)),
            *((f"flipped Huber {a:g}", dp.FlippedHuber(a, 1.0)) for a in (0.1, 0.5, 3.0, 10.0)),
        ):
            visits = jnp.full(8, updates / 8.0)
            factor = least_factor(noise, jnp.ones(8), visits, budget, None)
            row[name] = float(factor) * float(jnp.sqrt(noise.variance()))
        deviations[str(updates)] = row
    made: Any = coordinate_descent.plan(
        budget,
        smoothness=np.ones(8),
        clip=1.0,
        records=20640,
        passes=50,
        relation="replace_one",
        order="cyclic",
    )
    zcdp = dp.ZCDP(0.0, made.rho)
    return {
        "mu": float(level.mu),
        "rho": float(level.mu) ** 2 / 2,
        "scale_over_sensitivity_400": float(1 / made.ratios[0]),
        "delta_of_the_same_noise_by_zcdp": float(zcdp.delta(1.0)),
        "standard_deviation_over_sensitivity": deviations,
    }


def allocations(job: Regression) -> dict[str, Any]:
    """Relative errors of every allocation, and of the one-shot baseline where there is one."""
    exact, single = job.problem(), job.problem("float32")
    best = regressions.optimum(job)
    if job.published_optimum is not None:
        assert abs(best - job.published_optimum) < 6e-11, (job.name, best)
    keys = jax.random.split(jax.random.key(20), SEEDS)
    rows: dict[str, Any] = {"non-private": {"mean": 0.0, "standard_error": 0.0}}
    for name, (step, clip) in job.settings.items():
        made = regressions.plans(exact, keys, step, clip, allocation=name)
        rows[name] = {"step": step, "clip": clip}
        rows[name] |= regressions.summary(regressions.relative_errors(single, best, made, keys))
        design = DESIGN.get((job.name, name))
        if design is not None:
            rows[name]["design"] = {"mean": design[0], "standard_error": design[1]}
            rows[name]["combined_standard_errors_apart"] = abs(
                rows[name]["mean"] - design[0]
            ) / float(np.hypot(rows[name]["standard_error"], design[1]))
    if job.loss == "squared":
        rows["sufficient statistics, GOE"] = one_shot(job, exact, best, keys)
    return {"problem": job.name, "optimum": best, "rows": rows}


def one_shot(job: Regression, problem: Problem, best: float, keys: jax.Array) -> dict[str, Any]:
    """Columns divided by sqrt(M_j), which the descent takes as public as well; the best norm."""
    features, targets = job.arrays()
    unit = np.sqrt(np.asarray(coordinate_smoothness(problem).values))
    unit_target = float(np.sqrt(np.mean(targets**2)))
    strength = float(problem.penalty.strength) / unit / unit_target
    found = {}
    for norm in (3.0, 4.0, 6.0):
        objective = []
        for key in keys:
            theta, _ = sufficient_statistics.lasso(
                features / unit,
                targets / unit_target,
                strength,
                regressions.budget_of(problem),
                key,
                row_bound=norm,
                relation="replace_one",
            )
            objective.append(float(problem.objective(theta * unit_target / unit)))
        found[f"row bound {norm:g}"] = regressions.summary(np.array(objective) / best - 1.0)
    return found


def paired() -> dict[str, float]:
    """SPR minus i.n.i.d. on min-max California, 80 paired seeds: where i.n.i.d. noise wins."""
    job = REGRESSIONS[2]
    exact, single = job.problem(), job.problem("float32")
    best = regressions.optimum(job)
    keys = jax.random.split(jax.random.key(80), 80)
    errors = [
        regressions.relative_errors(
            single, best, regressions.plans(exact, keys, *job.settings[a], allocation=a), keys
        )
        for a in ("spr", "inid")
    ]
    return regressions.summary(errors[0] - errors[1])


def exponents(job: Regression, steps: np.ndarray, clips: np.ndarray) -> dict[str, Any]:
    """sigma_j^2 proportional to sensitivity_j^b, each b at its best step and threshold.

    The same 20 seeds for every point of the grid and every b: differences are paired, and the
    winner of a grid is flattered (`fresh` is not).
    """
    exact, single = job.problem(), job.problem("float32")
    best = regressions.optimum(job)
    grid = np.stack(np.meshgrid(steps, clips, np.arange(SEEDS), indexing="ij"))
    keys = jax.vmap(jax.random.key)(jnp.asarray(grid[2].ravel().astype(int)))
    made = regressions.plans(exact, keys, grid[0].ravel(), grid[1].ravel(), allocation="spr")
    fresh = jax.random.split(jax.random.key(99), SEEDS)
    rows = []
    for b in EXPONENTS:
        tuned = regressions.relative_errors(single, best, with_exponent(made, b), keys)
        tuned = tuned.reshape(len(steps), len(clips), SEEDS)
        means = tuned.mean(axis=2)
        at = np.unravel_index(np.nanargmin(means), means.shape)
        step, clip = float(steps[at[0]]), float(clips[at[1]])
        again = regressions.plans(exact, fresh, step, clip, allocation="spr")
        errors = regressions.relative_errors(single, best, with_exponent(again, b), fresh)
        row = {"b": b, "step": step, "clip": clip, "fresh": regressions.summary(errors)}
        rows.append(row | regressions.summary(tuned[*at]))
    least = min(rows, key=lambda row: row["mean"])["b"]
    return {"problem": job.name, "least_at": least, "rows": rows}


def with_exponent(plans: coordinate_descent.Plan, b: float) -> coordinate_descent.Plan:
    """The same plans with scales proportional to sensitivity^(b / 2), at the same rho."""

    def one(plan: coordinate_descent.Plan) -> coordinate_descent.Plan:
        shape = plan.sensitivities ** (b / 2.0)
        cost = jnp.sum(plan.visits * (plan.sensitivities / shape) ** 2)
        scales = shape * jnp.sqrt(cost / (2.0 * plan.rho))
        return dataclasses.replace(plan, scales=scales)

    return jax.jit(jax.vmap(one))(plans)


def families(job: Regression) -> dict[str, Any]:
    """Other noises at the same hyper-parameters, calibrated by exact composition."""
    exact, single = job.problem(), job.problem("float32")
    best = regressions.optimum(job)
    keys = jax.random.split(jax.random.key(30), 30)
    step, clip = job.settings["spr"]
    made = regressions.plans(exact, keys, step, clip, allocation="spr")
    budget = regressions.budget_of(exact)
    rows = {}
    for name, noise in (
        ("gaussian", dp.Gaussian(1.0)),
        ("flipped Huber 0.5", dp.FlippedHuber(0.5, 1.0)),
        ("laplace", dp.Laplace(1.0)),
    ):
        updates = jnp.full(1, 50.0 * exact.design.shape[0])
        factor = least_factor(noise, jnp.ones(1), updates, budget, None)
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, keys.shape), noise)
        scaled = dataclasses.replace(made, noise=many, scales=made.sensitivities * factor)
        rows[name] = regressions.summary(regressions.relative_errors(single, best, scaled, keys))
    return {"problem": job.name, "rows": rows}


def released_smoothness(job: Regression) -> dict[str, Any]:
    """A tenth of epsilon for M_j, bounds the column maxima (taken as public), the rest to train."""
    exact, single = job.problem(), job.problem("float32")
    best = regressions.optimum(job)
    bounds = np.abs(job.arrays()[0]).max(axis=0)
    step, clip = job.settings["spr"]
    budget = regressions.budget_of(exact)
    # A mean of squares moves by at most bound^2 / n, and epsilon is split evenly.
    design, epsilon = np.asarray(exact.design), 0.1
    count, records = design.shape
    mechanism = dp.Mechanism(dp.Laplace(count / epsilon), float(count))
    clipped = np.minimum(design**2, bounds[:, None] ** 2).mean(axis=1) / bounds**2
    errors = []
    for seed in range(SEEDS):
        first, order, noise = jax.random.split(jax.random.key(seed), 3)
        released = dp.release(mechanism, records * clipped, key=first).value / records
        smoothness = np.clip(released, 1e-3, 1.0) * bounds**2
        spent = dp.PureDP(epsilon)
        plan = coordinate_descent.plan(
            budget,
            smoothness=smoothness,
            clip=clip * float(jnp.sqrt(coordinate_smoothness(exact).values.sum())),
            records=exact.design.shape[1],
            passes=50,
            relation="replace_one",
            step=step,
            penalty=exact.penalty,
            spent=spent,
            key=order,
        )
        theta = coordinate_descent.run(single, plan, noise)
        assert isinstance(theta, jax.Array)
        errors.append(float(exact.objective(theta)) / best - 1.0)
    return {"problem": job.name} | regressions.summary(np.array(errors))


def main() -> None:
    parts = {
        "accounting": accounting,
        "allocations": lambda: [allocations(job) for job in REGRESSIONS],
        "paired_spr_minus_inid_minmax": paired,
        "exponents": lambda: [
            exponents(REGRESSIONS[0], np.logspace(-2, 0, 7), np.array([0.56, 1.0, 1.78, 3.16])),
            exponents(REGRESSIONS[3], np.array([0.316, 1.0]), np.array([1.0, 1.78, 2.57, 3.98])),
            exponents(REGRESSIONS[2], np.array([0.1, 0.316]), np.array([1.78, 2.78, 5.27])),
        ],
        "families": lambda: [families(REGRESSIONS[i]) for i in (0, 1, 3)],
        "released_smoothness": lambda: [released_smoothness(REGRESSIONS[i]) for i in (0, 3)],
        "proximal_descent": cylinder_bands.published_table,
    }
    path = RESULTS / "solvers_reproduced.json"
    for name in sys.argv[1:] or parts:
        # A part at a time, so that one can be measured again on its own.
        part = parts[name]()
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept.pop("environment", None)
        write("solvers_reproduced", kept | {name: part})


if __name__ == "__main__":
    main()
