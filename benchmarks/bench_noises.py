"""How fast are the noises: log delta, quantile, divergences, fits? Next to peers if there are any.

Accuracy is asserted first, at 60 random points of each noise against values at 50 digits. Peers:
dp_accounting's Laplace, discrete Laplace and discrete Gaussian losses, one call a point; for the
others SciPy quadrature of the hockey-stick integral, one call a point, at its own default error.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, optimize

import jaxdp as dp
from benchmarks._tools.measure import compiled_cost, first_call, medians, write

jax.config.update("jax_enable_x64", True)
sys.path += [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("contract", "truth")]

POINTS = 1_000_000
SLOW_POINTS = 100_000
BUDGETS = 1_000
NOISES: dict[str, dp.own.Noise] = {
    "gaussian": dp.Gaussian(1.3),
    "laplace": dp.Laplace(1.3),
    "truncated_laplace": dp.TruncatedLaplace(1.3, 20.0),
    "staircase": dp.Staircase(1.0, 1.0, 0.4),
    "flipped_huber": dp.FlippedHuber(2.0, 1.5),
    "offset_gaussian": dp.OffsetGaussian(1.0, 1.5),
    "subbotin": dp.Subbotin(1.5, 1.4),
    "discrete_laplace": dp.DiscreteLaplace(1.3),
    "discrete_gaussian": dp.DiscreteGaussian(1.3),
}
SLOW = ("subbotin", "discrete_gaussian")
FITTED = ("truncated_laplace", "flipped_huber", "offset_gaussian", "subbotin")


def points(name: str, size: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    shift = np.exp(rng.uniform(np.log(0.05), np.log(5.0), size))
    if "discrete" in name:
        shift = np.ceil(shift)
    return jnp.asarray(shift), jnp.asarray(rng.uniform(0.0, 8.0, size))


def quadrature(noise: dp.own.Noise, shift: float, epsilon: float) -> float:
    """int over {loss > epsilon} of g(t) - e^epsilon g(t + shift), as one would with SciPy."""
    density = jax.jit(noise.log_density)

    def loss(t: float) -> float:
        return float(density(t) - density(t + shift)) - epsilon

    if loss(60.0) <= 0:
        return 0.0
    start: Any = optimize.brentq(loss, -60.0, 60.0) if loss(-60.0) < 0 else -60.0

    def integrand(t: float) -> float:
        return float(jnp.exp(density(t)) - jnp.exp(epsilon + density(t + shift)))

    return integrate.quad(integrand, start, start + 60.0, limit=200)[0]


def peer(name: str) -> tuple[str, Callable[[float, float], float]]:
    if name in ("laplace", "discrete_laplace", "gaussian", "discrete_gaussian"):
        from dp_accounting.pld import privacy_loss_mechanism as plm

        def accountant(shift: float, epsilon: float) -> float:
            if name == "laplace":
                loss: Any = plm.LaplacePrivacyLoss(1.3, sensitivity=shift)
            elif name == "gaussian":
                loss = plm.GaussianPrivacyLoss(1.3, sensitivity=shift)
            elif name == "discrete_gaussian":
                loss = plm.DiscreteGaussianPrivacyLoss(1.3, sensitivity=int(shift))
            else:
                loss = plm.DiscreteLaplacePrivacyLoss(1.0 / 1.3, sensitivity=int(shift))
            return loss.get_delta_for_epsilon(epsilon)

        return "dp_accounting, a call a point", accountant
    return "SciPy quad, a call a point", lambda m, e: quadrature(NOISES[name], m, e)


def accuracy(name: str) -> float:
    """Worst relative error of log delta at 60 points; asserts it, and that none is below."""
    import mpmath as mp

    oracle = importlib.import_module("oracle")
    cases = importlib.import_module("test_noise").CASES

    case = next(c for c in cases if c.name in (name, f"{name}_low"))
    scale, worst = 1.0, 0.0
    noise, law = case.family(scale), case.law(scale)
    for shift, epsilon in zip(*(np.asarray(x) for x in points(name, 60)), strict=True):
        truth = law.hockey_stick(float(shift), float(epsilon))
        if truth < mp.mpf(10) ** -40:
            continue
        error = oracle.relative_error(float(noise.log_delta(shift, epsilon)), mp.log(truth))
        assert -1e-30 <= error < 1e-12, (name, shift, epsilon, error)
        worst = max(worst, error)
    return worst


def measure(name: str) -> dict[str, Any]:
    noise, size = NOISES[name], SLOW_POINTS if name in SLOW else POINTS
    shift, epsilon = points(name, size)
    orders = jnp.linspace(1.1, 21.0, 10_000)
    chance = jnp.linspace(1e-6, 1 - 1e-6, size)
    calls: dict[str, Callable[[], Any]] = {
        "log_delta": lambda: noise.log_delta(shift, epsilon),
        "quantile": lambda: noise.quantile(chance),
    }
    if name != "truncated_laplace":
        calls["renyi"] = lambda: noise.renyi(1.0, orders)
    compile_seconds = first_call(calls["log_delta"])
    seconds = medians(calls, 5)
    label, call = peer(name)
    few = [(float(shift[i]), float(epsilon[i])) for i in range(10)]
    theirs = medians({"peer": lambda: [call(m, e) for m, e in few]}, 3)["peer"] / len(few)
    sizes = {"log_delta": size, "quantile": size, "renyi": 10_000}
    per_point = seconds["log_delta"] / size
    return {
        "worst_relative_error_log_delta": accuracy(name),
        "points": size,
        "compile_seconds": compile_seconds,
        "per_second": {k: sizes[k] / v for k, v in seconds.items()},
        "cost": compiled_cost(lambda m, e: noise.log_delta(m, e), shift, epsilon),
        "peer": label,
        "peer_seconds_a_point": theirs,
        "ratio_to_peer": theirs / per_point,
    }


def fits() -> dict[str, Any]:
    """BUDGETS budgets in one call; every one checked on the safe side."""
    rng = np.random.default_rng(1)
    epsilon = jnp.asarray(np.exp(rng.uniform(np.log(0.1), np.log(10.0), BUDGETS)))
    delta = jnp.asarray(np.exp(rng.uniform(np.log(1e-10), np.log(1e-2), BUDGETS)))
    result = {}
    for family in FITTED:

        def fit(family: str = family) -> dp.own.Noise:
            return dp.fit_noise(family, dp.Budget(epsilon, delta), 1.0)

        compile_seconds = first_call(fit)
        noise = fit()
        unsafe = int(jnp.sum(~(noise.delta(1.0, epsilon) <= delta)))
        assert unsafe == 0, (family, unsafe)
        result[family] = {
            "budgets": BUDGETS,
            "seconds": medians({"fit": fit}, 3)["fit"],
            "compile_seconds": compile_seconds,
            "unsafe": unsafe,
        }
    return result


if __name__ == "__main__":
    write("noises", {"noises": {name: measure(name) for name in NOISES}, "fits": fits()})
