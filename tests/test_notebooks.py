"""The notebooks run from top to bottom, and are committed without outputs."""

from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.heavy

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


# Half a minute to a minute and a half each, most of it compilation.
SLOW = ("choosing_a_noise", "dp_sgd_accounting", "dp_sgd_training", "optimal_noise", "quickstart")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=pytest.mark.long if p.stem in SLOW else ())
        for p in NOTEBOOKS
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_runs(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 6
