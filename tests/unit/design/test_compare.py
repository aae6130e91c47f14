"""The table of families."""

import sys

import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.progress import shown
from jaxdp.design.families import FAMILIES

BUDGET = dp.Budget(1.0, 1e-6)
FEW = ("gaussian", "laplace", "truncated_laplace", "staircase", "discrete_laplace")


def row_of(table, family):
    return next(row for row in table if row.family == family)


@pytest.mark.long
def test_every_family_is_compared():
    reals = dp.compare(dp.Budget(1.0, 1e-6), 1.0)
    assert {row.family for row in reals} == set(FAMILIES) - {
        "discrete_laplace",
        "discrete_gaussian",
    }
    table = dp.compare(dp.Budget(1.0, 1e-6), 1.0, families=FAMILIES)
    assert {row.family for row in table if row.support == "integers"} == {
        "discrete_laplace",
        "discrete_gaussian",
    }
    assert row_of(table, "truncated_laplace").variance < row_of(table, "flipped_huber").variance
    variances = [row.variance for row in table]
    assert variances == sorted(variances)
    assert next(row.family for row in table if row.support == "reals") == "staircase"
    assert row_of(table, "gaussian").ratio_to_gaussian == 1.0
    np.testing.assert_allclose(row_of(table, "laplace").ratio_to_bound, 2.172, rtol=1e-3)
    assert all(row.ratio_to_bound > 1 for row in table if row.support == "reals")
    composed = dp.compare(dp.Budget(5.0, 1e-6), 1.0, count=20)
    assert next(iter(composed)).family == "subbotin"


@pytest.mark.long
def test_a_joint_sensitivity():
    joint = dp.compare(BUDGET, dp.JointSensitivity(20, l1=1.0), families=("gaussian", "laplace"))
    assert row_of(joint, "laplace").guarantee == "dominated"
    assert row_of(joint, "laplace").variance < row_of(joint, "gaussian").variance


def test_progress_is_shown_where_it_is_asked_for(capsys, monkeypatch):
    def run(progress):
        assert list(shown(FEW, "families", progress)) == list(FEW)
        return capsys.readouterr()

    assert "families" in run(True).err
    assert run(True).out == ""
    assert run(False).err == run(None).err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "families" in run(None).err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert run(True).err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((BUDGET, 1.0, 1, ("cauchy",)), "families must be one of"),
        ((dp.Budget([1.0, 2.0], 1e-6), 1.0), "one budget"),
        ((BUDGET, [1.0, 2.0]), "sensitivity must be a number"),
        ((BUDGET, 0.5, 1, ["discrete_laplace"]), "whole number for discrete_laplace, got 0.5"),
        (
            (BUDGET, dp.JointSensitivity(20, l1=1.0), 1, ["discrete_laplace"]),
            "whole number for discrete_laplace",
        ),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        dp.compare(*arguments)


def test_a_comparison_prints_as_a_table():
    table = dp.compare((1.0, 1e-5), 1.0, families=["laplace", "gaussian"])
    heading, *lines = str(table).split("\n")
    assert heading.split()[:2] == ["family", "variance"]
    assert [line.split()[0] for line in lines] == [row.family for row in table]
    assert [float(line.split()[1]) for line in lines] == pytest.approx([2.0, 13.92])
