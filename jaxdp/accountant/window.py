"""Location of a composition's tilted loss: tilt, step and windows of the grid engine.

From the cumulants K of the laws' nodes it computes

* the tilt theta, the saddle of exp(K(z) - z epsilon) / (z (z + 1));
* Chernoff windows of the tilted total and of one release;
* the step that spreads the longest window over all points. If every loss lies on one lattice, the
  step is its common unit. Otherwise the step divides the distance of the atoms of one release, so
  that both lie on its grid, and every other release has one atom on its own grid.

No value here needs to be exact: the mass outside of a window is bounded again, from the masses.
Derivatives keep everything fixed but the step and the grids' places, which move with the atoms.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxdp._core.functions import logsumexp, softmax
from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import conversion_entropy
from jaxdp._numeric.search import bisect
from jaxdp.accountant.tables import Table

LOG_TILTS = (-23.0, 50.0)  # log of the range of tilts searched. chosen: all that a float64 may need
BISECTIONS = 40  # of log tilt. derived: 73 / 2^40 is 1e-10
OUTSIDE = 42.0  # -log of the tilted mass outside of a window. derived: below rounding, 2e-16
ORDERS = 49  # Chernoff orders for windows. chosen: half octaves
LOWEST_ORDER = -16.0  # in half octaves, of sqrt(2 OUTSIDE) / deviation. chosen: heavy tails
SPARE = 1.25  # growth of the step that its own chords may cause. chosen
FILL = 0.98  # largest share of the points that a window fills. chosen
MARGIN = 4.0  # free steps at either end. chosen
GROWTH = 10.0  # log growth of tilted masses per unit. chosen: few ulps move a step
LEAST_PARTS = 4.0  # least number of steps between aligned atoms. chosen
LARGEST_PART = 1000  # largest divisor of the largest unit that is tried as common unit. chosen
FITS = 3e-15  # relative distance of a unit from a whole multiple. chosen: rounding of units


class Plan(NamedTuple):
    """The grid of a composition; the grid of release f begins at base[f]."""

    tilt: Reals
    largest_weight: Reals  # of a tilted mass in delta
    log_norm: Reals  # (F,): K(tilt), the unit of tilted masses
    step: Reals
    base: Reals  # (F,)
    exact: Bools  # (F,): True where the losses lie on the grid
    low: Reals  # window of the tilted total; `high`: its upper end
    high: Reals
    order_low: Reals
    order_high: Reals


def total(counts: Reals, values: Reals) -> Reals:
    """Sum of counts times each value (F, ...), where a count of 0 contributes 0."""
    counts = counts.reshape(counts.shape + (1,) * (values.ndim - 1))
    return xp.sum(xp.where(counts == 0, 0.0, counts * values), axis=0)


def cumulants(table: Table, z: Reals) -> Reals:
    """Cumulants K of single releases without their drift, at z (Z,): (F, Z)."""

    def each(nodes: tuple[Reals, Reals]) -> Reals:
        loss, log_mass = nodes
        return logsumexp(log_mass[None] + z[:, None] * loss[None], axis=-1)

    log_moments = lax.map(each, (table.law.loss, table.law.log_mass))
    return log_moments - z[None] * table.drift[:, None]


def _slopes(table: Table, z: Reals) -> tuple[Reals, Reals]:
    """K' and K'' of single releases, (F,)."""
    law = table.law
    share = softmax(law.log_mass + z * law.loss, axis=-1)
    mean = xp.sum(share * law.loss, axis=-1)
    variance = xp.sum(share * (law.loss - mean[..., None]) ** 2, axis=-1)
    return mean - table.drift, variance


