"""Public functions say what comes in and what goes out, and their examples print what they say."""

import doctest
import inspect
import pydoc
import re
import sys
from pathlib import Path

import pytest

import jaxdp as dp

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "api.md").read_text()
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


def test_the_reference_lists_every_public_name():
    listed = {name.split(".")[0] for name in (*FUNCTIONS, *CLASSES)}
    assert set(dp._PLACES) <= listed
