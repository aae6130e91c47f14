"""The proximal coordinate descent of the DRO paper: a budget for each update, not for the training.

l1 logistic regression, each update released at (epsilon, delta) on its own. The composed budget of
all updates is another number: at the published settings (100 ceil(d / 4) updates at (1, .1)) it
says that nothing is promised. Noise is in floating point, for research. Source: Selvi, Liu &
Wiesemann, Differential privacy via distributionally robust optimization, section 6.
"""

from typing import Any

import numpy as np

import jaxdp as dp

# Of the sum of partial derivatives when one record is replaced. derived: each lies in [-1, 1]
SENSITIVITY = 2.0
PASSES = 100  # means of ceil(d / 4) updates at distinct coordinates
STRENGTH = 1e-8  # of the l1 penalty


def published_noises(epsilon: float, delta: float) -> dict[str, dp.own.Noise]:
    """The noises of a sum that the paper compares, each within the budget of an update."""
    scale = SENSITIVITY / epsilon
    bound = scale * np.log1p(np.expm1(epsilon) / (2.0 * delta))
    return {
        "gaussian": dp.Gaussian(scale * np.sqrt(2.0 * np.log(1.25 / delta))),
        "analytic_gaussian": dp.fit_noise("gaussian", dp.Budget(epsilon, delta), SENSITIVITY),
        "truncated_laplace": dp.TruncatedLaplace(scale, bound),
    }


def trained(
    features: np.ndarray, labels: np.ndarray, noise: dp.own.Noise | None, key: Any, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The published loop, with steps of 1 from a uniform start: theta, and the exact sums."""
    rng = np.random.default_rng(seed)
    design = np.ascontiguousarray((features * np.where(labels > 0, 1.0, -1.0)[:, None]).T)
    coordinates, records = design.shape
    shape = PASSES, -(-coordinates // 4)
    noises = np.zeros(shape) if noise is None else np.asarray(noise.sample(key, shape))
    theta, sums = rng.uniform(-1.0, 1.0, coordinates), []
    for row in noises:
        iterates = []
        for j, added in zip(rng.permutation(coordinates), row, strict=False):
            sums.append(design[j] @ (-1.0 / (1.0 + np.exp(theta @ design))))
            point = theta[j] - (sums[-1] + added) / records
            theta[j] = np.sign(point) * max(abs(point) - STRENGTH, 0.0)
            iterates.append(theta.copy())
        theta = np.mean(iterates, axis=0)
    return theta, np.array(sums)
