"""What a sweep is: a fingerprint of its function, and where its numbers come from."""

import functools
import hashlib
import pickle
import types
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

# What decides about digits. chosen: these are the versions that results depend on
_PACKAGES = ("jaxdp", "jax", "jaxlib", "numpy")


def digest_of(function: Callable[..., Any], grid_digest: str) -> str:
    """A fingerprint of the function's code and what it closes over, the grid and the versions."""
    found = hashlib.sha256(grid_digest.encode())
    found.update(repr(sorted(versions().items())).encode())
    _add(found, function)
    return found.hexdigest()


def versions() -> dict[str, str]:
    """Of the packages that results depend on."""
    known = {}
    for name in _PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "unknown"
    return known


def provenance(function: Callable[..., Any]) -> dict[str, str]:
    """Attributes that say how a result was made."""
    inner = getattr(function, "__wrapped__", function)
    return {
        "function": getattr(inner, "__qualname__", type(inner).__name__),
        "device": str(jax.local_devices()[0].device_kind),
        "precision": "float64",
        **{f"{name}_version": found for name, found in versions().items()},
    }


def _add(found: Any, value: Any) -> None:
    """Code, defaults and cells of functions, whatever wraps them; of other values their bytes."""
    if isinstance(value, functools.partial):
        for part in (value.func, *value.args, *sorted(value.keywords.items())):
            _add(found, part)
    elif isinstance(value, types.FunctionType):
        found.update(value.__qualname__.encode())
        _add(found, value.__code__)
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        for part in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items(), *cells):
            _add(found, part)
    elif isinstance(value, types.CodeType):
        found.update(value.co_code + repr(value.co_names).encode())
        for part in value.co_consts:
            _add(found, part)
    elif hasattr(value, "__wrapped__"):
        _add(found, value.__wrapped__)
    elif isinstance(value, types.ModuleType | type):
        found.update(value.__name__.encode())
    else:
        found.update(pickle.dumps(value))
