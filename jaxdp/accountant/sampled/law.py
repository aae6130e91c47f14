"""Privacy loss of one Poisson-sampled Gaussian on the nodes of a batch: lanes are the last axis.

With x in units of the noise and u = x / sigma - 1 / (2 sigma^2), the ratio of
(1 - q) N(0, 1) + q N(1 / sigma, 1) to N(0, 1) is 1 - q + q e^u; l is its logarithm. "remove" draws
x from the mixture and its loss is l, "add" draws x from N(0, 1) and its loss is -l. Both have their
moments E e^(theta loss) from one function, psi(p) = E_N(0,1) e^(p l), at p = 1 + theta or -theta.

l is analytic for |Im x| < pi sigma. What no node stands for is bounded by `log_beyond_ends`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import LOG_SQRT_2PI, log1p
from jaxdp.accountant.sampled import top

LARGE = 600.0  # of u, from where e^u is left out of sums. derived: e^709 is the largest double
LEAST_FALL = 30.0  # nats below the mode of the last node, at least. chosen
LEAST_TOP = 8.7  # derived: N(0, 1) has 2e-18 above


class Releases(NamedTuple):
    """Poisson-sampled Gaussians in phases (phases, lanes) beside plain ones (lanes,)."""

    sigma: Reals  # noise multiplier
    sampling_prob: Reals
    number: Reals
    sign: Reals  # 1: the record is removed, -1: added
    variance: Reals  # (lanes,): mu^2 of the Gaussians that are not sampled

    @property
    def log_hits(self) -> Reals:
        """log of how many samples hold the record, in expectation (lanes,)."""
        hits = jnp.sum(self.number * self.sampling_prob, 0)
        return jnp.log(jnp.maximum(hits, 1e-300))

    def power(self, tilt: Reals) -> Reals:
        """The power of the ratio at a tilt of the loss: (..., phases, lanes) of (..., lanes)."""
        return 0.5 * (1.0 + self.sign) + self.sign * tilt[..., None, :]


class Stage(NamedTuple):
    """Size and place of the nodes and points by which a batch is inverted."""

    nodes: int
    points: int  # of a block
    start: float  # first node, in units of the noise
    depth: float  # nats below delta of what lies above the top
    height: float  # of its nodes, in their spacing, where the law ends in a smooth top; 0: sharply
    blocks: int = 1  # at most

    @property
    def smooth(self) -> bool:
        """True where the law ends in a smooth top."""
        return self.height > 0

    @property
    def log_rise(self) -> float:
        """log of what a smooth top may gain on the nodes' line."""
        return (self.height / top.WIDTH) ** 2


class Nodes(NamedTuple):
    """Real nodes (nodes, phases, lanes): psi(p) is the sum of e^(log_weight + p loss)."""

    x: Reals
    spacing: Reals  # (phases, lanes)
    loss: Reals
    log_weight: Reals


def placed(stage: Stage, releases: Releases, log_delta: Reals) -> tuple[Reals, Reals]:
    """Places and spacing of nodes that leave out e^-depth of delta."""
    fall = jnp.maximum(releases.log_hits - log_delta + stage.depth, LEAST_FALL)
    last = jnp.maximum(jnp.sqrt(2.0 * fall)[None] + 1.0 / releases.sigma, LEAST_TOP)
    beyond = top.BEYOND if stage.smooth else 0
    spacing = (last - stage.start) / (stage.nodes - 1 - beyond)
    index = jnp.asarray(np.arange(1.0 * stage.nodes)[:, None, None])
    return stage.start + spacing * index, spacing


def on_nodes(stage: Stage, releases: Releases, x: Reals, spacing: Reals) -> Nodes:
    """The law on real nodes at given places."""
    log_weight = -0.5 * x * x - LOG_SQRT_2PI + jnp.log(spacing)
    if stage.smooth:
        log_weight += jnp.asarray(top.tables(stage.nodes, stage.height).below)[:, None, None]
    return Nodes(x, spacing, _loss(releases, x), log_weight)


def _loss(releases: Releases, x: Reals) -> Reals:
    u = x / releases.sigma - 0.5 / releases.sigma**2
    q = releases.sampling_prob
    near = log1p(q * jnp.expm1(jnp.minimum(u, LARGE)))
    return jnp.where(u > LARGE, u + jnp.log(q), near)


def loss_above(releases: Releases, x: Reals, height: Reals) -> tuple[Reals, Reals]:
    """Real and imaginary part of the loss at x + i height."""
    grown = jnp.expm1(jnp.minimum(x / releases.sigma - 0.5 / releases.sigma**2, LARGE))
    sine, half = jnp.sin(height / releases.sigma), jnp.sin(0.5 * height / releases.sigma)
    lost, q = 2.0 * half * half, releases.sampling_prob
    a, b = q * (grown * (1.0 - lost) - lost), q * (grown + 1.0) * sine
    square = 2.0 * a + a * a + b * b
    near = square > -0.5
    modulus = jnp.where(near, 1.0, (1.0 + a) ** 2 + b * b)
    modulus = jnp.where(near, log1p(jnp.where(near, square, 0.0)), jnp.log(modulus))
    return 0.5 * modulus, jnp.arctan2(b, 1.0 + a)


def log_beyond_ends(
    stage: Stage, releases: Releases, nodes: Nodes, tilt: Reals
) -> tuple[Reals, Reals]:
    """log of E e^(p l) below and above what the nodes stand for, bounds (phases, lanes)."""
    power, sigma = releases.power(tilt), releases.sigma
    ends = []
    for at, side in ((0, -1.0), (-1, 1.0)):
        x, loss = nodes.x[at], nodes.loss[at]
        u = x / sigma - 0.5 / sigma**2
        steepness = releases.sampling_prob * jnp.exp(jnp.minimum(u - loss, 0.0))
        # p l lies below its tangent where p < 0; else below its end, or its steepest rise.
        steepest = jnp.where(power > 0, 1.0 if side > 0 else 0.0, jnp.minimum(steepness, 1.0))
        rate = power * steepest / sigma
        tail = _log_normal_below(side * (rate - x))
        ends.append(power * loss - rate * x + 0.5 * rate * rate + tail)
    below, above = ends
    if stage.smooth:
        tables = top.tables(stage.nodes, stage.height)
        cut = jnp.asarray(tables.above - tables.below)[:, None, None]
        terms = nodes.log_weight + cut + power * nodes.loss
        largest = jnp.max(terms, 0)
        rest = largest + jnp.log(jnp.sum(jnp.exp(terms - largest), 0))
        above = jnp.logaddexp(above, rest)
    return below, above


def _log_normal_below(x: Reals) -> Reals:
    """Bound on log P[N(0, 1) < x]: the density over |x|, or half of e^(-x^2 / 2), below 0."""
    share = jnp.maximum(-x * np.sqrt(2.0 * np.pi), 2.0)
    return jnp.where(x < 0, -0.5 * x * x - jnp.log(share), 0.0)
