"""Many epsilons from the sums of one total, against each epsilon from the masses themselves."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.float64 import in_float64
from jaxdp._core.tracing import kernel
from jaxdp.accountant import grid
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.total_curve import TotalCurve

LOSSES = {
    "Laplace": 30 * dp.privacy_loss(dp.Mechanism(dp.Laplace(5.0), 1.0)),
    "lattice": 20 * dp.privacy_loss(dp.PureDP(0.1)),
    "infinite": 9 * dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(3.0, 40.0), 1.0)),
    "many": 1e6 * dp.privacy_loss(dp.Mechanism(dp.Laplace(900.0), 1.0)),
}


@in_float64
def lane_of(loss, epsilon, points):
    batch = Batch(tuple(term.broadcast((1,)) for term in loss.terms), np.array([epsilon]))
    with kernel():
        first = jax.tree.map(lambda x: np.asarray(x)[0], (batch.terms, batch.table))
        terms, table = first
        return grid.lane_at(terms, table, np.asarray(epsilon), points)


@pytest.mark.parametrize("points", [2**12, 2**14])
@pytest.mark.parametrize("name", LOSSES)
def test_sums_of_a_total_are_those_of_its_masses(name, points):
    lane = lane_of(LOSSES[name], 1.0, points)
    # On points of the grid, next to them, and beyond the end.
    on_grid = np.asarray(lane.total.loss)[points // 2 :: 97] + float(lane.drift)
    epsilon = np.concatenate([np.linspace(0.0, 3.0, 40), on_grid, on_grid + 1e-13, [50.0]])
    epsilon = epsilon[(epsilon >= 0) & (epsilon < 60.0)]
    with kernel(), np.errstate(all="ignore"):
        found = TotalCurve(lane).bounds(epsilon)
        lower, upper = (np.array([float(f(x)) for x in epsilon]) for f in (lane.lower, lane.upper))
        assert not np.isnan(found.upper).any()
        width = np.where(np.isfinite(lower), upper - lower, np.inf)
    close = 1e-12 * (1.0 + np.abs(np.where(np.isfinite(upper), upper, 0.0)))
    assert np.all((found.upper >= upper - close) | (upper == -np.inf))
    assert np.all((found.upper <= upper + 0.5 * width + 1e-8) | (width == np.inf))
    assert np.all((found.lower <= lower + close) | (lower == -np.inf))
    assert np.all((found.lower >= lower - 0.5 * width - 1e-8) | (width == np.inf))
