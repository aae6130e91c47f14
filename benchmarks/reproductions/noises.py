"""Published figures of the noise papers, and the same quantities measured here.

One table a question, in results/noises_reproduced.json: the variance against epsilon in one
dimension; the least variance of K coordinates under the published condition and under exact
accounting; the i.n.i.d. paper's staircase table and its gains in dB; and the dimension at which
the Laplace falls behind the Gaussian. A run that is interrupted goes on where it stopped.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import RESULTS, environment
from benchmarks.reproductions.flipped_huber_conditions import (
    fit_by_condition,
    sufficient_log_delta,
)
from benchmarks.reproductions.profiles import sensitivity_profile

STORE = RESULTS / "noises_reproduced.json"
DELTA = 1e-6
EPSILONS = (0.5, 1.0, 2.0, 5.0, 8.0, 10.0, 20.0)
DIMENSIONS = (20, 10, 50, 100, 5, 3, 2)
FAR = (1000, 10_000)
FAMILIES = ("gaussian", "laplace", "offset_gaussian", "subbotin", "flipped_huber")


def one_dimension() -> list[dict[str, float]]:
    epsilon = jnp.array([0.1, 0.5, 1.0, 2.0, 5.0, 8.0])
    budget = dp.Budget(epsilon, DELTA)
    names = (*FAMILIES, "truncated_laplace", "staircase")
    fitted = {name: dp.fit_noise(name, budget, 1.0) for name in names}
    bound = dp.optimal.lower_bound(dp.ApproxDP(epsilon, DELTA), 1.0)
    rows = []
    for i, e in enumerate(epsilon):
        row = {"epsilon": float(e), "lower_bound": float(bound[i])}
        row |= {name: float(noise.variance()[i]) for name, noise in fitted.items()}
        huber: Any = fitted["flipped_huber"]
        rows.append(row | {"alpha": float(huber.alpha[i]), "gamma": float(huber.gamma[i])})
    return rows


def staircase_table() -> list[dict[str, float]]:
    """E |X|_1 in two dimensions at l1 sensitivity 1: the i.n.i.d. paper's table."""
    published = {
        "iid_laplace": (4.0, 2.0, 1.3333, 1.0, 0.8, 0.6667),
        "staircase": (3.9962, 1.9862, 1.3050, 0.9546, 0.7366, 0.5856),
        "inid_laplace": (3.4283, 1.7141, 1.1428, 0.8571, 0.6857, 0.5714),
    }
    rows = []
    for i, epsilon in enumerate((0.5, 1.0, 1.5, 2.0, 2.5, 3.0)):
        split = np.linspace(0.0, 1.0, 200_001)
        shell = np.arange(400)[:, None]
        b = np.exp(-epsilon)
        best = min(_shell_cost(part, shell, b).min() for part in np.array_split(split, 100))
        scales = dp.allocate("laplace", [0.15, 0.85], dp.PureDP(epsilon), power=1)
        rows.append(
            {
                "epsilon": epsilon,
                **{f"published_{k}": v[i] for k, v in published.items()},
                "iid_laplace": 2.0 / epsilon,
                "staircase": float(best),
                "inid_laplace": float(jnp.sum(scales)),
            }
        )
    return rows


def _shell_cost(split: np.ndarray, shell: np.ndarray, b: float) -> np.ndarray:
    middle, end = shell + split, shell + 1.0
    cost = b**shell * (4 / 3) * ((middle**3 - shell**3) + b * (end**3 - middle**3))
    mass = b**shell * 2.0 * ((middle**2 - shell**2) + b * (end**2 - middle**2))
    return cost.sum(axis=0) / mass.sum(axis=0)


