"""A stored privacy loss as data."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.files import Format, unsealed
from jaxdp.proof.law import Releases
from jaxdp.proof.laws import law_of
from jaxdp.proof.schema import check, is_symmetric, require_keys, shape_of

# Format of the text that `PrivacyLoss.to_json` writes.
_FORM = Format("jaxdp-privacy-loss")
# Relations under which one direction is reported; None is that of symmetric pairs.
_ONE_DIRECTION = (None, "add", "remove")


class Statement(NamedTuple):
    """The releases as rows (how often, pair).

    directions: for each direction that counts, True if its pairs are exchanged.
    """

    directions: tuple[bool, ...]
    rows: tuple[tuple[int, dict[str, Any]], ...]

    def releases(self, exchanged: bool) -> Releases:
        """The laws of one direction, and how often each is made."""
        laws = ((count, law_of(pair, exchanged)) for count, pair in self.rows)
        return [(count, law) for count, law in laws if law is not None]


def read(text: str) -> Statement:
    """The statement that `PrivacyLoss.to_json` wrote; `ValueError` for anything else."""
    body = unsealed(_FORM, text)
    require_keys("statement", body, ("relation", "terms"))
    relation, terms = body["relation"], body["terms"]
    check(relation, terms)
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    for term in terms:
        *batch, size = shape_of(term)
        if math.prod(batch) != 1:
            raise ValueError(f"statement must hold one loss, got a batch of shape {batch}")
        for i in range(size):
            pair, count = _at(term["pair"], i), _at(term["count"], i)
            key = repr(pair)
            rows[key] = (rows[key][0] if key in rows else 0) + _whole(count), pair
    is_one = relation in _ONE_DIRECTION or all(is_symmetric(term["pair"]) for term in terms)
    directions = (False,) if is_one else (False, True)
    return Statement(directions, tuple(row for row in rows.values() if row[0] > 0))


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
    if not isinstance(x, Fraction):
        raise ValueError(f"count must be finite for a proof, got {x}")
    return int(x)
