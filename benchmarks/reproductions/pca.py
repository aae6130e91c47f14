"""The i.n.i.d. paper's table of private principal components (section VI-B), measured again.

Lost in the text: dimension, rank, records, budget and what the columns vary. Assumed: rows uniform
on the sphere of a random 5-dimensional subspace of R^100, 2,000 of them, l2 sensitivity 1. One
scale a column is fitted to the i.i.d. row of each noise, then the i.n.i.d. row is predicted, and
what the Gaussian orthogonal ensemble gives at the same privacy, without clipping anything. Last,
how much error clipping the entries to the stated bounds makes by itself; and every method at one
budget that is known, with `DPPCA` as it is used and diffprivlib's (`JAXDP_PEER_PYTHON`).
"""

import json
import sys
from typing import Any

import jax
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import NO_PEER, PEER, RESULTS, ask_peer, write

DIMENSION, RANK, RECORDS, TRIALS, FEW = 100, 5, 2000, 200, 20
PUBLISHED = {
    "gaussian_iid": (0.4762, 0.2484, 0.1067),
    "gaussian_inid": (0.3269, 0.1728, 0.0752),
    "laplace_iid": (0.6185, 0.3272, 0.1389),
    "laplace_inid": (0.5034, 0.2523, 0.1093),
}
# l1 sensitivity of the upper triangle that an i.i.d. Laplace is scaled to: not printed.
L1 = {
    "sqrt(K (K + 1) / 2)": (0.5 * DIMENSION * (DIMENSION + 1)) ** 0.5,
    "(K + 1) / 2": 0.5 * (DIMENSION + 1),
    "2 K / pi": 2.0 * DIMENSION / np.pi,
}


class Trials:
    """The same subspaces, rows and unit noises for every scale: differences are not chance."""

    def __init__(self, seed: int, family: str):
        rng = np.random.default_rng(seed)
        draw = rng.normal if family == "gaussian" else rng.laplace
        self.basis = np.linalg.qr(rng.normal(size=(TRIALS, DIMENSION, RANK)))[0]
        rows = rng.normal(size=(TRIALS, RECORDS, RANK))
        rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
        moment = np.swapaxes(rows, 1, 2) @ rows / RECORDS
        self.moments = self.basis @ moment @ np.swapaxes(self.basis, 1, 2)
        upper = np.triu(draw(size=(TRIALS, DIMENSION, DIMENSION)))
        self.unit = upper + np.swapaxes(np.triu(upper, 1), 1, 2)

    def errors(self, off: float, on: float) -> np.ndarray:
        """Subspace recovery errors with noise of these scales off and on the diagonal."""
        scales = np.where(np.eye(DIMENSION, dtype=bool), on, off)
        return recovery_error(self.basis, self.moments + scales * self.unit)

    def fitted(self, target: float) -> float:
        """The scale of i.i.d. noise whose mean error is `target`."""
        low, high = 1e-4, 0.1
        for _ in range(24):
            middle = (low * high) ** 0.5
            if self.errors(middle, middle).mean() < target:
                low = middle
            else:
                high = middle
        return (low * high) ** 0.5


def recovery_error(basis: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    found = np.linalg.eigh(matrices)[1][..., -RANK:]
    missed = basis - found @ (np.swapaxes(found, -1, -2) @ basis)
    return np.linalg.norm(missed, axis=(-2, -1)) / RANK**0.5


def inid_shape(family: str) -> tuple[float, float]:
    """Scales off and on the diagonal for bounds 1/K and sqrt(2)/K, at unit privacy loss.

    Least total variance of the upper triangle: scale^2 ~ bound (Gaussian), scale^3 ~ bound.
    """
    bounds = np.array([1.0, 2.0**0.5]) / DIMENSION
    counts = np.array([0.5 * DIMENSION * (DIMENSION - 1), DIMENSION])
    if family == "gaussian":
        shape = bounds**0.5
        size = np.sum(counts * (bounds / shape) ** 2) ** 0.5
    else:
        shape = bounds ** (1.0 / 3.0)
        size = np.sum(counts * bounds / shape)
    off, on = shape * size
    return float(off), float(on)


def summary(errors: np.ndarray) -> dict[str, float]:
    return {"mean": float(errors.mean()), "standard_error": float(errors.std() / errors.size**0.5)}


def columns(family: str) -> list[dict[str, Any]]:
    trials, rows = Trials(0, family), []
    targets, shape = PUBLISHED[f"{family}_iid"], inid_shape(family)
    for column, target in enumerate(targets):
        scale = trials.fitted(target)
        row: dict[str, Any] = {
            "column": column + 1,
            "published_iid": target,
            "published_inid": PUBLISHED[f"{family}_inid"][column],
            "fitted_scale_of_the_mean": scale,
        }
        if family == "gaussian":
            row["predicted_inid"] = summary(trials.errors(scale * shape[0], scale * shape[1]))
            row["goe"] = summary(trials.errors(scale * 0.5**0.5, scale))
        else:
            # The i.i.d. scale is L1 / epsilon for an l1 sensitivity that is not printed.
            row["predicted_inid"] = {
                name: summary(trials.errors(*(scale / size * s for s in shape)))
                for name, size in L1.items()
            }
        rows.append(row)
    return rows


def clipping_floor() -> dict[str, float]:
    """The error of clipping each row's products to c / K and sqrt(2) c / K, with no noise."""
    rng = np.random.default_rng(1)
    floors = {}
    for factor in (1.0, 2.0, 3.0):
        errors = []
        for _ in range(5):
            basis = np.linalg.qr(rng.normal(size=(DIMENSION, RANK)))[0]
            rows = rng.normal(size=(RECORDS, RANK))
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) @ basis.T
            bound = factor / DIMENSION * np.where(np.eye(DIMENSION, dtype=bool), 2.0**0.5, 1.0)
            total = np.zeros((DIMENSION, DIMENSION))
            for part in np.array_split(rows, 20):
                products = part[:, :, None] * part[:, None, :]
                total += np.clip(products, -bound, bound).sum(axis=0)
            errors.append(recovery_error(basis, total / RECORDS))
        floors[f"{factor:g} / K"] = float(np.mean(errors))
    return floors


