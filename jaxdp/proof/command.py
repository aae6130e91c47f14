"""Verdict on a statement in a file, for `jaxdp verify` and `python -m jaxdp.proof`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from jaxdp.proof.decision import POINTS, verify
from jaxdp.proof.files import read_text
from jaxdp.proof.schema import unique

# Exit statuses.
_STATUS = {True: 0, False: 1, None: 3}


def run(
    file: str, epsilon: str | None, delta: str | None, most_points: int | None, as_json: bool
) -> tuple[str, int]:
    """The text to print, and the exit status.

    The file is the JSON of a privacy loss, or an object of `loss`, `epsilon` and `delta`, whose
    numbers are text, decimal or hexadecimal. The arguments take precedence.
    """
    text = read_text(file, "statement")
    try:
        body = json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=unique)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{file} must be JSON: {error}") from error
    if isinstance(body, dict) and "loss" in body:
        epsilon = epsilon or body.get("epsilon")
        delta = delta or body.get("delta")
        loss = json.loads(text)["loss"]
        text = loss if isinstance(loss, str) else json.dumps(loss)
    given = {"epsilon": _number(epsilon), "delta": _number(delta)}
    for name, value in given.items():
        if value is None:
            raise ValueError(f"{name} must be given, by --{name} or in {file}")
    proof = verify(text, **given, most_points=POINTS if most_points is None else most_points)
    if as_json:
        answer = {name: str(value) for name, value in given.items()} | dataclasses.asdict(proof)
        return json.dumps(answer), _STATUS[proof.proved]
    claim = f"delta({epsilon}) <= {delta}"
    return f"{proof}\nThe statement: {claim}.\n{proof.note}", _STATUS[proof.proved]


def _number(text: Any) -> Any:
    """Hexadecimal text is a float, decimal text is exact."""
    is_hexadecimal = isinstance(text, str) and "0x" in text.lower()
    try:
        return float.fromhex(text) if is_hexadecimal else text
    except OverflowError as error:
        raise ValueError(f"a number must be finite, got {text!r}") from error
