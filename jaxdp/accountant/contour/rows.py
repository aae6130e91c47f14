"""What the engine knows of the releases of a composition: phases of equal releases, lanes last.

`mixtures` makes the rows of sampled Gaussians, which are analytic off the real axis, and `laws` the
rows of any other loss from its quadrature nodes. A row knows the error of each of its sums; the
engine knows no noise.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.accountant.contour.nodes import FrozenContour, LineNodes, Nodes, Pair, Psi, Stage, Sums


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
    end: Any = xp.inf  # height from which on no point counts (lanes,)
    smoothed: Any = 0.0  # variance of the Gaussian that makes psi fall (lanes,)


@runtime_checkable
class Rows(Protocol):
    """Releases in phases. Arrays are (phases, lanes) or (lanes,), with nodes first."""

    smooths: ClassVar[bool]  # True where a Gaussian may make psi fall
    large_terms: ClassVar[float]  # nats above delta of terms that lose digits
    number: Reals  # of releases (phases, lanes)
    variance: Reals  # mu^2 of the Gaussians that are not sampled (lanes,)

    @property
    def sign(self) -> Reals:
        """1 where the loss is l, -1 where it is -l."""
        ...

    @property
    def log_finite(self) -> Any:
        """log of the probability that every loss is finite."""
        ...

    @property
    def composed_error(self) -> Any:
        """Error of a cumulant beyond the errors of psi."""
        ...

    @property
    def relative_error(self) -> Any:
        """log of 1 + the relative error of delta from errors of the law's probabilities."""
        ...

    def power(self, tilt: Reals) -> Reals:
        """The p at a tilt of the loss: (..., phases, lanes) from (..., lanes)."""
        ...

    def tilts(self, lanes: Reals) -> Reals:
        """Tilts to try (tilts, lanes); the first one is almost 0."""
        ...

    def placed(self, stage: Stage, log_delta: Reals) -> Any:
        """Place of the nodes of a law that leaves out far less than delta."""
        ...

    def on_axis(self, stage: Stage, place: Any) -> Nodes:
        """The law on real nodes."""
        ...

    def psi(self, place: Any, nodes: Nodes, power: Reals, found: Sums) -> Psi:
        """log psi from sums over the nodes, or over the nodes of `by_loss`."""
        ...

    def by_loss(self, nodes: Nodes) -> Nodes:
        """Nodes in the order of their losses, for an estimate by parts."""
        ...

    def coarse(self, nodes: Nodes) -> Nodes:
        """Few nodes, for estimates, from those of `by_loss`."""
        ...

    def order(self) -> tuple[Any, int]:
        """True where the nodes of `by_loss` fall, and how many laws lie one after the other."""
        ...

    def centre(self, weight: Reals, loss: Reals) -> Any:
        """Loss from which an estimate of the fall of |psi| measures distances."""
        ...

    def log_edge(self, stage: Stage, exponent: Reals) -> Any:
        """log of the moduli at a sharp end of the law (tilts, lanes), over psi."""
        ...

    def height(self, stage: Stage, place: Any, plan: Plan) -> Reals:
        """Height of the nodes of the contour over the real axis; NaN for none."""
        ...

    def on_line(self, stage: Stage, frozen: FrozenContour, log_psi: Reals) -> LineNodes:
        """The law on the nodes of the contour."""
        ...

    def errors(
        self, stage: Stage, plan: Plan, frozen: FrozenContour, line: LineNodes, logs: Pair
    ) -> Parts:
        """Errors of the law on the contour's nodes; `logs` are log psi and log_scale."""
        ...

    def phi_error(self, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
        """Error of phi at heights (points, 1, lanes)."""
        ...

    def lost(self, stage: Stage, plan: Plan, place: Any, log_psi: Reals) -> tuple[Reals, Reals]:
        """Mass beyond the nodes, in the unit of the plan: untilted, and tilted at its epsilon."""
        ...

    def slopes(self, stage: Stage, frozen: FrozenContour, of_mass: Pair, of_loss: Pair) -> Rows:
        """Slopes in the parameters from those in log masses and losses of the contour's nodes."""
        ...
