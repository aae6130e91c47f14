"""The families that plans and fits take: the package's by name, and your own noises by class."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, TypeAlias

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.noise.base import Noise
from jaxdp.noise.histogram import Weighted
from jaxdp.released import NOISES

# A name, or the class of a noise.
Family: TypeAlias = str | type[Noise]
# Noises that a fit searches: all but designed ones.
MEMBERS = {name: kind for name, kind in NOISES.items() if not issubclass(kind, Weighted)}
FAMILIES = tuple(MEMBERS)
# Noises of one scale whose sensitivity is a norm of vectors, and those that tend to them.
ALLOCATED = tuple(n for n, kind in MEMBERS.items() if (kind.on_reals or kind).norm)
# Those of real numbers.
CONTINUOUS = tuple(name for name in ALLOCATED if not MEMBERS[name].on_integers)


def scaled(name: str, scale: ArrayLike) -> Any:
    """The noise of a name of `ALLOCATED` at a scale."""
    build: Any = MEMBERS[name]
    return build(scale)


def norm_of(name: str) -> int:
    """The order of the norm that a name of `ALLOCATED` goes by, on the integers its limit's."""
    return (MEMBERS[name].on_reals or MEMBERS[name]).norm


def known(argument: str, family: Family) -> Family:
    """The name of a family of the package, or the class of your own noise; else `ValueError`."""
    if not isinstance(family, type):
        checks.one_of(argument, family, FAMILIES)
        return family
    if MEMBERS.get(getattr(family, "name", "")) is family:
        return family.name
    if not issubclass(family, Noise) or inspect.isabstract(family):
        raise ValueError(f"{argument} must be a name or a class of noise, got {family.__name__}")
    is_default = family._of_shape.__func__ is Noise._of_shape.__func__  # pyright: ignore[reportFunctionMemberAccess]
    if is_default and (
        not dataclasses.is_dataclass(family) or len(dataclasses.fields(family)) != 1
    ):
        raise ValueError(
            f"{argument} must have one parameter, its scale, or a class method "
            f"_of_shape(shape, scale), got {family.__name__}"
        )
    return family


def kind_of(family: Family) -> type[Noise]:
    """The class of a family that `known` returned."""
    return family if isinstance(family, type) else MEMBERS[family]


def name_of(family: Family) -> str:
    """The name of a family that `known` returned."""
    return kind_of(family).name
