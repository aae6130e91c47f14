"""How Sphinx builds the site: `make docs`."""

import importlib
import inspect
import os
import pydoc
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import jaxdp

HERE = Path(__file__).parent

project = "jaxdp"
author = "The jaxdp authors"
version = release = jaxdp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
# Links to other libraries need the network: without this variable their names are plain code.
if os.environ.get("JAXDP_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "jax": ("https://docs.jax.dev/en/latest", None),
    "optax": ("https://optax.readthedocs.io/en/latest", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
    "xarray": ("https://docs.xarray.dev/en/stable", None),
}
html_theme = "sphinx_book_theme"
html_title = "jaxdp"
html_favicon = "_static/favicon.svg"
# The page of sliders stands alone: it opens from the disk too.
html_extra_path = ["try.html", "try.css", "try.js", "try_bounds.js", "try_grid.js"]
html_extra_path += ["try_pictures.js"]
# Without it the theme's script reports an invalid mode.
html_context = {"default_mode": "auto"}
# The sidebar has a search box: no second one above it.
html_theme_options = {"navbar_persistent": []}
exclude_patterns = ["_build", "jupyter_execute"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
# One parameter a line. chosen: what a column of the site holds
python_maximum_signature_line_length = 72
# Formulas are text, as in docstrings: the site loads nothing from the network.
myst_enable_extensions = []
myst_heading_anchors = 3
# Notebooks hold their outputs, which the tests compare with a new execution.
nb_execution_mode = "off"
nb_merge_streams = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# "log_delta()" under "Gaussian": what the column beside the page holds.
toc_object_entries_show_parents = "hide"
# Prompts are not copied.
copybutton_prompt_text = ">>> "


SECTIONS = {"Args:": "Arguments", "Returns:": "Returns"}
# Names of other libraries, which intersphinx links.
EXTERNAL = re.compile(r"(?:numpy|jax|optax|sklearn|xarray|concurrent)\.[\w.]+")
# What has a meaning in reStructuredText, and none in a docstring.
MARKUP = re.compile(r"[\\*|_]")
# A power, and its exponent: a name, a number, or what stands in brackets, with brackets within.
POWER = re.compile(r"\^(?:(-?\w+(?:\.\d+)?|\|\w+\|)|\(((?:[^()]|\([^()]*\))*)\))")


def documented() -> set[str]:
    """Full names of all that the reference has an entry of."""
    pages = "".join(path.read_text() for path in sorted((HERE / "api").glob("*.md")))
    names = set(re.findall(r"^\.\. auto\w+:: (\S+)", pages, flags=re.MULTILINE))
    for name in tuple(names):
        thing = pydoc.locate(name)  # which imports the modules on the way
        if inspect.isclass(thing):
            names |= {f"{name}.{n}" for n, x in vars(thing).items() if n[0] != "_" and x.__doc__}
    return names


DOCUMENTED = documented()


def as_prose(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring as this project writes them, in place."""
    lines[:] = converted("\n".join(lines), name, thing).splitlines()


def skipped(app: Any, kind: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """True for the methods that scikit-learn adds to an estimator; None leaves the decision."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def converted(text: str, name: str, thing: Any) -> str:
    """A docstring with its sections as lists, powers raised, names linked and all else as it is."""
    parts = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        head, _, rest = block.partition("\n")
        if head.startswith(">>>"):
            parts.append(block)
        elif head not in SECTIONS:
            for point in re.split(r"\n(?=[*-] )", block):
                listed = re.match(r"[*-] ", point)
                text = prose(point[2:] if listed else point, name, thing)
                parts.append(f"* {text}" if listed else text)
        else:
            entries = re.split(r"\n(?=\S)", textwrap.dedent(rest))
            told = [
                entry_of(e, name, thing) if head == "Args:" else prose(e, name, thing)
                for e in entries
            ]
            parts.append(f":{SECTIONS[head]}:\n" + textwrap.indent("\n".join(told), "   "))
    return "\n\n".join(parts) + "\n"


def entry_of(entry: str, name: str, thing: Any) -> str:
    """An item of the list of arguments: their names, and what they are."""
    arguments, _, meaning = entry.partition(":")
    shown = ", ".join(f"**{MARKUP.sub(escaped, x.strip())}**" for x in arguments.split(","))
    return f"* {shown}: {prose(meaning, name, thing)}"


def prose(text: str, name: str, thing: Any) -> str:
    """One paragraph on one line: what stands between backticks is a link or code."""
    pieces = re.split(r"`([^`]+)`", " ".join(text.split()))
    pieces[::2] = [plain(piece) for piece in pieces[::2]]
    pieces[1::2] = [code(piece, name, thing) for piece in pieces[1::2]]
    line = "".join(pieces)
    # No list begins here, whatever the formula at the beginning looks like.
    return re.sub(r"^(?=[^\w\s\\:]|\w+[.)] )", r"\\", line)


def plain(text: str) -> str:
    """Words and formulas, as they are but for powers."""
    whole, parts = 0, []
    for power in POWER.finditer(text):
        parts.append(MARKUP.sub(escaped, text[whole : power.start()]))
        parts.append(f"\\ :sup:`{MARKUP.sub(escaped, power[1] or power[2])}`\\ ")
        whole = power.end()
    return "".join(parts) + MARKUP.sub(escaped, text[whole:])


def escaped(found: re.Match[str]) -> str:
    """The character itself, without its meaning."""
    return "\\" + found[0]


def code(text: str, name: str, thing: Any) -> str:
    """A link to what the reference has under this name, seen from `name`; else code."""
    word = text.removeprefix("jaxdp.").removeprefix("dp.")
    if (
        callable(thing)
        and not inspect.isclass(thing)
        and word in inspect.signature(thing).parameters
    ):
        return f"\\ ``{text}``\\ "
    if EXTERNAL.fullmatch(text):
        return f"\\ :py:obj:`{text}`\\ "
    places = name.split(".")
    for end in range(len(places), 0, -1):
        target = ".".join((*places[:end], word))
        if target in DOCUMENTED and target != name:
            return f"\\ :py:obj:`{text} <{target}>`\\ "
    # A class of a namespace, by its own name.
    targets = [x for x in DOCUMENTED if x.endswith(f".{word}") and word[0].isupper()]
    if len(targets) == 1 and targets[0] != name:
        return f"\\ :py:obj:`{text} <{targets[0]}>`\\ "
    return f"\\ ``{text}``\\ "


def setup(app: Any) -> None:
    """Bring the notebooks in, docstrings as prose, nothing of scikit-learn's own; finish pages."""
    shutil.rmtree(HERE / "notebooks", ignore_errors=True)
    shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks")
    sys.path.insert(0, str(HERE))
    importlib.import_module("pages").connect(app, DOCUMENTED, POWER, EXTERNAL)
    app.connect("autodoc-process-docstring", as_prose)
    app.connect("autodoc-skip-member", skipped)
