"""Docstrings: arguments, results, the output of examples, and what the site makes of them."""

import ast
import doctest
import inspect
import pydoc
import re
import runpy
import sys
from functools import reduce
from pathlib import Path

import pytest

import jaxdp as dp

ROOT = Path(__file__).parents[2]
SUMMARY = (ROOT / "docs" / "api.md").read_text()
REFERENCE = "".join(path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md")))
FUNCTIONS = re.findall(r"autofunction:: jaxdp\.(\S+)", REFERENCE)
CLASSES = re.findall(r"autoclass:: jaxdp\.(\S+)", REFERENCE)


def named(name):
    """The object, of the top level or of a module that is not imported with it."""
    return pydoc.locate(f"jaxdp.{name}")


@pytest.fixture(autouse=True)
def no_figure_is_left():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def run_examples(name):
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner()
    for found in finder.find(named(name), name, globs={}):
        runner.run(found)
    assert runner.summarize().failed == 0
    return runner.tries


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_whole_docstring(name):
    function = named(name)
    text = inspect.getdoc(function) or ""
    assert "\nReturns:\n" in text
    if inspect.signature(function).parameters:
        assert "\nArgs:\n" in text
        arguments = text.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0]
        for parameter in inspect.signature(function).parameters:
            assert re.search(rf"\b{parameter}\b", arguments), parameter
    assert run_examples(name) > 0, "an example on a public function"


@pytest.mark.parametrize("name", CLASSES)
def test_examples_of_a_class(name):
    run_examples(name)


# Solvers without a folder.
OF_ONE_FILE = tuple(f"jaxdp.solvers.{name}" for name in ("covariance", "naive_bayes"))


def exported(module):
    """Names that a package imports as themselves, in the way of typed packages.

    Of a solver without a folder, the functions whose docstring has arguments.
    """
    path = Path(module.__file__)
    stub = path.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else path).read_text())
    functions = {x.name: ast.get_docstring(x) for x in tree.body if isinstance(x, ast.FunctionDef)}
    imports = [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
    named = {alias.name for x in imports for alias in x.names if alias.asname == alias.name}
    has_arguments = {name for name, text in functions.items() if "\nArgs:\n" in (text or "")}
    return named | (has_arguments if module.__name__ in OF_ONE_FILE else set())


def public():
    """Full names of all classes and functions that users import."""
    everything = {name: getattr(dp, name) for name in dir(dp) if name[0] != "_"}
    modules = [(name, x) for name, x in everything.items() if inspect.ismodule(x)]
    own = {name for name, x in everything.items() if not inspect.ismodule(x)}
    names = set(own)
    while modules:
        prefix, module = modules.pop()
        for name, value in ((x, getattr(module, x)) for x in exported(module)):
            if inspect.ismodule(value):
                modules.append((f"{prefix}.{name}", value))
            elif callable(value) and name not in own:
                names.add(f"{prefix}.{name}")
    return names


def test_the_reference_lists_every_public_name():
    assert public() <= {*FUNCTIONS, *CLASSES}
    assert {"dpsgd.epsilon", "estimators.total_privacy", "solvers.covariance.plan"} <= public()


def test_the_summary_lists_every_public_name_but_those_of_solvers():
    listed = set(re.findall(r"`([\w.]+)`", SUMMARY))
    assert {name for name in public() if not name.startswith("solvers.")} <= listed


@pytest.fixture(scope="module", name="site")
def _site():
    return runpy.run_path(str(Path(__file__).parents[2] / "docs" / "conf.py"))


DOCSTRING = """E|T|^p and e^(-(x + 1) / 2), see `Noise.sample`; *as* `scale` x_1 is.

Args:
    power, x: of `shift`,
        two lines.

Returns:
    (n,), as `calibrate` does.

* one
  point;
* another.

>>> 2 * `x`
4"""


def test_a_docstring_is_converted(site):
    expected = r"""E\|T\|\ :sup:`p`\  and e\ :sup:`-(x + 1) / 2`\ , see \ :py:obj:`Noise.sample <jaxdp.own.Noise.sample>`\ ; \*as\* \ ``scale``\  x\_1 is.

:Arguments:
   * **power**, **x**: of \ ``shift``\ , two lines.

:Returns:
   \(n,), as \ :py:obj:`calibrate <jaxdp.calibrate>`\  does.

* one point;

* another.

>>> 2 * `x`
4
"""  # noqa: E501
    assert site["converted"](DOCSTRING, "jaxdp.Laplace.log_delta", dp.Laplace.log_delta) == expected


@pytest.mark.parametrize("start", ["-x", "(a) b", "1. x", "a. x", "| x", "= x", ".. x"])
def test_no_formula_begins_a_list(site, start):
    assert site["prose"](start, "jaxdp.Laplace", None).startswith("\\")


def test_every_entry_can_be_linked(site):
    names = site["DOCUMENTED"]
    assert {"jaxdp.own.Noise.log_delta", "jaxdp.dpsgd.epsilon", "jaxdp.Phase"} - names == {
        "jaxdp.Phase"
    }
    for name in names:
        thing = reduce(getattr, name.split(".")[1:], dp)
        text = site["converted"](inspect.getdoc(thing) or "", name, thing)
        for target in re.findall(r":py:obj:`[^`]*<([^`]*)>`", text):
            assert target in names
