"""Array aliases. They keep signatures on one line; the tests check them with beartype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.typing
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int, PRNGKeyArray, UInt32

# Numbers, arrays, and lists of them: what NumPy would take.
ArrayLike: TypeAlias = jax.typing.ArrayLike | Sequence[Any]
Bools: TypeAlias = Bool[Array, "..."]
Reals: TypeAlias = Float[Array, "..."]
# Lanes of a batch, which NumPy lays out where they are known.
Lanes: TypeAlias = Float[Array, "..."] | Float[np.ndarray, "..."]
Complexes: TypeAlias = Complex[Array, "..."]
Index: TypeAlias = Int[Array, ""]
Indices: TypeAlias = Int[Array, " points"]
Vector: TypeAlias = Float[Array, " coordinates"]
Key: TypeAlias = PRNGKeyArray | UInt32[Array, "*words"]
Shape: TypeAlias = tuple[int, ...]
