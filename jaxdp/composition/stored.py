"""The terms of a privacy loss as plain JSON values and back, every bit of them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxdp import dominating_pair, noise
from jaxdp._core import checks
from jaxdp._core.float64 import is_users
from jaxdp._core.types import Reals
from jaxdp.accountant.composition import Term, Terms
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.finite import Finite
from jaxdp.noise.base import Noise

# By how much the masses of a finite loss may miss 1. chosen: far above their rounding.
_MASS_ERROR = 1e-9


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


def from_plain(rows: Any) -> Terms:
    """The inverse of `to_plain`; `ValueError` for other rows and for values out of range."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("terms must be a list of at least one term")
    return tuple(_term(row) for row in rows)


def fields_of(name: str, row: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of a JSON object with exactly these keys, in their order."""
    if not isinstance(row, dict) or set(row) != set(names):
        keys = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"{name} must hold {', '.join(sorted(names))}, got {keys}")
    return tuple(row[key] for key in names)


def _term(row: Any) -> Term:
    pair, count = map(_value, fields_of("term", row, ("pair", "count")))
    count = checks.whole("count", count)
    if not isinstance(pair, DominatingPair):
        names = ", ".join(k for k, cls in kinds().items() if issubclass(cls, DominatingPair))
        raise ValueError(f"pair must be one of {names}, got {type(pair).__name__}")
    term = Term(pair, count)
    if term.count.ndim == 0:
        raise ValueError("count must have an axis along which releases compose, got shape ()")
    return term


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
    if isinstance(value, float):
        return value.hex()
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
            return _number(plain)
        case list():
            return tuple(map(_value, plain))
        case {"kind": str(kind), **fields}:
            return _built(kind, fields)
        case _:
            return _array(plain)


def _number(plain: Any) -> float:
    try:
        return float.fromhex(plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a number must be hexadecimal text, got {plain!r}") from error


def _array(plain: Any) -> Reals:
    shape, values = fields_of("an array", plain, ("shape", "values"))
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or not isinstance(values, list) or len(values) != math.prod(shape):
        raise ValueError(f"an array must have as many values as its shape, got shape {shape}")
    flat = np.array([_number(x) for x in values], dtype=np.float64)
    return checks.real("an array", flat.reshape(shape))


def _built(kind: str, plain: dict[str, Any]) -> Any:
    """The record of this kind, by its constructor, which checks ranges."""
    found = kinds()
    if ":" in kind and kind not in found:
        raise ValueError(
            f"kind {kind!r} is a class of your own that is not defined: import its module before "
            "the loss is read"
        )
    checks.one_of("kind", kind, tuple(found))
    cls = found[kind]
    hints = {} if is_users(cls) else typing.get_type_hints(cls)
    names = _names(cls)
    fields = dict(zip(names, map(_value, fields_of(kind, plain, names)), strict=True))
    for name, value in fields.items():
        hint = hints.get(name, object)
        hint = tuple if typing.get_origin(hint) is tuple else hint
        if not isinstance(value, hint):
            raise ValueError(f"{name} of {kind} must be {hint}, got {type(value).__name__}")
    if cls is Finite:
        _require_law(fields["losses"], fields["masses"], fields["infinite"], fields["hidden"])
    return getattr(cls, "from_fields", cls)(*fields.values())


def _require_law(
    losses: tuple[float, ...], masses: tuple[float, ...], infinite: float, hidden: float
) -> None:
    total = math.fsum(masses) + infinite
    fits = len(losses) == len(masses) and min(infinite, hidden, *masses) >= 0
    if not fits or not abs(total - 1.0) <= _MASS_ERROR or not all(map(math.isfinite, losses)):
        raise ValueError(f"masses must have the shape of the losses and add up to 1, got {total}")
    total_q = math.fsum(m * math.exp(-x) for x, m in zip(losses, masses, strict=True)) + hidden
    if not abs(total_q - 1.0) <= _MASS_ERROR:
        raise ValueError(f"masses times e^-loss must add up to 1 with hidden, got {total_q}")
