"""Noise that is correlated between steps, so that sums over steps have less of it.

C is the lower triangular Toeplitz matrix with the column c_0 = 1, ..., c_(bands-1). Step t releases
w_t = sum_j c_j x_(t-j) + z_t, where x_t is the sum of clipped gradients and z_t independent noise
from the lattice. The optimiser gets u_t = w_t - sum_(j>0) c_j u_(t-j), a function of releases,
which is x_t plus the noise (C^-1 z)_t. The records take turns in `bands` groups, so that of any
`bands` sums one contains a record: it moves (w_t, w_(t+1), ...) by its gradient times the column.

The c_j are whole multiples of 2^-8, and sums have as many bits less below the threshold: w_t is
exact before the noise.

Source: Choquette-Choo et al., arXiv:2306.08153 (bands, sampling); Kalinin & Lampert, NeurIPS 2024
(the first coefficients of (1 - x)^(-1/2)).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import Reals, Shape
from jaxdp.design.families import norm_of
from jaxdp.dpsgd.phase import Phase, Training
from jaxdp.sampling.poisson import Poisson
from jaxdp.solvers.lattice import Added

# Bits of a coefficient below 1. chosen: sums keep 22 bits below the threshold
COEFFICIENT_BITS = 8
# Largest expected batch times the sum of coefficients. derived: 2^53 less 30 bits of a product
_MOST = 2.0**23
# Excess of a probability over 1 that is rounding. chosen
_ROUNDING = 1e-12


class Memory(NamedTuple):
    """Sums and released values of one leaf, the latest step first: (bands - 1, *shape)."""

    sums: Reals
    released: Reals


def coefficients(bands: int, expected_batch: Reals | float = 1.0) -> tuple[float, ...]:
    """The first column of C; `ValueError` for batches whose weighted sums would not be exact."""
    steps = np.arange(1, checks.positive_integer("bands", bands))
    exact = np.cumprod(np.append(1.0, (2.0 * steps - 1.0) / (2.0 * steps)))
    column = np.round(exact * 2**COEFFICIENT_BITS) / 2**COEFFICIENT_BITS
    most = _MOST / np.sum(column)
    if bands > 1 and not float(expected_batch) <= most:
        raise ValueError(
            f"batch_size must be at most {most:.0f} with {bands} bands, got {expected_batch:g}"
        )
    return tuple(map(float, column))


def no_memory(column: tuple[float, ...], shapes: tuple[Shape, ...]) -> tuple[Memory, ...]:
    """The memory before the first step: zeros."""
    if len(column) == 1:
        return ()
    zeros = [jnp.zeros((len(column) - 1, *shape)) for shape in shapes]
    return tuple(map(Memory, zeros, zeros))


def released(
    column: tuple[float, ...], value: Reals, added: Added, memory: Memory
) -> tuple[Reals, Memory]:
    """u_t and the memory of the next step, from x_t and z_t."""
    weights = jnp.array(column[1:]).reshape(-1, *(1,) * value.ndim)
    mixed = value + jnp.sum(weights * memory.sums, axis=0)
    output = added.to(mixed) - jnp.sum(weights * memory.released, axis=0)
    following = (
        jnp.concatenate([new[None], old[:-1]])
        for new, old in zip((value, output), memory, strict=True)
    )
    return output, Memory(*following)


def taking_turns(training: Training, bands: int, noise: str) -> Training:
    """The training on groups that take turns; `ValueError` unless its cost is known exactly."""
    (phase, *_), _, group_size = training
    if checks.positive_integer("bands", bands) == 1:
        return training
    scheme = phase.sampling
    if norm_of(noise) != 2 or group_size != 1:
        raise ValueError(
            "bands above 1 require noise='gaussian' and group_size=1, got "
            f"noise={noise!r}, group_size={group_size}"
        )
    if not isinstance(scheme, Poisson) or scheme.cycle_length > 1:
        raise ValueError(
            f"bands above 1 require sampling='poisson', of groups that the plan makes, got {scheme}"
        )
    rate = float(np.asarray(scheme.rate).item()) * bands
    if rate > 1.0 + _ROUNDING:
        raise ValueError(
            f"bands must be at most 1 / sampling_prob, since a batch is of one group in {bands}, "
            f"got {bands} * {rate / bands:g} > 1"
        )
    turns = Poisson(min(rate, 1.0), bands)
    phase = Phase(phase.noise_multiplier, sampling=turns, steps=phase.steps)
    return training._replace(phases=(phase,))
