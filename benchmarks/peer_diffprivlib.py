"""diffprivlib's logistic regression, in an interpreter that has it: see `bench_solvers`.

diffprivlib 0.6.6 does not import beside scikit-learn 1.6 or later, so it runs on its own:
  python peer_diffprivlib.py DATA.npz EPSILON NORM STRENGTH SEEDS  ->  JSON on stdout
"""

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression  # pyright: ignore[reportMissingImports]


def main() -> None:
    path, epsilon, norm, strength, seeds = sys.argv[1], *map(float, sys.argv[2:])
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


if __name__ == "__main__":
    main()
