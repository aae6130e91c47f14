"""How Sphinx builds the site: `make docs`."""

import shutil
from pathlib import Path
from typing import Any

import jaxdp

HERE = Path(__file__).parent

project = "jaxdp"
author = "The jaxdp authors"
version = release = jaxdp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "sphinx_book_theme"
html_title = "jaxdp"
exclude_patterns = ["_build"]
# Formulas are text, as in docstrings: the site loads nothing from the network.
myst_enable_extensions = []
myst_heading_anchors = 3
# Seconds of a notebook. chosen: the slowest takes two minutes
nb_execution_timeout = 600
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_merge_streams = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Prompts are not copied.
copybutton_prompt_text = ">>> "


def preformatted(
    app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Show a docstring as `help()` does: its formulas are text, not markup."""
    lines[:] = ["::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Any) -> None:
    """Bring the notebooks in, and docstrings as they are."""
    shutil.rmtree(HERE / "notebooks", ignore_errors=True)
    shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks")
    app.connect("autodoc-process-docstring", preformatted)
