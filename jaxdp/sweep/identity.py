"""Identity of a sweep: a fingerprint of its function, its grid and the versions."""

from __future__ import annotations

import functools
import hashlib
import pickle
import types
from collections.abc import Callable
from typing import Any

from jaxdp.sweep.provenance import versions


def digest_of(function: Callable[..., Any], grid_digest: str) -> str:
    """A fingerprint of the function's code and what it closes over, the grid and the versions.

    Functions of its own module that it calls count too, the module's other globals do not.
    """
    found = hashlib.sha256(grid_digest.encode())
    found.update(repr(sorted(versions().items())).encode())
    _add(found, function, {})
    return found.hexdigest()


def _add(found: Any, value: Any, seen: dict[int, Any]) -> None:
    """Code, defaults and cells of functions, whatever wraps them; of other values their bytes."""
    if isinstance(value, functools.partial):
        for part in (value.func, *value.args, *sorted(value.keywords.items())):
            _add(found, part, seen)
    elif isinstance(value, types.FunctionType):
        # A function may close over or call itself. The value is kept, so that its id stays its own.
        if id(value) not in seen:
            seen[id(value)] = value
            _add_function(found, value, seen)
    elif isinstance(value, types.MethodType):
        _add(found, value.__func__, seen)
        _add(found, value.__self__, seen)
    elif isinstance(value, types.CodeType):
        found.update(value.co_code + repr(value.co_names).encode())
        for part in value.co_consts:
            _add(found, part, seen)
    elif hasattr(value, "__wrapped__"):
        _add(found, value.__wrapped__, seen)
    elif isinstance(value, types.ModuleType | type):
        found.update(value.__name__.encode())
    elif isinstance(value, set | frozenset):
        # Their order is another one in every process: strings hash with a seed of its own.
        found.update(repr(sorted(map(_digest, value))).encode())
    elif isinstance(value, tuple | list):
        found.update(f"{type(value).__name__}{len(value)}".encode())
        for part in value:
            _add(found, part, seen)
    elif isinstance(value, dict):
        found.update(f"dict{len(value)}".encode())
        for pair in sorted(value.items(), key=lambda pair: _digest(pair[0])):
            _add(found, pair, seen)
    else:
        _add_bytes(found, value, seen)


def _add_function(found: Any, function: types.FunctionType, seen: dict[int, Any]) -> None:
    found.update(function.__qualname__.encode())
    _add(found, function.__code__, seen)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = (function.__kwdefaults__ or {}).items()
    for part in (*(function.__defaults__ or ()), *named, *cells):
        _add(found, part, seen)
    for name in sorted(_names(function.__code__)):
        called = function.__globals__.get(name)
        called = getattr(called, "__wrapped__", called)
        if isinstance(called, types.FunctionType) and called.__module__ == function.__module__:
            _add(found, called, seen)


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function and the functions inside it use."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _add_bytes(found: Any, value: Any, seen: dict[int, Any]) -> None:
    """Pickled where that can be; of objects that are called, and of local classes, their parts."""
    if not callable(value) or not hasattr(value, "__dict__"):
        try:
            found.update(pickle.dumps(value))
            return
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            if not hasattr(value, "__dict__"):
                raise ValueError(
                    f"function must close over what can be pickled, got {type(value).__name__}"
                ) from error
    if id(value) in seen:
        return
    seen[id(value)] = value
    kind = type(value)
    found.update(kind.__qualname__.encode())
    for name, member in sorted(vars(kind).items()):
        if isinstance(member, types.FunctionType):
            found.update(name.encode())
            _add(found, member, seen)
    _add(found, vars(value), seen)


def _digest(value: Any) -> str:
    found = hashlib.sha256()
    _add(found, value, {})
    return found.hexdigest()