def gains() -> list[dict[str, Any]]:
    """Squared error of equal scales over i.n.i.d. scales at K = 20, in dB."""
    budget, rows = dp.Budget(1.0, DELTA), []
    published = {
        ("linear", "gaussian"): 1.145,
        ("linear", "laplace"): 0.546,
        ("quadratic", "gaussian"): 2.442,
        ("quadratic", "laplace"): 1.390,
        ("exponential", "gaussian"): 9.658,
        ("exponential", "laplace"): 7.609,
    }
    for (profile, family), printed in published.items():
        sensitivities = sensitivity_profile(profile, 20)
        errors = [
            dp.allocation_error(family, dp.allocate(family, sensitivities, budget, method=m))
            for m in ("iid", "inid")
        ]
        decibel = float(10 * jnp.log10(errors[0] / errors[1]))
        rows.append({"profile": profile, "family": family, "notes": printed, "measured": decibel})
    return rows


def ratios() -> list[dict[str, float]]:
    """Variance of the Laplace over the staircase's, and E|T| likewise, in dB."""
    rows = []
    for epsilon in (0.1, 0.5, 1.0, 2.0, 5.0, 8.0):
        laplace, row = dp.Laplace(1.0 / epsilon), {"epsilon": epsilon}
        for objective in ("variance", "mean_absolute"):
            split = dp.optimal.staircase_split(epsilon, objective)
            stairs = dp.Staircase(epsilon, 1.0, split)
            ratio = getattr(laplace, objective)() / getattr(stairs, objective)()
            row[objective] = float(10 * jnp.log10(ratio))
        rows.append(row)
    return rows


def crossings() -> dict[str, int]:
    """The largest K at which pure i.n.i.d. Laplace beats Gaussian, epsilon .5, delta 1e-6."""
    budget, found = dp.Budget(0.5, DELTA), {}
    for profile in ("uniform", "linear", "quadratic", "exponential"):
        better = 0
        for k in range(2, 41):
            sensitivities = sensitivity_profile(profile, k)
            laplace = dp.allocate("laplace", sensitivities, dp.PureDP(0.5))
            gaussian = dp.allocate("gaussian", sensitivities, budget)
            errors = [
                dp.allocation_error(f, s) for f, s in (("laplace", laplace), ("gaussian", gaussian))
            ]
            if errors[0] < errors[1]:
                better = k
        found[profile] = better
    return found


def composed(store: dict[str, Any]) -> None:
    """Least variance of one coordinate of K in a box of side 1, exact and by the condition."""
    fits: dict[str, Callable] = {
        name: jax.jit(lambda e, k, n=name: dp.fit_noise(n, dp.Budget(e, DELTA), 1.0, k))
        for name in FAMILIES
    }
    rows = store.setdefault("composed", {})
    far = [(k, e) for k in FAR for e in (1.0, 5.0, 20.0)]
    for k, e in [*((k, e) for k in DIMENSIONS for e in EPSILONS), *far]:
        row = rows.setdefault(f"{k},{e:g}", {"dimension": k, "epsilon": e})
        for name in FAMILIES:
            if name in row:
                continue
            noise = fits[name](e, float(k))
            row[name] = float(noise.variance())
            row[f"{name}_parameters"] = {key: float(v) for key, v in vars(noise).items()}
            if name == "gaussian":
                sufficient = fit_by_condition(dp.Budget(e, DELTA), dp.JointSensitivity(k, linf=1.0))
                row["flipped_huber_sufficient"] = float(sufficient.variance())
            if name == "flipped_huber":
                box = dp.JointSensitivity(k, linf=1.0)
                row["condition_at_optimum"] = float(sufficient_log_delta(noise, box, e))
            save(store)


def save(store: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    partial = STORE.with_suffix(".partial")
    partial.write_text(json.dumps(store, indent=1) + "\n")
    os.replace(partial, STORE)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    store = json.loads(STORE.read_text()) if STORE.exists() else {}
    store["environment"] = environment()
    tables = (one_dimension, staircase_table, gains, ratios, crossings)
    store |= {table.__name__: table() for table in tables}
    save(store)
    composed(store)
