"""Names of the sampling schemes of DP-SGD, known to what must not import JAX."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

# How batches are drawn, by name; see `jaxdp.dpsgd.schemes.scheme_of`.
Sampling: TypeAlias = Literal[
    "poisson", "truncated", "without_replacement", "random_allocation", "balls_in_bins"
]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
