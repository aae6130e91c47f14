"""The script of the published figures: the cheapest ones, drawn from the committed results."""

import importlib
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.mark.parametrize("name", ["slides_dimensions_20", "slides_dimensions"])
def test_a_picture_each(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    script = importlib.import_module("benchmarks.reproductions.figures")
    path = script.draw(name, tmp_path / "new")
    assert path == tmp_path / "new" / f"{name}.png"
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
