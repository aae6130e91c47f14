"""What benchmarks share: interleaved timing, the machine's description, a peer, result files."""

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdp import __version__

RESULTS = Path(__file__).parents[1] / "results"
# Expected values, which the tests use as well.
REFERENCE = Path(__file__).parents[2] / "tests" / "truth" / "reference"
# An interpreter that has diffprivlib, if any.
PEER = os.environ.get("JAXDP_PEER_PYTHON")
NO_PEER = "not measured: JAXDP_PEER_PYTHON names no interpreter with diffprivlib"


def medians(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median wall seconds of each call, the calls taking turns so that all see the same load."""
    for call in calls.values():
        jax.block_until_ready(call())
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def first_call(call: Callable[[], Any]) -> float:
    """Seconds of one call that compiles."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def compiled_cost(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Flops, bytes moved and bytes held of one compiled call, as XLA counts them."""
    compiled = jax.jit(function).lower(*arguments).compile()
    cost: Any = compiled.cost_analysis()
    memory: Any = compiled.memory_analysis()
    return {
        "flops": float(cost.get("flops", float("nan"))),
        "bytes_accessed": float(cost.get("bytes accessed", float("nan"))),
        "bytes_held": float(
            memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        ),
    }


def environment() -> dict[str, Any]:
    """Device, cores, versions and commit."""
    packages = ("jax", "jaxlib", "numpy", "scipy", "dp-accounting")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "device": str(jax.devices()[0]),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {"jaxdp": __version__, **{name: _version(name) for name in packages}},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def ask_peer(model: str, **arguments: Any) -> dict[str, Any]:
    """What `peer_diffprivlib` finds; arrays travel in a file, numbers on the command line."""
    arrays: Any = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    numbers = [repr(float(v)) for v in arguments.values() if not isinstance(v, np.ndarray)]
    script = Path(__file__).with_name("peer_diffprivlib.py")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.npz")
        np.savez(path, **arrays)
        command = [str(PEER), str(script), model, path, *numbers]
        done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)


def write(name: str, results: dict[str, Any]) -> None:
    """Print and store results/NAME.json, whole or not at all."""
    text = json.dumps({"environment": environment(), **results}, indent=1) + "\n"
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f"{name}.json.partial"
    partial.write_text(text)
    os.replace(partial, RESULTS / f"{name}.json")
    print(text)


def write_sections(
    name: str, sections: Mapping[str, Callable[[], Any]], wanted: Sequence[str]
) -> None:
    """Run the wanted sections, or all, and store them; the others of results/NAME.json stay.

    `commits` says at which commit each was run.
    """
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    commits = known.pop("commits", {})
    known.pop("environment", None)
    for section in wanted or sections:
        known[section] = sections[section]()
        commits[section] = environment()["commit"]
    ordered = {section: known[section] for section in (*sections, *known) if section in known}
    write(name, ordered | {"commits": commits})
