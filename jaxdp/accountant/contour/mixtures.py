"""Rows of sampled Gaussians, of any sampling scheme: nodes at a height above the real axis.

Identity: with x in units of the noise, m_i >= 0 the sum of the records of a user, m_0 = 0, and s_i
its probability, the ratio of sum_i s_i N(m_i, 1) to N(0, 1) is

    r = sum_i s_i e^(m_i x - m_i^2 / 2),   l = log r.

"remove" draws x from the mixture and has the loss l. "add" draws x from N(0, 1) and has the loss
-l. Both have their moments E e^(theta loss) from one function, at p = 1 + theta or -theta:

    psi(p) = E_N(0,1) e^(p l).

If a public coin selects one of several mixtures, psi is the mean of their psi: their nodes, at the
same places, lie one after the other. l is analytic for |Im x| < `strip`.

Errors, on either side:

* quadrature: a transform on nodes dx apart at a height y has an error of e^(-2 pi (y - d) / dx)
  times the sum of moduli at a height d below it, and the same from above; an end of the nodes adds
  its modulus;
* truncation: |phi(t)| <= sum |W_j| e^(-t Im l_j), which falls in t, bounds the remainder at any
  height;
* the probability of losses beyond the nodes.

Source: Trefethen & Weideman, SIAM Review 56, 2014.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import lax, logsumexp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, log1m, log1mexp, log1p
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Term, is_gaussian, ratios_of
from jaxdp.accountant.contour.nodes import (
    LARGEST_LOG,
    LEAST_LOG,
    FrozenContour,
    LawErrors,
    LineNodes,
    Nodes,
    Pair,
    Plan,
    Psi,
    Stage,
    Sums,
    log_of,
)
from jaxdp.dominating_pair.public_coin import COIN

WIDTH = 2.7  # of the cutoff, nodes. chosen
BEYOND = int(6 * WIDTH)  # nodes above the middle of the cutoff. derived: erfc(6) = 2e-17
_LEGENDRE_NODES = 200  # of a table of erfc. measured: 1e-15
LARGE = 600.0  # u above which sums omit e^u. derived: e^709 is the largest double
LEAST_FALL = 30.0  # least depth of the last node below the mode, nats. chosen
LEAST_CUTOFF = 8.7  # least upper cutoff, in units of the noise. derived: N(0, 1) has 2e-18 above
MOST_SPREAD = 1.8  # largest y^2 Var m with a known angle. derived: cosines are positive up to 2
# Step of means that are 0. derived: its strip is a number
_LEAST_STEP = 1e-300
# Tilts among which the best is taken. chosen: 1e6 releases of all, or one at q = 1e-7
TILTS = np.append(1e-300, np.exp(np.arange(-2.5, 16.1, 0.45)))
SLACK = 0.5  # nats of slack for every other real node. measured: errors below 1e-3
MOST_GAP = 0.3  # largest error of every other node, over log psi, that is squared. chosen
WIDEST = 0.5  # spacing at which both sums can err alike. chosen: half of the noise
# Least log of a unit; below, only Chernoff's bounds serve. chosen
LEAST_UNIT = -700.0
STRIP = 0.95  # share of the height up to which the loss is analytic. chosen
LOWEST = 0.02  # least height of a bulk's nodes. chosen
HIGHEST = 1.9  # largest height of a bulk's truncation bound. chosen: e^(1.9^2 / 2) = 6
BELOW = 1.5  # height of a bulk's quadrature bound below the real axis. measured
ABOVE = 1.0  # height of the bound above the real axis, over the contour. measured
LEAST_ABOVE = 3.0  # the same over the real axis, at least. measured
RISES = (2.0, 3.5, 5.0, 6.5)  # heights of a smooth law's bounds above its line, in nodes. chosen
FALLS = (0.3, 1.0, 3.0)  # heights of its truncation bounds, over a Gaussian body's best. chosen
MOST_FALL = 2.0  # largest height of the truncation bounds, in nodes. chosen
OF_ALL = 4.0  # quadrature errors of psi and of 1, on both lines, over one. derived
RESOLVED = 1e-9  # distance of a sum of weights from 1. chosen: far above its rounding
CUMULANT = 64.0  # ulps of a sum of weights. derived: the sum, and exp of arguments from -37


class Cutoff(NamedTuple):
    """log of erfc(z) / 2, the share that a smooth cutoff keeps, at every node."""

    below: np.ndarray  # on the real axis
    above: np.ndarray  # log of the share that the cutoff removes
    modulus: np.ndarray  # of the share kept, on the nodes' line
    angle: np.ndarray


@functools.cache
def cutoff(nodes: int, height: float) -> Cutoff:
    """The cutoff of `nodes` nodes, whose line is `height` nodes above the real axis.

    It falls within a few nodes, near the last ones, so one table serves every lane.
    """
    distance = (np.arange(nodes) - (nodes - 1 - BEYOND)) / WIDTH
    below, above = (np.real(_log_half_erfc(x + 0j)) for x in (distance, -distance))
    line = _log_half_erfc(distance + 1j * (height / WIDTH))
    return Cutoff(below, above, np.real(line), np.imag(line))


def _log_half_erfc(z: np.ndarray) -> np.ndarray:
    """log(erfc(z) / 2) from erfc(z) = 2 e^(-z^2) / sqrt(pi) int_0^inf e^(-s^2 - 2 z s) ds."""
    side = np.where(np.real(z) < 0, -z, z)
    points, weights = np.polynomial.legendre.leggauss(_LEGENDRE_NODES)
    s = 3.5 * (points + 1.0)
    integral = np.exp(-s * s - 2.0 * side[..., None] * s) @ (3.5 * weights)
    small = np.log(integral / np.sqrt(np.pi)) - side * side
    return np.where(np.real(z) < 0, np.log1p(-np.exp(small)), small)


class Place(NamedTuple):
    """Nodes of a mixture, in units of the noise."""

    x: Reals  # (nodes, phases, lanes)
    spacing: Reals  # (phases, lanes)


class Mixtures(NamedTuple):
    """Sampled Gaussians in phases (phases, lanes) beside plain ones (lanes,).

    Mixtures are arrays (components, mixtures, phases, lanes) without the component of no record.
    """

    mean: Reals  # sum of the records, in units of the noise
    share: Reals  # probability of the component in the mixture
    miss: Reals  # (mixtures, phases, lanes): probability that no record is sampled
    coin: Reals  # (mixtures, phases, lanes): probability of the mixture
    strip: Reals  # half the width of the strip where all losses are analytic
    number: Reals
    sign: Reals  # 1: the record is removed, -1: added
    variance: Reals  # (lanes,): mu^2 of the Gaussians that are not sampled

    candidates = TILTS
    least_unit = LEAST_UNIT
    large_terms = 13.0  # nats above delta of terms that lose digits. derived: e^13 40 ULP is 4e-9
    smooths = False  # no Gaussian makes psi fall
    refines = False  # no tilts near the best are tried
    log_finite = 0.0

    @property
    def mixtures(self) -> int:
        """Number of mixtures of a phase."""
        return self.coin.shape[0]

    @property
    def largest_mean(self) -> Reals:
        """The largest sum of records (phases, lanes)."""
        return xp.max(self.mean, (0, 1))

    @property
    def log_coin(self) -> Reals:
        """log of the probability of each mixture."""
        return _log_share(self.coin)

    def power(self, tilt: Reals) -> Reals:
        """The power of the ratio at a tilt of the loss: (..., phases, lanes) from (..., lanes)."""
        return 0.5 * (1.0 + self.sign) + self.sign * tilt[..., None, :]

    def on_all(self, x: Reals) -> Reals:
        """Values at nodes (nodes, phases, lanes), repeated for the nodes of all mixtures."""
        return xp.tile(x, (self.mixtures, 1, 1)) if x.shape[0] > 1 else x

    def by_mixture(self, x: Reals) -> Reals:
        """Values at the nodes of all mixtures as (mixtures, nodes, phases, lanes)."""
        return x.reshape(self.mixtures, -1, *x.shape[1:])

    def placed(self, stage: Stage, log_delta: Reals) -> Any:
        """Place of nodes that leave out e^-depth of delta."""
        # Expected number of samples that hold the record.
        hits = xp.sum(self.number * xp.sum(self.coin * xp.sum(self.share, 0), 0), 0)
        log_hits = xp.log(xp.maximum(hits, 1e-300))
        fall = xp.maximum(log_hits - log_delta + stage.depth, LEAST_FALL)
        last = xp.maximum(xp.sqrt(2.0 * fall)[None] + self.largest_mean, LEAST_CUTOFF)
        beyond = BEYOND if stage.height > 0 else 0
        spacing = (last - stage.start) / (stage.nodes - 1 - beyond)
        index = xp.asarray(np.arange(1.0 * stage.nodes)[:, None, None])
        return Place(stage.start + spacing * index, spacing)

    def on_axis(self, stage: Stage, place: Any) -> Nodes:
        """The law on real nodes."""
        x, spacing = place
        log_weight = -0.5 * x * x - LOG_SQRT_2PI + xp.log(spacing)
        if stage.height > 0:
            below = cutoff(stage.nodes, stage.height).below
            log_weight = log_weight + xp.asarray(below)[:, None, None]
        log_weight = self.log_coin[:, None] + log_weight
        return Nodes(loss_on_axis(self, x), log_weight.reshape(-1, *x.shape[1:]), spacing)

    @property
    def parameters(self) -> tuple[Reals, ...]:
        """Arrays that are NaN where a parameter is bad."""
        return tuple(x for name, x in self._asdict().items() if name != "sign")

    def nodes(self, stage: Stage) -> int:
        """Number of nodes of all phases, with axes reversed."""
        return stage.nodes

    @property
    def composed_error(self) -> Any:
        """Slack of every other node, and the error of public coins."""
        return SLACK + self.relative_error

    @property
    def relative_error(self) -> Any:
        """log of delta's largest relative error from public coins: P's or Q's in each release."""
        return (COIN if self.mixtures > 1 else 0.0) * xp.sum(self.number, 0)

    def psi(self, place: Any, nodes: Nodes, power: Reals, found: Sums) -> Psi:
        """log psi, and its error from a sum over every other node.

        As l is convex, the peak of e^(p l) under N(0, 1) is at least as wide as the peak of N(0, 1)
        if p > 0. If p < 0 it can be narrower. The error of the trapezoidal rule then falls like
        e^(-c / h^2), h the spacing, or like e^(-c / h). Over log psi, it is at most the square of
        the difference to a sum over every other node.
        """
        log = found.log_psi
        half = log_of(2.0 * xp.sum(found.risen[..., ::2, :, :], -3), found.largest)
        gap = xp.where(nodes.spacing < WIDEST, xp.abs(log - half), xp.inf)
        size = xp.abs(log)
        largest = xp.max(xp.abs(nodes.loss), 0)
        rounded = ULP * (CUMULANT + 8.0 * xp.abs(power) * largest)
        rounded = rounded * xp.minimum(size, 1.0) + 4.0 * ULP * size
        share = gap / xp.maximum(size, 1e-300)
        error = xp.where(share < MOST_GAP, gap * share, xp.inf)
        rounded = rounded + xp.where((power > 0) | (gap <= rounded), 0.0, error)
        return Psi(log, xp.where(gap < xp.inf, rounded, xp.inf))

    def fewer(self, nodes: Nodes) -> Nodes:
        """Every other node, with twice the weight."""
        loss, log_weight = nodes.loss[::2], nodes.log_weight[::2]
        return Nodes(loss, log_weight + xp.log(2.0), 2.0 * nodes.spacing)

    def coarse(self, nodes: Nodes) -> Nodes:
        """The nodes on which a tilt is searched."""
        return nodes

    def centre(self, weight: Reals, loss: Reals) -> Any:
        """Most of a tilted law lies around 0."""
        return 0.0

    def log_edge(self, stage: Stage, exponent: Reals) -> Reals:
        """log of the modulus at the last nodes."""
        shape = exponent.shape[0], self.mixtures, -1, *exponent.shape[2:]
        last = xp.max(exponent.reshape(shape)[:, :, -1], 1)
        return xp.max(last + xp.log(self.number), 1) + (stage.height / WIDTH) ** 2

    def on_line(self, stage: Stage, frozen: FrozenContour, log_psi: Reals) -> LineNodes:
        """The law at the height of the contour."""
        (x, spacing), y, power = frozen.place, frozen.height, self.power(frozen.tilt)
        loss = loss_above(self, x, y)
        log_modulus = 0.5 * (y * y - x * x) - LOG_SQRT_2PI + xp.log(spacing) - log_psi
        angle = -x * y
        if stage.height > 0:
            tables = cutoff(stage.nodes, stage.height)
            log_modulus = log_modulus + xp.asarray(tables.modulus)[:, None, None]
            angle = angle + xp.asarray(tables.angle)[:, None, None]
        log_modulus = (self.log_coin[:, None] + log_modulus).reshape(loss[0].shape)
        log_modulus, angle = log_modulus + power * loss[0], self.on_all(angle) + power * loss[1]
        modulus = xp.where(log_modulus > LEAST_LOG, xp.exp(log_modulus), 0.0)
        weight = modulus * xp.cos(angle), modulus * xp.sin(angle)
        return LineNodes(weight, loss, xp.zeros_like(self.number))

    def height(self, stage: Stage, place: Any, plan: Plan) -> Reals:
        """Height of a contour's nodes (phases, lanes); NaN where none is inside the strip."""
        if stage.height > 0:
            found = stage.height * place.spacing
            return xp.where(found < STRIP * self.strip, found, xp.nan)
        return xp.minimum(_height_of_fall(stage, self, plan), 0.5 * self.strip)

    def errors(
        self, stage: Stage, plan: Plan, frozen: FrozenContour, line: LineNodes, logs: Pair
    ) -> LawErrors:
        """The errors of a contour on the nodes of mixtures."""
        at, psi = At(stage, self, plan, frozen, line, logs[0]), xp.abs(logs[0])
        above, of_turn, truncated, edge = _of_smooth(at) if at.stage.height > 0 else _of_bulk(at)
        moved = CUMULANT * ULP * xp.minimum(psi, 1.0) + 4.0 * ULP * psi
        # If the weights do not add up to phi(0) = 1, the nodes end before the tilted law does.
        re, im = (xp.sum(x, 0) for x in at.line.weight)
        is_resolved = xp.hypot(re - 1.0, im) <= RESOLVED + above + edge
        edge = xp.where(is_resolved, edge, xp.inf)
        truncated = truncated - (0.5 * self.variance * at.end**2)
        points = at.stage.points * at.frozen.blocks - 1.0
        truncation = xp.exp(xp.minimum(truncated, LARGEST_LOG)) / (xp.pi * at.frozen.step * points)
        return LawErrors(edge + moved, ByHeight(above, of_turn), truncation)

    def phi_error(self, by_height: Any, frozen: FrozenContour, t: Reals) -> Reals:
        """Quadrature error of phi at heights t (points, 1, lanes)."""
        of_turn = (xp.abs(self.power(frozen.tilt)) + t) * by_height.of_turn
        return xp.minimum(by_height.quadrature, of_turn)

    def lost(self, stage: Stage, plan: Plan, place: Any, log_psi: Reals) -> tuple[Reals, Reals]:
        """Mass beyond the nodes, in the unit: untilted, and tilted at the plan's epsilon."""
        log_number = xp.log(xp.maximum(self.number, 1e-300))
        nodes = self.on_axis(stage, place)
        ends = [
            xp.stack(log_beyond_ends(stage, self, place, nodes, tilt)) + log_number
            for tilt in (xp.zeros_like(plan.tilt), plan.tilt)
        ]
        tilted = ends[1] - log_psi
        # (A + R)^n - A^n <= n R A^(n - 1) e^(n R / A).
        tilted = tilted + xp.exp(xp.minimum(tilted, 5.0))
        log = plan.bounds.log - plan.bounds.tilts * plan.epsilon
        nearest = xp.argmin(xp.abs(plan.bounds.tilts - plan.tilt), 0)[None]
        bound = xp.take_along_axis(log, nearest, 0)[0] + 1.0
        tilted, plain = tilted + bound - plan.log_unit, ends[0] - plan.log_unit
        is_tilted = tilted < plain
        falls = [xp.where(is_tilted, -xp.inf, plain), xp.where(is_tilted, tilted, -xp.inf)]
        used = self.number > 0
        plain, tilted = (xp.sum(xp.where(used, xp.exp(x), 0.0), (0, 1)) for x in falls)
        return plain, tilted

    def slopes(self, stage: Stage, frozen: FrozenContour, of_mass: Pair, of_loss: Pair) -> Mixtures:
        """Slopes in the components' means and probabilities.

        With F the slope in the loss l = log r at z, they are sums over the nodes of Re F dl:
        dl / ds_i = (e^(u_i) - 1) / r, and dl / dm_i = s_i (z - m_i) e^(u_i) / r.
        """
        re, im = map(self.by_mixture, of_loss)
        share, mean = self.share[:, :, None], self.mean[:, :, None]
        (across, up), risen = risen_above(self, frozen.place.x, frozen.height)
        ratio = 1.0 + across, up
        size = ratio[0] * ratio[0] + ratio[1] * ratio[1]
        re, im = (re * ratio[0] + im * ratio[1]) / size, (im * ratio[0] - re * ratio[1]) / size
        of_share = xp.sum(re * risen[0] - im * risen[1], 2)
        x, y = frozen.place.x - mean, frozen.height  # F (z - m) / r, times e^u
        turned = re * x - im * y, re * y + im * x
        of_mean = xp.sum(share * (turned[0] * (risen[0] + 1.0) - turned[1] * risen[1]), 2)
        found = {"share": of_share, "mean": of_mean}
        if self.mixtures > 1:
            coin = xp.where(self.coin > 0, self.coin, 1.0)
            of_coin = xp.sum(self.by_mixture(of_mass[0]), 1) / coin
            found["coin"] = xp.where(self.coin > 0, of_coin, 0.0)
        found = {name: xp.where(xp.isfinite(x), x, 0.0) for name, x in found.items()}
        return jax.tree.map(xp.zeros_like, self)._replace(**found)


