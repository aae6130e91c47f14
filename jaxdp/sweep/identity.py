"""Identity of a sweep: a fingerprint of its function, and where its numbers come from."""

from __future__ import annotations

import functools
import hashlib
import pickle
import subprocess
import types
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

# What decides about digits. chosen: these are the versions that results depend on
_PACKAGES = ("jaxdp", "jax", "jaxlib", "numpy")
# Seconds that asking for the commit may take. chosen: it answers in milliseconds
_COMMIT_WAIT = 5.0
# Long name and unit of what sweeps are most often over, for the labels of `.plot`.
_LABELS = {
    "epsilon": ("privacy loss bound epsilon", "nats"),
    "delta": ("failure probability delta", "1"),
    "log_delta": ("logarithm of delta", "nats"),
    "noise_multiplier": ("noise multiplier", "1"),
    "sampling_prob": ("sampling probability", "1"),
    "scale": ("scale of the noise", "units of the query"),
    "sensitivity": ("sensitivity", "units of the query"),
    "steps": ("number of steps", "1"),
    "epochs": ("number of epochs", "1"),
    "mu": ("Gaussian DP parameter mu", "1"),
}


def digest_of(function: Callable[..., Any], grid_digest: str) -> str:
    """A fingerprint of the function's code and what it closes over, the grid and the versions.

    Functions of its own module that it calls count too, the module's other globals do not.
    """
    found = hashlib.sha256(grid_digest.encode())
    found.update(repr(sorted(versions().items())).encode())
    _add(found, function, {})
    return found.hexdigest()


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    known = {}
    for name in _PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "unknown"
    return known


def labels(name: str) -> dict[str, str]:
    """Attributes that plots are labelled by, for the names that are known."""
    if name not in _LABELS:
        return {}
    long_name, unit = _LABELS[name]
    return {"long_name": long_name, "units": unit}


def provenance(function: Callable[..., Any]) -> dict[str, str]:
    """Attributes that say how a result was made."""
    inner = getattr(function, "__wrapped__", function)
    return {
        "function": getattr(inner, "__qualname__", type(inner).__name__),
        "device": str(jax.local_devices()[0].device_kind),
        "precision": "float64",
        "commit": _commit(),
        **{f"{name}_version": found for name, found in versions().items()},
    }


@functools.cache
def _commit() -> str:
    """Commit of this package, if it is used from a checkout of its own; else "unknown"."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, timeout=_COMMIT_WAIT
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


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