def tilt_of(facts: Table, epsilon: Reals, points: int) -> Reals:
    """The saddle of exp(K(z) - z epsilon) / (z (z + 1)) on z > 0, by bisection."""
    bound = total(facts.number, xp.maximum(facts.largest, facts.smallest))
    # The tilted masses of a bounded loss end before they can change by a factor e a step.
    largest_tilt = xp.where(bound < xp.inf, xp.clip(0.1 * points / bound, 1e-9, 1e20), xp.inf)
    widest = xp.max(xp.where((facts.number > 0) & facts.lattice, facts.spacing, 0.0))
    gridded = xp.all(facts.lattice | (facts.number == 0)) & (widest > 0)
    largest_tilt = xp.minimum(
        largest_tilt, xp.where(gridded, GROWTH / xp.where(gridded, widest, 1.0), xp.inf)
    )

    def is_below(log_tilt: Reals) -> Bools:
        z = xp.exp(log_tilt)
        slope = total(facts.number, _slopes(facts, z)[0])
        return ~(slope - epsilon > 1.0 / z + 1.0 / (1.0 + z))

    ends = xp.asarray(LOG_TILTS[0]), xp.minimum(LOG_TILTS[1], xp.log(largest_tilt))
    return xp.exp(bisect(is_below, *ends, halvings=BISECTIONS)[0])


class _Window(NamedTuple):
    low: Reals
    high: Reals
    order_low: Reals
    order_high: Reals

    @property
    def length(self) -> Reals:
        return self.high - self.low


def _window(k_up: Reals, k_down: Reals, orders: Reals, bounds: tuple[Reals, Reals]) -> _Window:
    """Chernoff's window, from K at tilts + and - orders (..., Z) less K at the tilt.

    `bounds` are the ends of bounded losses.
    """
    row = orders[(None,) * (k_up.ndim - 1)]
    high, low = (k_up + OUTSIDE) / row, -(k_down + OUTSIDE) / row
    high = xp.where(xp.isfinite(high), high, xp.inf)
    low = xp.where(xp.isfinite(low), low, -xp.inf)
    upper = xp.minimum(xp.min(high, axis=-1), bounds[1])
    lower = xp.maximum(xp.max(low, axis=-1), bounds[0])
    return _Window(
        lower,
        xp.maximum(upper, lower),
        orders[xp.argmax(low, axis=-1)],
        orders[xp.argmin(high, axis=-1)],
    )


def plan_of(facts: Table, epsilon: Reals, points: int) -> Plan:
    """Plan of one composition at an epsilon without the drifts, with parameters of shape (n,)."""
    fixed_facts, epsilon = lax.stop_gradient((facts, epsilon))
    counts, drift = fixed_facts.number, fixed_facts.drift
    tilt = tilt_of(fixed_facts, epsilon, points)
    deviation = xp.sqrt(total(counts, _slopes(fixed_facts, tilt)[1]))
    octaves = 0.5 * (LOWEST_ORDER + xp.arange(1.0 * ORDERS))
    orders = xp.exp2(octaves) * xp.sqrt(2.0 * OUTSIDE) / xp.maximum(deviation, 1e-150)
    orders = xp.where(deviation > 0, orders, xp.exp2(2.0 * octaves))
    tilts = xp.concatenate([tilt[None], tilt + orders, tilt - orders])
    values = cumulants(fixed_facts, tilts)
    k, k_up, k_down = xp.split(values, (1, 1 + ORDERS), axis=-1)
    k_up, k_down = k_up - k, k_down - k
    bounds = -(fixed_facts.smallest + drift), fixed_facts.largest - drift
    low, longest = _single(fixed_facts, k, k_up, k_down, orders, tilt, epsilon)

    def window(step: Reals) -> _Window:
        """Window of the total with its chords, each of cumulant below h^2 s^2 / 8 (Hoeffding)."""
        chords = 0.125 * xp.sum(counts) * (step * orders) ** 2
        spread = xp.sum(counts) * step
        ends = total(counts, bounds[0]) - spread, total(counts, bounds[1]) + spread
        return _window(total(counts, k_up) + chords, total(counts, k_down) + chords, orders, ends)

    room = FILL * points - 4.0 * MARGIN
    least_step = xp.maximum(window(xp.zeros(())).length, longest) / room
    least_step = xp.maximum(least_step, 1e-12 * (1.0 + xp.abs(epsilon)))
    wide_step = xp.maximum(window(SPARE * least_step).length, longest) / room
    step, exact = _step(facts, least_step, xp.maximum(wide_step, least_step))
    held_step = lax.stop_gradient(step)
    total_window = window(held_step)
    steps_below = xp.ceil((fixed_facts.anchor - low) / held_step + MARGIN)
    return Plan(
        tilt,
        xp.exp(-conversion_entropy(tilt)),
        k[:, 0],
        step,
        facts.anchor - steps_below * step,
        exact,
        total_window.low - MARGIN * held_step,
        total_window.high + MARGIN * held_step,
        total_window.order_low,
        total_window.order_high,
    )


