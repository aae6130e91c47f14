"""Validation of stored privacy losses, which `PrivacyLoss.from_json` and `verify` share.

It needs the standard library alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jaxdp.proof.kinds import (
    ANY_KIND,
    ANY_PAIR,
    COUNT,
    KINDS,
    ON_INTEGERS,
    REAL,
    RELATIONS,
    SYMMETRIC,
    Numbers,
    Records,
)

# Tolerance of sums of probabilities above 1, of rounded logarithms' sums, of Newton's inequalities.
# chosen: far above rounding
_TOLERANCE = 1e-9
# Tolerance of mirrored losses and masses. chosen: above rounding
_MIRROR = 1e-12
# Errors of a mass under Q: in ulp, and in ulp times its loss. derived: a loss is within 2 ulp
_ULPS, _ULPS_OF_LOSS = 4, 4
# Logarithms of probabilities that add up to 1.
_SHARES = ("log_probabilities", "other_log_probabilities", "log_shares")
# Fields of one length.
_ALIKE = (
    ("sensitivities", "log_probabilities"),
    ("other_sensitivities", "other_log_probabilities"),
    ("pairs", "log_shares"),
    ("losses", "masses"),
)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, for `json.loads`; `ValueError` for a repeated key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"keys must differ, got {[key for key, _ in pairs]}")
    return found


def check(relation: Any, terms: Any, *, own: bool = False) -> None:
    """`ValueError` unless these are the relation and the terms of a privacy loss.

    own: True to accept kinds "module:Class", whose own fields are not checked.
    """
    if not isinstance(terms, list) or not terms:
        raise ValueError(f"terms must be a list of at least one term, got {terms!r:.40}")
    if relation is not None and (not isinstance(relation, str) or relation not in RELATIONS):
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}, got {relation!r:.40}")
    try:
        shapes = [_term(term, relation, own) for term in terms]
    except RecursionError as error:
        raise ValueError("terms must not be nested as deep as these") from error
    _broadcast([shape[:-1] for shape in shapes])


def require_keys(name: str, row: Any, names: Sequence[str]) -> None:
    """`ValueError` unless `row` is an object with exactly these keys."""
    if not isinstance(row, dict) or set(row) != set(names):
        keys = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"{name} must hold {', '.join(sorted(names))}, got {keys}")


def shape_of(term: dict[str, Any]) -> tuple[int, ...]:
    """The shape that the arrays of a checked term have together."""
    return _broadcast([tuple(x["shape"]) for x in _arrays(term)])


def is_symmetric(pair: dict[str, Any]) -> bool:
    """True if the exchanged pair of a checked pair is the same."""
    match pair["kind"]:
        case "PublicCoin":
            return all(map(is_symmetric, pair["pairs"]))
        case "GaussianMixture":
            names = ("sensitivities", "log_probabilities")
            return all(pair[name] == pair[f"other_{name}"] for name in names)
        case kind:
            return kind in SYMMETRIC


def _is_mirrored(pair: dict[str, Any]) -> bool:
    """True if a pair of finitely many losses is the same as its exchanged one, up to rounding."""
    if pair["kind"] != "Finite":
        return False
    losses, masses, infinite, hidden = _finite(pair)
    exchanged = [_under_q(x, m) for x, m in zip(losses, masses, strict=True)][::-1]
    sides = zip([*masses, infinite], [*exchanged, hidden], strict=True)
    return all(math.isclose(p, q, rel_tol=_MIRROR) for p, q in sides) and all(
        abs(x + y) <= _MIRROR * (1.0 + abs(x)) for x, y in zip(losses, losses[::-1], strict=True)
    )


def _term(term: Any, relation: str | None, own: bool) -> tuple[int, ...]:
    """The shape of a term's arrays."""
    require_keys("term", term, ("pair", "count"))
    pair = term["pair"]
    _record("pair", pair, ANY_PAIR, own)
    _numbers("count", term["count"], COUNT)
    is_own = ":" in pair["kind"]
    if relation is None and not (is_own or is_symmetric(pair) or _is_mirrored(pair)):
        raise ValueError(
            f"relation must be one of {', '.join(RELATIONS)} for a {pair['kind']} whose exchanged "
            "pair is another, got None"
        )
    if any(added != (relation == "add") for added in ([] if is_own else _added(pair))):
        raise ValueError("added must be 1 where relation is 'add', else 0")
    shape = shape_of(term)
    if not shape or shape[-1] < 1:
        raise ValueError(f"count must have an axis of at least one release, got shape {shape}")
    return shape


def _record(name: str, row: Any, allowed: Records, own: bool) -> None:
    kind = row.get("kind") if isinstance(row, dict) else None
    if own and allowed.own and isinstance(kind, str) and ":" in kind:
        _own([value for key, value in row.items() if key != "kind"])
        return
    if not isinstance(kind, str) or kind not in allowed.kinds:
        raise ValueError(f"kind of {name} must be one of {', '.join(allowed.kinds)}, got {kind!r}")
    fields = KINDS[kind]
    require_keys(kind, row, ("kind", *fields))
    for key, field in fields.items():
        label, value = f"{key} of {kind}", row[key]
        if isinstance(field, Numbers):
            _numbers(label, value, field)
        else:
            for part in _list(label, value) if field.many else [value]:
                _record(label, part, field, own)
    for first, second in _ALIKE:
        if first in fields and second in fields and len(row[first]) != len(row[second]):
            raise ValueError(f"{second} of {kind} must be as many as {first}")
    _require_law(kind, row)
    noise = row.get("noise", {}).get("kind")
    if noise in ON_INTEGERS:
        _numbers(f"shift of {kind}", row["shift"], COUNT)


