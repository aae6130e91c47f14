"""Tests of docstrings: arguments, results, and the output of examples."""

import ast
import doctest
import inspect
import pydoc
import re
import sys
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


def exported(module):
    """Names that a package imports as themselves, in the way of typed packages."""
    path = Path(module.__file__)
    stub = path.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else path).read_text())
    imports = [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
    return {alias.name for x in imports for alias in x.names if alias.asname == alias.name}


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
