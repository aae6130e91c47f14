"""Frozen values of sampling schemes against an oracle that shares nothing with the library."""

import numpy as np
import pytest
import references
import scheme_oracle
from scipy.stats import norm

ROWS = references.load("engine.json")
KINDS = ("truncated_poisson", "without_replacement", "group", "gaussian_mixture")
ALL = (*KINDS, "random_allocation")


def check(rows):
    for row in rows:
        points = zip(row["epsilon"], row["log_delta"], row["log_delta_error"], strict=True)
        for epsilon, value, error in points:
            truth = scheme_oracle.log_delta(row["kind"], row["parameters"], epsilon)
            assert truth - scheme_oracle.NOISE <= value, (row, epsilon, value - truth)
            assert value <= truth + error + scheme_oracle.NOISE, (row, epsilon, value - truth)


def rows_of(kind):
    found = [row for row in ROWS if row["kind"] == kind]
    assert len(found) == 8
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_values_are_true(kind):
    check(rows_of(kind)[:2])


@pytest.mark.long
@pytest.mark.parametrize("kind", ALL)
def test_all_frozen_values_are_true(kind):
    check(rows_of(kind))


def test_the_oracle_knows_one_gaussian():
    """A mixture that always moves by 1: n of them are one of sqrt(n)."""
    nodes = scheme_oracle.mixture((0.0, 1.0), (0.0, 1.0), 0.0, 41.0)
    found = scheme_oracle.one_way(nodes[0], lambda z: (z + 1.0) * nodes[1], 4, 3.0, 1.0)
    truth = norm.cdf(-0.5) - np.exp(3.0) * norm.cdf(-2.5)
    np.testing.assert_allclose(np.exp(found), truth, rtol=1e-12)
