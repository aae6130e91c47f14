"""Protocol of rows, the releases of a composition: phases of equal releases, lanes last.

`mixtures` makes the rows of sampled Gaussians, which are analytic off the real axis, and `laws` the
rows of any other loss from its quadrature nodes. The engine knows no noise. A row knows the error
of each of its sums, and has these members, arrays (phases, lanes) or (lanes,), with nodes first:

| member | meaning |
|---|---|
| `number`, `variance`, `log_finite` | releases; mu^2 of Gaussians beside them; log P[L < inf] |
| `sign`, `power(tilt)` | the loss is sign * l, and psi(p) = E e^(p l) its moments at a tilt |
| `placed(stage, log_delta)` | place of the nodes of a law that leaves out far less than delta |
| `on_axis(stage, place)`, `psi(...)` | the law on real nodes; log psi and its error |
| `tilts(lanes)`, `large_terms` | tilts to try; nats above delta from which terms lose digits |
| `by_loss`, `order`, `coarse`, `centre`, `log_edge` | nodes for estimates |
| `height(...)`, `on_line(...)` | height of the contour's nodes, NaN for none; the law on them |
| `errors(...)`, `phi_error(...)` | `Parts` of a contour's error; error of phi at heights |
| `lost(...)` | mass beyond the nodes in the unit of the plan: untilted, and tilted at its epsilon |
| `composed_error`, `relative_error` | error of a cumulant beyond psi's; log of 1 + that of delta |
| `least_unit` | least log delta that a contour resolves |
| `smooths`, `refines` | True if a Gaussian may make psi fall; if tilts near the best are tried |
| `slopes(stage, frozen, of_mass, of_loss)` | slopes in the parameters, from those at nodes |
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals

Rows: TypeAlias = Any  # `Mixtures` or `Laws`


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
