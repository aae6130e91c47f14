"""The table of families."""

import importlib
import sys

import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.progress import shown
from jaxdp.design.families import FAMILIES

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
    table = dp.compare(dp.Budget(1.0, 1e-6), 1.0, integers=True)
    assert {row.family for row in table} == set(FAMILIES)
    assert row_of(table, "truncated_laplace").variance < row_of(table, "flipped_huber").variance
    composed = dp.compare(dp.Budget(5.0, 1e-6), 1.0, count=20)
    assert next(iter(composed)).family == "subbotin"


def fitted(monkeypatch, *arguments, **named):
    """What is compared, each family fitted as the Laplace is: fits compile for seconds."""
    module = importlib.import_module("jaxdp.design.compare")
    monkeypatch.setattr(module, "fit_noise", lambda *_: dp.Laplace(1.0))
    return dp.compare((1.0, 1e-6), *arguments, **named)


@pytest.mark.parametrize("count", [1, 3])
def test_integers_are_asked_for_and_marked(monkeypatch, count):
    """A count's noise is no noise for other answers, and it ranks first."""
    integers = {"discrete_laplace", "discrete_gaussian"}
    for sensitivity in (1.0, 2.0, 0.5):
        table = fitted(monkeypatch, sensitivity, count)
        assert integers.isdisjoint(row.family for row in table)
        assert {row.support for row in table} == {"reals"}
    table = fitted(monkeypatch, 2.0, count, integers=True)
    assert {row.family for row in table if row.support == "integers"} == integers
    named = fitted(monkeypatch, 1.0, count, ["laplace"], integers=True)
    assert {row.family for row in named} == {"laplace", *integers}
    named = fitted(monkeypatch, 1.0, count, ["discrete_laplace"])
    assert row_of(named, "discrete_laplace").support == "integers"


def test_integers_need_whole_sensitivities():
    for named in ({"integers": True}, {"families": ["discrete_laplace"]}):
        with pytest.raises(ValueError, match=r"whole number for discrete_\w+, got 0.5"):
            dp.compare((1.0, 1e-6), 0.5, **named)
        with pytest.raises(ValueError, match="whole number for discrete_"):
            dp.compare((1.0, 1e-6), dp.JointSensitivity(20, l1=1.0), **named)
        with pytest.raises(ValueError, match=r"which discrete_\w+ does not allow"):
            dp.compare((1.0, 1e-6), [1.0, 2.0], **named)


@pytest.mark.long
def test_one_dimension():
    table = dp.compare(dp.Budget(1.0, 1e-6), 1.0, families=FEW)
    variances = [row.variance for row in table]
    assert variances == sorted(variances)
    assert next(row.family for row in table if "discrete" not in row.family) == "staircase"
    assert {row.family for row in table} == set(FEW)
    assert row_of(table, "gaussian").ratio_to_gaussian == 1.0
    np.testing.assert_allclose(row_of(table, "laplace").ratio_to_bound, 2.172, rtol=1e-3)
    assert all(row.ratio_to_bound > 1 for row in table if "discrete" not in row.family)


@pytest.mark.long
def test_a_profile_and_a_joint_sensitivity():
    budget = dp.Budget(1.0, 1e-6)
    profile = dp.compare(budget, [1.0, 2.0, 4.0], families=("gaussian",))
    closed = dp.allocate("gaussian", [1.0, 2.0, 4.0], budget)
    np.testing.assert_allclose(row_of(profile, "gaussian").parameters["factors"], closed, rtol=1e-6)
    joint = dp.compare(budget, dp.JointSensitivity(20, l1=1.0), families=("gaussian", "laplace"))
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


def test_bad_input():
    with pytest.raises(ValueError, match="families must be one of"):
        dp.compare(dp.Budget(1.0, 1e-6), 1.0, families=("cauchy",))
    with pytest.raises(ValueError, match="one budget"):
        dp.compare(dp.Budget([1.0, 2.0], 1e-6), 1.0)
    with pytest.raises(ValueError, match="count must be 1 with a profile"):
        dp.compare(dp.Budget(1.0, 1e-6), [1.0, 2.0], count=3)
    with pytest.raises(ValueError, match="which staircase does not allow"):
        dp.compare(dp.Budget(1.0, 1e-6), [1.0, 2.0], families=("staircase",))


def test_a_comparison_prints_as_a_table():
    table = dp.compare((1.0, 1e-5), 1.0, families=["laplace", "gaussian"])
    heading, *lines = str(table).split("\n")
    assert heading.split()[:2] == ["family", "variance"]
    assert [line.split()[0] for line in lines] == [row.family for row in table]
    assert [float(line.split()[1]) for line in lines] == pytest.approx([2.0, 13.92])
