"""Outputs of an audited mechanism, a row of finite numbers for each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.progress import shown
from jaxdp.mechanism import Mechanism

# Attributes of a fitted estimator that make its output. chosen: scikit-learn's and ours
_FITTED = (
    *("coef_", "intercept_", "components_", "explained_variance_", "covariance_", "mean_"),
    *("center_", "scale_", "theta_", "var_", "class_count_", "class_log_prior_"),
    *("feature_log_prob_", "model_"),
)


def require_neighbours(neighbours: Any) -> None:
    """`ValueError` unless there are two data sets, and they differ."""
    if not isinstance(neighbours, Sequence) or len(neighbours) != 2:
        raise ValueError("neighbours must be two data sets")
    (leaves, structure), (others, other) = map(jax.tree.flatten, neighbours)
    if structure == other and all(map(_is_same, leaves, others)):
        raise ValueError("neighbours must differ, got two equal data sets")


def _is_same(first: Any, second: Any) -> bool:
    one, two = (np.asarray(x.toarray() if hasattr(x, "toarray") else x) for x in (first, second))
    if one.shape != two.shape:
        return False
    return bool(np.all((one == two) | ((one != one) & (two != two))))  # two NaN are the same


def outputs_of(
    mechanism: Any, data: Any, keys: jax.Array, chunk: int | None, progress: bool | None
) -> np.ndarray:
    """The outputs, a flat row each, padded with NaN to one length."""
    trials = len(keys)
    if isinstance(mechanism, Mechanism):
        value = np.asarray(data)
        if mechanism.sensitivity.shape or value.shape:
            raise ValueError("mechanism must be one release of a number: give a function of others")
        spread = jax.tree.map(lambda x: np.broadcast_to(x, (trials,)), mechanism)
        return _rows(spread.release(np.full(trials, value), keys[0]).value, trials)
    size = 1 if chunk is None else checks.positive_integer("chunk", chunk)
    blocks: list[np.ndarray] = []
    for start in shown(range(0, trials, size), "audit", progress):
        if chunk is None:
            blocks.append(_rows(_run_once(mechanism, data, keys[start]), None))
        else:
            part = keys[start : start + size]
            blocks.append(_rows(_run_once(mechanism, data, part), len(part)))
    padded = np.full((trials, max(1, *(x.shape[1] for x in blocks))), np.nan)
    for index, block in enumerate(blocks):
        padded[index * size : index * size + len(block), : block.shape[1]] = block
    return padded


def _rows_of(name: str, outputs: Any) -> np.ndarray:
    """The outputs as rows of finite numbers; else `ValueError`."""
    try:
        values = np.asarray(outputs, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers") from None
    if values.ndim not in (1, 2) or values.shape[1:] == (0,):
        raise ValueError(
            f"{name} must be (trials,) numbers or (trials, size) rows, got shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    return values.reshape(len(values), *values.shape[1:] or (1,))


def pair_of(first: Any, second: Any) -> list[np.ndarray]:
    """Given outputs on two data sets as rows; `ValueError` if both are the same and vary."""
    pair = [_rows_of(name, x) for name, x in (("first", first), ("second", second))]
    if np.array_equal(pair[0], pair[1]) and (pair[0] != pair[0][:1]).any():
        raise ValueError(
            "first and second must be outputs on two data sets, got the same outputs twice"
        )
    return pair


def _rows(output: Any, count: int | None) -> np.ndarray:
    """An output for each of `count` keys as flat rows of finite numbers; None: for one key."""
    flat = [np.zeros((1 if count is None else count, 0))]
    for leaf in jax.tree.leaves(output):
        try:
            values = np.asarray(leaf, dtype=float)
        except (TypeError, ValueError):
            kind = type(leaf).__name__
            raise ValueError(f"mechanism must return numbers, got a {kind}") from None
        if count is not None and values.shape[:1] != (count,):
            raise ValueError(
                f"mechanism(data, keys) must return one row for each of {count} keys, got shape "
                f"{values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError("mechanism must return finite numbers, got NaN or infinity")
        flat.append(values.reshape(len(flat[0]), -1))
    return np.hstack(flat)


def _run_once(mechanism: Any, data: Any, key: jax.Array) -> Any:
    if hasattr(mechanism, "fit"):
        if key.ndim:
            raise ValueError("chunk must be None for an estimator, which fits one key at a time")
        fitted = _reseeded(mechanism, key).fit(*data)
        return [getattr(fitted, name) for name in _FITTED if hasattr(fitted, name)]
    if not callable(mechanism):
        raise ValueError(
            "mechanism must be a Mechanism, a function of (data, key) or an estimator, got "
            f"{type(mechanism).__name__}"
        )
    return mechanism(data, key)


def _reseeded(estimator: Any, key: jax.Array) -> Any:
    """A copy whose randomness, parts included, comes from the key."""
    copy = checks.extra("sklearn.base", "learn").clone(estimator)
    names = [name for name in sorted(copy.get_params()) if name.endswith("random_state")]
    seeds = np.asarray(jax.random.bits(key, (len(names),), dtype=np.uint32))
    state_of = checks.extra("sklearn.utils", "learn").check_random_state
    states = {name: state_of(int(s)) for name, s in zip(names, seeds, strict=True)}
    return copy.set_params(**states)
