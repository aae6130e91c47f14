"""Neighbouring relations of data sets, and names of sampling schemes."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Relation: TypeAlias = Literal["add_remove", "add", "remove", "replace_one", "zero_out"]


class Neighbours(NamedTuple):
    """Directions and distances of two neighbouring data sets under a relation."""

    directions: tuple[Literal["remove", "add"], ...]  # whose worst is reported
    factor: float  # largest change of a sum over all records, in contributions of one record
    alias: str | None  # in dp_accounting.NeighboringRelation


NEIGHBOURS: dict[Relation, Neighbours] = {
    "add_remove": Neighbours(("remove", "add"), 1.0, "ADD_OR_REMOVE_ONE"),
    "add": Neighbours(("add",), 1.0, None),
    "remove": Neighbours(("remove",), 1.0, None),
    # Either may be replaced by the other: one direction is as bad as the other.
    "replace_one": Neighbours(("remove",), 2.0, "REPLACE_ONE"),
    # The record stays, and adds nothing.
    "zero_out": Neighbours(("remove", "add"), 1.0, "REPLACE_SPECIAL"),
}
RELATIONS = tuple(NEIGHBOURS)
# Relations that solvers support: their plans take the number of records as public.
SOLVER_RELATIONS: tuple[Relation, ...] = ("replace_one", "add_remove")
# Relations with two directions, where the worse one is reported.
BOTH_DIRECTIONS = tuple(name for name, known in NEIGHBOURS.items() if len(known.directions) == 2)
# Relations with one of the two directions alone.
ONE_DIRECTION = ("add", "remove")
# Relations whose neighbours have one record more or less.
ADD_REMOVE = ("add_remove", *ONE_DIRECTION)
# Those where a record adds what it does, or nothing.
WITH_OR_WITHOUT = (*ADD_REMOVE, "zero_out")


def shift_factor(relation: str | None) -> float:
    """Largest change of a sum, in contributions of a record; 1 without a relation."""
    return NEIGHBOURS[relation].factor if relation in NEIGHBOURS else 1.0


# Sampling schemes of DP-SGD by name; `jaxdp.sampling.SCHEMES` has their classes.
Sampling: TypeAlias = Literal[
    "poisson", "truncated", "without_replacement", "random_allocation", "balls_in_bins"
]
