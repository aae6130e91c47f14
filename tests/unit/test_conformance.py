"""The conformance suite: its brackets, jaxdp's answers inside them, and an accountant too low."""

import json

import numpy as np
import pytest

from benchmarks.conformance import proved
from benchmarks.conformance.__main__ import PLACE, QUESTIONS, judged
from benchmarks.conformance.adapters import jaxdp_loss
from benchmarks.conformance.settings import settings

TRUTHS = {s["id"]: s for s in json.loads(PLACE.read_text())["settings"]}
SAMPLE = ("well_known-000", "dpsgd-003", "truncated-000", "repeated-000", "single-003", "mixed-000")


def test_the_file_holds_what_is_drawn():
    drawn = json.loads(json.dumps(settings()))
    assert [s["id"] for s in drawn] == list(TRUTHS)
    assert all({**TRUTHS[s["id"]], **s} == TRUTHS[s["id"]] for s in drawn)


def test_brackets_are_intersections_of_two():
    for setting in TRUTHS.values():
        for key in QUESTIONS.values():
            found = setting[key]
            low, high = found["bracket"]
            assert 0 <= low <= high, setting["id"]
            for one in ("jaxdp", "second"):
                if found["independent"] or (one == "jaxdp" and found["second"] is None):
                    assert found[one][0] <= low, setting["id"]
                    assert high <= found[one][1], setting["id"]


@pytest.mark.parametrize("name", SAMPLE)
def test_jaxdp_answers_from_above(name):
    setting = TRUTHS[name]
    epsilon = float(jaxdp_loss(setting).epsilon(setting["delta"]))
    low, high = setting["epsilon_at_delta"]["bracket"]
    assert low <= epsilon <= high * (1 + 1e-3)


def test_an_accountant_below_the_truth_is_found():
    def answer(setting, share):
        return {"answer": setting["epsilon_at_delta"]["bracket"][1] * share, "ms": 1.0}

    shares = (0.99, 1.0, 1.5, 1.0)
    chosen = [TRUTHS[name] for name in SAMPLE[: len(shares)]]
    rows = [{"id": s["id"], "epsilon": answer(s, x)} for s, x in zip(chosen, shares, strict=True)]
    rows[3]["epsilon"] = {"refused": "UnsupportedError", "ms": 1.0}
    found = judged(rows, "epsilon", TRUTHS)
    assert (found["answered"], found["unsupported"], found["below"]) == (3, 1, 1)
    assert found["worst_below"][0][1] == SAMPLE[0]
    np.testing.assert_allclose(found["worst_below"][0][0], 0.01, rtol=1e-6)
    np.testing.assert_allclose(found["excess_worst"], 0.5, rtol=1e-12)


def test_answers_below_the_truth_are_refuted_by_proof():
    """Two settings, an answer a millionth too low in each; the truth's upper end is proved."""
    chosen = ("single-000", "gaussians-000")
    found = {"epsilon": {"worst_below": [[1e-6, name] for name in chosen]}}
    assert proved.of_answers(found, TRUTHS, 10.0) == {"epsilon": {"refuted": list(chosen)}}
    truths = {name: TRUTHS[name] for name in chosen}
    ends = proved.of_brackets(truths, 10.0, 10.0)
    assert ends["asked"] == 2
    assert [sorted(ends[end]) for end in ("upper", "lower")] == [["proved"], ["refuted"]]
