"""Rows: the releases of a composition as phases of equal releases, lanes last.

`mixtures` makes the rows of sampled Gaussians, which are analytic off the real axis, and `laws` the
rows of any other loss from its quadrature nodes. The engine knows no noise. A row knows the error
of each of its sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.accountant.contour.nodes import (
    FrozenContour,
    LineNodes,
    Nodes,
    Pair,
    Psi,
    Stage,
    Sums,
)


class Bounds(NamedTuple):
    """Logs of Chernoff's bounds on delta at some tilts (tilts, lanes), for epsilon 0."""

    tilts: Reals
    log: Reals


class Plan(NamedTuple):
    """A contour of each lane (lanes,)."""

    tilt: Reals
    period: Reals
    epsilon: Reals  # estimate of epsilon
    log_unit: Reals  # estimate of log delta there
    bounds: Bounds  # of the law on its nodes
    spread: Reals  # (phases, lanes), of l at the tilt of a saddle


class Parts(NamedTuple):
    """Errors of a contour from its law, in units of e^log_scale of the sum, and its end."""

    of_phi: Reals  # error of phi that does not depend on t (phases, lanes)
    by_height: Any  # what `Rows.phi_error` reads
    truncation: Reals  # (lanes,)
    of_scale: Any = 0.0  # log of 1 + the relative error of the moment at the tilt (lanes,)
    end: Any = xp.inf  # height from which on no point counts (lanes,)
    smoothed: Any = 0.0  # variance of the Gaussian that makes psi fall (lanes,)


class Rows(ABC):
    """Base of rows: arrays (phases, lanes) or (lanes,), with nodes first.

    `place` is the place of the nodes of a law that leaves out far less than delta.
    """

    # Hints.
    candidates: ClassVar[np.ndarray]  # tilts to try, the first one near 0
    large_terms: ClassVar[float]  # nats above delta from which on terms lose digits
    least_unit: ClassVar[float]  # least log delta that a contour resolves
    smooths: ClassVar[bool] = False  # True if a Gaussian may make psi fall
    refines: ClassVar[bool] = False  # True if tilts near the best are tried

    # The law. `number` of releases (phases, lanes), `variance` mu^2 of Gaussians beside them.
    number: Any
    variance: Any
    log_finite: Any = 0.0  # log P[L < inf]
    sign: Any = 1.0  # the loss is sign * l
    # Errors of a cumulant beyond psi's, and log of 1 + that of delta.
    composed_error: Any = 0.0
    relative_error: Any = 0.0

    @property
    @abstractmethod
    def parameters(self) -> tuple[Reals, ...]:
        """Arrays that are NaN where a parameter is bad."""

    @abstractmethod
    def nodes(self, stage: Stage) -> int:
        """Number of nodes of all phases, with axes reversed."""

    @abstractmethod
    def power(self, tilt: Reals) -> Reals:
        """The power p of psi(p) = E e^(p l) at a tilt of the loss, for every phase."""

    @abstractmethod
    def placed(self, stage: Stage, log_delta: Reals) -> Any:
        """Place of nodes for log delta."""

    @abstractmethod
    def on_axis(self, stage: Stage, place: Any) -> Nodes:
        """The law on real nodes."""

    @abstractmethod
    def psi(self, place: Any, nodes: Nodes, power: Reals, found: Sums) -> Psi:
        """log psi, and its error."""

    @abstractmethod
    def by_loss(self, nodes: Nodes) -> Nodes:
        """Nodes in the order of their losses, for estimates."""

    @abstractmethod
    def height(self, stage: Stage, place: Any, plan: Plan) -> Reals:
        """Height of the contour's nodes; NaN where there is none."""

    @abstractmethod
    def on_line(self, stage: Stage, frozen: FrozenContour, log_psi: Reals) -> LineNodes:
        """The law on the contour's nodes."""

    @abstractmethod
    def errors(
        self, stage: Stage, plan: Plan, frozen: FrozenContour, line: LineNodes, logs: Pair
    ) -> Parts:
        """Errors of a contour from its law, and its end."""

    @abstractmethod
    def phi_error(self, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
        """Error of phi at heights (points, 1, lanes)."""

    @abstractmethod
    def lost(self, stage: Stage, plan: Plan, place: Any, log_psi: Reals) -> tuple[Reals, Reals]:
        """Mass beyond the nodes in the unit of the plan: untilted, and tilted at its epsilon."""

    @abstractmethod
    def slopes(self, stage: Stage, frozen: FrozenContour, of_mass: Pair, of_loss: Pair) -> Any:
        """Slopes in the parameters, from slopes at nodes."""

    def log_lost(self, place: Any) -> Any:
        """log of the mass that is lost, where tilts near the best are tried."""
        return -xp.inf

    def tilts(self, lanes: Reals) -> Reals:
        """The candidates for every lane."""
        tilts = self.candidates
        return xp.broadcast_to(xp.asarray(tilts)[:, None], (len(tilts), *lanes.shape))

    def coarse(self, nodes: Nodes) -> Nodes:
        """The nodes on which a tilt is searched."""
        return nodes

    def order(self) -> tuple[Any, int]:
        """True where losses fall along the nodes; the number of laws that follow each other."""
        return False, 1

    def centre(self, weight: Reals, loss: Reals) -> Any:
        """The loss around which most of a tilted law lies."""
        return 0.0

    def log_edge(self, stage: Stage, exponent: Reals) -> Any:
        """log of the modulus at the last nodes."""
        return -xp.inf
