"""Records padded by a quarter at most: other numbers of records find the programs compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp.solvers.problems import Problem

# Records of a block, which adds up exactly. chosen: see the grid of coordinate descent
BLOCK = 64


def padded(problem: Problem) -> Problem:
    """The problem with more records, all zero: they add nothing to a gradient, but to means.

    Their number is the least 4, 5, 6 or 7 times a power of two that blocks fill.
    """
    records = problem.design.shape[-1]
    missing = -records % max(BLOCK, (1 << (records - 1).bit_length()) // 8)
    if missing == 0:
        return problem
    widths = (0, 0), (0, missing)
    if checks.all_concrete(problem) and jax.default_backend() == "cpu":
        # On the host: the padding itself would be compiled for each number of records.
        design, offset = (
            jax.device_put(np.pad(x, widths[-np.ndim(x) :]))
            for x in (problem.design, problem.offset)
        )
    else:
        design, offset = jnp.pad(problem.design, widths), jnp.pad(problem.offset, widths[1:])
    return Problem(design, offset, problem.penalty, problem.loss, problem.intercept)
