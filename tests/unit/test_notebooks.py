"""Tests that notebooks run, and that their outputs equal the stored ones."""

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


# The others take 11 to 90 CPU seconds.
QUICK = ("optimal_noise",)


# Trained on substitutes if the data sets are missing: other names are printed.
OF_DATA = "private_regression"


def shown(path, notebook):
    """Words and number of pictures per cell. Digits are ignored: noise and last places change."""
    found = []
    for outputs in (cell.get("outputs", []) for cell in notebook.cells):
        # XLA writes on stderr about compilations that take long on a busy machine.
        text = "".join(x["text"] for x in outputs if x.get("name") == "stdout")
        words = re.sub(r"-?\d[\d.,]*(e[-+]?\d+)?", "#", text).split()
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        found.append((bool(words) if path.stem == OF_DATA else words, pictures))
    return found


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=() if p.stem in QUICK else pytest.mark.long)
        for p in NOTEBOOKS
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_runs(path):
    notebook = nbformat.read(path, as_version=4)
    stored = shown(path, notebook)
    assert any(pictures for _, pictures in stored)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    assert shown(path, notebook) == stored


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 6
