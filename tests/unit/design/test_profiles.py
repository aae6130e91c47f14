"""Profiles, and what i.n.i.d. noise gains on them."""

import numpy as np
import pytest

import jaxdp as dp
from benchmarks.reproductions.profiles import sensitivity_profile


@pytest.mark.parametrize(
    ("name", "gaussian", "laplace"),
    [
        ("linear", 1.145, 0.546),
        ("quadratic", 2.442, 1.390),
        ("exponential", 9.658, 7.609),
        ("one_hot", 13.010, 13.010),
    ],
)
def test_published_gains_at_twenty_coordinates(name, gaussian, laplace):
    """In dB of squared error, i.n.i.d. over i.i.d."""
    profile = sensitivity_profile(name, 20)
    for family, level, published in (
        ("gaussian", dp.GDP(0.2), gaussian),
        ("laplace", dp.PureDP(0.5), laplace),
    ):
        iid, inid = (
            float(dp.allocation_error(family, dp.allocate(family, profile, level, method=m)))
            for m in ("iid", "inid")
        )
        assert 10 * np.log10(iid / inid) == pytest.approx(published, abs=6e-4)


@pytest.mark.parametrize(
    ("name", "last"), [("uniform", 8), ("linear", 9), ("quadratic", 10), ("exponential", None)]
)
@pytest.mark.long
def test_the_dimension_at_which_laplace_loses_to_gaussian(name, last):
    """epsilon = .5, delta = 1e-6, pure Laplace, both i.n.i.d.: it wins up to `last` coordinates."""
    budget, pure = dp.Budget(0.5, 1e-6), dp.PureDP(0.5)
    wins = []
    for count in range(1, 26):
        profile = sensitivity_profile(name, count)
        gaussian = dp.allocation_error("gaussian", dp.allocate("gaussian", profile, budget))
        laplace = dp.allocation_error("laplace", dp.allocate("laplace", profile, pure))
        wins.append(bool(laplace < gaussian))
    expected_wins = [count <= (last or 25) for count in range(1, 26)]
    assert wins == expected_wins
