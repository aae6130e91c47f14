"""Random check-ins by enumeration of all choices, under the pair of random allocation."""

import itertools
import math

import numpy as np
import pytest

import jaxdp as dp

STEPS, EPSILONS = 2, np.array([0.1, 1.0, 3.0])
GRID = np.linspace(-11.0, 11.0, 441)
# Updates of the other users, and the steps among which each of them chooses.
OTHERS = {
    "alone": [],
    "any step": [(-1.0, (0, 1))],
    "one step": [(-1.0, (0,))],
    "two in a step": [(-1.0, (0,)), (-1.0, (0,))],
    "opposite": [(-1.0, (0, 1)), (1.0, (0, 1))],
}


def sums(users, picked):
    """Sums of the steps and their probabilities; `picked` users of a step count, None: all."""
    for chosen in itertools.product(*(steps for _, steps in users)):
        there = [
            [update for (update, _), c in zip(users, chosen, strict=True) if c == i]
            for i in range(STEPS)
        ]
        parts = [list(itertools.combinations(x, min(picked or len(x), len(x)))) for x in there]
        for part in itertools.product(*parts):
            cases = math.prod(len(x) for x in (*parts, *(steps for _, steps in users)))
            yield tuple(map(sum, part)), 1.0 / cases


def density(users, picked):
    law = 0.0
    for centres, probability in sums(users, picked):
        law += probability * np.multiply.outer(*(np.exp(-0.5 * (GRID - c) ** 2) for c in centres))
    return law / (2.0 * np.pi)


def allocated(sensitivity):
    scheme = dp.sampling.RandomAllocation(STEPS)
    kind = {"sampling": scheme, "relation": "add_remove"}
    return np.asarray(dp.Mechanism(dp.Gaussian(1.0), sensitivity, **kind).delta(EPSILONS))


@pytest.mark.parametrize("picked", [None, 1])
def test_random_allocation_dominates(picked):
    """Sums of all updates by their own sensitivity, one of them at random by twice of it."""
    bound, cell, largest = allocated(1.0 if picked is None else 2.0), (GRID[1] - GRID[0]) ** 2, 0.0
    for others in OTHERS.values():
        pair = density([*others, (1.0, (0, 1))], picked), density(others, picked)
        for p, q in (pair, pair[::-1]):
            excess = np.maximum(p - np.exp(EPSILONS)[:, None, None] * q, 0.0)
            largest = np.maximum(largest, excess.sum(axis=(1, 2)) * cell / bound)
    assert np.all(largest <= 1.003), largest  # the sum over the grid errs by that much
    if picked is None:
        assert np.all(largest > 0.997)
    else:  # one clipping norm would be too little
        assert np.any(largest * bound > 10.0 * allocated(1.0))