def _log_share(share: Reals) -> Reals:
    """log of a probability, with slope 0 where the probability is 0."""
    is_positive = share > 0
    return xp.where(is_positive, xp.log(xp.where(is_positive, share, 1.0)), -xp.inf)


def _exponents(of: Mixtures, x: Reals) -> Reals:
    """u of every component (components, mixtures, nodes, phases, lanes)."""
    mean = of.mean[:, :, None]
    return mean * x - 0.5 * mean * mean


def loss_on_axis(of: Mixtures, x: Reals) -> Reals:
    """The loss at x, on the nodes of all mixtures."""
    u, share = _exponents(of, x), of.share[:, :, None]
    small = xp.minimum(u, LARGE)
    excess = xp.sum(share * xp.expm1(small), 0)
    near = excess > -0.5
    total = of.miss[:, None] + xp.sum(share * xp.exp(small), 0)
    value = log1p(xp.where(near, excess, 0.0))
    value = xp.where(near, value, xp.log(xp.where(near, 1.0, total)))
    far = logsumexp(u + _log_share(share), axis=0)
    largest = xp.max(xp.where(share > 0, u, -xp.inf), 0)
    return xp.where(largest > LARGE, far, value).reshape(-1, *x.shape[1:])


def risen_above(of: Mixtures, x: Reals, height: Reals) -> tuple[Pair, Pair]:
    """The ratio of the densities at x + i height, less 1, and e^u - 1 of every component."""
    u, share, mean = xp.minimum(_exponents(of, x), LARGE), of.share[:, :, None], of.mean[:, :, None]
    grown, sine, half = xp.expm1(u), xp.sin(mean * height), xp.sin(0.5 * mean * height)
    lost = 2.0 * half * half
    risen = grown * (1.0 - lost) - lost, (grown + 1.0) * sine
    return (xp.sum(share * risen[0], 0), xp.sum(share * (grown + 1.0) * sine, 0)), risen


