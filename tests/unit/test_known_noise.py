"""No test fails by chance: noise is known in a test, and generators have a seed."""

import ast
import hashlib
from collections.abc import Iterator

import jax
import numpy as np
from hypothesis import settings
from sources import trees

import jaxdp as dp

GENERATORS = "default_rng", "RandomState", "SeedSequence", "Random"


def test_a_key_is_a_digest_of_the_tests_name(request):
    name = f"{request.config.getoption('draws')} {request.node.nodeid}"
    for call in range(2):
        words = np.asarray(jax.random.key_data(dp.secure_key()))
        assert words.tobytes() == hashlib.shake_256(f"{name} {call}".encode()).digest(32)


def test_examples_of_hypothesis_are_the_same_in_every_run():
    assert settings().derandomize


def at_import(node: ast.AST) -> Iterator[ast.Call]:
    """Calls outside of functions, decorators of functions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield from (call for each in child.decorator_list for call in at_import(each))
        elif not isinstance(child, ast.Lambda):
            yield from [child] if isinstance(child, ast.Call) else []
            yield from at_import(child)


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func).split(".")[-1]


def test_no_noise_differs_from_run_to_run():
    """Generators have a seed, and no key is drawn before the tests run, other than in a lambda."""
    for path, tree in trees("tests").items():
        calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call)]
        bare = [x for x in calls if not (x.args or x.keywords) and name_of(x) in GENERATORS]
        keys = [x for x in at_import(tree) if name_of(x) == "secure_key"]
        assert [x.lineno for x in (*bare, *keys)] == [], path
