"""Functions of JAX that NumPy does not have, of known numbers too: see `namespace`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core.namespace import any_of_jax, either


class _Special:
    """Functions of `jax.scipy.special`, computed by SciPy where no argument is JAX's."""

    def __getattr__(self, name: str) -> Any:
        import jax.scipy.special
        import scipy.special

        function = either(getattr(scipy.special, name), getattr(jax.scipy.special, name))
        setattr(self, name, function)
        return function


special: Any = _Special()


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log sum e^x along axes; -inf of nothing but -inf."""
    if any_of_jax((x,)):
        return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)
    largest = np.max(x, axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    total = np.log(np.sum(np.exp(x - largest), axis=axis, keepdims=True)) + largest
    return total if keepdims else np.squeeze(total, axis=axis)


def softmax(x: Any, axis: int = -1) -> Any:
    """e^x over their sum along an axis."""
    if any_of_jax((x,)):
        return jax.nn.softmax(x, axis=axis)
    largest = np.max(x, axis=axis, keepdims=True)
    parts = np.exp(x - largest)
    return parts / np.sum(parts, axis=axis, keepdims=True)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return jax.nn.sigmoid(x) if any_of_jax((x,)) else 1.0 / (1.0 + np.exp(-np.asarray(x)))
