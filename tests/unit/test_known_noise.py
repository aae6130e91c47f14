"""No test fails by chance: noise is known in a test, and generators have a seed."""

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from hypothesis import settings

import jaxdp as dp

TREES = {path: ast.parse(path.read_text()) for path in Path(__file__).parents[1].rglob("*.py")}
GENERATORS = "default_rng", "RandomState", "SeedSequence", "Random"


def test_a_key_is_a_digest_of_the_tests_name(request):
    name = f"{request.config.getoption('draws')} {request.node.nodeid}"
    for call in range(2):
        words = np.asarray(jax.random.key_data(dp.secure_key()))
        assert words.tobytes() == hashlib.shake_256(f"{name} {call}".encode()).digest(32)


def test_examples_of_hypothesis_are_the_same_in_every_run():
    assert settings().derandomize


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (found for found in ast.walk(node) if isinstance(found, ast.Call))


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func).split(".")[-1]


def test_generators_have_a_seed():
    for path, tree in TREES.items():
        bare = [call for call in calls(tree) if not (call.args or call.keywords)]
        assert [x.lineno for x in bare if name_of(x) in GENERATORS] == [], path


def at_import(node: ast.AST) -> Iterator[ast.Call]:
    """Calls outside of functions, decorators of functions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield from (call for each in child.decorator_list for call in at_import(each))
        elif not isinstance(child, ast.Lambda):
            yield from [child] if isinstance(child, ast.Call) else []
            yield from at_import(child)


def test_no_key_is_drawn_before_the_tests_run():
    """It would be another one in every run; those within a lambda are drawn in its test."""
    for path, tree in TREES.items():
        found = [call.lineno for call in at_import(tree) if name_of(call) == "secure_key"]
        assert found == [], path
