"""A file imports only from lower floors, or from its own folder, in no circle."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import sources
from sources import trees

ROOT = sources.ROOT / "jaxdp"
FLOORS = (
    ("proof",),
    ("_core",),
    ("_numeric",),
    ("noise",),
    ("guarantee",),
    ("dominating_pair", "risk"),
    ("accountant", "sampling", "own"),
    ("released",),
    ("mechanism", "exponential_mechanism"),
    ("composition",),
    ("adaptive", "design", "interop", "optimal"),
    ("solvers", "tables"),
    ("dpsgd",),
    ("audit", "datasets", "plot", "estimators"),
    ("explore", "sweep"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names}
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imports(path):
    for node in ast.walk(trees("jaxdp")[path]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jaxdp"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = ROOT / Path(*whole.split(".")[1:])
                is_module = target.with_suffix(".py").exists() or target.is_dir()
                yield whole if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("jaxdp"))


def violations(module, imported):
    own, other = module.split(".")[0], imported.split(".")[1:]
    if not other or own == other[0] or FLOOR[other[0]] < FLOOR[own]:
        return []
    return [f"{module} imports {imported}"]


def test_imports_point_down():
    found = []
    for path in trees("jaxdp"):
        module = module_of(path)
        if module != "__init__":
            assert module.split(".")[0] in FLOOR, f"{module} has no floor"
            found += [v for i in imports(path) for v in violations(module, i)]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_circle(folder):
    start = f"jaxdp.{folder}"
    graph = {
        f"jaxdp.{module_of(path)}": {i for i in imports(path) if i.startswith(f"{start}.")}
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_the_walk_sees_an_import_upwards():
    assert violations("noise.gaussian", "jaxdp.guarantee.pure")
    assert violations("mechanism", "jaxdp.exponential_mechanism")
    assert not violations("noise.gaussian", "jaxdp.noise.base")
    assert not violations("mechanism", "jaxdp.noise.base")


def test_mathematics_knows_nothing_of_privacy():
    """Formulas of one noise's loss belong in `noise/kernels`, those of guarantees there."""
    words = re.compile(r"\b(delta|loss|losses|record|privacy)\b")
    for path in (ROOT / "_numeric").glob("[!_]*.py"):
        found = words.findall(path.read_text())
        assert not found, (path.name, found)


LONGEST_FUNCTION, MOST_ARGUMENTS = 60, 7


def test_functions_are_short_and_have_few_arguments():
    """A function fits a screen, its docstring included, and what more a call needs is a record.

    A public function of the package takes further options by keyword.
    """
    beside = trees("benchmarks") | trees("tests")
    for path, tree in (trees("jaxdp") | beside).items():
        for node in (x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, (path, node.name, length)
            by_place = [*node.args.posonlyargs, *node.args.args]
            is_private = node.name.startswith("_") and not node.name.startswith("__")
            counted = [*by_place, *(node.args.kwonlyargs if is_private else [])]
            names = {argument.arg for argument in counted} - {"self", "cls"}
            assert path in beside or len(names) <= MOST_ARGUMENTS, (path, node.name, len(names))


def test_only_core_dependencies_are_imported_at_the_top():
    """jax, numpy, jaxtyping and optax; the rest inside the functions that need them.

    The commands' signatures are typer's: their modules are imported where typer was found. Proofs
    need python-flint alone.
    """
    core = {"jax", "numpy", "jaxtyping", "optax", "jaxdp"}
    own = {"cli": {"typer", *core}, "proof": {"flint", "jaxdp"}}
    for path, tree in trees("jaxdp").items():
        allowed = own.get(path.parent.name, core)
        for node in ast.walk(tree) if path.parent.name == "proof" else tree.body:
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "jaxdp"]
            for name in names:
                package = name.split(".")[0]
                assert package in allowed or package in sys.stdlib_module_names, (path, name)


@pytest.mark.parametrize("folder", ["accountant", "accountant/contour"])
def test_a_folder_describes_the_modules_that_it_has(folder):
    """Those that its `__init__` names are there or in a lower folder, and none is left out."""
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"`([a-z_/]+)`", text))
    there = {path.stem for path in (ROOT / folder).glob("[!_]*")}
    beside = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.rglob("[!_]*.py")}
    assert named <= there | beside | set(FOLDERS)
    assert there - named <= {"batches", "bounds"}


def test_kernels_change_no_array_in_place():
    """An array of NumPy may be another's, or a user's: `x += y` would change it there, too."""
    for path, tree in trees("jaxdp").items():
        if not re.search("_core.namespace import .*\\bxp\\b", path.read_text()):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                step = node.value.value if isinstance(node.value, ast.Constant) else None
                assert isinstance(step, int), (path, node.lineno)
