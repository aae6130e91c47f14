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


class LossAtoms(NamedTuple):
    """The atoms of a loss, along a last axis in the order of the outputs that make them.

    A node stands for one atom, or for several where they are too many. `check` then places or
    groups them otherwise, so that both rules differ by more than either's error.
    """

    loss: Reals
    log_mass: Reals  # under P; -inf for no mass
    check: tuple[Reals, Reals]
    log_left_out: Reals  # log of the probability at no node, without the axis of nodes


Singularities: TypeAlias = Smooth | Kinks | Lattice


class Structure(NamedTuple):
    """The privacy loss of a noise at a shift, apart from its density."""

    singularities: Singularities
    log_finite: Reals  # log of the probability that the loss is finite
    largest: Reals  # no finite loss exceeds it


def atom_pair(loss: Reals) -> Kinks:
    """Atoms at a loss and at its negative."""
    return Kinks((-loss, loss))
