"""Benchmarks and reproductions import, and find the values that they assert."""

from pathlib import Path

from processes import run

FOLDER = Path(__file__).parents[2] / "benchmarks"
IMPORTED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(sys.argv) - 1)
"""


def test_every_benchmark_imports():
    files = [file.relative_to(FOLDER.parent) for file in FOLDER.rglob("*.py")]
    # Peers are not installed here; `__main__` runs when it is imported.
    apart = "peer_", "__init__", "__main__", "worker"
    names = [str(file.with_suffix("")).replace("/", ".") for file in files]
    names = [name for name in names if not name.rpartition(".")[2].startswith(apart)]
    assert len(names) > 25
    # Found from the folder above.
    assert run(IMPORTED, *names, PYTHONPATH=str(FOLDER.parent)).split() == [str(len(names))]
