"""Packages whose stub `__init__.pyi` lists their names, imported where first used (SPEC 1)."""

from __future__ import annotations

import ast
import importlib
import sys
import types
from pathlib import Path
from typing import Any


class _Package(types.ModuleType):
    """A package with names that are not imported yet; a name hides a folder of the same name."""

    _places: dict[str, tuple[str, bool]]  # the module of each name, and True for a module itself
    _extra: tuple[str, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        is_folder = isinstance(value, types.ModuleType)
        if self._places.get(name, ("", is_folder))[1] == is_folder:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        message = f"module {self.__name__!r} has no attribute {name!r}"
        if name not in self._places:
            raise AttributeError(message)
        place, is_module = self._places[name]
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            if name not in self._extra:
                raise
            raise AttributeError(f"{message}: {error}") from error
        value = module if is_module else getattr(module, name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        dunders = {name for name in vars(self) if name.startswith("__")}
        return sorted(dunders | set(self._places))


def attach(package: str, path: str, extra: tuple[str, ...] = ()) -> list[str]:
    """The public names of a package, which are imported on first use as its stub says.

    path: of its `__init__.py`, beside which lies the stub. extra: names that raise `AttributeError`
    where an optional dependency is missing.
    """
    places = {}
    for node in ast.parse(Path(path).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                is_module = node.module == package
                place = f"{package}.{alias.name}" if is_module else node.module
                places[alias.name] = place, is_module
    module = sys.modules[package]
    vars(module).update(_places=places, _extra=extra)
    module.__class__ = _Package
    return list(places)
