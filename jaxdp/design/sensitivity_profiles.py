"""Sensitivity profiles: how unequal the coordinates of a query are."""

from __future__ import annotations

import jax.numpy as jnp

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike, Reals, Vector

PROFILES = ("uniform", "linear", "quadratic", "exponential", "one_hot")


def sensitivity_profile(name: str, count: int, norm: ArrayLike | None = None) -> Vector:
    """Sensitivities of `count` coordinates: 1, i, i^2, exp(-i) or (1, 0, ...), i = 1..count.

    `norm` scales them to that Euclidean norm. Source: Muthukrishnan & Kalyani, section V; the
    base of its exponential profile is taken as e.
    """
    checks.one_of("name", name, PROFILES)
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    index = jnp.arange(1.0, count + 1.0)
    profile = {
        "uniform": jnp.ones_like(index),
        "linear": index,
        "quadratic": index**2,
        "exponential": jnp.exp(-index),
        "one_hot": jnp.where(index == 1.0, 1.0, 0.0),
    }[name]
    if norm is None:
        return profile
    return profile * (checks.nonnegative("norm", norm) / jnp.linalg.norm(profile))


def gini(sensitivities: ArrayLike) -> Reals:
    """The Gini coefficient over the last axis: 0 for equal coordinates, 1 - 1/K for one-hot.

    2 sum_i i l_(i) / (K sum l) - (K + 1) / K, l_(1) <= ... <= l_(K). NaN where all are zero.
    """
    ordered = jnp.sort(checks.nonnegative("sensitivities", sensitivities), axis=-1)
    count = ordered.shape[-1]
    rank = jnp.broadcast_to(jnp.arange(1.0, count + 1.0), ordered.shape)
    return jnp.sum((2.0 * rank - count - 1.0) * ordered, axis=-1) / (
        count * jnp.sum(ordered, axis=-1)
    )
