"""Bounds from Renyi divergences, and their slopes, in traces."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import divergences
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Term
from jaxdp.accountant.steps import unknown
from jaxdp.dominating_pair.additive import Additive


@pytest.mark.float64
@pytest.mark.parametrize(("question", "at"), [("log delta", 3.0), ("epsilon", 1e-7)])
def test_slopes_of_traced_divergences_are_those_of_known_ones(question, at):
    """The slope is taken at the best order, by the loop that finds it."""
    engine = divergences.engine(question)

    def of(solve, scale, value):
        terms = (
            Term(Additive(dp.Gaussian(scale[None, None]), np.ones((1, 1))), np.full((1, 1), 5.0)),
        )
        values = value[None]
        return solve(Batch(terms, values), unknown(values), 1).upper[0]

    def known(scale, value):
        return of(engine.concrete, np.asarray(scale), np.asarray(value))

    found = jax.jit(jax.value_and_grad(lambda *x: of(engine.traced, *x), (0, 1)))(3.0, at)
    np.testing.assert_allclose(found[0], known(3.0, at), rtol=1e-10)
    for index, step in enumerate((1e-4, 1e-4 * at)):
        move = step * np.eye(2)[index]
        low, high = (known(*(np.array([3.0, at]) + side * move)) for side in (-1.0, 1.0))
        np.testing.assert_allclose(found[1][index], (high - low) / (2.0 * step), rtol=1e-4)
