"""The proximal coordinate descent of the DRO paper: a budget per update, not for the training.

l1 logistic regression, each update released at `per_update` on its own. The composed budget of
all updates is another number: it is `Plan.log_delta`, here as everywhere, and at the published
settings (100 ceil(d / 4) updates at (1, .1)) it says that nothing is promised. Source: Selvi, Liu &
Wiesemann, Differential privacy via distributionally robust optimization, section 6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.random_key import key_for
from jaxdp._core.types import Key, Vector
from jaxdp._numeric.elementary import round_up
from jaxdp.design.fit import fit_noise
from jaxdp.guarantee.base import Budget, BudgetLike, as_budget
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.histogram import Histogram
from jaxdp.noise.truncated_laplace import TruncatedLaplace
from jaxdp.solvers import lattice
from jaxdp.solvers.coordinate_descent.plan import Plan, sensitivities_of, sequence_of

# What `plan` takes; see there.
NOISES = ("gaussian", "analytic_gaussian", "truncated_laplace", "none")
# Of the sum of partial derivatives when one record is replaced. derived: each lies in [-1, 1]
SENSITIVITY = 2.0


@in_float64
def plan(
    per_update: BudgetLike,
    *,
    coordinates: int,
    records: int,
    key: Key,
    noise: str | Histogram = "analytic_gaussian",
    passes: int = 100,
    release: str = "lattice",
) -> Plan:
    """The published plan of proximal coordinate descent, with a budget for each update alone.

    Args:
        per_update: (epsilon, delta) that each update alone keeps; see the module.
        coordinates, records: d and n. Features must lie in [-1, 1]: each partial derivative is
            clipped to that, as published, where it has no effect.
        key: of the order of the coordinates.
        noise: "gaussian" (2 log(1.25 / delta) rule, epsilon <= 1), "analytic_gaussian" (the least),
            "truncated_laplace" (Geng et al.), an optimised `Histogram` made for `per_update` and a
            sensitivity of 2, or "none": NOT PRIVATE.
        passes: means of ceil(d / 4) updates at distinct coordinates, steps of 1.
        release: "lattice", or "float": noise whose last bits leak, for research.

    Returns:
        A `Plan` of coordinate descent, whose `log_delta` is that of all updates.

    A noise that does not keep `per_update`: `ValueError`.

    """
    per_update = as_budget(per_update)
    coordinates = checks.positive_integer("coordinates", coordinates)
    records = checks.positive_integer("records", records)
    passes = checks.positive_integer("passes", passes)
    updates = -(-coordinates // 4)
    sequence = sequence_of("permutation", passes, coordinates, updates, key)
    clip = xp.ones(coordinates)
    sensitivities = sensitivities_of(clip, records, "replace_one")
    base, made_for = _noise(per_update, noise)
    lattice.require(release, base)
    silent = isinstance(noise, str) and noise == "none"
    scales = xp.zeros(coordinates)
    if not silent:
        scales = checks.noise_scale("scales", round_up(sensitivities / made_for, 8))
    schedule = sequence, xp.ones(coordinates), xp.ones(passes), clip
    words = "average", "replace_one", release
    return Plan(*schedule, sensitivities, scales, base, None, records, *words)


def start(coordinates: int, key: Key) -> Vector:
    """The published first point of proximal coordinate descent: uniform on [-1, 1]^d.

    Args:
        coordinates: d.
        key: of the draw.

    Returns:
        theta, (d,).

    """
    return jax.random.uniform(key_for("start", key), (coordinates,), jnp.float64, -1.0, 1.0)


def _noise(per_update: Budget, noise: str | Histogram) -> tuple[Noise, float]:
    """A noise, and the sensitivity that it keeps `per_update` at."""
    if isinstance(noise, Histogram):
        made = noise.certificate
        if made is None or not any(
            e <= float(per_update.epsilon) and d <= float(per_update.delta)
            for e, d in zip(made.epsilons, made.deltas, strict=True)
        ):
            raise ValueError("noise must have a certificate that keeps `per_update`")
        return noise, made.sensitivity
    checks.one_of("noise", noise, NOISES)
    epsilon, delta = float(per_update.epsilon), float(per_update.delta)
    if not (epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"per_update must have epsilon > 0, delta in (0, 1), got {per_update}")
    if noise == "truncated_laplace":
        scale = SENSITIVITY / epsilon
        bound = scale * np.log1p(np.expm1(epsilon) / (2.0 * delta))
        return TruncatedLaplace(scale, bound), SENSITIVITY
    if noise == "gaussian":
        if epsilon > 1:
            raise ValueError(f"per_update must have epsilon <= 1 for 'gaussian', got {epsilon}")
        return Gaussian(SENSITIVITY * np.sqrt(2.0 * np.log(1.25 / delta)) / epsilon), SENSITIVITY
    return fit_noise("gaussian", per_update, SENSITIVITY), SENSITIVITY
