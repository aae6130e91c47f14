"""Composite empirical risk: a mean loss of a linear score, plus a separable penalty.

F(theta) = (1/n) sum_i loss(s_i) + penalty(theta), with the state s = design^T theta + offset:
squared:  design = features^T, offset = -targets, loss(s) = s^2 / 2;
logistic: design = (labels * features)^T, offset = 0, loss(s) = log(1 + exp(-s)), labels +-1.
A coordinate step then reads one contiguous row of `design` and nothing else of size n but s.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import draws_in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, data, pytree, static
from jaxdp._core.types import ArrayLike, Reals, Vector
from jaxdp.solvers.blocks import Units, design_of, is_sparse
from jaxdp.solvers.penalties import Penalty

LOSSES = ("squared", "logistic")  # of a linear score
ORIGINS = ("public", "records")  # of a smoothness
# Records of a block, which adds up exactly. chosen: see the grid of coordinate descent
BLOCK = 64
_CURVATURE = {"squared": 1.0, "logistic": 0.25}  # largest second derivatives. derived


@final
@pytree
class Problem:
    """The data and penalty of one regression; see the module for the layout. Make it with `glm`."""

    design: Any = data()  # (coordinates, records), float32 or float64, or a `SparseDesign`
    offset: Any = data()  # (records,)
    penalty: Penalty
    loss: str = static()
    is_data: ClassVar[bool] = True  # in whatever precision: no number of privacy

    def state(self, theta: Reals) -> jax.Array:
        """s = design^T theta + offset, in the data's precision."""
        return theta.astype(self.design.dtype) @ self.design + self.offset

    @draws_in_float64
    def objective(self, theta: Reals) -> Reals:
        """F(theta). A function of the records: not private."""
        return self.objective_at(self.state(theta), theta)

    def objective_at(self, state: Reals, theta: Reals, where: Any = None) -> Reals:
        """F from a state that is already there, of the records that `where` has."""
        loss = 0.5 * state**2 if self.loss == "squared" else xp.logaddexp(0.0, -state)
        is_mean_of = {} if where is None else {"where": where}
        return xp.mean(loss, dtype=np.float64, **is_mean_of) + self.penalty.value(theta)

    def slope(self, state: Reals) -> Reals:
        """d loss / d s of each record."""
        return state if self.loss == "squared" else -1.0 / (1.0 + xp.exp(state))


