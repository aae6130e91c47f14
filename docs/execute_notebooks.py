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
        coalesce_streams=True,
        resources={"metadata": {"path": path.parent}},
    ).execute()
    # Of the machine that ran it, and of no use to a reader.
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
