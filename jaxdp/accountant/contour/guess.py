"""Estimate of epsilon if samples rarely hold the record: Chernoff's bound is then far above it.

Below a cut of the noise lies a body A, which most releases add to; D is the rest of one release's
law. For n releases, A^n and (A + D)^n - A^n have separate Chernoff bounds, each at its best tilt.
The estimate is the least epsilon, over all cuts, at which both bounds are delta. It has no stated
error: the contour bounds delta.

Source: one big jump: Foss, Korshunov & Zachary, Heavy-Tailed and Subexponential Distributions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import conversion_entropy, log1p
from jaxdp.accountant.contour.cumulant import chernoff_of, composed, in_parts
from jaxdp.accountant.contour.nodes import Nodes, by_tilts, sums
from jaxdp.accountant.contour.rows import Bounds, Rows

CUTS = 32  # of the law. chosen: half a noise apart
CHERNOFF_SLACK = 2.5  # nats by which Chernoff's bound exceeds delta. measured: 2 to 3
NOTHING = -1e30  # log of an absent mass. chosen: far below any other


class Parts(NamedTuple):
    """Bounds of the whole law, and of both parts at every cut, for epsilon 0."""

    whole: Bounds
    log: Reals  # (tilts, 2, cuts, lanes)

    def epsilon(self, log_delta: Reals) -> Reals:
        """Estimate of the least epsilon >= 0 at log delta."""
        each = (self.log - (log_delta + CHERNOFF_SLACK)) / self.whole.tilts[:, None, None]
        return xp.maximum(_least_of_worse(each), 0.0)

    def log_delta(self, epsilon: Reals) -> Reals:
        """Estimate of log delta at an epsilon."""
        each = self.log - (self.whole.tilts * epsilon)[:, None, None]
        return xp.minimum(_least_of_worse(each), 0.0) - CHERNOFF_SLACK


def _least_of_worse(each: Reals) -> Reals:
    """The bound of the worse part, each at its best tilt, at the best cut."""
    least = xp.min(xp.where(xp.isnan(each), xp.inf, each), 0)
    return xp.min(xp.max(least, 0), 0)


def parts(rows: Rows, place: Any, nodes: Nodes, tilts: Reals) -> Parts:
    """Chernoff's bounds at `tilts` (tilts, lanes), of the whole law and of its parts at cuts."""

    def bounds(tilts: Reals) -> tuple[Bounds, Reals]:
        power = rows.power(tilts)
        found = sums(nodes, power)
        whole = chernoff_of(rows, tilts, rows.psi(place, nodes, power, found))
        below, above = in_parts(found, CUTS, rows.order())
        body = composed(rows, below, tilts[:, None])
        risen = xp.sum(rows.number * log1p(above), -2)
        share = -xp.expm1(-risen)
        rest = body + risen + xp.log(xp.where(share > 0, share, 1.0))
        both = xp.stack([body, xp.where(share > 0, rest, NOTHING)], 1)
        return whole, both - conversion_entropy(tilts)[:, None, None]

    return Parts(*by_tilts(bounds, nodes, tilts))
