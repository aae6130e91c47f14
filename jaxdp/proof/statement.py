"""A stored privacy loss as data."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.law import Releases
from jaxdp.proof.laws import law_of

# Relations under which the worse of two directions is reported.
_BOTH = ("add_remove", "zero_out")


class Statement(NamedTuple):
    """The releases as rows (how often, pair), and the relation."""

    relation: str | None
    rows: tuple[tuple[int, dict[str, Any]], ...]

    @property
    def directions(self) -> tuple[bool, ...]:
        """For each direction that counts, True if its pairs are exchanged."""
        return (False, True) if self.relation in _BOTH else (False,)

    def releases(self, exchanged: bool) -> Releases:
        """The laws of one direction, and how often each is made."""
        laws = ((count, law_of(pair, exchanged)) for count, pair in self.rows)
        return [(count, law) for count, law in laws if law is not None]


def read(text: str) -> Statement:
    """The statement that `PrivacyLoss.to_json` wrote; `ValueError` for anything else."""
    try:
        body = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"statement must be JSON, got {text[:40]!r}") from error
    if not isinstance(body, dict) or body.get("format") != "jaxdp-privacy-loss":
        raise ValueError("statement must be the JSON of a jaxdp-privacy-loss")
    digest = body.pop("digest", None)
    content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    if body.get("version") != 1 or digest != hashlib.sha256(content).hexdigest():
        raise ValueError("statement must be of version 1 and unchanged: its digest differs")
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    try:
        for term in body["terms"]:
            size = _length(term)
            for i in range(size):
                pair, count = _at(term["pair"], i), _at(term["count"], i)
                key = repr(pair)
                rows[key] = (rows[key][0] if key in rows else 0) + _whole(count), pair
    except (KeyError, TypeError) as error:
        raise ValueError(f"statement must hold pairs with counts, lacks {error}") from error
    kept = tuple(row for row in rows.values() if row[0] > 0)
    return Statement(body.get("relation"), kept)


def _length(plain: Any) -> int:
    """Length of the axis of releases; the batch must have one element."""
    if isinstance(plain, dict) and "shape" in plain:
        shape = plain["shape"]
        if math.prod(shape[:-1]) != 1:
            raise ValueError(f"statement must hold one loss, got a batch of {shape[:-1]}")
        return shape[-1] if shape else 1
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    lengths = {_length(part) for part in parts} - {1}
    if len(lengths) > 1:
        raise ValueError(f"statement must hold arrays of one length, got {sorted(lengths)}")
    return lengths.pop() if lengths else 1


def _at(plain: Any, i: int) -> Any:
    """Release i, its numbers exact; -inf, inf and NaN as floats."""
    if isinstance(plain, dict) and "shape" in plain:
        values = plain["values"]
        return _at(values[i if len(values) > 1 else 0], i)
    if isinstance(plain, dict):
        return {key: value if key == "kind" else _at(value, i) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_at(value, i) for value in plain]
    x = float.fromhex(plain)
    return Fraction(x) if math.isfinite(x) else x


def _whole(x: Any) -> int:
    if not isinstance(x, Fraction) or x.denominator != 1 or x < 0:
        raise ValueError(f"count must be whole and at least 0, got {x}")
    return int(x)
