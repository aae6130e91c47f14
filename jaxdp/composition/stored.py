"""The terms of a privacy loss as plain JSON values and back, every bit of them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxdp import dominating_pair, noise
from jaxdp._core import checks
from jaxdp._core.float64 import is_users
from jaxdp.accountant.composition import Term, Terms
from jaxdp.dominating_pair.base import DominatingPair, is_symmetric
from jaxdp.noise.base import Noise
from jaxdp.proof.schema import check, require_keys


def kinds() -> dict[str, type]:
    """Classes that have a file format: the package's by name, your own ones as "module:Class".

    Your own class is found if it has been defined: reading a file imports nothing of yours.
    """
    for folder in (noise, dominating_pair):
        for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
            importlib.import_module(module.name)
    found = (*_subclasses(Noise), *_subclasses(DominatingPair))
    return {_kind_of(cls): cls for cls in found}


def _subclasses(base: type) -> Iterator[type]:
    """Records below a base, without noises that have static fields: these are not composed."""
    for cls in base.__subclasses__():
        yield from _subclasses(cls)
        if dataclasses.is_dataclass(cls) and not inspect.isabstract(cls):
            is_static = any(f.metadata.get("static") for f in dataclasses.fields(cls))
            if not (is_static and issubclass(cls, Noise)):
                yield cls


def _kind_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}" if is_users(cls) else cls.__name__


def to_plain(terms: Terms) -> list[dict[str, Any]]:
    """The terms as JSON values: records by the name of their kind, numbers in hexadecimal."""
    if not checks.all_concrete(terms):
        raise ValueError("a loss must be concrete to be written, got traced values")
    return [{"pair": _record(t.pair), "count": _plain(t.count)} for t in terms]


def from_plain(relation: Any, rows: Any) -> Terms:
    """The inverse of `to_plain`; `ValueError` for other rows and for values out of range."""
    check(relation, rows, own=True)
    terms = tuple(_term(row) for row in rows)
    for pair in (term.pair for term in terms):
        if relation is None and is_users(type(pair)) and not is_symmetric(pair):
            raise ValueError(
                f"relation must not be None for a {type(pair).__name__}, whose exchanged pair is "
                "another"
            )
    return terms


def _term(row: Any) -> Term:
    pair, count = _value(row["pair"]), _value(row["count"])
    if not isinstance(pair, DominatingPair):
        raise ValueError(f"pair must be a dominating pair, got {type(pair).__name__}")
    return Term(pair, count)


def _record(value: Any) -> dict[str, Any]:
    kind, found = _kind_of(type(value)), kinds()
    if found.get(kind) is not type(value):
        raise ValueError(f"a loss of {kind} has no file format: {', '.join(found)} have")
    fields = {name: _plain(getattr(value, name)) for name in _names(type(value))}
    return {"kind": kind, **fields}


def _names(cls: type) -> tuple[str, ...]:
    """The fields of a kind that are stored: those that its representation shows."""
    return tuple(f.name for f in dataclasses.fields(cls) if f.repr)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, float | int):
        return float(value).hex()
    if isinstance(value, tuple):
        return [_plain(x if _is_compound(x) else float(x)) for x in value]
    if isinstance(value, np.ndarray | jax.Array):
        flat = np.asarray(value, dtype=np.float64)
        return {"shape": list(flat.shape), "values": [x.hex() for x in flat.ravel().tolist()]}
    return _record(value)


def _is_compound(value: Any) -> bool:
    """True for arrays and records."""
    return isinstance(value, np.ndarray | jax.Array) or dataclasses.is_dataclass(value)


def _value(plain: Any) -> Any:
    """`_plain` undone."""
    match plain:
        case bool():
            return plain
        case str():
            return float.fromhex(plain)
        case list():
            return tuple(map(_value, plain))
        case {"kind": str(kind), **fields}:
            return _built(kind, fields)
        case _:
            flat = np.array([float.fromhex(x) for x in plain["values"]], dtype=np.float64)
            return checks.real("an array", flat.reshape(plain["shape"]))


def _built(kind: str, plain: dict[str, Any]) -> Any:
    """The record of this kind, by its constructor, which checks ranges of your own classes."""
    cls = kinds().get(kind)
    if cls is None:
        raise ValueError(
            f"kind {kind!r} is a class of your own that is not defined: import its module before "
            "the loss is read"
        )
    names = _names(cls)
    require_keys(kind, plain, names)
    fields = [_value(plain[name]) for name in names]
    if "noise" in names and not isinstance(fields[names.index("noise")], Noise):
        raise ValueError(f"noise of {kind} must be a noise, got {plain['noise']['kind']}")
    return getattr(cls, "from_fields", cls)(*fields)
