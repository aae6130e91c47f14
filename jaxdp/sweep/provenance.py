"""Attributes of a sweep's dataset: origin, names and units of its numbers."""

from __future__ import annotations

import functools
import hashlib
import inspect
import numbers
import pickle
import subprocess
import types
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxdp import __version__
from jaxdp.sweep.evaluate import ALONE
from jaxdp.sweep.grid import DONE, FAILED, NOT_DONE, STATUS

# What decides about digits. chosen: these are the versions that results depend on
_PACKAGES = ("jax", "jaxlib", "numpy")
# Seconds that asking for the commit may take. chosen: it answers in milliseconds
_COMMIT_WAIT = 5.0
# Long names and units of common axes, for the labels of `.plot`. Plain numbers have no unit: "1"
# would stand on every picture.
_LABELS = {
    "epsilon": {"long_name": "epsilon", "units": "nats"},
    "delta": {"long_name": "delta"},
    "log_delta": {"long_name": "logarithm of delta", "units": "nats"},
    "noise_multiplier": {"long_name": "noise multiplier"},
    "sampling_prob": {"long_name": "sampling probability"},
    "scale": {"long_name": "scale of the noise", "units": "units of the query"},
    "sensitivity": {"long_name": "sensitivity", "units": "units of the query"},
    "steps": {"long_name": "number of steps"},
    "epochs": {"long_name": "number of epochs"},
    "dataset_size": {"long_name": "number of records"},
    "batch_size": {"long_name": "expected records of a batch"},
    "mu": {"long_name": "Gaussian DP parameter mu"},
}
# By which sweeps are read as netCDF, whose whole numbers have 32 bits. derived
_GREATEST_INTEGER = 2**31
# Longest text of a value that is neither number nor text. chosen: two lines
_LONGEST_TEXT = 200


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    # Not by the name of a distribution: on the index `jaxdp` is another one.
    by_package = {"jaxdp": __version__}
    for name in _PACKAGES:
        try:
            by_package[name] = version(name)
        except PackageNotFoundError:
            by_package[name] = "unknown"
    return by_package


def provenance(function: Callable[..., Any]) -> dict[str, Any]:
    """Attributes with the origin of a result, arguments bound to the function included.

    All are numbers or texts, as netCDF requires. A bound argument with the name of another
    attribute is called "argument_...".
    """
    inner, bound = _unwrapped(function)
    attributes = {
        "function": _qualified(inner),
        "device": str(jax.local_devices()[0].device_kind),
        "precision": "float64",
        "commit": _commit(),
        "failures": "",
        **{f"{name}_version": number for name, number in versions().items()},
    }
    named = {f"argument_{k}" if k in attributes else k: _plain(value) for k, value in bound.items()}
    return attributes | named


def described(
    function: Callable[..., Any], axes: Iterable[str], results: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Attributes of axes, results and status by name: long_name and units where they are known.

    An unnamed result takes the name of the function.
    """
    inner, _ = _unwrapped(function)
    labels = {name: _LABELS.get(name, {}) for name in (*axes, *results)}
    if ALONE in labels:
        labels[ALONE] = _labels_of_function(_qualified(inner).rpartition(".")[2])
    flags = {
        "long_name": "what became of the point",
        "flag_values": [NOT_DONE, DONE, FAILED],
        "flag_meanings": "not_done done failed",
    }
    return {**labels, STATUS: flags}


def _labels_of_function(name: str) -> dict[str, str]:
    """Labels of a known quantity, or of one at the end of the name, as in `training_epsilon`."""
    endings = [known for known in _LABELS if name == known or name.endswith(f"_{known}")]
    if name.startswith("<"):
        return {}
    if not endings:
        return {"name": name, "long_name": name.replace("_", " ").strip()}
    known = max(endings, key=len)
    labels = {"name": name, **_LABELS[known]}
    if name != known:
        labels["long_name"] += f" ({name.replace('_', ' ').strip()})"
    return labels


def _unwrapped(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function inside of partial and other wrappers, and its bound arguments by name."""
    bound: dict[str, Any] = {}
    while True:
        if isinstance(function, functools.partial):
            bound = _arguments(function) | bound
            function = function.func
        elif (inner := getattr(function, "__wrapped__", None)) is not None:
            function = inner
        else:
            return function, bound


def _arguments(call: functools.partial[Any]) -> dict[str, Any]:
    """Bound arguments by name; a mapping is spread over its keys."""
    try:
        names = list(inspect.signature(call.func).parameters)
    except (TypeError, ValueError):
        names = []
    names += [str(place) for place in range(len(names), len(call.args))]
    arguments: dict[str, Any] = {}
    for name, value in (*zip(names, call.args, strict=False), *call.keywords.items()):
        if isinstance(value, Mapping):
            arguments |= {str(key): item for key, item in value.items()}
        else:
            arguments[name] = value
    return arguments


def _plain(value: Any) -> int | float | str:
    """A number as a number, anything else as text."""
    if isinstance(value, np.ndarray | np.generic | jax.Array) and np.ndim(value) == 0:
        value = np.asarray(value).item()
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        if abs(int(value)) < _GREATEST_INTEGER:
            return int(value)
    elif isinstance(value, float):
        return value
    return " ".join(repr(value).split())[:_LONGEST_TEXT]


def _qualified(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


@functools.cache
def _commit() -> str:
    """Commit of this package, if it is used from a checkout of its own; else "unknown"."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        process = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, timeout=_COMMIT_WAIT
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return process.stdout.strip() or "unknown"


# Globals whose values count. chosen: those that a program sets and changes
_PLAIN = (numbers.Number, str, bytes, np.generic, jax.Array)


def digest_of(function: Callable[..., Any], grid_digest: str) -> str:
    """Fingerprint of the function's code and closure, the grid and the versions.

    Of the globals that it names, functions of its own module and plain values count too: numbers,
    texts, arrays and containers of these. Other modules and objects do not.
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
    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        used = function.__globals__[name]
        called = getattr(used, "__wrapped__", used)
        if isinstance(called, types.FunctionType) and called.__module__ == function.__module__:
            _add(fingerprint, called, visited)
        elif _is_plain(used):
            _add(fingerprint, (name, used), visited)


def _is_plain(value: Any) -> bool:
    """True for a number, a text, an array, None, and containers of these."""
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return value is None or isinstance(value, _PLAIN)


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
