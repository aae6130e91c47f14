"""The contract of every composition: its derivatives are those of its values."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

pytestmark = pytest.mark.heavy

Parameters = dict[str, float]


@dataclass(frozen=True)
class Composition:
    """`count` releases of `noise(parameters)`, and epsilon where log delta is looked at."""

    name: str
    noise: Callable[..., dp.Noise]
    parameters: Parameters
    epsilon: float
    relation: str | None = None
    # Numbers of which only whole ones are legal, on which the atoms' places depend.
    without: tuple[str, ...] = field(default=())
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.long,)

    def loss(self, parameters: Parameters) -> dp.PrivacyLoss:
        left = dict(parameters)
        taken = {k: left.pop(k) for k in ("count", "sensitivity", "sampling_prob") if k in left}
        mechanism = dp.Mechanism(
            self.noise(**left),
            taken.get("sensitivity", 1.0),
            taken.get("sampling_prob", 1.0),
            self.relation,
        )
        return taken["count"] * dp.privacy_loss(mechanism)


def scaled(noise: Callable[..., dp.Noise]) -> Callable[..., dp.Noise]:
    return lambda scale: noise(scale)


SAMPLED = {"scale": 1.0, "sampling_prob": 0.01, "count": 1000.0, "sensitivity": 1.0}
EQUAL = {"scale": 20.0, "count": 100.0, "sensitivity": 1.0}
HUBER = {"alpha": 2.0, "gamma": 1.5, "count": 20.0, "sensitivity": 0.3}
STEPS = {"alpha": 2.0, "gamma": 1.5, "sampling_prob": 0.01, "count": 1000.0, "sensitivity": 1.0}
SUBBOTIN = {"power": 5.0, "scale": 1.5, "count": 20.0, "sensitivity": 1.0}
KINDS = (
    Composition("gaussian", scaled(dp.Gaussian), EQUAL, 1.0, marks=()),
    Composition("laplace", scaled(dp.Laplace), EQUAL, 1.03, without=("count",)),
    Composition("flipped_huber", dp.FlippedHuber, HUBER, 1.0, without=("count",)),
    Composition("subbotin", dp.Subbotin, SUBBOTIN, 1.0),
    Composition("sampled_gaussian", scaled(dp.Gaussian), SAMPLED, 1.0, "remove", marks=()),
    Composition("added_gaussian", scaled(dp.Gaussian), SAMPLED, 1.0, "add"),
    Composition("both_gaussian", scaled(dp.Gaussian), SAMPLED, 1.0, "add_remove"),
    Composition("replaced_gaussian", scaled(dp.Gaussian), SAMPLED, 1.5, "replace_one"),
    Composition("sampled_laplace", scaled(dp.Laplace), SAMPLED, 1.0, "add_remove"),
    Composition("sampled_flipped_huber", dp.FlippedHuber, STEPS, 0.6, "remove"),
)


def difference(function: Callable[[float], float], x: float, step: float) -> float:
    """The derivative to the sixth order of `step`."""
    weights = {1: 45.0, 2: -9.0, 3: 1.0}
    total = sum(w * (function(x + k * step) - function(x - k * step)) for k, w in weights.items())
    return total / (60.0 * step)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=kind.marks) for kind in KINDS]
)
def test_log_delta_moves_as_its_derivatives_say(kind):
    at = kind.parameters | {"epsilon": kind.epsilon}

    def log_delta(parameters):
        parameters = dict(parameters)
        epsilon = parameters.pop("epsilon")
        return kind.loss(parameters).log_delta(epsilon)

    slopes = jax.grad(log_delta)({k: jnp.asarray(v) for k, v in at.items()})
    for name, value in at.items():
        if name in kind.without:
            continue
        step = 1.0 if name == "count" else 1e-3 * value

        def moved(x, name=name):
            return float(log_delta(at | {name: x}))

        np.testing.assert_allclose(
            slopes[name], difference(moved, value, step), rtol=1e-6, err_msg=name
        )


@pytest.mark.long
def test_epsilon_and_calibrations_follow():
    """Both by the implicit function theorem, in the noise multiplier and in q."""

    def epsilon(scale, q, delta):
        step = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove")
        return (1000 * dp.privacy_loss(step)).epsilon(delta)

    at = (1.0, 0.01, 1e-5)
    slopes = jax.grad(epsilon, (0, 1, 2))(*at)
    for k, slope in enumerate(slopes):

        def moved(x, k=k):
            return float(epsilon(*(x if i == k else value for i, value in enumerate(at))))

        np.testing.assert_allclose(slope, difference(moved, at[k], 1e-3 * at[k]), rtol=1e-6)

    def multiplier(q):
        def build(scale):
            step = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove")
            return 1000 * dp.privacy_loss(step)

        return dp.calibrate(build, dp.Budget(1.0, 1e-6))

    found = difference(lambda q: float(multiplier(q)), 0.01, 1e-5)
    np.testing.assert_allclose(jax.grad(multiplier)(0.01), found, rtol=1e-6)


def test_the_moment_of_a_sampled_gaussian_moves_with_its_ratio():
    """The nodes of the sum are constants to derivatives: with moving steps it was 4 % off."""
    for ratio, q, order in ((1.0, 0.01, 3.0), (1.0, 0.01, 15.0), (0.5, 0.05, 9.0)):

        def renyi(ratio, q=q, order=order):
            step = dp.Mechanism(dp.Gaussian(1.0), ratio, q, "remove")
            return dp.privacy_loss(step).renyi(order)

        found = difference(lambda x: float(renyi(x)), ratio, 1e-3 * ratio)
        np.testing.assert_allclose(jax.grad(renyi)(ratio), found, rtol=1e-6)


def test_the_divergence_of_subbotin_noise_moves_with_its_middle():
    for power, scale, order in ((1.5, 0.5, 1.1), (5.0, 1.5, 3.0)):

        def renyi(scale, power=power, order=order):
            return dp.Subbotin(scale, power).renyi(1.0, order)

        found = difference(lambda x: float(renyi(x)), scale, 1e-3 * scale)
        np.testing.assert_allclose(jax.grad(renyi)(scale), found, rtol=1e-6)
