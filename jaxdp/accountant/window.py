"""Location of a composition's tilted loss: tilt, step and windows of the grid engine.

From the cumulants K of the laws' nodes it computes

* the tilt theta, the saddle of exp(K(z) - z epsilon) / (z (z + 1));
* Chernoff windows of the tilted total and of one release;
* the step that spreads the longest window over all points. If every loss lies on one lattice, the
  step is its common unit. Otherwise the step divides the distance of the atoms of one release, so
  that both lie on its grid, and every other release has one atom on its own grid.

No value here needs to be exact: the mass outside of a window is bounded again, from the masses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import logsumexp, softmax
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp._numeric.search import bisect
from jaxdp.accountant.batch import Table

LOG_TILTS = (-23.0, 50.0)  # log of the range of tilts searched. chosen: all that a float64 may need
BISECTIONS = 40  # of log tilt. derived: 73 / 2^40 is 1e-10
LOG_LEAST = -745.0  # derived: of the least double
OUTSIDE = 36.0  # -log of the tilted mass outside of a window. derived: 2e-16, as rounding
ORDERS = 49  # Chernoff orders for windows. chosen: half octaves
LOWEST_ORDER = -16.0  # in half octaves, of sqrt(2 OUTSIDE) / deviation. chosen: heavy tails
SPARE = 1.25  # growth of the step that its own chords may cause. chosen
FILL = 0.98  # largest share of the points that a window fills. chosen
MARGIN = 4.0  # free steps at either end. chosen
ONE_LOSS = 1e-12  # difference of nodes of one loss, over 1 + its size. measured: rounding, 1e-13
SMALL = 1e-4  # largest difference of such nodes, over the deviation. chosen
MOST_NODES = 512  # of a release. chosen: a tenth of a deviation apart
GROWTH = 10.0  # log growth of tilted masses per unit. chosen: few ulps move a step
OWN = 2.0  # steps between losses of a lattice whose masses are found on it first. chosen
LEAST_PARTS = 4.0  # least number of steps between aligned atoms. chosen
LARGEST_PART = 1000  # largest divisor of the largest unit that is tried as common unit. chosen
FITS = 3e-15  # relative distance of a unit from a whole multiple. chosen: rounding of units


class Plan(NamedTuple):
    """The grid of a composition, and the points of each release's own grid."""

    tilt: Any
    largest_weight: Any  # of a tilted mass in delta
    log_norm: Any  # (F,): K(tilt), the unit of tilted masses
    step: Any
    below: Any  # (F,): whole numbers of points below a loss of 0, and from it on
    above: Any
    exact: Any  # (F,): True where the losses lie on the grid
    own: Any  # (F,): step of the grid on which a release's masses are found first, at least `step`
    low: Any  # window of the tilted total; `high`: its upper end
    high: Any
    order_low: Any
    order_high: Any


def total(counts: Any, values: Any) -> Any:
    """Sum of counts times each value (F, ...), where a count of 0 contributes 0."""
    counts = counts.reshape(counts.shape + (1,) * (values.ndim - 1))
    return np.sum(np.where(counts == 0, 0.0, counts * values), axis=0)


