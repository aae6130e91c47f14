"""Derivatives of compositions of schemes in every continuous parameter, and in epsilon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compositions import KINDS

# Of each kind: a composition, and epsilon where log delta is looked at.
AT = {
    "rarely_hit_gaussian": ({"scale": 1.1, "sampling_prob": 0.02, "count": 500.0}, 1.5),
    "truncated_poisson": (
        {"scale": 1.1, "sampling_prob": 0.02, "limit": 24.0, "count": 500.0},
        1.5,
    ),
    "without_replacement": ({"scale": 1.6, "batch": 20.0, "count": 500.0}, 4.0),
    "group": ({"scale": 1.6, "sampling_prob": 0.02, "count": 500.0}, 4.0),
    "gaussian_mixture": ({"scale": 1.2, "once": 0.03, "twice": 0.01, "count": 300.0}, 3.0),
    "random_allocation": ({"scale": 1.5, "count": 20.0}, 5.0),
}
WHOLE = ("limit", "batch", "count")
# Weights of a central difference of the sixth order, and its steps.
OFFSETS = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
WEIGHTS = np.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / 60.0
STEP = 1e-3


def log_delta(kind, parameters):
    rest = {name: value for name, value in parameters.items() if name != "epsilon"}
    return KINDS[kind](**rest).log_delta(parameters["epsilon"])


@pytest.mark.long
@pytest.mark.heavy
@pytest.mark.parametrize("kind", AT)
def test_log_delta_moves_as_its_derivatives_say(kind):
    parameters, epsilon = AT[kind]
    at = {name: jnp.asarray(value) for name, value in parameters.items()}
    at["epsilon"] = jnp.asarray(epsilon)
    moved = [name for name in at if name not in WHOLE]
    slopes = jax.grad(lambda free: log_delta(kind, at | free))({k: at[k] for k in moved})
    # All points of all differences are one batch.
    lanes = {name: np.full((len(moved), 6), float(value)) for name, value in at.items()}
    for row, name in enumerate(moved):
        lanes[name][row] *= 1.0 + STEP * OFFSETS
    values = log_delta(kind, {name: jnp.asarray(value).ravel() for name, value in lanes.items()})
    differences = np.asarray(values).reshape(len(moved), 6) @ WEIGHTS
    for name, difference in zip(moved, differences, strict=True):
        found = float(slopes[name] * at[name]) * STEP
        np.testing.assert_allclose(found, difference, rtol=1e-5, err_msg=name)
