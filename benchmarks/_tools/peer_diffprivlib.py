"""diffprivlib's models, in an interpreter that has them.

diffprivlib 0.6.6 does not import beside scikit-learn 1.6 or later, so it runs on its own:
  python peer_diffprivlib.py logistic DATA.npz EPSILON NORM STRENGTH SEEDS  ->  JSON on stdout
  python peer_diffprivlib.py pca DATA.npz EPSILON NORM RANK                 ->  JSON on stdout
  python peer_diffprivlib.py classify DATA.npz EPSILON NORM                 ->  JSON on stdout
  python peer_diffprivlib.py regress DATA.npz EPSILON BOUND                 ->  JSON on stdout
  python peer_diffprivlib.py naive_bayes DATA.npz EPSILON                   ->  JSON on stdout
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from diffprivlib.models import (  # pyright: ignore[reportMissingImports]
    PCA,
    GaussianNB,
    LinearRegression,
    LogisticRegression,
)


def pca(path: str, epsilon: float, norm: float, rank: float) -> None:
    """Leading components of each of several tables, (tables, records, columns)."""
    found, seconds = [], []
    for seed, rows in enumerate(np.load(path)["rows"]):
        model = PCA(
            n_components=int(rank),
            epsilon=epsilon,
            data_norm=norm,
            centered=True,
            random_state=seed,
        )
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows)
        seconds.append(time.perf_counter() - start)
        found.append(model.components_.tolist())
    print(json.dumps({"components": found, "seconds": float(np.median(seconds))}))


def logistic(path: str, epsilon: float, norm: float, strength: float, seeds: float) -> None:
    """The objective that each of several fits ends with."""
    data = np.load(path)
    features, labels = data["features"], data["labels"]
    signed = np.where(labels > 0, 1.0, -1.0)
    objectives, seconds = [], []
    for seed in range(int(seeds)):
        model = LogisticRegression(
            epsilon=epsilon,
            data_norm=norm,
            C=1.0 / (strength * len(labels)),
            fit_intercept=False,
            random_state=seed,
            max_iter=1000,
        )
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(features, labels)
        seconds.append(time.perf_counter() - start)
        weights = model.coef_.ravel()
        loss = np.logaddexp(0.0, -signed * (features @ weights)).mean()
        objectives.append(float(loss + 0.5 * strength * weights @ weights))
    print(json.dumps({"objectives": objectives, "seconds": float(np.median(seconds))}))


def classify(path: str, epsilon: float, norm: float) -> None:
    """Accuracy of defaults on several splits."""
    _scores(
        path,
        lambda seed: LogisticRegression(
            epsilon=epsilon, data_norm=norm, random_state=seed, max_iter=1000
        ),
    )


def regress(path: str, epsilon: float, bound: float) -> None:
    """R^2 of defaults on several splits, features and targets in (-bound, bound)."""
    ends = (-bound, bound)
    _scores(
        path,
        lambda seed: LinearRegression(
            epsilon=epsilon, bounds_X=ends, bounds_y=ends, random_state=seed
        ),
    )


def naive_bayes(path: str, epsilon: float) -> None:
    """Accuracy of defaults on several splits, with the ranges of the columns as bounds."""
    features = np.load(path)["features"]
    bounds = features.min(axis=0), features.max(axis=0)
    _scores(path, lambda seed: GaussianNB(epsilon=epsilon, bounds=bounds, random_state=seed))


def _scores(path: str, make: Callable[[int], Any]) -> None:
    data = np.load(path)
    features, targets = data["features"], data["targets"]
    scores, seconds = [], []
    for seed, (fitted, scored) in enumerate(zip(data["fitted"], data["scored"], strict=True)):
        model = make(seed)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(features[fitted], targets[fitted])
        seconds.append(time.perf_counter() - start)
        scores.append(float(model.score(features[scored], targets[scored])))
    print(json.dumps({"scores": scores, "seconds": float(np.median(seconds))}))


MODELS = {
    "logistic": logistic,
    "pca": pca,
    "classify": classify,
    "regress": regress,
    "naive_bayes": naive_bayes,
}

if __name__ == "__main__":
    MODELS[sys.argv[1]](sys.argv[2], *map(float, sys.argv[3:]))