def joined(table: Table) -> Table:
    """The table with some neighbouring nodes as one: of one loss, as in a tail, or of too many."""
    loss, mass = table.law.loss, np.exp(table.law.log_mass)
    mean = np.sum(mass * loss, axis=-1, keepdims=True)
    deviation = np.sqrt(np.sum(mass * (loss - mean) ** 2, axis=-1, keepdims=True))
    apart = np.minimum(ONE_LOSS * (1.0 + np.abs(loss)), SMALL * deviation)
    is_first = ~(np.abs(np.diff(loss, axis=-1, prepend=np.nan)) <= apart)
    places = np.cumsum(is_first, axis=-1) - 1
    parts = -(-(1 + places[:, -1:]) // MOST_NODES)
    starts = np.flatnonzero(is_first & (places % parts == 0))
    at = starts // loss.shape[-1], (places // parts).ravel()[starts]
    losses, masses = np.zeros((2, len(loss), 1 + np.max(at[1])))
    masses[at] = np.add.reduceat(mass.ravel(), starts)
    means = np.add.reduceat((mass * loss).ravel(), starts) / masses[at]
    losses[at] = np.where(masses[at] > 0, means, loss.ravel()[starts])
    return table._replace(law=table.law._replace(loss=losses, log_mass=np.log(masses)))


def cumulants(table: Table, z: Any) -> Any:
    """Cumulants K of single releases without their drift, at z (Z,): (F, Z)."""

    pairs = zip(table.law.loss, table.law.log_mass, strict=True)
    each = [logsumexp(mass + z[:, None] * loss, axis=-1) for loss, mass in pairs]
    return np.stack(each) - z * table.drift[:, None]


def _slopes(table: Table, z: Any) -> tuple[Any, Any]:
    """K' and K'' of single releases, (F,)."""
    law = table.law
    share = softmax(law.log_mass + z * law.loss, axis=-1)
    mean = np.sum(share * law.loss, axis=-1)
    variance = np.sum(share * (law.loss - mean[..., None]) ** 2, axis=-1)
    return mean - table.drift, variance


def tilt_of(facts: Table, epsilon: Any, points: int) -> Any:
    """The saddle of exp(K(z) - z epsilon) / (z (z + 1)) on z > 0, by bisection."""
    bound = total(facts.number, np.maximum(facts.largest, facts.smallest))
    # The tilted masses of a bounded loss end before they can change by a factor e a step.
    largest_tilt = np.where(bound < np.inf, np.clip(0.1 * points / bound, 1e-9, 1e20), np.inf)
    widest = np.max(np.where((facts.number > 0) & facts.lattice, facts.spacing, 0.0))
    gridded = np.all(facts.lattice | (facts.number == 0)) & (widest > 0)
    largest_tilt = np.minimum(
        largest_tilt, np.where(gridded, GROWTH / np.where(gridded, widest, 1.0), np.inf)
    )

    def is_below(log_tilt: Any) -> Any:
        z = np.exp(log_tilt)
        slope = total(facts.number, _slopes(facts, z)[0])
        return ~(slope - epsilon > 1.0 / z + 1.0 / (1.0 + z))

    ends: Any = np.asarray(LOG_TILTS[0]), np.minimum(LOG_TILTS[1], np.log(largest_tilt))
    return np.exp(bisect(is_below, *ends, halvings=BISECTIONS)[0])


class _Window(NamedTuple):
    low: Any
    high: Any
    order_low: Any
    order_high: Any

    @property
    def length(self) -> Any:
        return self.high - self.low


def _window(k_up: Any, k_down: Any, orders: Any, bounds: tuple[Any, Any]) -> _Window:
    """Chernoff's window, from K at tilts + and - orders (..., Z) less K at the tilt.

    `bounds` are the ends of bounded losses.
    """
    row = orders[(None,) * (k_up.ndim - 1)]
    high, low = (k_up + OUTSIDE) / row, -(k_down + OUTSIDE) / row
    high = np.where(np.isfinite(high), high, np.inf)
    low = np.where(np.isfinite(low), low, -np.inf)
    upper = np.minimum(np.min(high, axis=-1), bounds[1])
    lower = np.maximum(np.max(low, axis=-1), bounds[0])
    return _Window(
        lower,
        np.maximum(upper, lower),
        orders[np.argmax(low, axis=-1)],
        orders[np.argmin(high, axis=-1)],
    )


def plan_of(facts: Table, epsilon: Any, points: int) -> Plan:
    """Plan of one composition for an epsilon, with parameters of the shape (F,)."""
    counts, drift = facts.number, facts.drift
    epsilon = epsilon - total(counts, drift)
    tilt = tilt_of(facts, epsilon, points)
    deviation = np.sqrt(total(counts, _slopes(facts, tilt)[1]))
    octaves = 0.5 * (LOWEST_ORDER + np.arange(1.0 * ORDERS))
    orders = np.exp2(octaves) * np.sqrt(2.0 * OUTSIDE) / np.maximum(deviation, 1e-150)
    orders = np.where(deviation > 0, orders, np.exp2(2.0 * octaves))
    tilts = np.concatenate([tilt[None], tilt + orders, tilt - orders])
    values = cumulants(facts, tilts)
    k, k_up, k_down = np.split(values, (1, 1 + ORDERS), axis=-1)
    k_up, k_down = k_up - k, k_down - k
    bounds = -(facts.smallest + drift), facts.largest - drift
    single = _single(facts, k, k_up, k_down, orders, tilt, epsilon)
    longest = np.max(np.where(counts == 0, 0.0, single[1] - single[0]))

    def window(step: Any) -> _Window:
        """Window of the total with its chords, each of cumulant below h^2 s^2 / 8 (Hoeffding)."""
        chords = 0.125 * np.sum(counts) * (step * orders) ** 2
        spread = np.sum(counts) * step
        ends = total(counts, bounds[0]) - spread, total(counts, bounds[1]) + spread
        return _window(total(counts, k_up) + chords, total(counts, k_down) + chords, orders, ends)

    room = FILL * points - 4.0 * MARGIN
    least_step = np.maximum(window(np.zeros(())).length, longest) / room
    least_step = np.maximum(least_step, 1e-12 * (1.0 + np.abs(epsilon)))
    wide_step = np.maximum(window(SPARE * least_step).length, longest) / room
    step, exact = _step(facts, least_step, np.maximum(wide_step, least_step))
    total_window = window(step)
    below, above = (np.ceil(np.abs(x) / step + MARGIN).astype(int) for x in single)
    is_own = facts.lattice & (facts.spacing >= OWN * step) & (tilt * facts.spacing <= GROWTH)
    return Plan(
        tilt,
        np.exp(-conversion_entropy(tilt)),
        k[:, 0],
        step,
        below,
        above,
        exact,
        np.where(is_own, facts.spacing, step),
        total_window.low - MARGIN * step,
        total_window.high + MARGIN * step,
        total_window.order_low,
        total_window.order_high,
    )


def _single(
    facts: Table, k: Any, k_up: Any, k_down: Any, orders: Any, tilt: Any, epsilon: Any
) -> tuple[Any, Any]:
    """The lowest and the highest loss of each release's grid (F,), on either side of 0.

    The window ends where the mass beyond is small beside delta; that mass counts as infinite.
    """
    height = total(facts.number, k[:, 0]) - tilt * epsilon - np.log(tilt) - np.log1p(tilt) - 8.0
    bounds = -(facts.smallest + facts.drift), facts.largest - facts.drift
    single_window = _window(k_up, k_down, orders, bounds)
    depth = OUTSIDE + np.log(np.maximum(facts.number, 1.0)) - height
    reach = (k_up + k + depth[:, None]) / (tilt + orders)[None]
    reach = np.min(np.where(np.isfinite(reach), reach, np.inf), axis=-1)
    # A law without finite losses has no node.
    reach = np.where(_left_out(facts) > -depth, np.fmax(reach, _beyond(facts, depth)), reach)
    high = np.maximum(np.minimum(reach, bounds[1]), 0.0)
    low = np.minimum(single_window.low, 0.0)
    return low, high


def _left_out(facts: Table) -> Any:
    """log of the mass that is at no node (F,); masses below the least double are at none."""
    return np.maximum(facts.law.log_left_out, LOG_LEAST)


def _beyond(facts: Table, depth: Any) -> Any:
    """The loss beyond the nodes above which the mass is about e^-depth (F,).

    Minus its log grows as a power of the loss, found from the last node and from half its loss.
    """
    loss, log_mass = facts.law.loss, facts.law.log_mass
    last = np.max(loss, axis=-1, initial=0.0, where=log_mass > -np.inf)
    far = logsumexp(np.where(loss > 0.5 * last[:, None], log_mass, -np.inf), axis=-1)
    power = np.maximum(np.log2(_left_out(facts) / np.minimum(far, -1.0)), 1.0)
    return last * (depth / -_left_out(facts)) ** (1.0 / power)


def _step(facts: Table, least_step: Any, wide_step: Any) -> tuple[Any, Any]:
    """The step, and the releases of which every loss lies on the grid."""
    is_used = (facts.number > 0) & (facts.spacing > 0)
    unit, has_unit = common_unit(facts.spacing, is_used & facts.lattice)
    fits_unit = (facts.number == 0) | (facts.lattice & _on_grid(facts, unit))
    common = np.all(fits_unit) & has_unit & (unit >= least_step)
    # Otherwise the most frequent release whose atoms are some steps apart sets the step.
    weight = np.where(is_used & (facts.spacing >= LEAST_PARTS * wide_step), facts.number, 0.0)
    spacing = facts.spacing[np.argmax(weight)]
    parts = np.maximum(np.floor(spacing / wide_step), 1.0)
    aligned = np.where(np.max(weight) > 0, spacing / parts, wide_step)
    step = np.where(common, unit, aligned)
    return step, facts.lattice & _on_grid(facts, step)


def common_unit(spacing: Any, is_used: Any) -> tuple[Any, Any]:
    """The largest spacing, or a part of it, that divides all in use (F,), and if there is one."""
    largest = np.max(np.where(is_used, spacing, 0.0))
    safe = np.where(largest > 0, largest, 1.0)
    ratio = np.where(is_used, spacing / safe, 1.0)
    multiples = ratio[:, None] * np.arange(1.0, LARGEST_PART + 1.0)[None]
    fits = np.abs(multiples - np.round(multiples)) <= FITS * multiples
    fitting = np.all(fits, axis=0)
    return largest / (1.0 + np.argmax(fitting)), np.any(fitting) & (largest > 0)


def _on_grid(facts: Table, step: Any) -> Any:
    """True where the spacing is a whole multiple of the step."""
    multiple = facts.spacing / np.where(step > 0, step, 1.0)
    nearest = np.round(multiple)
    fits = (nearest >= 1) & (np.abs(multiple - nearest) <= 2.0 * FITS * nearest)
    return fits | (facts.spacing == 0)
