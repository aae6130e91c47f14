"""The stored numbers of docs/try.html, and the library's for comparison."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import jaxdp as dp

DOCS = Path(__file__).parents[1] / "docs"
# Rounding up to the next stored number, and what is spared of delta.
ROUNDING = 1.0021


def stored_grid() -> dict[str, Any]:
    """The tables of docs/try_grid.js."""
    text = (DOCS / "try_grid.js").read_text()
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


NODE = shutil.which("node")


def evaluated(expression: str) -> Any:
    """The value of an expression after try_bounds.js, in Node."""
    scripts = [(DOCS / name).read_text() for name in ("try_grid.js", "try_bounds.js")]
    program = "\n".join([*scripts, f"console.log(JSON.stringify({expression}))"])
    done = subprocess.run([NODE or "", "-"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def codes(grid, text):
    places = {digit: k for k, digit in enumerate(grid["digits"])}
    return np.array([places[digit] for digit in text]).reshape(-1, 2) @ [len(places), 1]


def numbers(grid, text):
    return grid["least"] * grid["ratio"] ** codes(grid, text)


def exact(noise, rate, steps, delta):
    loss = steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise), 1.0, rate, "add_remove"))
    return np.where(np.equal(delta, 0.0), loss.delta(0.0), loss.epsilon(np.maximum(delta, 1e-12)))


def assert_stored(grid, stored, known):
    """At least the library's number, and at most that rounded up.

    Near an epsilon of 0 the share of delta that is spared moves it by some 1e-6.
    """
    assert np.all(stored >= known)
    assert np.all(stored <= np.maximum(known * ROUNDING + 1e-5, grid["least"] * (1.0 + 1e-12)))
