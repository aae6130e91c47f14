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
    """Fingerprint of the function's code and closure, the grid and the versions.

    Functions of its own module that it calls count too, the module's other globals do not.
    """
    fingerprint = hashlib.sha256(grid_digest.encode())
    fingerprint.update(repr(sorted(versions().items())).encode())
    _add(fingerprint, function, {})
    return fingerprint.hexdigest()


def _add(fingerprint: Any, value: Any, visited: dict[int, Any]) -> None:
    """Code, defaults and cells of functions, whatever wraps them; of other values their bytes."""
    if isinstance(value, functools.partial):
        for part in (value.func, *value.args, *sorted(value.keywords.items())):
            _add(fingerprint, part, visited)
    elif isinstance(value, types.FunctionType):
        # A function may close over or call itself. The value is kept, so that its id stays its own.
        if id(value) not in visited:
            visited[id(value)] = value
            _add_function(fingerprint, value, visited)
    elif isinstance(value, types.MethodType):
        _add(fingerprint, value.__func__, visited)
        _add(fingerprint, value.__self__, visited)
    elif isinstance(value, types.CodeType):
        fingerprint.update(value.co_code + repr(value.co_names).encode())
        for part in value.co_consts:
            _add(fingerprint, part, visited)
    elif hasattr(value, "__wrapped__"):
        _add(fingerprint, value.__wrapped__, visited)
    elif isinstance(value, types.ModuleType | type):
        fingerprint.update(value.__name__.encode())
    elif isinstance(value, set | frozenset):
        # Their order is another one in every process: strings hash with a seed of its own.
        fingerprint.update(repr(sorted(map(_digest, value))).encode())
    elif isinstance(value, tuple | list):
        fingerprint.update(f"{type(value).__name__}{len(value)}".encode())
        for part in value:
            _add(fingerprint, part, visited)
    elif isinstance(value, dict):
        fingerprint.update(f"dict{len(value)}".encode())
        for pair in sorted(value.items(), key=lambda pair: _digest(pair[0])):
            _add(fingerprint, pair, visited)
    else:
        _add_bytes(fingerprint, value, visited)


def _add_function(fingerprint: Any, function: types.FunctionType, visited: dict[int, Any]) -> None:
    fingerprint.update(function.__qualname__.encode())
    _add(fingerprint, function.__code__, visited)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = (function.__kwdefaults__ or {}).items()
    for part in (*(function.__defaults__ or ()), *named, *cells):
        _add(fingerprint, part, visited)
    for name in sorted(_names(function.__code__)):
        called = function.__globals__.get(name)
        called = getattr(called, "__wrapped__", called)
        if isinstance(called, types.FunctionType) and called.__module__ == function.__module__:
            _add(fingerprint, called, visited)


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function and the functions inside it use."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _add_bytes(fingerprint: Any, value: Any, visited: dict[int, Any]) -> None:
    """Pickled where that can be; of objects that are called, and of local classes, their parts."""
    if not callable(value) or not hasattr(value, "__dict__"):
        try:
            fingerprint.update(pickle.dumps(value))
            return
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            if not hasattr(value, "__dict__"):
                raise ValueError(
                    f"function must close over what can be pickled, got {type(value).__name__}"
                ) from error
    if id(value) in visited:
        return
    visited[id(value)] = value
    kind = type(value)
    fingerprint.update(kind.__qualname__.encode())
    for name, member in sorted(vars(kind).items()):
        if isinstance(member, types.FunctionType):
            fingerprint.update(name.encode())
            _add(fingerprint, member, visited)
    _add(fingerprint, vars(value), visited)


def _digest(value: Any) -> str:
    fingerprint = hashlib.sha256()
    _add(fingerprint, value, {})
    return fingerprint.hexdigest()
