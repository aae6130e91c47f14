"""Groups of parameters, each of which is clipped to a threshold of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Vector

# How parameters are grouped by name.
GROUPS = ("layer", "leaf", "all")


def require_floating(name: str, tree: Any) -> None:
    """`ValueError` for a leaf that a gradient cannot move."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not jnp.issubdtype(_dtype(leaf), jnp.floating):
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must contain floating-point numbers, got "
                f"{_dtype(leaf)}: convert it, or do not train it"
            )


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def leaves_of(params: Any) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Shapes and precisions of the parameters."""
    leaves = jax.tree.leaves(params)
    return tuple(map(np.shape, leaves)), tuple(str(jnp.dtype(_dtype(leaf))) for leaf in leaves)


def groups_of(params: Any, groups: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The group of each leaf, and the number of parameters of each group."""
    require_floating("params", params)
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise ValueError("params must have at least one leaf")
    if isinstance(groups, str):
        checks.one_of("groups", groups, GROUPS)
        keep = {"layer": -1, "leaf": None, "all": 0}[groups]
        labels = [str(path[:keep]) for path, _ in paths]
    else:
        labels = jax.tree.leaves(groups)
        if jax.tree.structure(groups) != structure:
            raise ValueError("groups must be a tree of labels with the structure of params")
    order = list(dict.fromkeys(labels))
    members = tuple(order.index(label) for label in labels)
    sizes = [0] * len(order)
    for group, (_, leaf) in zip(members, paths, strict=True):
        sizes[group] += int(np.prod(np.shape(leaf)))
    return members, tuple(sizes)


def clips_of(clip: ArrayLike, groups: int) -> Vector:
    """The threshold of each group."""
    clips = checks.real("clip", clip, 0.0, 1e150, open_lower=True)
    if clips.ndim == 0:
        clips = xp.full(groups, clips / np.sqrt(groups))
    if clips.shape != (groups,):
        raise ValueError(f"clip must be one number, or one per group, {groups}, got {clips.shape}")
    return checks.noise_scale("clip of each group", clips)
