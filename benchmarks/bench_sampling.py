"""Sampling schemes: first calls, cost a lane, allocations, epsilon beside peers.

Accuracy is asserted before the clock starts: no epsilon lies below a reference value of
`tests/truth/reference/sampling.json` for the same question. What compiles is timed in fresh
processes and nowhere else; CPU seconds are of all threads. dp_accounting is asked here for
truncated samples where it is installed; of opake-accounting and pld-accounting stand the numbers
that were taken down with the reference values, and whether they are installed. Name
sections on the command line to run some of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from benchmarks._tools.measure import REFERENCE, write_sections

ROOT = Path(__file__).parents[1]
VALUES = json.loads((REFERENCE / "sampling.json").read_text())
# Lanes of a batch.
LANES = 256
# (steps of an epoch, epochs, noise multiplier) of allocations that are timed.
ALLOCATIONS = ((100, 1, 1.0), (235, 15, 1.1), (1000, 10, 0.7), (100_000, 1, 0.7), (1000, 200, 1.5))
DELTAS = [1e-5, 1e-6, 1e-8]
PEERS = ("dp-accounting", "opake-accounting", "pld-accounting")
SCHEMES = {
    "poisson": "sampling=dp.sampling.Poisson(0.01)",
    "truncated": "sampling=dp.sampling.TruncatedPoisson(0.01, 125, 10_000)",
    "without_replacement": "sampling=dp.sampling.WithoutReplacement(100, 10_000)",
    "group_of_2": "sampling=dp.sampling.Poisson(0.01), group_size=2",
    "group_of_8": "sampling=dp.sampling.Poisson(0.01), group_size=8",
    "random_allocation": "sampling=dp.sampling.RandomAllocation(100)",
}
FIRST = """
import time
import jax
jax.config.update("jax_enable_x64", True)
import jaxdp as dp
float((5 * dp.privacy_loss(dp.PureDP(0.1))).epsilon(1e-6))
start = time.process_time()
step = dp.Mechanism(dp.Gaussian(1.1), 1.0, relation="{relation}", {scheme})
found = float(({steps} * dp.privacy_loss(step)).epsilon(1e-6))
print(time.process_time() - start, found)
"""


def first_calls() -> dict[str, Any]:
    """CPU seconds of the first epsilon of each scheme in a fresh process, nothing cached."""
    result = {}
    for name, scheme in SCHEMES.items():
        steps = 5 if name == "random_allocation" else 1000
        text = FIRST.format(scheme=scheme, relation="add_remove", steps=steps)
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT
        )
        cpu, epsilon = map(float, done.stdout.split())
        result[name] = {"cpu_s": cpu, "epsilon": epsilon}
    return result


def lanes() -> dict[str, Any]:
    """CPU milliseconds a lane of epsilon at one delta, warm, by batches."""
    noise = jnp.linspace(0.8, 2.0, LANES)
    result = {}
    for name, scheme in SCHEMES.items():
        if name == "random_allocation":
            continue
        arguments = eval(f"dict({scheme})", {"dp": dp})
        loss = 1000 * dp.privacy_loss(
            dp.Mechanism(dp.Gaussian(noise), 1.0, relation="add_remove", **arguments)
        )
        np.asarray(loss.epsilon(1e-6))
        start = time.process_time()
        np.asarray(loss.epsilon(1e-6))
        result[name] = {"cpu_ms_a_lane": 1e3 * (time.process_time() - start) / LANES}
    return result


def allocations() -> list[dict[str, Any]]:
    """A warm configuration: its densities, and epsilon at three deltas."""
    rows = []
    for steps, epochs, scale in ALLOCATIONS:
        scheme = dp.sampling.RandomAllocation(steps)
        times, found = [], np.zeros(3)
        for factor in (1.0, 1.0 + 1e-9):
            start = time.process_time()
            epoch = dp.Mechanism(
                dp.Gaussian(scale * factor), 1.0, sampling=scheme, relation="add_remove"
            )
            loss = epochs * dp.privacy_loss(epoch)
            jax.block_until_ready(loss)
            built = time.process_time()
            found = np.asarray(loss.epsilon(jnp.array(DELTAS)))
            times.append((built - start, time.process_time() - built))
            require_no_less_than_known((steps, epochs, scale), found)
        rows.append(
            {
                "steps": steps,
                "epochs": epochs,
                "noise_multiplier": scale,
                "epsilon": found.tolist(),
                "densities_cpu_s": times[1][0],
                "three_epsilons_cpu_s": times[1][1],
            }
        )
    return rows


def require_no_less_than_known(training: tuple[int, int, float], found: np.ndarray) -> None:
    """The reference values of an allocation, where there are any, from the safe side."""
    for row in VALUES["random_allocation"]:
        same = (row["steps"], row["epochs"], row["sigma"]) == training
        asked = row["ask"] == "epsilon" and row.get("selected", 1) == 1 and row["delta"] in DELTAS
        if same and asked and not row["scheme"].startswith("balls in bins"):
            least = row["epsilon"] * (1.0 - row["rel_err"] - 1e-8)
            assert found[DELTAS.index(row["delta"])] >= least, (row, found)


def peers() -> list[dict[str, Any]]:
    """Truncated samples beside dp_accounting, warm, in this run."""
    if importlib.util.find_spec("dp_accounting") is None:
        return []
    package: Any = importlib.import_module("dp_accounting")
    pld: Any = importlib.import_module("dp_accounting.pld.pld_privacy_accountant")
    rows = []
    for row in VALUES["schemes"]:
        asked = row["scheme"] == "truncated_poisson" and row["direction"] == "remove"
        p = row["params"]
        if not asked or p.get("steps", 1) < 100:
            continue
        event = package.dp_event.TruncatedSubsampledGaussianDpEvent(
            p["dataset_size"], p["sampling_prob"], p["truncated_batch_size"], p["noise_multiplier"]
        )
        start = time.process_time()
        theirs = pld.PLDAccountant(package.NeighboringRelation.ADD_OR_REMOVE_ONE)
        theirs.compose(event, p["steps"])
        peer = float(theirs.get_epsilon(1e-5))
        peer_cpu = time.process_time() - start
        scheme = dp.sampling.TruncatedPoisson(
            p["sampling_prob"], p["truncated_batch_size"], p["dataset_size"]
        )
        step = dp.Mechanism(
            dp.Gaussian(p["noise_multiplier"]), 1.0, sampling=scheme, relation="add_remove"
        )
        ours = float((p["steps"] * dp.privacy_loss(step)).epsilon(1e-5))
        reference = next((e for d, e, _ in row["delta_to_epsilon_residual"] if d == 1e-5), None)
        assert reference is None or reference * (1 - 1e-11) <= ours
        start = time.process_time()
        float((p["steps"] * dp.privacy_loss(step)).epsilon(1e-5))
        cpu = time.process_time() - start
        rows.append(
            {
                "params": p,
                "reference": reference,
                "epsilon": ours,
                "cpu_s": cpu,
                "dp_accounting": peer,
                "dp_accounting_cpu_s": peer_cpu,
            }
        )
    return rows


def peers_stored() -> dict[str, Any]:
    """Peers' numbers as they were taken down with the reference values, and what is installed."""
    return {"installed": {name: installed(name) for name in PEERS}, "stored": VALUES["peers"]}


def installed(package: str) -> str:
    """Its version, or that there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


SECTIONS: dict[str, Callable[[], Any]] = {
    "first_calls": first_calls,
    "lanes": lanes,
    "allocations": allocations,
    "peers": peers,
    "peers_stored": peers_stored,
}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    write_sections("sampling", SECTIONS, sys.argv[1:])
