"""A file imports only from lower floors, or from its own package's base."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "jaxdp"
FLOORS = (
    (
        "_types",
        "_pytree",
        "_cache",
        "_check",
        "_compile",
        "_key",
        "_threads",
        "_numeric",
        "profiles",
    ),
    ("noise",),
    ("guarantee",),
    ("dominating_pair",),
    ("accountant",),
    (
        "mechanism",
        "conversions",
        "problems",
        "sensitivity",
        "tradeoff",
        "ledger",
        "exponential",
        "stored_loss",
        "range_composition",
    ),
    ("families", "privacy_loss", "sufficient", "risk"),
    (
        "calibrate",
        "fit",
        "lower_bounds",
        "currency",
        "interop",
        "optimal",
    ),
    ("allocate_exact", "privacy_filter", "odometer", "dpsgd"),
    ("allocate", "compare"),
    ("solvers",),
    ("datasets", "plot", "estimators"),
    ("sweep",),
    ("demo",),
    ("cli",),
    ("__main__",),
)
# What contains another one gives it the work.
CONTAINED = {
    ("noise.subbotin", "jaxdp.noise.laplace"),
    ("noise.discrete_histogram", "jaxdp.noise.histogram"),
    ("noise.numerical", "jaxdp.noise.nodes"),
    ("estimators.lasso", "jaxdp.estimators.linear"),
    ("estimators.logistic", "jaxdp.estimators.linear"),
    ("estimators.moments", "jaxdp.estimators.linear"),
}
# Their files import each other, in no circle.
ACYCLIC = ("dominating_pair", "accountant", "sweep", "plot", "cli")
OPTIMAL = (
    "measure",
    "exact",
    "program",
    "dual",
    "certify",
    "kernel",
    "points",
    "range_cost",
    "range_bound",
    "table",
    "noise",
    "mechanism",
    "published",
    "saddle",
    "halpern",
    "first_order",
)
SOLVERS = (
    "descent_schedule",
    "descent_defaults",
    "descent_accounting",
    "descent_plan",
    "descent_run",
    "descent_file",
    "proximal_descent",
    "coordinate_descent",
    "covariance",
    "scaling",
    "sufficient_statistics",
    "naive_bayes",
    "private_gradients",
    "regularised_exponential",
    "__init__",
)
ORDERED = {
    "optimal": OPTIMAL,
    "solvers": SOLVERS,
    "interop": ("dp_events", "dp_accounting", "opacus", "__init__"),
}
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names}


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jaxdp"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = ROOT / Path(*whole.split(".")[1:])
                is_module = target.with_suffix(".py").exists() or target.is_dir()
                yield whole if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("jaxdp"))


def violations(module, imported):
    own, other = module.split("."), imported.split(".")[1:]
    if not other or (module, imported) in CONTAINED:
        return []
    if own[0] == other[0] == "_numeric" or (own[0] in FLOORS[0] and other[0] in FLOORS[0]):
        return []
    if own[0] == other[0] and own[0] in ACYCLIC:
        return []
    if own[0] == other[0] and own[0] in ORDERED:
        order = ORDERED[own[0]]
        allowed = order.index(other[1]) < order.index(own[1])
        return [] if allowed else [f"{module} imports {imported}"]
    if own[0] == other[0]:
        allowed = other[-1] == "base" or own[-1] == "__init__"
    else:
        allowed = FLOOR[other[0]] < FLOOR[own[0]]
    return [] if allowed else [f"{module} imports {imported}"]


def test_imports_point_down():
    found = []
    for path in ROOT.rglob("*.py"):
        module = module_of(path)
        if module != "__init__":
            assert module.split(".")[0] in FLOOR, f"{module} has no floor"
            found += [v for i in imports(path) for v in violations(module, i)]
    assert found == []


@pytest.mark.parametrize("folder", ACYCLIC)
def test_no_circle(folder):
    start = f"jaxdp.{folder}."
    graph = {
        f"jaxdp.{module_of(path)}": {i for i in imports(path) if i.startswith(start)}
        for path in (ROOT / folder).glob("*.py")
    }
    order = list(TopologicalSorter(graph).static_order())
    assert len(order) >= 4


def test_the_walk_sees_an_import_upwards():
    assert violations("noise.gaussian", "jaxdp.guarantee.pure")
    assert violations("noise.gaussian", "jaxdp.noise.laplace")
    assert not violations("noise.gaussian", "jaxdp.noise.base")
    assert not violations("mechanism", "jaxdp.noise.base")


def test_only_core_dependencies_are_imported_at_the_top():
    """jax, numpy, jaxtyping and optax; the rest inside the functions that need them.

    The commands' signatures are typer's: their modules are imported where typer was found.
    """
    core = {"jax", "numpy", "jaxtyping", "optax", "jaxdp"}
    import sys

    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "jaxdp"]
            for name in names:
                package = name.split(".")[0]
                if (path.parent.name, package) == ("cli", "typer"):
                    continue
                assert package in core or package in sys.stdlib_module_names, (path, name)
