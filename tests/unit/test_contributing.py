"""The recipes of CONTRIBUTING: they name the abstract members, and files that are there."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import jaxdp as dp
from jaxdp.composition import stored
from jaxdp.design.families import MEMBERS
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.noise.base import Noise
from jaxdp.sampling.base import Scheme

ROOT = Path(__file__).parents[2]
RECIPES = {"a noise": Noise, "a dominating pair": DominatingPair, "a sampling scheme": Scheme}
# A class that is there stands for <name>.
EXAMPLES = {"noise": "staircase", "dominating_pair": "poisson", "sampling": "poisson"}


def recipe(thing):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.split(f"## To add {thing}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("thing", RECIPES)
def test_a_recipe_names_every_abstract_member(thing):
    (members,) = re.findall(r"abstract\s+members(.*?)[.;]\s", recipe(thing), flags=re.DOTALL)
    named = re.findall(r"`(\w+)`", members)
    assert sorted(named) == sorted(RECIPES[thing].__abstractmethods__)
    assert f"`{RECIPES[thing].__name__}`" in recipe(thing)


@pytest.mark.parametrize("thing", RECIPES)
def test_a_recipe_names_files_that_are_there(thing):
    words = set(re.findall(r"`([\w/<>*.]+)`", recipe(thing)))
    paths = [word for word in words if "/" in word]
    assert len(paths) >= 3
    for path in paths:
        folder = path.removeprefix("jaxdp/").partition("/")[0]
        name = path.replace("<name>", EXAMPLES.get(folder, ""))
        found = [*ROOT.glob(name), *(ROOT / "jaxdp").glob(name)]
        assert found, path


def test_the_makefile_names_files_that_are_there():
    paths = re.findall(r"(?:tests|docs)/[\w/]+\.py", (ROOT / "Makefile").read_text())
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def classes_of(folder, base):
    """Final classes of a folder of the package."""
    for path in (ROOT / "jaxdp" / folder).glob("*.py"):
        module = importlib.import_module(f"jaxdp.{folder}.{path.stem}")
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, base) and kind.__module__ == module.__name__ and kind is not base:
                yield name, kind


def test_what_a_recipe_lists_is_listed():
    """Files name kinds: noises of a family and public pairs are public and can be stored."""
    noises = {name for name, _ in classes_of("noise", Noise)}
    fitted = {name for name in noises if snake(name) in MEMBERS}
    assert len(fitted) == len(MEMBERS)
    assert fitted <= stored.kinds().keys() & set(dir(dp))
    pairs = {name for name, _ in classes_of("dominating_pair", DominatingPair)}
    assert {name for name in pairs if name in dir(dp)} <= stored.kinds().keys()
    schemes = {kind for _, kind in classes_of("sampling", Scheme)}
    assert schemes == set(dp.sampling.SCHEMES.values())


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
