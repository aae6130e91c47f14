"""Both sides of delta of one sampled release, also where almost nothing is sampled."""

import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp

RATES = [0.3, 1e-3, 1e-4, 1e-6, 1e-8, 1e-9, 1e-12]
# Of the sampling probability: where the loss of an added record ends is about 1.
SHARES = [0.0, 0.1, 0.5, 0.99, 0.999999]


def removed(q, c, epsilon):
    x = mp.log((mp.expm1(epsilon) + q) / q) / c + c / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x) - mp.exp(epsilon) * mp.ncdf(-x)


def added(q, c, epsilon):
    x = mp.log((mp.exp(-epsilon) - 1 + q) / q) / c + c / 2
    return mp.ncdf(x) - mp.exp(epsilon) * ((1 - q) * mp.ncdf(x) + q * mp.ncdf(x - c))


def replaced(q, c, epsilon):
    def mixed(x, side):
        return 1 - q + q * mp.exp(side * c * x - c * c / 2)

    low, high = mp.mpf(0), 60 / c + c
    x = high
    for _ in range(160):
        x = (low + high) / 2
        below = mp.log(mixed(x, 1) / mixed(x, -1)) < epsilon
        low, high = (x, high) if below else (low, x)
    here, away = ((1 - q) * mp.ncdf(-x) + q * mp.ncdf(side * c - x) for side in (1, -1))
    return here - mp.exp(epsilon) * away


@pytest.mark.parametrize(
    ("relation", "exact"),
    [("remove", removed), ("add", added), ("replace_one", replaced)],
)
@pytest.mark.parametrize("scale", [1.3, 1e5])
def test_truth_lies_between(relation, exact, scale):
    q, share = (x.ravel() for x in np.meshgrid(RATES, SHARES))
    # The smallest losses are those of wide noise.
    epsilon = share * (q if relation == "add" and scale < 2 else q / scale)
    loss = dp.privacy_loss(
        dp.Mechanism(dp.Gaussian(scale), 1.0, sampling_prob=q, relation=relation)
    )
    upper, error = np.asarray(loss.log_delta(epsilon)), np.asarray(loss.log_delta_error(epsilon))
    with mp.workdps(60):
        truth = [
            mp.log(exact(mp.mpf(a), 1 / mp.mpf(scale), mp.mpf(b)))
            for a, b in zip(q, epsilon, strict=True)
        ]
        above = np.array([float(u - t) for u, t in zip(map(float, upper), truth, strict=True)])
    assert np.all(above >= -1e-14)
    assert np.all(above <= error)
    assert np.max(error[share < 0.9]) < 2e-10