def loss_above(of: Mixtures, x: Reals, height: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary part of the loss at x + i height, on the nodes of all mixtures.

    The imaginary part is continuous along every vertical line. For one component its angle lies
    within pi. For several components it is y E m plus a remainder, and NaN where the remainder can
    exceed pi.
    """
    a, b = risen_above(of, x, height)[0]
    square = 2.0 * a + a * a + b * b
    near = square > -0.5
    modulus = xp.where(near, 1.0, (1.0 + a) ** 2 + b * b)
    modulus = xp.where(near, log1p(xp.where(near, square, 0.0)), xp.log(modulus))
    if of.mean.shape[0] == 1:
        angle = xp.arctan2(b, 1.0 + a)
    else:
        u, mean = xp.minimum(_exponents(of, x), LARGE), of.mean[:, :, None]
        weight = of.share[:, :, None] * xp.exp(u)
        total = of.miss[:, None] + xp.sum(weight, 0)
        centre = xp.sum(mean * weight, 0) / total
        spread = xp.sum(mean * mean * weight, 0) / total - centre * centre
        turn = height * centre
        c, s = xp.cos(turn), xp.sin(turn)
        angle = turn + xp.arctan2(b * c - (1.0 + a) * s, (1.0 + a) * c + b * s)
        known = (height * height * spread < MOST_SPREAD) & (xp.max(u, 0) < LARGE)
        angle = xp.where(known, angle, xp.nan)
    return tuple(v.reshape(-1, *v.shape[2:]) for v in (0.5 * modulus, angle))  # pyright: ignore


def log_beyond_ends(
    stage: Stage, of: Mixtures, place: Place, nodes: Nodes, tilt: Reals
) -> tuple[Reals, Reals]:
    """log of bounds on E e^(p l) below and above the range of the nodes (phases, lanes)."""
    power, mean, share = of.power(tilt), of.mean, of.share
    ends = []
    for at, side in ((0, -1.0), (-1, 1.0)):
        x, loss = place.x[at], of.by_mixture(nodes.loss)[:, at]
        part = share * xp.exp(xp.minimum(mean * x - 0.5 * mean * mean - loss, LARGE))
        # p l lies below its tangent where p < 0; else below its end, or its steepest rise.
        steepness = xp.minimum(xp.sum(mean * part, 0), xp.max(mean, 0))
        steepest = xp.where(power > 0, xp.max(mean, 0) if side > 0 else 0.0, steepness)
        rate = power * steepest
        # For z < 0 the normal distribution function is at most density / |z| and e^(-z^2 / 2) / 2.
        z = side * (rate - x)
        over = xp.maximum(-z * np.sqrt(2.0 * np.pi), 2.0)
        tail = xp.where(z < 0, -0.5 * z * z - xp.log(over), 0.0)
        each = of.log_coin + power * loss - rate * x + 0.5 * rate * rate + tail
        ends.append(logsumexp(each, axis=0) if of.mixtures > 1 else each[0])
    below, above = ends
    if stage.height > 0:
        tables = cutoff(stage.nodes, stage.height)
        cut = of.on_all(xp.asarray(tables.above - tables.below)[:, None, None])
        terms = nodes.log_weight + cut + power * nodes.loss
        largest = xp.max(terms, 0)
        rest = largest + xp.log(xp.sum(xp.exp(terms - largest), 0))
        above = xp.logaddexp(above, rest)
    return below, above


def _height_of_fall(stage: Stage, of: Mixtures, plan: Plan) -> Reals:
    end = 2.0 * xp.pi * stage.points / plan.period  # height at the end of one block
    most = xp.minimum(HIGHEST, 0.9 * of.strip)
    return xp.clip(end * plan.spread, LOWEST, xp.maximum(most, LOWEST))


class ByHeight(NamedTuple):
    """Quadrature error of phi, and a bound on it over |p + i t| (phases, lanes)."""

    quadrature: Reals
    of_turn: Reals


class At(NamedTuple):
    """A contour and what its errors are computed from."""

    stage: Stage
    of: Mixtures
    plan: Plan
    frozen: FrozenContour
    line: LineNodes
    log_psi: Reals

    @property
    def end(self) -> Reals:
        """Height of the contour's last point (lanes,)."""
        return self.frozen.step * self.stage.points * self.frozen.blocks


class Row(NamedTuple):
    """Sums of moduli of tilted weights along a curve above the real axis (phases, lanes)."""

    total: Reals
    turns: Reals  # bound on sum |w (e^(z l) - 1)| over |z|
    damped: Reals  # sum of moduli damped by e^(-t Im l) at the end of the contour
    ends: Reals  # moduli of the outermost nodes


def _rows(at: At, curves: tuple[Reals, Reals]) -> Row:
    """Sums along some curves: heights and slopes (rows, nodes or 1, phases, lanes)."""
    stage, of, place = at.stage, at.of, at.frozen.place
    stride = 2 if stage.height > 0 else 1
    x, power, spacing = place.x[::stride], of.power(at.frozen.tilt), place.spacing
    common = xp.log(stride * spacing) - at.log_psi - 0.5 * x * x - LOG_SQRT_2PI
    common = (of.log_coin[:, None] + common).reshape(-1, *common.shape[1:])

    def each(curve: tuple[Reals, Reals]) -> Row:
        height, leaning = curve
        across, up = loss_above(of, x, height)
        grown = 0.5 * height * height
        if stage.height > 0:
            grown = grown + _cutoff_bound(stage, height / spacing, stride)
        log = common + of.on_all(grown) + power * across
        leaning = of.on_all(xp.sqrt(1.0 + leaning * leaning))
        modulus = xp.exp(xp.minimum(log, LARGEST_LOG)) * leaning
        # Each |e^(z l) - 1| is at most |z l| times the larger of 1 and |e^(z l)|.
        untilted = xp.exp(xp.clip(-power * across, 0.0, LARGEST_LOG))
        turns = xp.sum(modulus * xp.hypot(across, up) * untilted, 0)
        damped = xp.sum(modulus * xp.exp(xp.minimum(-at.end * up, LARGEST_LOG)), 0)
        # An unknown angle has an infinite bound.
        turns, damped = (xp.where(xp.isnan(x), xp.inf, x) for x in (turns, damped))
        ends = of.by_mixture(modulus)[:, xp.asarray([0, -1])]
        return Row(xp.sum(modulus, 0), turns, damped, xp.sum(ends, (0, 1)))

    return lax.map(each, curves)


def _of_bulk(at: At) -> tuple[Reals, ...]:
    """Quadrature, truncation and ends of a law that ends sharply."""
    of, frozen, line = at.of, at.frozen, at.line
    strip, spacing = of.strip, frozen.place.spacing
    fall = _height_of_fall(at.stage, of, at.plan)
    rise = xp.minimum(STRIP * strip, xp.maximum(frozen.height + ABOVE, LEAST_ABOVE))
    down = -xp.minimum(BELOW, 0.75 * strip)
    heights = xp.stack([rise, down, fall])[:, None]
    row = _rows(at, (heights, xp.zeros_like(heights)))
    above = xp.exp(-2.0 * xp.pi * (rise - frozen.height) / spacing) * row.total[0]
    above = above + xp.exp(-2.0 * xp.pi * (frozen.height - down) / spacing) * row.damped[1]
    main = xp.hypot(*line.weight)
    of_main = xp.sum(main * xp.exp(-at.end * line.loss[1]), 0)
    falls = xp.log(xp.minimum(of_main, row.damped[2]))
    main = of.by_mixture(main)
    edge = xp.maximum(xp.max(row.ends, 0), xp.sum(main[:, 0] + main[:, -1], 0))
    edge = edge * (4.0 + 2.0 * frozen.height / spacing)
    never = xp.full_like(above, xp.inf)
    return OF_ALL * above, never, xp.sum(of.number * falls, 0), edge


def _of_smooth(at: At) -> tuple[Reals, ...]:
    """Quadrature, truncation and ends of a law with a smooth cutoff, from every other node."""
    place, height = at.frozen.place, at.stage.height
    # Lines `RISES` nodes above the contour, the real axis, and curves that rise like the loss.
    heights = (height + xp.asarray((*RISES, -height))[:, None, None]) * place.spacing
    is_inside = heights < STRIP * at.of.strip
    flat = xp.where(is_inside, heights, 0.5 * STRIP * at.of.strip)[:, None]
    flat = xp.broadcast_to(flat, (len(heights), *place.x[::2].shape))
    curves, slopes = _rising(at.of, place, at.end)
    rows = _rows(at, (xp.concatenate([flat, curves]), xp.concatenate([0.0 * flat, slopes])))
    n = len(RISES)
    above, axis = Row(*(x[:n] for x in rows)), Row(*(x[n] for x in rows))
    is_inside, damped = is_inside[:n], rows.damped[n + 1 :]
    share = 2.0 * np.exp(-2.0 * np.pi * np.asarray(RISES))[:, None, None]

    def quadrature(above: Reals, axis: Reals) -> Reals:
        """From above at the best rise, and from below."""
        from_above = xp.where(is_inside, share * above, xp.inf)
        return OF_ALL * (xp.min(from_above, 0) + np.exp(-2.0 * np.pi * height) * axis)

    # log of the best bound on |phi|^n at the end: on the contour's line, or on a rising curve.
    modulus = xp.hypot(*at.line.weight)
    on_line = xp.sum(modulus * xp.exp(-at.end * at.line.loss[1]), 0)
    on_curves = xp.min(xp.sum(at.of.number * xp.log(damped), 1), 0)
    truncation = xp.minimum(xp.sum(at.of.number * xp.log(on_line), 0), on_curves)
    # Mass beyond the last nodes; where the law does not fall there, it ends sharply.
    modulus = at.of.by_mixture(modulus)
    falls = (modulus[:, -1] <= 0.5 * modulus[:, -2]) & (modulus[:, 0] <= 0.5 * modulus[:, 1])
    last = xp.sum(modulus[:, 0] + modulus[:, -1], 0)
    ends = xp.max(xp.where(is_inside, above.ends, 0.0), 0)
    sharp = (4.0 + 2.0 * (height + RISES[-1])) * xp.maximum(ends, last)
    edge = xp.where(xp.all(falls, 0), xp.minimum(4.0 * last, sharp), sharp)
    of_turn = quadrature(above.turns, axis.turns)
    return quadrature(above.total, axis.total), of_turn, truncation, edge


def _rising(of: Mixtures, place: Place, end: Reals) -> tuple[Reals, Reals]:
    """Heights and slopes of curves that rise like the loss, so that small losses are damped most.

    The height is end times the mean of a m e^u, a = 1 / (1 + m^2), and shares of it (`FALLS`), up
    to `MOST_FALL` nodes. To first order the curve keeps a body's exponent at the variance of l.
    """
    x, most = place.x[::2], MOST_FALL * place.spacing
    mean, share = of.mean, of.coin * of.share
    u = xp.minimum(mean[:, :, None] * x - 0.5 * (mean * mean)[:, :, None], 300.0)
    risen = xp.sum((share * mean / (1.0 + mean * mean))[:, :, None] * xp.exp(u), (0, 1))
    ratio = xp.asarray(FALLS)[:, None, None, None] * end * risen / most
    height = most * ratio / (1.0 + ratio)
    return height, height / (1.0 + ratio) * of.largest_mean


def _cutoff_bound(stage: Stage, rise: Reals, stride: int) -> Reals:
    """log of a bound on the share that a smooth cutoff keeps, at a height of `rise` nodes.

    |erfc(a + i b)| <= e^(b^2) erfc(a), by the integral of e^(-(s + i b)^2).
    """
    tables = cutoff(stage.nodes, stage.height)
    below, above = (xp.asarray(x[::stride])[:, None, None] for x in (tables.below, tables.above))
    square = (rise / WIDTH) ** 2
    return xp.minimum(square + below, xp.logaddexp(0.0, square + above))


def mixtures_of(batch: Batch) -> tuple[Mixtures, Reals]:
    """Mixtures, axes reversed, and log of the probability that a sample holds a record."""
    terms = batch.terms
    phases = [_phases(term) for term in terms if not is_gaussian(term)]
    mixtures, components = (max(p.mean.shape[axis] for p in phases) for axis in (-2, -1))
    padded = (_padded(p, mixtures, components)[:-1] for p in phases)
    parts = (xp.concatenate(x, 1) for x in zip(*padded, strict=True))
    found = Mixtures(*parts, variance=xp.zeros(()))
    # A release that samples everything is a plain Gaussian.
    number, coin = found.number[..., None, None], found.coin[..., None]
    is_whole = (found.share >= 1) & (coin >= 1) & (number > 0)
    variance = xp.sum(xp.where(is_whole, number * found.mean**2, 0.0), (1, 2, 3))
    for term in terms:
        if is_gaussian(term):
            variance = variance + xp.sum(ratios_of(term) ** 2 * term.count, -1)
    hits = xp.minimum(xp.sum(coin * found.share, (2, 3)), 1.0)
    moved = xp.sum(coin * found.share * found.mean, (2, 3))
    used = ~xp.any(is_whole, (2, 3)) & ~(found.number == 0) & ~(moved == 0)
    missed = xp.sum(xp.where(used, found.number * log1m(xp.where(used, hits, 0.5)), 0.0), -1)
    log_hit = log1mexp(-missed) * (1.0 - 2.0**-48)
    nothing = 1.0, 0.5, 0.5, 1.0, xp.pi, 0.0, found.sign
    usable = (
        xp.where(used.reshape(*used.shape, *[1] * (x.ndim - 2)), x, y)
        for x, y in zip(found[:-1], nothing, strict=True)
    )
    return Mixtures(*usable, variance=variance), xp.where(variance > 0, 0.0, log_hit)


def _phases(term: Term) -> Mixtures:
    """The releases of one term, axes reversed."""
    mixtures = term.pair.mixtures()
    shape, components = term.count.shape, max(m.mean.shape[-1] for m in mixtures)
    mean, probability = (
        xp.stack([xp.broadcast_to(_to(x, components, -1), (*shape, components)) for x in parts], -2)
        for parts in zip(*((m.mean, m.probability) for m in mixtures), strict=True)
    )
    missed, share, step, added = (
        xp.stack([xp.broadcast_to(x, shape) for x in parts], -1)
        for parts in zip(*((m.missed, m.share, m.step, m.added) for m in mixtures), strict=True)
    )
    # A coin that also decides the direction is not supported: NaN.
    is_added = added > 0
    sign = xp.where(xp.all(is_added, -1), -1.0, xp.where(xp.any(is_added, -1), xp.nan, 1.0))
    strip = xp.pi / xp.maximum(xp.max(step, -1), _LEAST_STEP)
    return Mixtures(mean, probability, missed, share, strip, term.count, sign, xp.zeros(term.shape))


def _padded(phases: Mixtures, mixtures: int, components: int) -> Mixtures:
    """The phases padded with mixtures and components of probability 0."""
    mean, share = (_to(_to(x, components, -1), mixtures, -2) for x in (phases.mean, phases.share))
    miss, coin = (_to(x, mixtures, -1) for x in (phases.miss, phases.coin))
    return phases._replace(mean=mean, share=share, miss=miss, coin=coin)


def _to(x: Reals, size: int, axis: int) -> Reals:
    """x padded with zeros along an axis."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return xp.pad(x, widths)
