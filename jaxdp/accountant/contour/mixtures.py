"""Rows of sampled Gaussians, of any sampling scheme: nodes at a height above the real axis."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1m, log1mexp
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Term, is_gaussian, ratios_of
from jaxdp.accountant.contour import mixture_errors, mixture_law
from jaxdp.accountant.contour.mixture_law import Components
from jaxdp.accountant.contour.nodes import (
    FrozenContour,
    LineNodes,
    Nodes,
    Pair,
    Psi,
    Stage,
    Sums,
    log_of,
)
from jaxdp.dominating_pair.public_coin import COIN

# Step of means that are 0. derived: its strip is a number
_LEAST_STEP = 1e-300
# Tilts among which the best is taken. chosen: 1e6 releases of all, or one at q = 1e-7
TILTS = np.append(1e-300, np.exp(np.arange(-2.5, 16.1, 0.45)))
SLACK = 0.5  # nats of slack for every other real node. measured: errors below 1e-3
MOST_GAP = 0.3  # largest error of every other node, over log psi, that is squared. chosen
WIDEST = 0.5  # spacing at which both sums can err alike. chosen: half of the noise

# Least log of a unit; below, only Chernoff's bounds serve. chosen
LEAST_UNIT = -700.0


class Mixtures(Components):
    """Sampled Gaussians as rows of the engine: a shifted trapezoidal rule (`mixture_law`)."""

    candidates = TILTS
    least_unit = LEAST_UNIT
    large_terms = 13.0  # nats above delta of terms that lose digits. derived: e^13 40 ULP is 4e-9
    smooths = False  # no Gaussian makes psi fall
    refines = False  # no tilts near the best are tried
    log_finite: Any = 0.0
    height = mixture_errors.height
    errors = mixture_errors.errors
    phi_error = mixture_errors.phi_error
    lost = mixture_errors.lost

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
        rounded = ULP * (mixture_errors.CUMULANT + 8.0 * xp.abs(power) * largest)
        rounded = rounded * xp.minimum(size, 1.0) + 4.0 * ULP * size
        share = gap / xp.maximum(size, 1e-300)
        error = xp.where(share < MOST_GAP, gap * share, xp.inf)
        rounded = rounded + xp.where((power > 0) | (gap <= rounded), 0.0, error)
        return Psi(log, xp.where(gap < xp.inf, rounded, xp.inf))

    def by_loss(self, nodes: Nodes) -> Nodes:
        """Every other node, with twice the weight."""
        loss, log_weight = nodes.loss[::2], nodes.log_weight[::2]
        return Nodes(loss, log_weight + xp.log(2.0), 2.0 * nodes.spacing)

    def coarse(self, nodes: Nodes) -> Nodes:
        """The nodes on which a tilt is searched."""
        return nodes

    def order(self) -> tuple[Any, int]:
        """Losses fall where a record is added; nodes of mixtures follow each other."""
        return self.sign < 0, self.mixtures

    def centre(self, weight: Reals, loss: Reals) -> Any:
        """Most of a tilted law lies around 0."""
        return 0.0

    def log_edge(self, stage: Stage, exponent: Reals) -> Reals:
        """log of the modulus at the last nodes."""
        shape = exponent.shape[0], self.mixtures, -1, *exponent.shape[2:]
        last = xp.max(exponent.reshape(shape)[:, :, -1], 1)
        return xp.max(last + xp.log(self.number), 1) + (stage.height / mixture_law.WIDTH) ** 2

    def on_line(self, stage: Stage, frozen: FrozenContour, log_psi: Reals) -> LineNodes:
        """The law at the height of the contour."""
        at = frozen.place, frozen.height, frozen.tilt, log_psi
        weight, loss = mixture_law.weight_above(stage, self, *at)
        return LineNodes(weight, loss, xp.zeros_like(self.number))

    def slopes(self, stage: Stage, frozen: FrozenContour, of_mass: Pair, of_loss: Pair) -> Mixtures:
        """Slopes in the components' means and probabilities.

        With F the slope in the loss l = log r at z, they are sums over the nodes of Re F dl:
        dl / ds_i = (e^(u_i) - 1) / r, and dl / dm_i = s_i (z - m_i) e^(u_i) / r.
        """
        re, im = map(self.by_mixture, of_loss)
        share, mean = self.share[:, :, None], self.mean[:, :, None]
        (across, up), risen = mixture_law.risen_above(self, frozen.place.x, frozen.height)
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
