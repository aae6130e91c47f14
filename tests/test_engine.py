"""The accounting engine against values that an earlier one froze, within both stated errors."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compositions import KINDS

ROWS = json.loads((Path(__file__).parent / "reference" / "engine.json").read_text())
FROZEN = sorted({row["kind"] for row in ROWS})

pytestmark = [pytest.mark.long, pytest.mark.parametrize("kind", FROZEN)]


def rows_of(kind):
    return [row for row in ROWS if row["kind"] == kind]


def test_log_delta_lies_within_both_errors(kind):
    rows = rows_of(kind)
    columns = {
        k: jnp.array([[row["parameters"][k]] for row in rows]) for k in rows[0]["parameters"]
    }
    loss, epsilon = KINDS[kind](**columns), jnp.array([row["epsilon"] for row in rows])
    found, error = np.asarray(loss.log_delta(epsilon)), np.asarray(loss.log_delta_error(epsilon))
    frozen = np.array([row["log_delta"] for row in rows])
    stated = np.array([row["log_delta_error"] for row in rows], dtype=float)
    stated = np.where(np.isnan(stated), np.inf, stated)  # null: no lower bound is known
    # Both are upper bounds: each less its own error is below the truth, and so below the other.
    assert np.all(found - error <= frozen)
    assert np.all(frozen - stated <= found)


def test_derivatives_agree(kind):
    if kind == "sampled_truncated_laplace":
        pytest.xfail("composed on the grid alone, which has no derivatives")
    row = rows_of(kind)[0]
    known, name = row["derivative"], row["derivative"]["parameter"]

    def log_delta(value):
        return KINDS[kind](**row["parameters"] | {name: value}).log_delta(row["epsilon"][0])

    slope = float(jax.grad(log_delta)(row["parameters"][name]))
    assert abs(slope - known["value"]) <= 1e-6 * abs(known["value"]) + known["error"]
