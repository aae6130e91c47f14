"""A dominating pair: what an accountant must know of one release in one adjacency direction."""

import abc
from typing import NamedTuple, TypeAlias, final

from jaxdp._pytree import pytree
from jaxdp._types import RealLike, Reals


class Law(NamedTuple):
    """Quadrature nodes of the privacy loss of one release under P, (..., J)."""

    loss: Reals
    log_mass: Reals
    log_infinite: Reals  # (...,): log P[L = inf]
    largest: Reals  # (...,): the largest finite loss, rounded up; inf if unbounded


class Smooth(NamedTuple):
    """The loss has a smooth density."""


class Lattice(NamedTuple):
    """Every finite loss is unit (j + odd / 2), j whole."""

    unit: Reals
    odd: Reals


class Kinks(NamedTuple):
    """The loss has atoms, or its density kinks, at these losses."""

    atoms: tuple[Reals, ...]


Singularities: TypeAlias = Smooth | Lattice | Kinks


class DominatingPair(abc.ABC):
    """Two laws P and Q whose loss log(dP / dQ) under P dominates one release; arrays of a shape."""

    @abc.abstractmethod
    def log_delta(self, epsilon: RealLike) -> Reals:
        """log delta of one release, an upper bound, every real epsilon."""

    @abc.abstractmethod
    def law(self) -> Law:
        """Nodes of the loss under P."""

    @abc.abstractmethod
    def singularities(self) -> Singularities:
        """Where the law of the loss is not smooth."""

    @abc.abstractmethod
    def reversed(self) -> "DominatingPair":
        """P and Q exchanged."""


@final
@pytree
class Term:
    """`count` releases of `pair`: arrays of one shape, whose last axis composes."""

    pair: DominatingPair
    count: Reals


Terms: TypeAlias = tuple[Term, ...]
