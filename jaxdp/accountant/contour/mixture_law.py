"""Privacy loss of one sampled Gaussian on the nodes of a batch; lanes are the last axis.

Identity: with x in units of the noise, m_i >= 0 the sum of the records of a user, m_0 = 0, and s_i
its probability, the ratio of sum_i s_i N(m_i, 1) to N(0, 1) is

    r = sum_i s_i e^(m_i x - m_i^2 / 2),   l = log r.

"remove" draws x from the mixture and has the loss l. "add" draws x from N(0, 1) and has the loss
-l. Both have their moments E e^(theta loss) from one function, at p = 1 + theta or -theta:

    psi(p) = E_N(0,1) e^(p l).

If a public coin selects one of several mixtures, psi is the mean of their psi: their nodes, at the
same places, lie one after the other.

l is analytic for |Im x| < `strip`. `log_beyond_ends` bounds the mass beyond the nodes.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import logsumexp, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp.accountant.contour.nodes import LEAST_LOG, Nodes, Pair, Stage

WIDTH = 2.7  # of the cutoff, nodes. chosen
BEYOND = int(6 * WIDTH)  # nodes above the middle of the cutoff. derived: erfc(6) = 2e-17
_LEGENDRE_NODES = 200  # of a table of erfc. measured: 1e-15
LARGE = 600.0  # u above which sums omit e^u. derived: e^709 is the largest double
LEAST_FALL = 30.0  # least depth of the last node below the mode, nats. chosen
LEAST_CUTOFF = 8.7  # least upper cutoff, in units of the noise. derived: N(0, 1) has 2e-18 above
MOST_SPREAD = 1.8  # largest y^2 Var m with a known angle. derived: cosines are positive up to 2


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


class Components(NamedTuple):
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

    @property
    def log_hits(self) -> Reals:
        """log of the expected number of samples that hold a record (lanes,)."""
        hits = xp.sum(self.number * xp.sum(self.coin * xp.sum(self.share, 0), 0), 0)
        return xp.log(xp.maximum(hits, 1e-300))

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
        fall = xp.maximum(self.log_hits - log_delta + stage.depth, LEAST_FALL)
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


def _log_share(share: Reals) -> Reals:
    """log of a probability, with slope 0 where the probability is 0."""
    is_positive = share > 0
    return xp.where(is_positive, xp.log(xp.where(is_positive, share, 1.0)), -xp.inf)


def _exponents(of: Components, x: Reals) -> Reals:
    """u of every component (components, mixtures, nodes, phases, lanes)."""
    mean = of.mean[:, :, None]
    return mean * x - 0.5 * mean * mean


def loss_on_axis(of: Components, x: Reals) -> Reals:
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


def weight_above(
    stage: Stage, of: Components, place: Place, height: Reals, tilt: Reals, log_psi: Reals
) -> tuple[Pair, Pair]:
    """Tilted weights over psi at the tilt, and losses, of nodes at a height."""
    power, (x, y) = of.power(tilt), (place.x, height)
    loss = loss_above(of, x, y)
    log_modulus = 0.5 * (y * y - x * x) - LOG_SQRT_2PI + xp.log(place.spacing) - log_psi
    angle = -x * y
    if stage.height > 0:
        tables = cutoff(stage.nodes, stage.height)
        log_modulus = log_modulus + xp.asarray(tables.modulus)[:, None, None]
        angle = angle + xp.asarray(tables.angle)[:, None, None]
    log_modulus = (of.log_coin[:, None] + log_modulus).reshape(loss[0].shape)
    log_modulus, angle = log_modulus + power * loss[0], of.on_all(angle) + power * loss[1]
    modulus = xp.where(log_modulus > LEAST_LOG, xp.exp(log_modulus), 0.0)
    return (modulus * xp.cos(angle), modulus * xp.sin(angle)), loss


def risen_above(of: Components, x: Reals, height: Reals) -> tuple[Pair, Pair]:
    """The ratio of the densities at x + i height, less 1, and e^u - 1 of every component."""
    u, share, mean = xp.minimum(_exponents(of, x), LARGE), of.share[:, :, None], of.mean[:, :, None]
    grown, sine, half = xp.expm1(u), xp.sin(mean * height), xp.sin(0.5 * mean * height)
    lost = 2.0 * half * half
    risen = grown * (1.0 - lost) - lost, (grown + 1.0) * sine
    return (xp.sum(share * risen[0], 0), xp.sum(share * (grown + 1.0) * sine, 0)), risen


def loss_above(of: Components, x: Reals, height: Reals) -> tuple[Reals, Reals]:
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
    stage: Stage, of: Components, place: Place, nodes: Nodes, tilt: Reals
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
        tail = _log_normal_below(side * (rate - x))
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


def _log_normal_below(x: Reals) -> Reals:
    """Bound on log P[N(0, 1) < x] for x < 0: the density over |x|, or half of e^(-x^2 / 2)."""
    share = xp.maximum(-x * np.sqrt(2.0 * np.pi), 2.0)
    return xp.where(x < 0, -0.5 * x * x - xp.log(share), 0.0)
