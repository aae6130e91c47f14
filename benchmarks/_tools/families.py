"""Families of tables with public bounds, drawn anew for each seed.

Constants of `solvers.scaling` were chosen on seeds 0 to 4: score other seeds.

Linear ones have targets and `target_bounds`; `labelled` has labels, 1 with a probability that rises
with the same score. R^2 without privacy is about .8, but for targets that are mostly 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Drawn(NamedTuple):
    """Records to fit and to score, and bounds that are known without them."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    feature_bounds: tuple[np.ndarray, np.ndarray]
    target_bounds: tuple[float, float]
    coef: np.ndarray  # of the raw columns, before any bound


class _Table(NamedTuple):
    x: np.ndarray
    bound: Any  # of |x|
    low: Any = None  # the lower bound, if it is not -bound


def _heavy_tails(rng: np.random.Generator, n: int) -> _Table:
    return _Table(rng.standard_t(2.5, size=(n, 8)), 50.0)


def _log_normal(rng: np.random.Generator, n: int) -> _Table:
    return _Table(np.exp(rng.normal(size=(n, 6))), 30.0, 0.0)


def _chain(rng: np.random.Generator, n: int) -> _Table:
    x = rng.normal(size=(n, 20))
    for j in range(1, 20):
        x[:, j] = 0.95 * x[:, j - 1] + np.sqrt(1.0 - 0.95**2) * x[:, j]
    return _Table(x, 5.0)


def _wide_bounds(rng: np.random.Generator, n: int) -> _Table:
    return _Table(rng.normal(size=(n, 8)), 100.0)


def _unscaled(rng: np.random.Generator, n: int) -> _Table:
    units = np.logspace(-3, 4, 8)
    return _Table(rng.normal(size=(n, 8)) * units, 4.0 * units)


def _rare(rng: np.random.Generator, n: int) -> _Table:
    shares = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.5])
    dummies = (rng.random((n, 6)) < shares).astype(float)
    return _Table(np.column_stack([dummies, rng.normal(size=(n, 2))]), [1.0] * 6 + [4.0] * 2, None)


def _drift(rng: np.random.Generator, n: int) -> _Table:
    time = np.linspace(0.0, 1.0, n)[:, None]
    return _Table(rng.normal(size=(n, 8)) + 2.0 * time * np.linspace(-1, 1, 8), 6.0)


def _sparse(rng: np.random.Generator, n: int) -> _Table:
    return _Table(rng.normal(size=(n, 30)) * (rng.random((n, 30)) < 0.1), 5.0)


FAMILIES: dict[str, Callable[[np.random.Generator, int], _Table]] = {
    "heavy tails": _heavy_tails,
    "log-normal": _log_normal,
    "chain": _chain,
    "wide bounds": _wide_bounds,
    "unscaled": _unscaled,
    "rare categories": _rare,
    "sparse": _sparse,
    "drift": _drift,
}
ZERO_INFLATED = "zero-inflated"
NAMES = (*FAMILIES, ZERO_INFLATED)


def draw(name: str, seed: int, records: int = 5000, scored: int = 2000) -> Drawn:
    """A table of a family: the first records are fitted, the last ones scored."""
    rng, total = np.random.default_rng(seed), records + scored
    table = FAMILIES[name if name in FAMILIES else "wide bounds"](rng, total)
    x, width = table.x, table.x.shape[1]
    bound = np.broadcast_to(np.asarray(table.bound, dtype=np.float64), (width,))
    low = -bound if table.low is None else np.full(width, table.low)
    if name == "rare categories":
        low = np.where(bound == 1.0, 0.0, low)
    scale = x.std(axis=0)
    coef = np.where(np.arange(width) % 3 == 2, 0.0, 1.0 - 0.5 * (np.arange(width) % 2)) / scale
    coef *= np.where(np.arange(width) % 4 < 2, 1.0, -1.0)
    if name == ZERO_INFLATED:
        low, bound = np.full(width, -4.0), np.full(width, 4.0)
        y = np.where(rng.random(total) < 0.05, rng.exponential(8.0, total), 0.0)
        y, coef = np.clip(y * np.exp(0.3 * x[:, 0]), 0.0, 50.0), np.zeros(width)
        ends = (0.0, 50.0)
    else:
        signal = x @ coef
        y = signal + 0.5 * signal.std() * rng.normal(size=total)
        y, coef = y / y.std(), coef / y.std()
        ends = (-100.0, 100.0) if name == "wide bounds" else (-10.0, 10.0)
        if name in ("log-normal", "heavy tails"):
            ends = (-30.0, 30.0)
    order = rng.permutation(total) if name != "drift" else np.arange(total)
    inside, outside = order[:records], order[records:]
    return Drawn(x[inside], y[inside], x[outside], y[outside], (low, bound), ends, coef)


def labelled(name: str, seed: int) -> Drawn:
    """A table whose targets are labels 0 and 1 of the scores, as many of each."""
    of, rng = draw(name, seed), np.random.default_rng(seed + 10_000)
    middle, scale = np.median(of.x @ of.coef), (of.x @ of.coef).std()
    parts = []
    for x in (of.x, of.x_test):
        chance = 1.0 / (1.0 + np.exp(-3.0 * (x @ of.coef - middle) / scale))
        parts.append((rng.random(len(x)) < chance).astype(float))
    return of._replace(y=parts[0], y_test=parts[1])


def in_bounds(values: np.ndarray, bounds: Any, bound: float) -> np.ndarray:
    """Values in units in which their public bounds are +-bound, and clipped to these."""
    low, high = (np.asarray(end, dtype=np.float64) for end in bounds)
    unit = (values - 0.5 * (low + high)) / (0.5 * (high - low))
    return bound * np.clip(unit, -1.0, 1.0)
