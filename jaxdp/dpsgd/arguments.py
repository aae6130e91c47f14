"""Arguments of DP-SGD functions: names in other libraries, and implausible values of delta."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike, Reals

# Arguments of Opacus, dp_accounting, TensorFlow Privacy and jax_privacy, and what they are here.
OTHER_NAMES = {
    "target_epsilon": "epsilon",
    "target_delta": "delta",
    "sample_rate": "sampling_prob",
    "sampling_probability": "sampling_prob",
    "sigma": "noise_multiplier",
    "num_steps": "steps",
    "num_epochs": "epochs",
    "num_samples": "dataset_size",
    "number_of_examples": "dataset_size",
    "truncated_batch_size": "batch_size_limit",
    "neighboring_relation": "relation",
    "sampling_method": "sampling",
}
# Above it a delta is taken for an epsilon. chosen: no one promises so little
_LARGEST_DELTA = 0.1

P = ParamSpec("P")
R = TypeVar("R")


def with_names(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with a `TypeError` that translates argument names of other libraries."""

    parameters = inspect.signature(function).parameters
    others = {name: own for name, own in OTHER_NAMES.items() if name not in parameters}
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named = [f"{name!r} is {others[name]!r} here" for name in kwargs if name in others]
        if named:
            raise TypeError(f"unexpected keyword arguments: {', '.join(named)}")
        if len(args) > len(positional):
            raise TypeError(
                f"{function.__name__} takes ({', '.join(positional)}) by position, got {len(args)} "
                "arguments: give the others by keyword, as in dataset_size=60_000, batch_size=256, "
                "epochs=15 or sampling_prob=0.01, steps=1000"
            )
        return function(*args, **kwargs)

    return call


def target_delta(delta: ArrayLike) -> Reals:
    """The target delta; a warning if it is concrete and above .1."""
    target = checks.probability("delta", delta)
    if checks.is_concrete(target) and np.any(np.asarray(target) > _LARGEST_DELTA):
        warnings.warn(
            f"delta is {np.max(np.asarray(target)):g}: a delta above {_LARGEST_DELTA:g} gives "
            "almost no privacy. delta is the second argument, and should be far below 1 / "
            "dataset_size",
            UserWarning,
            stacklevel=5,
        )
    return target
