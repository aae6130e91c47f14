"""Walks: files of the package that one warm call enters, and calls of its functions.

python -m benchmarks.bench_walks writes results/walks.json. A reader who follows one answer from the
public function to the digits reads these files.
"""

import collections
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.testing import CliRunner

import jaxdp as dp
from benchmarks._tools.measure import write
from jaxdp.cli import build_app

PACKAGE = f"{Path(dp.__file__).parent}{os.sep}"
APP = build_app(typer)
PLAN = 'epsilon = 1.0\ndelta = 1e-6\n[[release]]\nstatistic = "count"\n'


def walk(call: Callable[[], Any]) -> dict[str, Any]:
    """Files, calls, and the files with most calls, of a call that ran before."""
    call()
    calls: collections.Counter[str] = collections.Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            calls[file.removeprefix(PACKAGE)] += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {"files": len(calls), "calls": calls.total(), "most": dict(calls.most_common(5))}


def epsilon() -> None:
    """An epsilon of DP-SGD."""
    dp.dpsgd.epsilon(1.1, 1e-5, dataset_size=60_000, batch_size=256, epochs=15)


def fit() -> None:
    """A LASSO of 500 records and 10 columns."""
    generator = np.random.default_rng(0)
    features = generator.uniform(-1.0, 1.0, (500, 10))
    target = np.clip(features @ np.linspace(-1.0, 1.0, 10), -2.0, 2.0)
    bounds = {"feature_bounds": (-1.0, 1.0), "target_bounds": (-2.0, 2.0)}
    dp.DPLasso(epsilon=1.0, delta=1e-6, **bounds).fit(features, target)


def release() -> None:
    """The count of a file, from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        plan, data = Path(folder) / "plan.toml", Path(folder) / "data.csv"
        plan.write_text(PLAN)
        data.write_text("a\n" + "1\n" * 1000)
        told = CliRunner().invoke(APP, ["release", str(data), "--plan", str(plan)])
        assert told.exit_code == 0, told.output


def main() -> None:
    """Count and write."""
    write("walks", {each.__name__: walk(each) for each in (epsilon, fit, release)})


if __name__ == "__main__":
    main()
