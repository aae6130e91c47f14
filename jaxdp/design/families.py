"""The families that a fit searches: the package's by name, and your own noises by class."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TypeAlias

from jaxdp._core import checks
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.staircase import Staircase
from jaxdp.noise.subbotin import Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace

# A name, or the class of a noise.
Family: TypeAlias = str | type[Noise]
MEMBERS: dict[str, type[Noise]] = {
    kind.name: kind
    for kind in (
        *(Gaussian, Laplace, TruncatedLaplace, FlippedHuber, OffsetGaussian, Subbotin, Staircase),
        *(DiscreteGaussian, DiscreteLaplace),
    )
}
FAMILIES = tuple(MEMBERS)


def known(argument: str, family: Family) -> Family:
    """The name of a family of the package, or the class of your own noise; else `ValueError`."""
    if not isinstance(family, type):
        checks.one_of(argument, family, FAMILIES)
        return family
    if MEMBERS.get(getattr(family, "name", "")) is family:
        return family.name
    if not issubclass(family, Noise) or inspect.isabstract(family):
        raise ValueError(f"{argument} must be a name or a class of noise, got {family.__name__}")
    is_default = family._member.__func__ is Noise._member.__func__  # pyright: ignore[reportFunctionMemberAccess]
    if is_default and (
        not dataclasses.is_dataclass(family) or len(dataclasses.fields(family)) != 1
    ):
        raise ValueError(
            f"{argument} must have one parameter, its scale, or a class method "
            f"_member(shape, deviation), got {family.__name__}"
        )
    return family


def kind_of(family: Family) -> type[Noise]:
    """The class of a family that `known` returned."""
    return family if isinstance(family, type) else MEMBERS[family]


def name_of(family: Family) -> str:
    """The name of a family that `known` returned."""
    return kind_of(family).name