def padded(problem: Problem) -> Problem:
    """The problem with more records, all zero: they add nothing to a gradient, but to means.

    Their number is the least 4, 5, 6 or 7 times a power of two that blocks fill, so that a program
    serves many numbers of records.
    """
    records = problem.design.shape[-1]
    missing = -records % max(BLOCK, (1 << (records - 1).bit_length()) // 8)
    if missing == 0:
        return problem
    widths = (0, 0), (0, missing)
    design, offset = jnp.pad(problem.design, widths), jnp.pad(problem.offset, widths[1:])
    return dataclasses.replace(problem, design=design, offset=offset)


@draws_in_float64(keeps_types=True)
def glm(
    features: ArrayLike,
    targets: ArrayLike,
    *,
    loss: str,
    penalty: Penalty,
    intercept: bool = False,
    classes: ArrayLike | None = None,
    dtype: jax.typing.DTypeLike = jnp.float64,
) -> Problem:
    """A linear or logistic regression on records: the data and penalty that a solver works on.

    Args:
        features: (n, p), or sparse, of `scipy.sparse`, for `coordinate_descent` on a CPU.
        targets: (n,). Logistic ones are labels with two values, the larger being the positive
            class.
        loss: "squared" or "logistic".
        penalty: `L1`, `L2` or `ElasticNet`, with one strength or one a feature.
        intercept: add a last coordinate whose feature is 1 and which is not penalised.
        classes: the two labels, whether both occur or not; those that occur if None.
        dtype: precision of the data and of the state, float64 or float32 (faster). Parameters,
            noise and accounting stay in float64.

    Returns:
        A `Problem`. It holds the records: nothing of it is private.

    Data that are not finite and targets beyond `classes`: `ValueError`.

    >>> import jaxdp as dp
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.1)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0], **ridge)
    >>> problem.design.shape
    (2, 2)
    """
    checks.one_of("loss", loss, LOSSES)
    checks.one_of("dtype", str(np.dtype(dtype)), ("float32", "float64"))
    values = np.asarray(targets)
    matrix: Any = features if is_sparse(features) else checks.array_of_records("features", features)
    shape = np.shape(matrix)
    if len(shape) != 2 or values.shape != shape[:1] or 0 in shape:
        raise ValueError(
            "features must have shape (n, p) and targets (n,), n and p positive; got "
            f"{shape} and {values.shape}"
        )
    if not np.isfinite(matrix.data if is_sparse(matrix) else matrix).all():
        raise ValueError("features must be finite: impute or drop missing values first")
    if (strength := jnp.shape(penalty.strength)) not in ((), shape[1:]):
        raise ValueError(f"penalty.strength must be a number or {shape[1:]}, got {strength}")
    words = {"loss": loss, "penalty": penalty, "intercept": intercept, "classes": classes}
    made = regression(matrix, values, dtype=np.dtype(dtype), **words)
    if is_sparse(matrix):
        return made
    # Not `jnp.asarray`, which compiles for each shape.
    return dataclasses.replace(made, design=jax.device_put(made.design))


def regression(
    features: Any,
    targets: np.ndarray,
    *,
    loss: str,
    penalty: Penalty,
    intercept: bool,
    classes: ArrayLike | None,
    dtype: Any,
    ranges: Units | None = None,
) -> Problem:
    """`glm` of features that were checked, in arrays of NumPy; `ranges` clip and centre them."""
    if intercept:
        strengths = xp.broadcast_to(penalty.strength, features.shape[1:])
        record: Any = penalty
        penalty = dataclasses.replace(record, strength=xp.append(strengths, 0.0))
    signs = None
    if loss == "squared":
        offset = -checks.array_of_records("targets", targets)
        if not np.isfinite(offset).all():
            raise ValueError("targets must be finite")
    else:
        signs, offset = _signs(targets, classes), np.zeros(len(targets))
    design = design_of(features, ranges, dtype, intercept, signs)
    return Problem(design, offset.astype(dtype), penalty, loss)


def _signs(values: np.ndarray, classes: ArrayLike | None) -> np.ndarray:
    labels = np.unique(values if classes is None else np.asarray(classes))
    if len(labels) != 2:
        raise ValueError(f"logistic targets must have two labels, got {len(labels)}")
    if len(np.setdiff1d(values, labels)):
        raise ValueError(f"logistic targets must be the classes {labels}, and some are not")
    return np.where(values == labels[1], 1.0, -1.0)


@final
@pytree
class Smoothness:
    """M_j, the curvature of the mean loss along each coordinate, and where it comes from.

    Steps and clipping thresholds are made of it, so it must be public: a solver refuses `origin`
    "records".
    """

    values: Vector
    origin: str = static()

    def __init__(self, values: ArrayLike, origin: str):
        checks.one_of("origin", origin, ORIGINS)
        assign(self, values=checks.positive("smoothness", values), origin=origin)

    def as_public(self) -> Smoothness:
        """The same values, declared public by the caller, as published experiments do.

        If the records decided them, a model trained with them is not private end to end.
        """
        return Smoothness(self.values, "public")


@draws_in_float64
def coordinate_smoothness(problem: Problem) -> Smoothness:
    """The smoothness of a regression, made by `glm`, from its records: NOT PRIVATE.

    Args:
        problem: a regression with its records.

    Returns:
        M_j = c mean x_ij^2, c = 1 or 1/4, of origin "records", which solvers refuse.

    >>> import jaxdp as dp
    >>> ridge = {"loss": "squared", "penalty": dp.solvers.L2(0.1)}
    >>> problem = dp.solvers.glm([[1.0, 0.0], [3.0, 1.0]], [1.0, -1.0], **ridge)
    >>> print(dp.solvers.coordinate_smoothness(problem).values)
    [5.  0.5]
    """
    mean_square = jnp.mean(problem.design**2, axis=1, dtype=jnp.float64)
    return Smoothness(_CURVATURE[problem.loss] * mean_square, "records")


def bounded_smoothness(
    loss: str, feature_bounds: ArrayLike, *, intercept: bool = False
) -> Smoothness:
    """The smoothness of a regression from public bounds of its features.

    Args:
        loss: "squared" or "logistic".
        feature_bounds: bound_j with |x_ij| <= bound_j, (p,), above 0.
        intercept: whether there is one, whose bound is 1.

    Returns:
        M_j = c bound_j^2, c = 1 (squared) or 1/4 (logistic), a `Smoothness` of origin "public".

    >>> import jaxdp as dp
    >>> print(dp.solvers.bounded_smoothness("logistic", [1.0, 2.0], intercept=True).values)
    [0.25 1.   0.25]
    """
    checks.one_of("loss", loss, LOSSES)
    bounds = checks.positive("feature_bounds", feature_bounds)
    if intercept:
        bounds = xp.append(bounds, 1.0)
    return Smoothness(_CURVATURE[loss] * bounds**2, "public")
