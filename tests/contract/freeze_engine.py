"""Writes `reference/engine.json`: values and derivatives of random compositions of every kind.

    python tests/contract/freeze_engine.py KIND...    (all without one)

Eight compositions of a kind, drawn at random; log delta and its stated error at three epsilons of
each; and the derivative of the first in one parameter, by differences of sixth order, between two
kinks: log delta has one where a loss on a lattice, or of an atom, is epsilon.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from compositions import KINDS

FILE = Path(__file__).parents[1] / "truth" / "reference" / "engine.json"
COMPOSITIONS = 8
# log delta about which epsilons are chosen, by Renyi divergences.
LEVELS = (-3.0, -10.0, -30.0)
ORDERS = np.array([1.1, 1.3, 1.7, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 100.0, 300.0])
# Of a parameter, relatively: what differences look at on either side. chosen: the sixth power of
# it is below the values' own error.
STEP = 1e-3
# Halvings of it, until differences of two orders agree to a relative error. chosen: across a kink
# they are a part of its jump apart
HALVINGS, KINK = 16, 1e-6
SIXTH = np.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / 60.0
FOURTH = np.array([0.0, 1.0, -8.0, 8.0, -1.0, 0.0]) / 12.0
# Whole parameters, whose derivative is no limit of values.
WHOLE = ("count", "laplaces", "limit", "batch")


def between(low, high, whole=False):
    """Log-uniform in [low, high]."""

    def draw(random):
        value = np.exp(random.uniform(np.log(low), np.log(high)))
        return float(np.round(value)) if whole else float(f"{value:.4g}")

    return draw


SAMPLED = {"sampling_prob": between(1e-3, 0.1), "count": between(100, 1e4, whole=True)}
SCALE = {"scale": between(0.7, 4.0)}
HUBER = {"alpha": between(0.5, 4.0), "gamma": between(0.7, 3.0)}
OFFSET = {"offset": between(0.1, 3.0), "scale": between(0.7, 3.0)}
SUBBOTIN = {"power": between(1.2, 4.0), "scale": between(0.7, 3.0)}
STAIRS = {"epsilon": between(0.05, 1.0), "split": between(0.1, 0.9)}
FEW = {"count": between(2, 20, whole=True)}
MANY = {"count": between(10, 1000, whole=True)}
PARAMETERS = {
    "gaussian": {"scale": between(1.0, 50.0)} | MANY,
    "laplace": {"scale": between(5.0, 100.0)} | MANY,
    "laplaces": {k: between(1.0, 20.0) for k in ("first", "second", "third")},
    "flipped_huber": {"alpha": between(0.5, 10.0), "gamma": between(1.0, 8.0)} | FEW,
    "hubers_and_laplace": HUBER | {"ratio": between(1.1, 3.0), "scale": between(2.0, 10.0)},
    "offset_gaussian": {"offset": between(0.1, 5.0), "scale": between(1.0, 8.0)} | FEW,
    "subbotin": {"power": between(1.2, 4.0), "scale": between(1.0, 8.0)} | FEW,
    "staircase": STAIRS | MANY,
    "discrete_laplace": {"scale": between(5.0, 100.0)} | MANY,
    "discrete_gaussian": {"scale": between(2.0, 50.0)} | MANY,
    "truncated_laplace": {"scale": between(1.0, 5.0), "bound": between(20.0, 60.0)} | FEW,
    "guarantees": {"epsilon": between(0.01, 0.3), "failure": between(1e-9, 1e-4)}
    | {"mu": between(0.1, 1.0), "count": between(10, 100, whole=True)},
    "removed_gaussian": SCALE | SAMPLED,
    "added_gaussian": SCALE | SAMPLED,
    "rarely_hit_gaussian": SCALE
    | {"sampling_prob": between(1e-6, 1e-4), "count": between(10, 1e4, whole=True)},
    "two_phases": {"first": between(0.7, 4.0), "second": between(0.7, 4.0)} | SAMPLED,
    "steps_and_laplaces": SCALE
    | SAMPLED
    | {"laplace": between(10.0, 50.0), "laplaces": between(2, 50, whole=True)},
    "replaced_gaussian": SCALE | SAMPLED,
    "sampled_laplace": SCALE | SAMPLED,
    "replaced_laplace": SCALE | SAMPLED,
    "sampled_flipped_huber": HUBER | SAMPLED,
    "sampled_offset_gaussian": OFFSET | SAMPLED,
    "sampled_subbotin": SUBBOTIN | SAMPLED,
    "sampled_staircase": STAIRS | SAMPLED,
    "sampled_discrete_laplace": SCALE | SAMPLED,
    "sampled_discrete_gaussian": SCALE | SAMPLED,
    "sampled_truncated_laplace": {"scale": between(1.0, 3.0), "bound": between(15.0, 40.0)}
    | {"sampling_prob": between(1e-3, 0.1), "count": between(2, 20, whole=True)},
    "truncated_poisson": SCALE
    | {"sampling_prob": between(0.01, 0.03), "limit": between(10, 25, whole=True)}
    | {"count": between(100, 3000, whole=True)},
    "without_replacement": SCALE
    | {"batch": between(5, 50, whole=True), "count": between(100, 3000, whole=True)},
    "random_allocation": {"scale": between(1.0, 4.0), "count": between(10, 100, whole=True)},
    "group": SCALE | {"sampling_prob": between(0.02, 0.1), "count": between(500, 3000, whole=True)},
    "gaussian_mixture": SCALE
    | {"once": between(0.01, 0.3), "twice": between(0.001, 0.1)}
    | {"count": between(10, 1000, whole=True)},
}


def epsilons(kind, drawn):
    """Three of each composition, (compositions, 3), rounded to three digits."""
    columns = {k: jnp.asarray(v)[:, None] for k, v in drawn.items()}
    values = np.asarray(KINDS[kind](**columns).renyi(jnp.asarray(ORDERS)))
    if not np.isfinite(values).all():  # losses may be infinite
        return np.array([[0.1, 0.3, 1.0]] * COMPOSITIONS)
    costs = np.array([level / (ORDERS - 1.0) for level in LEVELS])
    found = np.min(values[:, None, :] - costs[None], axis=-1)
    return np.array([[float(f"{0.7 * e:.3g}") for e in row] for row in found])


def frozen(kind):
    """The rows of a kind."""
    random = np.random.default_rng(sorted(KINDS).index(kind))
    draws = PARAMETERS[kind]
    drawn = {k: np.array([d(random) for _ in range(COMPOSITIONS)]) for k, d in draws.items()}
    at = epsilons(kind, drawn)
    moved = random.choice([k for k in draws if k not in WHOLE])
    loss = KINDS[kind](**{k: jnp.asarray(np.repeat(v, 3)) for k, v in drawn.items()})
    value, error = (np.asarray(x(at.ravel())) for x in (loss.log_delta, loss.log_delta_error))
    rows = []
    for i in range(COMPOSITIONS):
        part = slice(3 * i, 3 * i + 3)
        rows.append(
            {
                "kind": kind,
                "parameters": {k: float(v[i]) for k, v in drawn.items()},
                "epsilon": at[i].tolist(),
                "log_delta": value[part].tolist(),
                # Null where no lower bound is known.
                "log_delta_error": [e if np.isfinite(e) else None for e in error[part].tolist()],
            }
        )
    one = {k: float(v[0]) for k, v in drawn.items()}
    rows[0]["derivative"] = {"parameter": str(moved), **derivative(kind, one, moved, at[0, 0])}
    return rows


def derivative(kind, one, moved, epsilon):
    """The slope of log delta in the parameter `moved`, and errors of its values, over the step."""
    for halving in range(HALVINGS):
        step = STEP * one[moved] * 0.5**halving
        lanes = {k: np.full(6, x) for k, x in one.items()}
        lanes[moved] += step * np.array([-3, -2, -1, 1, 2, 3])
        loss = KINDS[kind](**{k: jnp.asarray(x) for k, x in lanes.items()})
        value, errors = (np.asarray(x(epsilon)) for x in (loss.log_delta, loss.log_delta_error))
        slope, other = (float(weights @ value / step) for weights in (SIXTH, FOURTH))
        error = float(np.abs(SIXTH) @ errors / step)
        if abs(slope - other) <= KINK * abs(slope) + error:
            return {"value": slope, "error": error}
    raise AssertionError(f"a kink of {kind} is at {one}, epsilon {epsilon}")


def main(kinds):
    """Replaces the rows of these kinds."""
    for kind in kinds or KINDS:
        found = frozen(kind)
        rows = json.loads(FILE.read_text()) if FILE.exists() else []
        rows = [row for row in rows if row["kind"] != kind] + found
        rows.sort(key=lambda row: list(KINDS).index(row["kind"]))
        FILE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(kind, found[0])


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:])
