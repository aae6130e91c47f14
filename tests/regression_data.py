"""Records of a regression, and the parameters of an estimator that fits them."""

import numpy as np

WIDE = {"epsilon": 1.0, "delta": 1e-5, "feature_bounds": (-10, 10), "random_state": 0}
UNIT = {**WIDE, "feature_bounds": (-1, 1)}


def regression(records=4000, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(records, 3))
    targets = features @ np.array([1.0, 0.0, -0.5]) + 0.25 + 0.05 * rng.normal(size=records)
    return features, targets
