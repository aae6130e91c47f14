"""Compositions against the values of other methods: reference/compositions.json.

Each row states its method and, of log delta, the error of its values, the widest bracket and the
largest excess that are allowed. `git show e7d37440:tests/truth` has the programs of the methods.
"""

import mpmath as mp
import numpy as np
import pytest
import references

import jaxdp as dp

pytestmark = pytest.mark.float64

ROWS = references.load("compositions.json")["rows"]


def loss_of(release):
    count = np.array(release.get("count", 1.0))
    parameters = {name: np.array(x) for name, x in release["parameters"].items()}
    if "guarantee" in release:
        return count * dp.privacy_loss(getattr(dp, release["guarantee"])(**parameters))
    noise = getattr(dp, release["noise"])(**parameters)
    names = ("sampling_prob", "relation")
    sampled = {name: release[name] for name in names if name in release}
    mechanism = dp.Mechanism(noise, np.array(release.get("sensitivity", 1.0)), **sampled)
    return count * dp.privacy_loss(mechanism)


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, id=r["id"], marks=pytest.mark.long if r.get("long") else ()) for r in ROWS],
)
def test_log_delta_lies_between(row):
    """From the truth to the error that is stated of it, which is less than the row's width."""
    first, *others = map(loss_of, row["releases"])
    loss, epsilon = sum(others, first), np.array(row["epsilon"])
    value, error = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    truth = [mp.mpf(x) for x in row["log_delta"]]
    above = np.array([float(v - t) for v, t in zip(map(mp.mpf, value), truth, strict=True)])
    truth = np.array(truth, float)
    known = np.array(row.get("error", 0.0)) * (1.0 + np.abs(truth))
    assert np.all(above >= -known), above
    assert np.all(above <= error + known), (above, error)
    assert not np.any(error > np.array(row.get("width", np.inf))), error
    assert np.all(above < np.array(row.get("excess", np.inf)) + 1e-30), above
    if "grid" in row:
        lower, upper = (np.asarray(x) for x in loss.bounds(epsilon))
        assert np.all((lower <= np.exp(truth + known)) & (np.exp(truth - known) <= upper))
        assert np.all(upper - lower < row["grid"] * upper), upper - lower
