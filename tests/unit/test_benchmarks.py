"""Benchmarks and reproductions import, and find the values that they assert."""

import json
from pathlib import Path

from processes import run

from benchmarks._tools import measure

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


def test_sections_that_are_not_run_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    measure.write_sections("some", {"old": lambda: 1, "first": lambda: 2}, [])
    measure.write_sections("some", {"first": lambda: 3, "second": lambda: 4}, ["first"])
    stored = json.loads((tmp_path / "some.json").read_text())
    assert (stored["first"], stored["old"], "second" in stored) == (3, 1, False)
    assert stored["commits"].keys() == {"first", "old"}
