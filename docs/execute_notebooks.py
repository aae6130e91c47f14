"""Executes notebooks and stores them with their outputs: `python docs/execute_notebooks.py`."""

import sys
from pathlib import Path

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
# Seconds of a cell. chosen: the slowest takes one minute
TIMEOUT = 600

for path in map(Path, sys.argv[1:] or sorted(NOTEBOOKS.glob("*.ipynb"))):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": path.parent}},
    ).execute()
    # A stored notebook has no kernel to move a slider in: what it shows is the text instead.
    for output in (x for cell in notebook.cells for x in cell.get("outputs", [])):
        output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    # Of the machine that ran it, and of no use to a reader.
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
