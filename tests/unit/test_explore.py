"""Sliders of a notebook: they show the library's numbers, and no number after a bad one."""

import html
import re
import sys

import pytest

import jaxdp as dp
from jaxdp import explore
from jaxdp.dpsgd.statement import rounded_up


def sliders(panel):
    return {widget._kwarg: widget for widget in panel.kwargs_widgets}


def assert_the_librarys(panel):
    """Each line of Python gives the number beside it, and the text has these numbers."""
    code = panel.result[panel.result.index("import jaxdp") :].splitlines()
    names: dict[str, object] = {}
    exec("\n".join(code[:2]), names)
    found = [line.split("  # ") for line in code[2:]]
    known = [float(eval(line, names)) for line, _ in found]
    assert [float(number) for _, number in found] == known
    epsilon, advantage, positives, least = known
    words, at = panel.result, {name: widget.value for name, widget in sliders(panel).items()}
    assert f"ε ≤ {rounded_up(epsilon, 5)} at δ = {at['delta']}\n" in words
    assert f"Advantage {rounded_up(advantage, 4)}:" in words
    assert f"right in at most {rounded_up(50 + 50 * advantage, 4)} %" in words
    assert f"finds at most {rounded_up(1000 * positives, 4)} in 1,000" in words
    assert f"ε ≤ {at['wanted']:g} at this δ: at least {rounded_up(least, 6)}." in words
    assert html.unescape(re.sub(r"<[^>]*>", "", panel.children[-1].value)) == words
    return code[1], names["release"]


POSITIONS = {"noise": 10, "batch": 5, "records": 7, "epochs": 3, "delta": 0, "wanted": 5}


def test_every_slider_shows_the_librarys_numbers():
    panel = explore.training()
    said, release = {panel.result}, None
    for name, place in POSITIONS.items():
        sliders(panel)[name].index = place
        _, release = assert_the_librarys(panel)
        assert panel.result not in said
        said.add(panel.result)
    sizes = {"dataset_size": 128_000, "batch_size": 512, "epochs": 5}
    assert release.epsilon(1e-4) == dp.dpsgd.epsilon(1.0, 1e-4, **sizes)
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == panel.result
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_numbers_that_do_not_go_together_give_a_sentence(capsys):
    panel = explore.training()
    sliders(panel)["records"].value = 1000
    sliders(panel)["batch"].value = 2048
    assert panel.result == "batch_size / dataset_size must lie in [0, 1], got 2.048"
    assert re.sub(r"<[^>]*>", "", panel.children[-1].value) == panel.result
    assert capsys.readouterr() == ("", "")


def test_nothing_stays_after_another_error(monkeypatch):
    panel = explore.training()

    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(explore.risk, "tpr_at_fpr", broken)
    sliders(panel)["noise"].index = 3
    assert panel.children[-1].value == ""


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match=r"jaxdp-privacy\[notebook\]"):
        explore.training()
