"""Expected values at 20 digits, computed elsewhere with mpmath at 60 digits or more."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp

FOLDER = Path(__file__).parent / "reference"


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def records(mechanism: str, quantity: str) -> list[dict[str, Any]]:
    found = [row for row in load(f"{mechanism}.json") if row["quantity"] == quantity]
    assert found, (mechanism, quantity)
    return found


def ratio_of(row: dict[str, Any]) -> float:
    """shift / scale of a Gaussian or Laplace record."""
    params, inputs = row["params"], row["inputs"]
    if "mu" in params:
        return float(params["mu"])
    scale = params.get("sigma", params.get("beta"))
    return float(Fraction(str(inputs.get("Delta", 1))) / Fraction(str(scale)))


def expected(row: dict[str, Any]) -> mp.mpf:
    return mp.mpf(row["expected"])
