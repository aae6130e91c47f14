"""Sliders of a notebook: they show the library's numbers, and no number after a bad one."""

import html
import re
import sys

import pytest

import jaxdp as dp
from jaxdp import explore
from jaxdp.dpsgd.statement import rounded_up


def shown(panel):
    """What the widgets hold, each without tags."""
    held = (re.sub(r"<[^>]*>", "", output.value) for output in panel.box.children[-4:])
    return [html.unescape(text) for text in held]


def assert_the_librarys(panel):
    """Each line of Python gives the number beside it, and the text has these numbers."""
    code = panel.text[panel.text.index("import jaxdp") :].splitlines()
    names: dict[str, object] = {}
    exec("\n".join(code[:2]), names)
    found = [line.split("  # ") for line in code[2:]]
    known = [float(eval(line, names)) for line, _ in found]
    assert [float(number) for _, number in found] == known
    epsilon, advantage, positives, least = known
    words, widgets = panel.text, "".join(shown(panel))
    assert f"ε ≤ {rounded_up(epsilon, 5)} at δ = {entered(panel, 'delta')}\n" in words
    assert f"Advantage {rounded_up(advantage, 4)}:" in words
    assert f"right in at most {rounded_up(50 + 50 * advantage, 4)} %" in words
    assert f"finds at most {rounded_up(1000 * positives, 4)} in 1,000" in words
    assert f"ε ≤ {entered(panel, 'wanted'):g} at this δ: at least {rounded_up(least, 6)}." in words
    assert all(line in widgets for line in words.splitlines())
    return code[1], names["release"]


def entered(panel, name):
    return float(panel.controls[name][1].value)


POSITIONS = {
    explore.training: {"noise": 10, "batch": 5, "records": 7, "epochs": 3, "delta": 0, "wanted": 5},
    explore.release: {"scale": 14, "sensitivity": 2, "delta": 3, "wanted": 4},
}


@pytest.mark.parametrize("make", POSITIONS)
def test_every_slider_shows_the_librarys_numbers(make):
    panel = make()
    said, release = {panel.text}, None
    for name, place in POSITIONS[make].items():
        slider, typed = panel.controls[name]
        slider.index = place
        assert float(typed.value) == slider.value == panel._fields[name].points[place]
        _, release = assert_the_librarys(panel)
        assert panel.text not in said
        said.add(panel.text)
    if make is explore.training:
        sizes = {"dataset_size": 128_000, "batch_size": 512, "epochs": 5}
        assert release.epsilon(1e-4) == dp.dpsgd.epsilon(1.0, 1e-4, **sizes)
    else:
        panel.kind.value = "Laplace"
        line, _ = assert_the_librarys(panel)
        assert line == "release = dp.Mechanism(dp.Laplace(10), 0.3)"
    bundle = panel._repr_mimebundle_()
    assert bundle["text/plain"] == panel.text
    assert bundle["text/html"].endswith("</svg>")
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_typed_number_may_lie_between_positions():
    panel = explore.release()
    slider, typed = panel.controls["scale"]
    typed.value = "4.4"
    assert (slider.value, typed.value) == (4.0, "4.4")
    assert "dp.Gaussian(4.4)" in assert_the_librarys(panel)[0]
    slider.index += 1
    assert typed.value == "5.0"
    typed.value = "1e8"
    assert (slider.value, typed.value) == (1000.0, "1e8")
    assert "ε ≤ 0 at" in panel.text


BAD = ("", "none", "-1", "0", "nan", "inf", "1e999", "1,5", "<b>2")


@pytest.mark.parametrize("make", POSITIONS)
def test_a_bad_number_gives_a_sentence_and_no_number(make, capsys):
    panel = make()
    # The first bad number is named: from the last field on, each is the first.
    for name, (slider, typed) in reversed(panel.controls.items()):
        place, label = slider.index, re.escape(panel._fields[name].label)
        for text in BAD:
            typed.value = text
            assert re.fullmatch(rf"{label}: enter a .*number from \S+ to \S+, not .*", panel.text)
            assert shown(panel) == [panel.text, "", "", ""]
            assert "<b>" not in panel.box.children[-4].value
            assert slider.index == place
            assert "<svg" not in panel._repr_mimebundle_()["text/html"]
    for slider, typed in panel.controls.values():
        typed.value = str(slider.value)
    assert "release.epsilon" in panel.text
    assert capsys.readouterr() == ("", "")


def test_what_the_library_refuses_is_said():
    panel = explore.training()
    panel.controls["records"][1].value = "200"
    assert panel.text == "batch_size / dataset_size must lie in [0, 1], got 1.28"
    assert shown(panel) == [panel.text, "", "", ""]
    panel.controls["batch"][1].value = "1.5"
    assert "enter a whole number" in panel.text


def test_nothing_stays_after_another_error(monkeypatch):
    panel = explore.release()

    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(explore.risk, "tpr_at_fpr", broken)
    with pytest.raises(RuntimeError, match="broken"):
        panel.controls["scale"][0].index = 3
    assert "".join(shown(panel)[1:]) == ""
    assert (
        f"ε ≤ {rounded_up(float(dp.Mechanism(dp.Gaussian(0.3), 1.0).epsilon(1e-5)), 5)} "
        in panel.text
    )


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match=r"jaxdp-privacy\[notebook\]"):
        explore.training()