def at_one_budget() -> dict[str, Any]:
    """Errors at (1, 1e-6), one row replaced, of some tables; diffprivlib's at (1, 0)."""
    rng = np.random.default_rng(2)
    bases = np.linalg.qr(rng.normal(size=(FEW, DIMENSION, RANK)))[0]
    rows = rng.normal(size=(FEW, RECORDS, RANK))
    rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True) @ np.swapaxes(bases, 1, 2)
    # Rounded norms may be 1 + 1e-16, which a peer would count.
    rows *= 1.0 - 1e-12

    def ours() -> list[np.ndarray]:
        known = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (-1.0, 1.0)}
        known |= {"row_bound": 1.0, "mean_share": 0.0}
        models = [dp.DPPCA(RANK, **known, random_state=seed) for seed in range(FEW)]
        return [m.fit(table).components_.T for m, table in zip(models, rows, strict=True)]

    def with_equal_noise(scale: float) -> list[np.ndarray]:
        found = []
        for table in rows:
            noise = np.triu(rng.normal(scale=scale, size=(DIMENSION, DIMENSION)))
            moment = table.T @ table / RECORDS + noise + np.triu(noise, 1).T
            found.append(np.linalg.eigh(moment)[1][:, -RANK:])
        return found

    def missed(found: Any) -> dict[str, float]:
        estimates = np.asarray(found)
        outside = bases - estimates @ (np.swapaxes(estimates, -1, -2) @ bases)
        return summary(np.linalg.norm(outside, axis=(-2, -1)) / RANK**0.5)

    exact = [np.linalg.eigh(table.T @ table)[1][:, -RANK:] for table in rows]
    mu = float(dp.largest_gdp(dp.Budget(1.0, 1e-6)).mu)
    # A replaced row moves the upper triangle by sqrt(2) / n. With a bound an entry, each one moves
    # by 1 / n at once.
    results: dict[str, Any] = {
        "non-private": missed(exact),
        "iid": missed(with_equal_noise(2.0**0.5 / RECORDS / mu)),
        "inid": missed(with_equal_noise((DIMENSION * (DIMENSION + 1) / 2.0) ** 0.5 / RECORDS / mu)),
        "goe": missed(ours()),
    }
    if PEER is None:
        return results | {"diffprivlib": NO_PEER}
    found = ask_peer("pca", rows=rows, epsilon=1.0, norm=1.0, rank=RANK)
    components = np.swapaxes(np.array(found["components"]), 1, 2)
    return results | {"diffprivlib": missed(components) | {"seconds": found["seconds"]}}


def gaussian() -> list[dict[str, Any]]:
    rows = columns("gaussian")
    for row in rows:
        row["goe_over_iid"] = row["goe"]["mean"] / row["published_iid"]
    return rows


def main() -> None:
    parts: dict[str, Any] = {
        "gaussian": gaussian,
        "laplace": lambda: columns("laplace"),
        "error_of_clipping_alone": clipping_floor,
        "at_one_budget": at_one_budget,
    }
    path = RESULTS / "pca.json"
    for name in sys.argv[1:] or parts:
        # A part at a time, so that one can be measured again on its own.
        part = parts[name]()
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept.pop("environment", None)
        sizes = {"dimension": DIMENSION, "rank": RANK, "records": RECORDS, "trials": TRIALS}
        write("pca", kept | sizes | {name: part})


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