def _own(value: Any) -> None:
    """A field of a class of the user's: any numbers, and records of any kind."""
    match value:
        case {"kind": _}:
            _record("a field", value, ANY_KIND, True)
        case list():
            for part in value:
                _own(part)
        case str():
            _number("a field", value)
        case bool():
            pass
        case _:
            _numbers("a field", value, REAL)


def _numbers(label: str, value: Any, field: Numbers) -> None:
    for part in _list(label, value) if field.many else [value]:
        for text in [part] if field.static else _values(label, part):
            if not field.holds(_number(label, text)):
                raise ValueError(f"{label} must be {field}, got {text}")


def _values(label: str, array: Any) -> list[Any]:
    """The values of an array, as many as its shape says."""
    require_keys(f"an array, {label},", array, ("shape", "values"))
    shape, values = array["shape"], array["values"]
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or not isinstance(values, list) or len(values) != math.prod(shape):
        raise ValueError(f"an array, {label}, must have as many values as its shape, got {shape}")
    return values


def _number(label: str, text: Any) -> float:
    try:
        if isinstance(text, str) and text.lstrip("-").startswith(("0x", "inf", "nan")):
            return float.fromhex(text)
    except (OverflowError, ValueError):
        pass
    raise ValueError(f"{label} must be hexadecimal text, got {text!r:.40}")


def _list(label: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{label} must be a list of at least one value, got {value!r:.40}")
    return value


def _arrays(value: Any) -> Iterator[dict[str, Any]]:
    """The arrays in a checked record and in its parts."""
    if isinstance(value, dict) and "shape" in value:
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _arrays(part)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together; `ValueError` if they have none."""
    columns = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    sizes = [set(column) - {1} or {1} for column in columns]
    if any(len(size) > 1 for size in sizes):
        raise ValueError(f"an array must have a shape that fits the others, got {set(shapes)}")
    return tuple(size.pop() for size in reversed(sizes))


def _added(pair: dict[str, Any]) -> Iterator[bool]:
    """For each sampled part of a checked pair, whether a record is added in it."""
    for text in pair["added"]["values"] if "added" in pair else ():
        yield float.fromhex(text) > 0
    for part in pair.get("pairs", ()):
        yield from _added(part)


def _require_law(kind: str, row: dict[str, Any]) -> None:
    """`ValueError` unless the probabilities of a record are those of a law."""
    for name in _SHARES:
        for logs in _columns(name, row[name]) if name in row else ():
            total = math.fsum(map(math.exp, logs))
            if not abs(total - 1.0) <= _TOLERANCE:
                raise ValueError(f"{name} of {kind} must add up to 1, got {total}")
            if kind == "SampledGroup" and not _is_of_indicators(logs):
                raise ValueError(f"{name} must be those of a sum of independent indicators")
    if kind == "Finite":
        losses, masses, infinite, hidden = _finite(row)
        if any(x > y for x, y in itertools.pairwise(losses)):
            raise ValueError("losses must not fall")
        under_q = [_under_q(x, m) for x, m in zip(losses, masses, strict=True)]
        half_ulps = math.fsum(map(math.ulp, masses)) / 2
        errors = (
            q * (_ULPS + _ULPS_OF_LOSS * abs(x)) for q, x in zip(under_q, losses, strict=True)
        )
        _require_whole("masses", [*masses, infinite], half_ulps)
        _require_whole(
            "masses times e^-loss", [*under_q, hidden], math.ulp(1.0) * math.fsum(errors)
        )


def _require_whole(name: str, masses: list[float], rounding: float) -> None:
    """`ValueError` for a total above 1, or below it by more than `rounding`."""
    lacks = -math.fsum([*masses, -1.0])
    if not -_TOLERANCE <= lacks <= rounding:
        raise ValueError(f"{name} must add up to 1 with infinite losses, got {1.0 - lacks}")


def _finite(row: dict[str, Any]) -> tuple[list[float], list[float], float, float]:
    """losses, masses, infinite and hidden."""
    losses, masses = ([float.fromhex(x) for x in row[name]] for name in ("losses", "masses"))
    return losses, masses, float.fromhex(row["infinite"]), float.fromhex(row["hidden"])


def _under_q(loss: float, mass: float) -> float:
    """mass e^-loss, at most e."""
    if mass == 0 or loss > -700.0:
        return mass * math.exp(-loss) if mass else 0.0
    return math.exp(min(math.log(mass) - loss, 1.0))


def _columns(name: str, arrays: list[dict[str, Any]]) -> Iterator[tuple[float, ...]]:
    """The elements of arrays of one shape side by side."""
    if len({tuple(array["shape"]) for array in arrays}) > 1:
        raise ValueError(f"{name} must be arrays of one shape")
    return zip(*([float.fromhex(x) for x in array["values"]] for array in arrays), strict=True)


def _is_of_indicators(logs: tuple[float, ...]) -> bool:
    """Newton's inequalities, for the number of independent events that occur, from 0 on.

    p_k^2 (1 - 1 / (k + 1)) (1 - 1 / (n - k + 1)) is at least p_(k - 1) p_(k + 1).
    """
    n = len(logs) - 1
    for k in range(1, n):
        most = 2.0 * logs[k] + math.log(k / (k + 1)) - math.log1p(1.0 / (n - k))
        product = logs[k - 1] + logs[k + 1]
        if product > -math.inf and not product <= most + _TOLERANCE * (1.0 + abs(most)):
            return False
    return True
