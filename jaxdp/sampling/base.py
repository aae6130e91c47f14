"""The protocol of a sampling scheme, and what it is asked for."""

from __future__ import annotations

import abc
from typing import NamedTuple, TypeAlias

from jaxdp._core.neighbours import Relation
from jaxdp._core.types import Reals
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.noise.base import Noise
from jaxdp.noise.gaussian import Gaussian

# Records of a data set, at most. derived: larger whole numbers are no doubles
MOST_RECORDS = 2.0**53


class Release(NamedTuple):
    """One release of noise on a sum over a sample, and what its neighbours differ in."""

    noise: Noise
    sensitivity: Reals  # norm of what one record adds, at most
    relation: Relation
    group_size: int  # records of one user


# Pairs that compose one release, and how often each does.
Pairs: TypeAlias = tuple[tuple[DominatingPair, int], ...]


class Scheme(abc.ABC):
    """A way to draw the records that take part in a release: a pytree, its arrays broadcast.

    A scheme of your own says in `pairs` what dominates a release, in the direction "remove".
    """

    @abc.abstractmethod
    def require(self, release: Release) -> None:
        """ValueError, which names what may be asked, where no theorem is known of the release."""

    @abc.abstractmethod
    def pairs(self, release: Release) -> Pairs:
        """The dominating pairs that compose one release where the record is removed."""


def pairs_of(scheme: Scheme, release: Release) -> Pairs:
    """The pairs of the release in the direction of its relation."""
    scheme.require(release)
    pairs = scheme.pairs(release)
    if release.relation != "add":
        return pairs
    return tuple((pair.reversed(), count) for pair, count in pairs)


def require_known(
    scheme: Scheme,
    release: Release,
    relations: tuple[str, ...],
    *,
    groups: tuple[str, ...] = (),
    any_noise: tuple[str, ...] = (),
) -> None:
    """ValueError unless a theorem is known of the scheme under this relation.

    `groups`: relations under which a user may have several records; `any_noise`: those under which
    the noise need not be Gaussian where there is one record.
    """
    name = type(scheme).__name__
    if release.relation not in relations:
        raise ValueError(
            f"relation must be one of {', '.join(relations)} for {name}, got {release.relation!r}: "
            "no dominating pair is known of the others"
        )
    if release.group_size > 1 and release.relation not in groups:
        allowed = f"{', '.join(groups)}" if groups else "none"
        raise ValueError(
            f"group_size must be 1 for {name} under {release.relation!r}, got "
            f"{release.group_size}: relations whose groups are known: {allowed}"
        )
    free = release.group_size == 1 and release.relation in any_noise
    if not free and not isinstance(release.noise, Gaussian):
        allowed_noise = ", ".join(any_noise) or "none"
        raise ValueError(
            f"noise must be Gaussian for {name} under {release.relation!r} with group_size "
            f"{release.group_size}, got {type(release.noise).__name__}: relations of single "
            f"records that allow any noise: {allowed_noise}"
        )
