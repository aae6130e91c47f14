"""The proximal coordinate descent experiment of the DRO paper on cylinder-bands."""

from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks.reproductions import proximal_descent
from jaxdp import datasets

EACH = (1.0, 0.1)  # the budget of one update
SPLITS, DRAWS = 50, 2
# Table 3, in %: errors in and out of sample.
PUBLISHED = {
    "gaussian": (30.27, 32.65),
    "analytic_gaussian": (28.74, 31.36),
    "truncated_laplace": (28.65, 31.29),
    "optimised": (28.59, 31.24),
    "none": (28.20, 30.90),
}


# Identifiers of a job, not properties of it.
_BANDS_DROPPED = (
    "timestamp",
    "cylinder_number",
    "customer",
    "job_number",
    "ink_color",
    "cylinder_division",
)
# Machine numbers: nominal, though written in digits.
_BANDS_CODES = ("press", "unit_number", "plating_tank")


def load() -> datasets.Dataset:
    """540 x 62, band (1) or none (0): 19 numbers and the indicators of 14 nominal columns.

    Missing numbers are the median; the first level of each nominal column is dropped, missing being
    a level. From a local file or OpenML, as `datasets.load`.
    """
    header, rows, source = datasets.table("cylinder_bands", lambda: datasets.openml(6332))
    columns, names = [], []
    for column, cells in zip(
        header[:-1], zip(*(row[:-1] for row in rows), strict=True), strict=True
    ):
        if column in _BANDS_DROPPED:
            continue
        numbers = None if column in _BANDS_CODES else _as_numbers(cells)
        if numbers is not None:
            columns.append(np.where(np.isnan(numbers), np.nanmedian(numbers), numbers))
            names.append(column)
            continue
        levels = sorted({cell.lower() for cell in cells})
        for level in levels[1:]:
            columns.append(np.array([cell.lower() == level for cell in cells], dtype=np.float64))
            names.append(f"{column}={level or 'missing'}")
    targets = np.array([row[-1].lower() == "band" for row in rows], dtype=np.float64)
    return datasets.Dataset(
        "cylinder_bands", np.column_stack(columns), targets, tuple(names), source
    )


def _as_numbers(cells: tuple[str, ...]) -> np.ndarray | None:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return None


def records() -> tuple[np.ndarray, np.ndarray]:
    """539 x 63 in [-1, 1]: centred, divided by the greatest magnitude, and an intercept.

    On all records, as published: NOT PRIVATE. The first row is left out (the paper has n = 539).
    """
    data = load()
    features, labels = data.features[1:], data.targets[1:]
    features = features - features.mean(axis=0)
    features = features / np.abs(features).max(axis=0)
    return np.column_stack([features, np.ones(len(features))]), labels


def published_table() -> dict[str, Any]:
    """Errors over fresh splits, 80 % of the records for training; the composed budget."""
    features, labels = records()
    training = int(np.ceil(0.8 * len(features)))
    optimised = dp.optimal.noise(dp.Budget(*EACH), loss="l1", sensitivity=2.0, resolution=40)
    noises: dict[str, Any] = dict(proximal_descent.published_noises(*EACH))
    noises |= {"optimised": optimised, "none": None}
    rng = np.random.default_rng(0)
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in noises}
    shares = []
    for split in range(SPLITS):
        order = rng.permutation(len(features))
        seen, unseen = order[:training], order[training:]
        for name, noise in noises.items():
            for draw in range(DRAWS):
                seed = 1000 * split + draw
                theta, sums = proximal_descent.trained(
                    features[seen], labels[seen], noise, jax.random.key(seed), seed
                )
                wrong = (features @ theta > 0) != (labels > 0)
                errors[name].append((100 * wrong[seen].mean(), 100 * wrong[unseen].mean()))
                if draw == 0 and name == "none":
                    shares.append(np.mean(np.abs(sums) < 10))
    updates = proximal_descent.PASSES * -(-features.shape[1] // 4)
    losses = {
        name: updates * dp.privacy_loss(dp.Mechanism(noise, 2.0))
        for name, noise in noises.items()
        if noise is not None
    }
    composed = {name: float(loss.delta(1.0)) for name, loss in losses.items()}
    epsilon = float(losses["analytic_gaussian"].epsilon(0.1))
    return {
        "records": len(features),
        "coordinates": features.shape[1],
        "training": training,
        "updates": updates,
        "share_of_queries_below_10": float(np.mean(shares)),
        "composed_epsilon_of_analytic_gaussian_at_delta_0.1": epsilon,
        "rows": {name: row(name, pairs, composed.get(name)) for name, pairs in errors.items()},
    }


def row(name: str, pairs: list[tuple[float, float]], composed: float | None) -> dict[str, Any]:
    """Errors in per cent, in and out of the training set, of a row of the published table."""
    values = np.array(pairs).reshape(SPLITS, DRAWS, 2).mean(axis=1)
    return {
        "in": float(values[:, 0].mean()),
        "out": float(values[:, 1].mean()),
        "standard_error_in": float(values[:, 0].std(ddof=1) / np.sqrt(SPLITS)),
        "standard_error_out": float(values[:, 1].std(ddof=1) / np.sqrt(SPLITS)),
        "published_in": PUBLISHED[name][0],
        "published_out": PUBLISHED[name][1],
        "per_update_epsilon": EACH[0],
        "per_update_delta": EACH[1],
        "composed_delta_at_epsilon_1": composed,
    }
