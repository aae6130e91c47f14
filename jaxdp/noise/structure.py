"""Structure of a privacy loss apart from its density: atoms, a lattice, an infinite part."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from jaxdp._core.types import Reals


class Smooth(NamedTuple):
    """The loss has a density that varies smoothly: no atoms."""


class Kinks(NamedTuple):
    """The loss has atoms, these among them (NaN or (): none is known), or a density with kinks."""

    atoms: tuple[Reals, ...]


class Lattice(NamedTuple):
    """Every finite loss is a whole multiple of `unit`, plus half of it where `odd` is 1."""

    unit: Reals
    odd: Reals


Singularities: TypeAlias = Smooth | Kinks | Lattice


class Structure(NamedTuple):
    """The privacy loss of a noise at a shift, apart from its density."""

    singularities: Singularities
    log_finite: Reals  # log of the probability that the loss is finite
    largest: Reals  # no finite loss exceeds it


def atom_pair(loss: Reals) -> Kinks:
    """Atoms at a loss and at its negative."""
    return Kinks((-loss, loss))
