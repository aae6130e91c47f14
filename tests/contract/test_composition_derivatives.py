"""Derivatives of compositions are those of their values, in every parameter and in epsilon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compositions import KINDS

import jaxdp as dp

EQUAL = {"scale": 20.0, "count": 100.0, "sensitivity": 1.0}
SAMPLED = {"scale": 1.0, "sampling_prob": 0.01, "count": 1000.0, "sensitivity": 1.0}
RARE = {"scale": 1.1, "sampling_prob": 0.02, "count": 500.0}
HUBER = {"alpha": 2.0, "gamma": 1.5, "count": 20.0, "sensitivity": 0.3}
STEPS = HUBER | {"sampling_prob": 0.01, "count": 1000.0, "sensitivity": 1.0}
# Epsilon where log delta is looked at; atoms lie elsewhere with another count, batches are whole.
AT = {
    "gaussian": (EQUAL, 1.0, ()),
    "laplace": (EQUAL, 1.03, ("count",)),
    "flipped_huber": (HUBER, 1.0, ("count",)),
    "subbotin": (EQUAL | {"power": 5.0, "scale": 1.5, "count": 20.0}, 1.0, ()),
    "removed_gaussian": (SAMPLED, 1.0, ()),
    "added_gaussian": (SAMPLED, 1.0, ()),
    "rarely_hit_gaussian": (SAMPLED, 1.0, ()),
    "replaced_gaussian": (SAMPLED, 1.5, ()),
    "sampled_laplace": (SAMPLED, 1.0, ()),
    "sampled_flipped_huber": (STEPS, 0.6, ()),
    "truncated_poisson": (RARE | {"limit": 24.0}, 1.5, ("limit", "count")),
    "without_replacement": ({"scale": 1.6, "batch": 20.0, "count": 500.0}, 4.0, ("batch", "count")),
    "group": (RARE | {"scale": 1.6}, 4.0, ("count",)),
    "gaussian_mixture": (
        {"scale": 1.2, "once": 0.03, "twice": 0.01, "count": 300.0},
        3.0,
        ("count",),
    ),
    "random_allocation": ({"scale": 1.5, "count": 20.0}, 5.0, ("count",)),
}
QUICK = ("gaussian", "removed_gaussian")
# Weights of a central difference of the sixth order.
OFFSETS = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
WEIGHTS = np.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / 60.0


def differences(function, at, moved=None):
    """(derivative) of each argument; all points of all differences are one batch."""
    moved = list(at) if moved is None else moved
    steps = {name: 1.0 if name == "count" else 1e-3 * at[name] for name in moved}
    lanes = {name: np.full((len(moved), 6), float(value)) for name, value in at.items()}
    for row, name in enumerate(moved):
        lanes[name][row] += steps[name] * OFFSETS
    values = function({name: jnp.asarray(value).ravel() for name, value in lanes.items()})
    slopes = np.asarray(values).reshape(len(moved), 6) @ WEIGHTS
    return {name: slope / steps[name] for name, slope in zip(moved, slopes, strict=True)}


def check(function, at, moved=None):
    expected = differences(function, at, moved)
    free = {name: jnp.asarray(at[name]) for name in expected}
    found = jax.grad(lambda free: function(at | free))(free)
    for name, slope in expected.items():
        np.testing.assert_allclose(found[name], slope, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.long) for k in AT]
)
def test_log_delta_moves_as_its_derivatives_say(kind):
    parameters, epsilon, held = AT[kind]

    def log_delta(at):
        rest = {name: value for name, value in at.items() if name != "epsilon"}
        return KINDS[kind](**rest).log_delta(at["epsilon"])

    at = parameters | {"epsilon": epsilon}
    moved = [name for name in at if name not in held]
    check(log_delta, at, moved)


def step(at):
    return dp.Mechanism(dp.Gaussian(at["scale"]), at.get("ratio", 1.0), at["q"], "remove")


@pytest.mark.long
def test_epsilon_and_calibrations_follow():
    """Both by the implicit function theorem, in the noise multiplier and in q."""
    check(
        lambda at: (1000 * dp.privacy_loss(step(at))).epsilon(at["delta"]),
        {"scale": 1.0, "q": 0.01, "delta": 1e-5},
    )

    def multiplier(at):
        def build(scale):
            return 1000 * dp.privacy_loss(step(at | {"scale": scale}))

        return dp.calibrate(build, dp.Budget(1.0, 1e-6))

    check(multiplier, {"q": 0.01})


@pytest.mark.parametrize(("ratio", "q", "order"), [(1, 0.01, 3), (1, 0.01, 15), (0.5, 0.05, 9)])
def test_the_moment_of_a_sampled_gaussian_moves_with_its_ratio(ratio, q, order):
    """The nodes of the sum are constants to derivatives: with moving steps it was 4 % off."""
    check(
        lambda at: dp.privacy_loss(step(at | {"scale": 1.0, "q": q})).renyi(float(order)),
        {"ratio": float(ratio)},
    )


@pytest.mark.parametrize(("power", "scale", "order"), [(1.5, 0.5, 1.1), (5.0, 1.5, 3.0)])
def test_the_divergence_of_subbotin_noise_moves_with_its_middle(power, scale, order):
    check(lambda at: dp.Subbotin(at["scale"], power).renyi(1.0, order), {"scale": scale})
