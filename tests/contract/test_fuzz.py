"""A seeded slice of the fuzzing campaign, and that it covers the public names and can fail."""

import inspect
import os
import sys

import fuzz
import fuzz_table
import numpy as np
import pytest
from processes import process

import jaxdp as dp

pytestmark = pytest.mark.float64

# Rows that compile little.
SLICE = r"^(Gaussian|Laplace|GDP|PureDP|Budget|to_|dpsgd|calibrate|optimal_|glm|audit|L1)"


@pytest.mark.long
def test_a_slice_of_the_campaign_finds_nothing():
    """In a process of its own, where beartype does not check arguments first."""
    asked = {"CALLS": "900", "SEED": "0", "NAMES": SLICE}
    environment = {f"JAXDP_FUZZ_{name}": value for name, value in asked.items()}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = process("-W", "error", fuzz.__file__, **environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert int(done.stdout.split()[0]) >= 800


NAMESPACES = ("audit", "optimal", "own", "risk", "solvers", "tables")


def public_names(module):
    names = dp.risk.__all__ if module is dp.risk else dir(module)
    return [x for x in names if x[0] != "_" and not inspect.ismodule(getattr(module, x))]


def test_every_public_name_is_called_or_is_not_for_a_reason():
    called = {row.name for row in fuzz_table.ROWS}
    called |= {name.split(".")[0] for name in called}
    places = {"": dp} | {f"{x}.": getattr(dp, x) for x in NAMESPACES}
    names = {f"{place}{x}" for place, module in places.items() for x in public_names(module)}
    assert names == (called & names) | set(fuzz_table.NOT_CALLED)
    assert not called & set(fuzz_table.NOT_CALLED)


def wrong(kind):
    def call(epsilon):
        if kind == "other error":
            raise KeyError("epsilon")
        if kind == "no name":
            raise ValueError("a number is out of range")
        return np.array({"nan": np.nan, "small": 0.1}[kind])

    return fuzz_table.row("wrong", call, "epsilon:shift")


@pytest.mark.parametrize(
    ("kind", "how", "value", "said"),
    [
        ("other error", "odd", 1.0, "raises KeyError"),
        ("no name", "bad", "text", "ValueError names no argument"),
        ("no name", "good", 1.0, "refuses a good call"),
        ("nan", "good", 1.0, "NaN"),
        ("small", "bad", None, "takes what is bad"),
        ("small", "traced", -1.0, "traced and bad, and small"),
    ],
)
def test_the_campaign_finds_what_is_wrong(kind, how, value, said):
    campaign = fuzz.Campaign()
    campaign.call(wrong(kind), how, [value])
    assert list(campaign.failures) == [("wrong", said)]


def test_the_campaign_finds_a_delta_that_is_too_small():
    low = fuzz_table.row(
        "Laplace.log_delta",
        lambda scale, shift, epsilon: dp.Laplace(scale).log_delta(shift, epsilon) * 1.000001,
        "scale:scale shift:shift epsilon:real",
    )
    campaign = fuzz.Campaign()
    campaign.call(low, "good", [1.0, 1.0, 0.5])
    assert list(campaign.failures) == [("Laplace.log_delta", "below the truth")]


def test_random_statements_are_proved():
    assert fuzz.refuted(3, 1) == []


def test_a_statement_that_is_wrong_is_found(monkeypatch):
    half = dp.PrivacyLoss.epsilon
    monkeypatch.setattr(dp.PrivacyLoss, "epsilon", lambda loss, delta: half(loss, 2 * delta))
    assert len(fuzz.refuted(2, 1)) == 2