def _single(
    facts: Table, k: Reals, k_up: Reals, k_down: Reals, orders: Reals, tilt: Reals, epsilon: Reals
) -> tuple[Reals, Reals]:
    """The lowest loss of each release's grid, (F,), and the longest window of one release.

    The window ends where the mass beyond is small beside delta; that mass counts as infinite.
    """
    height = total(facts.number, k[:, 0]) - tilt * epsilon - xp.log(tilt) - xp.log1p(tilt) - 8.0
    bounds = -(facts.smallest + facts.drift), facts.largest - facts.drift
    single_window = _window(k_up, k_down, orders, bounds)
    share = k_up + k + OUTSIDE + xp.log(xp.maximum(facts.number, 1.0))[:, None] - height
    reach = share / (tilt + orders)[None]
    reach = xp.min(xp.where(xp.isfinite(reach), reach, xp.inf), axis=-1)
    high = xp.maximum(xp.minimum(reach, bounds[1]), 0.0)
    low = xp.minimum(single_window.low, 0.0)
    return low, xp.max(xp.where(facts.number == 0, 0.0, high - low))


def _step(facts: Table, least_step: Reals, wide_step: Reals) -> tuple[Reals, Bools]:
    """The step, and the releases of which every loss lies on the grid."""
    is_used = (facts.number > 0) & (facts.spacing > 0)
    unit, has_unit = common_unit(facts.spacing, is_used & facts.lattice)
    fits_unit = (facts.number == 0) | (facts.lattice & _on_grid(facts, unit))
    common = xp.all(fits_unit) & has_unit & (unit >= least_step)
    # Otherwise the most frequent release whose atoms are some steps apart sets the step.
    weight = xp.where(is_used & (facts.spacing >= LEAST_PARTS * wide_step), facts.number, 0.0)
    spacing = facts.spacing[xp.argmax(weight)]
    parts = lax.stop_gradient(xp.maximum(xp.floor(spacing / wide_step), 1.0))
    aligned = xp.where(xp.max(weight) > 0, spacing / parts, lax.stop_gradient(wide_step))
    step = xp.where(common, unit, aligned)
    return step, facts.lattice & _on_grid(facts, step)


def common_unit(spacing: Reals, is_used: Bools) -> tuple[Reals, Bools]:
    """The largest spacing, or a part of it, that divides all in use (F,), and if there is one."""
    largest = xp.max(xp.where(is_used, spacing, 0.0))
    safe = xp.where(largest > 0, largest, 1.0)
    ratio = lax.stop_gradient(xp.where(is_used, spacing / safe, 1.0))
    multiples = ratio[:, None] * xp.arange(1.0, LARGEST_PART + 1.0)[None]
    fits = xp.abs(multiples - xp.round(multiples)) <= FITS * multiples
    fitting = xp.all(fits, axis=0)
    return largest / (1.0 + xp.argmax(fitting)), xp.any(fitting) & (largest > 0)


def _on_grid(facts: Table, step: Reals) -> Bools:
    """True where the spacing is a whole multiple of the step."""
    multiple = lax.stop_gradient(facts.spacing / xp.where(step > 0, step, 1.0))
    nearest = xp.round(multiple)
    fits = (nearest >= 1) & (xp.abs(multiple - nearest) <= 2.0 * FITS * nearest)
    return fits | (facts.spacing == 0)
