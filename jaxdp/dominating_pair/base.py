"""The protocol of a dominating pair: two laws P and Q that no neighbouring inputs exceed.

The privacy loss is L = log dP / dQ under P. Compositions of pairs bound compositions of the
mechanisms that they dominate, adaptive ones included (Zhu, Dong & Wang, AISTATS 2022).
"""

from __future__ import annotations

import abc
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp

from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import log1m, log1mexp
from jaxdp.noise.nodes import Nodes
from jaxdp.noise.truncated_laplace import LEAST_FINITE


class Law(NamedTuple):
    """The privacy loss of one release as nodes: quadrature of its density, and its atoms.

    Nodes lie along a last axis in the order of the outputs that make them.
    """

    loss: Reals  # finite losses
    log_mass: Reals  # under P; -inf for no mass
    log_density: Reals  # of the loss under P; inf at atoms
    check: tuple[Reals, Reals]  # losses and log masses of a second rule, whose nodes are others
    log_infinite: Reals  # log P[L = inf], without the axis of nodes
    largest: Reals  # no finite loss exceeds it, without the axis of nodes


class Smooth(NamedTuple):
    """The loss has a density that varies smoothly: no atoms."""


class Kinks(NamedTuple):
    """The loss has atoms, these among them (NaN: none), or its density has kinks."""

    atoms: tuple[Reals, ...]


class Lattice(NamedTuple):
    """Every finite loss is a whole multiple of `unit`, plus half of it where `odd` is 1."""

    unit: Reals
    odd: Reals


Singularities: TypeAlias = Smooth | Kinks | Lattice


class DominatingPair(abc.ABC):
    """A pair of laws, as arrays of one shape; every engine asks for these six members alone.

    A final subclass is a pytree of arrays. Bad concrete values raise where it is made, bad traced
    values make NaN.
    """

    @abc.abstractmethod
    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log E_P[(1 - e^(epsilon - L))_+] of one release, every real epsilon; rounded up."""

    @abc.abstractmethod
    def law(self) -> Law:
        """The loss as nodes."""

    @abc.abstractmethod
    def singularities(self) -> Singularities:
        """Features that keep the characteristic function of the loss from falling."""

    @abc.abstractmethod
    def reversed(self) -> DominatingPair:
        """P and Q exchanged; a pytree of the same structure."""

    @abc.abstractmethod
    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of P from Q of an order >= 1; the largest loss at infinity."""

    def log_hit(self) -> Reals:
        """log of the probability that a release touches the record: 0 unless a subclass says less.

        P and Q share a law of probability 1 - e^log_hit, so that n releases have
        delta(epsilon) <= 1 - (1 - e^log_hit)^n at epsilon >= 0. The same of the exchanged pair.
        """
        return jnp.zeros(())


def atoms(losses: Reals, log_masses: Reals, log_infinite: Reals, largest: Reals) -> Law:
    """The law of finitely many losses, along a last axis."""
    losses, log_masses = jnp.broadcast_arrays(losses, log_masses)
    nodes = losses, log_masses
    return Law(*nodes, jnp.full_like(losses, jnp.inf), nodes, log_infinite, largest)


def law_on(
    nodes: Nodes,
    loss: Reals,
    log_density: Reals,
    slope: Reals,
    log_infinite: Reals,
    largest: Reals,
) -> Law:
    """Law from the loss, the log density of P and the loss's slope at the nodes of both rules."""
    log_mass = log_density + jnp.log(nodes.weight)
    of_loss = log_density - jnp.log(jnp.abs(slope))
    first = nodes.first
    return Law(
        loss[..., :first],
        log_mass[..., :first],
        of_loss[..., :first],
        (loss[..., first:], log_mass[..., first:]),
        log_infinite,
        largest,
    )


def log_of_infinite(log_finite: Reals) -> Reals:
    """log of the probability of an infinite loss from that of a finite one; -inf for none."""
    some = log_finite < 0
    value = jnp.where(some, log1mexp(jnp.where(some, -log_finite, 1.0)), -jnp.inf)
    return jnp.where(jnp.isnan(log_finite), jnp.nan, value)


def log_of_finite(log_infinite: Reals) -> Reals:
    """log of the probability of a finite loss, at least -700."""
    return jnp.maximum(log1m(jnp.exp(log_infinite)), LEAST_FINITE)
