"""The parts of a plan that `budget` has no say in: sequence, steps, thresholds, shape of scales."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import shift_factor
from jaxdp._core.random_key import checked_key, key_for
from jaxdp._core.types import ArrayLike, Key, Reals, Vector
from jaxdp._numeric.elementary import ULP
from jaxdp.design.allocate import allocation_shape
from jaxdp.design.families import CONTINUOUS as NOISES
from jaxdp.design.families import scaled
from jaxdp.noise.base import Noise
from jaxdp.released import require_drawable
from jaxdp.solvers import lattice
from jaxdp.solvers.penalties import Penalty
from jaxdp.solvers.problems import Smoothness

# What `plan` takes; see there and its module.
ORDERS = ("permutation", "cyclic", "iid", "greedy")
ALLOCATIONS = ("winid", "spr", "inid", "iid")

# Random words of a turn. chosen: few turns sort the coordinates of a plan
_WORDS = 1024

Schedule = Callable[[jax.Array], jax.Array]


def sensitivities_of(clip: Vector, records: int, relation: str) -> Vector:
    """Sensitivities of the mean of whole numbers of units.

    Its product with the unit is rounded in float64.
    """
    return shift_factor(relation) * clip / records * (1.0 + 2.0 * records * ULP)


def public_values(smoothness: Smoothness | ArrayLike, spent: object) -> Vector:
    """M_j, unless it was computed from the records, or released and `spent` leaves its cost out."""
    if isinstance(smoothness, Smoothness) and smoothness.origin == "records":
        raise ValueError(
            "smoothness was computed from the records and would leak them: use "
            "bounded_smoothness, private_smoothness, or .as_public() if the values are public"
        )
    if isinstance(smoothness, Smoothness) and smoothness.origin == "released" and spent is None:
        raise ValueError(
            "spent must be the cost of the released smoothness, the second value of "
            "private_smoothness, got None; or account for it elsewhere and pass .as_public()"
        )
    values = smoothness.values if isinstance(smoothness, Smoothness) else smoothness
    curvature = checks.positive("smoothness", values)
    if curvature.ndim != 1:
        raise ValueError(f"smoothness must have shape (p,), got {curvature.shape}")
    return curvature


def steps_of(curvature: Vector, step: ArrayLike | Schedule, passes: int) -> tuple[Vector, Reals]:
    """step / M_j, and what each pass multiplies it with."""
    pace = xp.ones(passes)
    if callable(step):
        indices: Any = np.arange(passes)
        values = [step(index) for index in indices]
        pace, step = checks.positive("step", xp.stack(values)), 1.0
    step = checks.positive("step", step)
    largest = xp.max(pace) * step
    if checks.is_concrete(largest) and bool(np.any(np.asarray(largest) > 1.0)):
        warnings.warn(
            "step > 1 exceeds 1 / M_j: a pass may raise the objective, and the variance grows",
            stacklevel=3,
        )
    return step / curvature, pace


def thresholds_of(curvature: Vector, clip: ArrayLike) -> Vector:
    """C_j, as given or C sqrt(M_j / sum M)."""
    clip = checks.real("clip", clip, 0.0, float(np.finfo(np.float64).max), open_lower=True)
    if clip.ndim == 0:
        clip = clip * xp.sqrt(curvature / xp.sum(curvature))
    if clip.shape != curvature.shape:
        raise ValueError(f"clip must be a number or have shape {curvature.shape}, got {clip.shape}")
    return checks.noise_scale("clip of each coordinate", clip)


def sequence_of(
    order: str, passes: int, coordinates: int, updates: int | None, key: Key | None
) -> Any:
    """The coordinate of each update, (passes, updates)."""
    updates = coordinates if updates is None else checks.positive_integer("updates", updates)
    if order == "cyclic":
        return (np.arange(passes * updates) % coordinates).reshape(passes, updates)
    if key is None:
        raise ValueError(f"key must be given to sample the sequence of order {order!r}")
    if order == "iid":
        return jax.random.randint(key_for("order", key), (passes, updates), 0, coordinates)
    if updates > coordinates:
        raise ValueError(f"updates must be at most {coordinates} in a permutation, got {updates}")
    words = _words(checked_key(key), passes * coordinates).reshape(passes, coordinates)
    # A stable sort: equal words, if any, make the same order by either library.
    return xp.argsort(words, axis=1, stable=True)[:, :updates]


@jax.jit
def _part(key: Key, turn: jax.Array) -> jax.Array:
    """Random words of one turn."""
    return jax.random.bits(jax.random.fold_in(key_for("order", key), turn), (_WORDS,), jnp.uint64)


def _words(key: Key, count: int) -> Any:
    """Random words by which coordinates are sorted; one program makes any number of them."""
    turns = np.arange(-(-count // _WORDS), dtype=np.uint32)
    if checks.is_concrete(key):
        return np.concatenate([np.asarray(_part(key, turn)) for turn in turns])[:count]
    return lax.map(lambda turn: _part(key, turn), turns).reshape(-1)[:count]


def noise_of(noise: str | Noise, release: str) -> Noise:
    """The noise that the scales multiply, one that can be drawn as `release` says."""
    if isinstance(noise, str):
        return noise_of(scaled(checks.one_of("noise", noise, NOISES), 1.0), release)
    require_drawable(noise, exact=True, reals=True)
    if not noise.log_concave:
        raise ValueError(
            f"noise must be log-concave, so that its largest shift is its worst, got "
            f"{type(noise).__name__}"
        )
    if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(noise)):
        raise ValueError("noise must have scalar parameters: the plan scales it")
    lattice.require(release, noise)
    return noise


def scale_shape(
    allocation: str, sensitivities: Vector, curvature: Vector, penalty: Penalty | None
) -> Vector:
    """Scales up to a factor. Many small updates make any noise Gaussian-like: one rule serves."""
    method = "inid" if allocation == "winid" else allocation
    weights = xp.ones_like(curvature)
    if allocation == "winid":
        added = 0.0 if penalty is None else penalty.curvature
        weights = 1.0 / (curvature + added)
    return allocation_shape(2, sensitivities, weights, xp.asarray(2.0), method)
