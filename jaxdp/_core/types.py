"""Array aliases. They keep signatures on one line; the tests check them with beartype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.typing
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

# Numbers, arrays, and lists of them: what NumPy would take.
ArrayLike: TypeAlias = jax.typing.ArrayLike | Sequence[Any]
if TYPE_CHECKING:
    Bools: TypeAlias = Bool[Array, "..."]
    Reals: TypeAlias = Float[Array, "..."]
    Index: TypeAlias = Int[Array, ""]
    Indices: TypeAlias = Int[Array, " points"]
    Vector: TypeAlias = Float[Array, " coordinates"]
    Lanes: TypeAlias = Float[Array, "..."] | Float[np.ndarray, "..."]
else:  # Known values are NumPy's, the others JAX's, which a type checker need not tell apart.
    Bools = Bool[Array, "..."] | Bool[np.ndarray, "..."] | np.bool_ | bool
    Reals = Float[Array, "..."] | Float[np.ndarray, "..."] | np.floating | float
    Index = Int[Array, ""] | Int[np.ndarray, ""] | np.integer | int
    Indices = Int[Array, " points"] | Int[np.ndarray, " points"]
    Vector = Float[Array, " coordinates"] | Float[np.ndarray, " coordinates"]
    Lanes = Reals
Key: TypeAlias = PRNGKeyArray | UInt32[Array, "*words"]
Shape: TypeAlias = tuple[int, ...]
