"""Rows of any loss: the nodes of its quadrature on the real axis, with a second rule as a check.

Rare large losses are cut off. Unbounded losses far in the tail dominate the moments at large tilts,
and the contour's bracket then stays wide. Each release's law is multiplied by the smooth step

    erfc(sinh(log(l / c)) / w) / 2 = erfc((l / c - c / l) / (2 w)) / 2,

which is 1 for small losses and falls like e^(-l^2) for large ones; a law of atoms ends sharply. n
releases exceed c e^(-2 w), where it begins to fall, with probability e^-depth. The dropped
probability, with the difference of both rules, is added to delta, and far below it; or
`number_of_rare_losses` counts the dropped losses.

Errors of a contour, and where it ends:

* quadrature: the difference to a second rule with other nodes, at some heights up to the end. It
  bounds the error where both rules do not fail alike. Where the phases of neighbouring nodes differ
  by more than a panel resolves, the mass of these nodes is the error;
* truncation: for the loss of one release under the tilted law, at every t from some height on,

      |phi(t)|^2 <= 1 - (4 t^2 / pi^2) (m_0 m_2 - m_1^2)   m_k: moments of |l - c| <= pi / (2 t),
      |phi(t)|  <= A_c + V_c / t                           every cap c on the density.

  The first holds because 1 - cos x >= 2 x^2 / pi^2 for |x| <= pi. In the second, A_c is the mass
  above the cap, including atoms, and V_c the total variation of the density below it. Both hold for
  the nodes' own law where the density is monotone between nodes;
* smoothing: where psi falls too slowly, as for atoms, one more release, a Gaussian, makes it fall
  (`curve` bounds what this adds to delta).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import lax, logsumexp, special, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.contour.nodes import (
    FrozenContour,
    LawErrors,
    LineNodes,
    Nodes,
    Pair,
    Plan,
    Psi,
    Stage,
    Sums,
    log_psi,
    sums,
)
from jaxdp.accountant.contour.terms import INNER
from jaxdp.dominating_pair.base import MASS_ERROR

# Tilts among which the best is taken. chosen: all that a double may need
TILTS = np.append(1e-300, np.exp(np.arange(-16.0, 14.1, 0.4)))
# log of the least mass of a node that counts. chosen: e^-700 is a normal number
_NO_MASS = -690.0
_NODES_IN_ONE = 8  # nodes that an estimate joins in one. chosen
DIFFERENT = 8.0  # releases from which on a contour takes longer than a grid. measured
_COMPOSED = 64.0 * ULP  # rounding of a cumulant. derived: some products
# Depths of laws that drop a probability far below delta; with the last, nothing. measured: a cut
# that is deeper by up to a third serves better
DEPTHS = np.array([20.0, 27.0, 36.0, 48.0, 64.0, 85.0, 113.0, 150.0, 200.0, 265.0, np.inf])
# Nats of log probability over which the step falls. chosen: several panels of a tail
_FALL = 8.0
# Largest width of the step, of log loss: it then falls faster than tilts rise. chosen
WIDEST = 0.2
# log of an absent share. chosen: no tilt makes it count
NOTHING = -1e30
# Losses are compared by their logarithm, so that the step does not reach small ones. chosen
LEAST_LOSS = 1e-300
# Relative difference of a loss within one atom. chosen: far above rounding
_ATOM = 1e-9
# Heights at which both rules are compared, in units of the end. chosen
CHECKED = np.unique(np.append(2.0 ** np.arange(-10.0, 0.0), np.arange(5.0, 17.0) / 16.0))
# Radians between neighbouring nodes at which a panel's integral has no digit left. derived: the
# error of 16 nodes for e^(i x) grows like the 32nd power of the turn.
_TURN = 3.6
# Radians between neighbouring nodes up to which a smoothed contour extends. chosen: (2.7 / 3.6)^32
# is 1e-4
_RESOLVED = 2.7
# Mass of a node that can turn further. chosen: the error is at most this mass
_LEAST_ERROR = 1e-9
# log of the truncation error over delta, where psi falls without smoothing. chosen: 5e-12
CUT_OFF = -26.0
# Heights at which the bound is evaluated, over the furthest end. chosen: 3 decades below
HEIGHTS = 1.25 ** np.arange(-31.0, 20.0)
# Caps on the tilted density, in units of one over its deviation. chosen
_CAPS = 2.0 ** np.arange(-6.0, 13.0)
# Factor on the total variation for changes between nodes. chosen: 16 nodes a panel show 99 % of it
_BETWEEN = 1.05


class Cut(NamedTuple):
    """log of the share that a law keeps at its nodes, and what it drops."""

    log_kept: Reals  # (nodes, phases, lanes)
    check_kept: Reals  # at the nodes of the second rule
    log_dropped: Reals  # log of the probability that some loss is dropped (lanes,)


class ByHeight(NamedTuple):
    """Errors of phi: up to each of the heights `CHECKED`, and per unit of height."""

    quadrature: Reals  # (heights, phases, lanes)
    slope: Reals  # (phases, lanes)


class Laws(NamedTuple):
    """Releases of any noise as rows of the engine.

    Losses of one release of each phase (nodes, phases, lanes), conditional on finite ones.
    """

    loss: Reals
    log_mass: Reals
    log_density: Reals  # of the loss; inf at atoms
    check_loss: Reals  # nodes of a second rule
    check_mass: Reals
    mass_gap: Reals  # (phases, lanes): difference of the masses of both rules, beyond rounding
    rounding: Reals  # error of each node's e^(i t l) per unit of t
    number: Reals  # (phases, lanes)
    variance: Reals  # (lanes,): mu^2 of the Gaussians that are not sampled
    log_finite: Reals  # (lanes,)
    log_left_out: Reals  # (lanes,): log of the probability that some loss lies at no node

    candidates = TILTS
    smooths = True  # a Gaussian may make psi fall
    refines = True  # tilts near the best are tried
    least_unit = -1e5  # least log delta that a contour resolves. chosen
    large_terms = 4.0  # nats above delta of terms that lose digits. chosen: rules differ by 1e-11
    sign = 1.0
    composed_error = _COMPOSED  # of a cumulant, beyond psi's
    relative_error = 0.0

    @property
    def parameters(self) -> tuple[Reals, ...]:
        """Arrays that are NaN where a parameter is bad."""
        bad = xp.isnan(self.loss) | xp.isnan(self.log_mass)
        numbers = xp.where(xp.any(bad, -1) & (self.number != 0), xp.nan, self.number)
        return numbers, self.variance, self.log_finite

    def nodes(self, stage: Stage) -> int:
        """Number of nodes of all phases, with axes reversed."""
        return self.loss.shape[-1] * self.loss.shape[-2]

    def power(self, tilt: Reals) -> Reals:
        """The tilt itself, as masses are those under P."""
        return tilt[..., None, :] + xp.zeros_like(self.number)

    def placed(self, stage: Stage, log_delta: Reals) -> Any:
        """The law without rare large losses."""
        depth = stage.depth - log_delta
        return cut(self, xp.take(DEPTHS, xp.argmax(depth <= DEPTHS[:, None], 0)))

    def kept(self, place: Any) -> Laws:
        """The law of the losses that a cut keeps."""
        density = self.log_density + place.log_kept
        masses = self.log_mass + place.log_kept, self.check_mass + place.check_kept
        return self._replace(log_mass=masses[0], check_mass=masses[1], log_density=density)

    def on_axis(self, stage: Stage | None, place: Any) -> Nodes:
        """The law on its nodes."""
        return Nodes(self.loss, self.log_mass + place.log_kept)

    def check_on(self, place: Any) -> Nodes:
        """The law on the nodes of the second rule."""
        return Nodes(self.check_loss, self.check_mass + place.check_kept)

    def psi(self, place: Any, nodes: Nodes, power: Reals, found: Sums) -> Psi:
        """log psi; its error is rounding, and three times the difference of both rules."""
        log = found.log_psi
        check = log_psi(self.check_on(place), power)
        heavy = xp.where(nodes.log_weight > _NO_MASS, self.rounding, 0.0)
        tilted = xp.sum(found.weight * heavy, -3) * xp.exp(found.largest - log)
        plain = xp.sum(xp.exp(nodes.log_weight) * heavy, 0)
        rounded = power * (tilted + plain)
        return Psi(log, rounded + 3.0 * (xp.abs(log - check) + self.mass_gap))

    def fewer(self, nodes: Nodes) -> Nodes:
        """All nodes: laws are not thinned out."""
        return nodes

    def coarse(self, nodes: Nodes) -> Nodes:
        """Groups of neighbouring nodes as one node each; a law of few nodes is unchanged."""
        if nodes.loss.shape[0] <= _NODES_IN_ONE**2:
            return nodes
        order = xp.argsort(nodes.loss, 0)
        loss, log_weight = (xp.take_along_axis(x, order, 0) for x in nodes[:2])
        widths = [(0, -loss.shape[0] % _NODES_IN_ONE), (0, 0), (0, 0)]
        loss = xp.pad(loss, widths, mode="edge")
        log_weight = xp.pad(log_weight, widths, constant_values=-xp.inf)
        shape = -1, _NODES_IN_ONE, *loss.shape[1:]
        return Nodes(xp.mean(loss.reshape(shape), 1), logsumexp(log_weight.reshape(shape), axis=1))

    def log_edge(self, stage: Stage, exponent: Reals) -> Any:
        """log of the mass beyond the nodes: -inf, since the nodes cover the whole law."""
        return -xp.inf

    def centre(self, weight: Reals, loss: Reals) -> Any:
        """The mean loss at each tilt."""
        return xp.sum(weight * loss, 1, keepdims=True)

    def height(self, stage: Stage, place: Any, plan: Plan) -> Reals:
        """Nodes lie on the real axis."""
        return xp.zeros_like(self.number)

    def on_line(self, stage: Stage, frozen: FrozenContour, log_psi: Reals) -> LineNodes:
        """The law on its nodes, less its mean loss."""
        nodes = self.on_axis(stage, frozen.place)
        log_weight = nodes.log_weight + frozen.tilt * nodes.loss - log_psi
        weight = xp.where(nodes.log_weight > _NO_MASS, xp.exp(log_weight), 0.0)
        mean = xp.sum(weight * nodes.loss, 0)
        offset = nodes.loss - mean
        return LineNodes((weight, xp.zeros_like(weight)), (offset, xp.zeros_like(offset)), mean)

    def errors(
        self, stage: Stage, plan: Plan, frozen: FrozenContour, line: LineNodes, logs: Pair
    ) -> LawErrors:
        """Errors of the quadrature, and the contour's end.

        Both rules are over their own psi at the tilt, whose error is that of the scale.
        """
        nodes, power = self.on_axis(stage, frozen.place), self.power(frozen.tilt)
        psi = self.psi(frozen.place, nodes, power, sums(nodes, power))
        error = xp.sum(xp.where(self.number == 0, 0.0, self.number * psi.error), 0)
        weight, offset = line.weight[0], line.loss[0]
        is_spread = xp.isfinite(self.log_density)
        gap = xp.where(is_spread, xp.abs(xp.diff(self.loss, axis=0, append=self.loss[-1:])), 0.0)
        end, smoothed, truncation = _ended(self, stage, frozen, line, logs, gap)
        check = self.check_on(frozen.place)
        psi = log_psi(check, power)
        other = xp.exp(check.log_weight + frozen.tilt * check.loss - psi)

        def at_height(share: Reals) -> Pair:
            t = share * end

            def turned(weight: Reals, loss: Reals) -> Pair:
                half = xp.sin(0.5 * t * loss)
                return -2.0 * xp.sum(weight * half * half, 0), xp.sum(weight * xp.sin(t * loss), 0)

            # Sums of w (e^(i t l) - 1) by both rules.
            first, second = turned(weight, offset), turned(other, check.loss - line.mean)
            unresolved = 2.0 * xp.sum(weight * xp.minimum((gap * (t / _TURN)) ** 32, 1.0), 0)
            return xp.hypot(first[0] - second[0], first[1] - second[1]), unresolved

        gaps, unresolved = lax.map(at_height, xp.asarray(CHECKED))
        by_height = ByHeight(lax.cummax(gaps) + unresolved, xp.sum(weight * self.rounding, 0))
        of_phi = self.mass_gap + 4.0 * ULP
        return LawErrors(of_phi, by_height, truncation, error + _COMPOSED, end, smoothed)

    def phi_error(self, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
        """Error of phi at heights (points, 1, lanes)."""
        ends = xp.asarray(CHECKED)[:, None] * frozen.end
        index = xp.sum(ends[:, None] < t[:, 0][None], 0)  # (points, lanes)
        index = xp.minimum(index, len(CHECKED) - 1)[:, None]
        shape = index.shape[0], by_height.slope.shape[0], index.shape[2]
        found = xp.take_along_axis(by_height.quadrature, xp.broadcast_to(index, shape), 0)
        return found + by_height.slope * t

    def lost(self, stage: Stage, plan: Plan, place: Any, log_psi: Reals) -> tuple[Reals, Reals]:
        """Losses that are dropped, or lie at no node."""
        log = self.log_lost(place) - plan.log_unit
        return xp.exp(log), xp.zeros_like(log)

    def log_lost(self, place: Any) -> Reals:
        """log of the probability of losses that are dropped, or lie at no node."""
        return xp.logaddexp(place.log_dropped, self.log_left_out)

    def slopes(self, stage: Stage, frozen: FrozenContour, of_mass: Pair, of_loss: Pair) -> Laws:
        """Slopes in losses and log masses of the nodes."""
        zero = jax.tree.map(xp.zeros_like, self)
        return zero._replace(
            loss=of_loss[0], log_mass=of_mass[0], log_finite=xp.ones_like(self.log_finite)
        )


def laws_of(batch: Batch) -> tuple[Laws, Reals]:
    """Laws, axes reversed, and log of the probability that a sample holds a record."""
    table = batch.table
    number = xp.where(table.variance > 0, 0.0, table.number)
    is_used = number != 0  # true for NaN
    left_out = xp.where(
        is_used, xp.log(xp.where(is_used, number, 1.0)) + table.law.log_left_out, -xp.inf
    )
    loss, log_mass = table.law.check
    first, check = _total(table.law.log_mass), _total(log_mass)
    gap = xp.abs(xp.exp(first) - xp.exp(check))[..., 0]
    hit = xp.where(table.log_missed > -xp.inf, -xp.expm1(table.log_missed), 1.0)
    loss_size = xp.abs(table.law.loss) + hit[..., None]
    rounding = 16.0 * ULP * loss_size * (1.0 + xp.abs(table.law.log_mass))
    laws = Laws(
        _to_products(table.law.loss),
        _to_products(table.law.log_mass - first, -xp.inf),
        _to_products(table.law.log_density),
        loss,
        log_mass - check,
        xp.where(gap > MASS_ERROR, gap, 0.0),
        _to_products(xp.where(table.law.log_mass > _NO_MASS, rounding, 0.0)),
        number,
        table.total(table.variance),
        table.total(table.log_finite),
        logsumexp(left_out, axis=-1),
    )
    return laws, table.log_hit


def are_coarse(batch: Batch) -> Any:
    """True for lanes of many different releases whose atoms keep psi from falling.

    A smoothed contour over all their nodes takes longer than a grid, and is seldom tighter.
    """
    table = batch.table
    is_atom = table.law.log_density == np.inf
    log_mass = logsumexp(np.where(is_atom, table.law.log_mass, -np.inf), axis=-1)
    log_floor = table.total(log_mass - _total(table.law.log_mass)[..., 0])
    is_spread = np.any(~is_atom & (table.law.log_mass > -np.inf), axis=(-2, -1))
    number = np.sum(table.number, axis=-1)
    differ = (table.used >= DIFFERENT) & (number < 2.0 * table.used)
    return differ & (log_floor > CUT_OFF) & is_spread


def _to_products(x: Reals, fill: float | None = None) -> Reals:
    """Values padded to whole products of matrices; the last value is repeated, or `fill`."""
    more = -x.shape[-1] % INNER if x.shape[-1] > INNER else 0
    widths = [(0, 0)] * (x.ndim - 1) + [(0, more)]
    if fill is None:
        return xp.pad(x, widths, mode="edge")
    return xp.pad(x, widths, constant_values=fill)


def _total(log_mass: Reals) -> Reals:
    """log of the sum of the masses; 0 if there are none."""
    total = logsumexp(log_mass, axis=-1, keepdims=True)
    return xp.where(total == -xp.inf, 0.0, total)


def cut(laws: Any, depth: Reals) -> Cut:
    """The cut that drops a probability of about e^-depth."""
    depth = xp.maximum(depth, 0.0)
    depths = xp.stack([depth, depth + _FALL])
    order = xp.argsort(laws.loss, 0)
    loss, log_mass = (xp.take_along_axis(x, order, 0) for x in (laws.loss, laws.log_mass))
    number = xp.maximum(laws.number, 1.0)
    log_beyond = xp.log(lax.cumsum(xp.exp(log_mass), 0, reverse=True)) + xp.log(number)
    start, end = (_loss_at(loss, log_beyond, d) for d in depths)
    absent = ~(end - start > _ATOM * xp.abs(end)) | xp.isinf(end) | ~(start > 0)
    start, end = (xp.log(xp.where(absent, x, y)) for x, y in ((1.0, start), (2.0, end)))
    width = xp.minimum(0.25 * (end - start), WIDEST)
    centre = start + 2.0 * width
    is_rare = (log_beyond <= -depth) & (log_mass > -xp.inf)
    first = xp.min(xp.where(is_rare, loss, xp.inf), 0)
    are_atoms = xp.all(xp.isinf(laws.log_density), 0)

    def log_kept(loss: Reals) -> Reals:
        place = xp.log(xp.maximum(loss, LEAST_LOSS)) - centre
        kept = xp.log(0.5 * special.erfc(xp.sinh(place) / width))
        kept = xp.where(absent, 0.0, xp.maximum(kept, NOTHING))
        return xp.where(are_atoms, xp.where(loss < first, 0.0, NOTHING), kept)

    kept, check_kept = log_kept(laws.loss), log_kept(laws.check_loss)
    each, check = _dropped(laws.log_mass, kept), _dropped(laws.check_mass, check_kept)
    each = each + 3.0 * xp.abs(each - check)
    dropped = xp.where(laws.number == 0, 0.0, laws.number * each)
    return Cut(kept, check_kept, xp.log(xp.sum(dropped, 0)))


def _dropped(log_mass: Reals, log_kept: Reals) -> Reals:
    """The probability that one loss is dropped."""
    mass = xp.where(log_mass > -xp.inf, xp.exp(log_mass) * -xp.expm1(log_kept), 0.0)
    return xp.sum(mass, 0)


def uncut(laws: Any) -> Cut:
    """The cut that drops nothing."""
    nothing = xp.full(laws.variance.shape, -xp.inf)
    return Cut(xp.zeros_like(laws.loss), xp.zeros_like(laws.check_loss), nothing)


def _loss_at(loss: Reals, log_beyond: Reals, depth: Reals) -> Reals:
    """The least of the sorted losses with log_beyond <= -depth; inf where there is none."""
    index = xp.sum(log_beyond > -depth, 0)[None]
    last = loss.shape[0] - 1
    found = xp.take_along_axis(loss, xp.minimum(index, last), 0)
    return xp.where(index <= last, found, xp.inf)[0]


def _ended(
    laws: Any, stage: Stage, frozen: FrozenContour, line: LineNodes, logs: Pair, gap: Reals
) -> tuple[Reals, Reals, Reals]:
    """The end of the contour, the variance of the smoothing, and the truncation error.

    With x = log(T / theta) + 2, the truncation error is less than the smoothing error of a variance
    2 x / T^2.
    """
    (log_psi, log_scale), weight, offset = logs, line.weight[0], line.loss[0]
    longest = frozen.step * (stage.points * frozen.blocks - 0.5)
    ends = longest * xp.asarray(HEIGHTS)[:, None]
    log_density = laws.log_density + (frozen.tilt * (offset + line.mean) - log_psi)
    fall = log_fall(weight, offset, log_density + frozen.place.log_kept, ends)
    # log of bounds on |M(theta + it)| / M(theta) for all t from each end on.
    falls = xp.sum(xp.where(laws.number == 0, 0.0, laws.number * fall), 1)
    log_tails = lax.cummax(falls - 0.5 * laws.variance * ends**2, reverse=True)
    # Up to this height phases of neighbouring nodes differ by `_RESOLVED` at most.
    largest = xp.max(xp.where(laws.number * weight > _LEAST_ERROR, gap, 0.0), (0, 1))
    resolved = xp.where(largest > 0, _RESOLVED / xp.where(largest > 0, largest, 1.0), xp.inf)
    is_below = (log_scale + log_tails - xp.log(xp.pi * ends) <= CUT_OFF) & (ends <= longest)
    last = xp.maximum(xp.sum(ends <= xp.minimum(longest, resolved), 0) - 1, 0)
    has_fallen = xp.any(is_below, 0)
    k = xp.where(has_fallen, xp.argmax(is_below, 0), last)[None]
    end, tail = (xp.take_along_axis(x, k, 0)[0] for x in (ends, log_tails))
    missing = xp.maximum(xp.log1p(end / frozen.tilt) + 2.0 + tail, 0.0)
    smoothed = xp.where(has_fallen | xp.isnan(missing), 0.0, 2.0 * missing / end**2)
    cut_off = xp.where(ends >= end, log_tails - 0.5 * smoothed * ends**2, -xp.inf)
    # Halfway between two points, so that the points beyond sum to less than the integral.
    end = frozen.step * (xp.floor(end / frozen.step) + 0.5)
    return end, smoothed, xp.exp(xp.max(cut_off, 0)) / (xp.pi * end)


def log_fall(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """log of bounds on |phi| (heights, phases, lanes) for all t from each height to the next.

    `weight` and `log_density` are the tilted law's at the nodes, `offset` losses less their mean.
    """
    following = xp.concatenate([heights[1:], xp.full_like(heights[:1], xp.inf)])

    def by_moments(at: tuple[Reals, Reals]) -> Reals:
        height, next_ = at
        near = xp.where(xp.abs(offset) <= 0.5 * xp.pi / next_, weight, 0.0)
        m0, m1 = xp.sum(near, 0), xp.sum(near * offset, 0)
        m2 = xp.sum(near * offset**2, 0)
        square = 1.0 - (2.0 * height / xp.pi) ** 2 * xp.maximum(m0 * m2 - m1**2, 0.0)
        return 0.5 * xp.log(xp.clip(square, 1e-300, 1.0))

    moments = lax.map(by_moments, (heights, following))
    variation = _atoms_and_variation(weight, offset, log_density, heights)
    return xp.minimum(xp.minimum(moments, xp.log(variation)), 0.0)


def _atoms_and_variation(weight: Reals, offset: Reals, log_density: Reals, heights: Reals) -> Reals:
    """The least A_c + V_c / t over the caps c."""
    spread = xp.sqrt(xp.sum(weight * offset**2, 0))
    log_scale = xp.where(spread > 0, xp.log(spread), 0.0)
    # The tilted density in units of one over the deviation.
    density = xp.where(weight > 0, xp.exp(log_density + log_scale), 0.0)

    at_heights = spread * heights[:, None]
    best = xp.full_like(at_heights, xp.inf)
    for cap in _CAPS:
        above = xp.sum(xp.where(density > cap, (1.0 - cap / density) * weight, 0.0), 0)
        below = xp.pad(xp.minimum(density, cap), ((1, 1), (0, 0), (0, 0)))
        variation = _BETWEEN * xp.sum(xp.abs(xp.diff(below, axis=0)), 0)
        best = xp.minimum(best, above + variation / at_heights)
    return xp.where(spread > 0, best, 1.0)
