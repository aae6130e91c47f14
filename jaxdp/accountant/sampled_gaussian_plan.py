"""Plan of the sampled Gaussian's contours: which losses are left out, and where the law is cut.

A total that one large loss makes shows in no single tilt. The law of one release is A + D + rest:
A below a cut, D between cut and top, and the rest, which is dropped and added to the upper bound.
Of n releases A^n and (A + D)^n - A^n are inverted apart. Cut and tilts minimise the sum of their
Chernoff bounds E e^(theta (loss - epsilon)) theta^theta / (1 + theta)^(1 + theta), on real nodes
that end at the cut. Nothing that is bounded elsewhere depends on the choice.
Source: one big jump: Foss, Korshunov & Zachary, Heavy-Tailed and Subexponential Distributions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Index, Reals
from jaxdp._numeric.elementary import log1p
from jaxdp.accountant.sampled_gaussian_law import LIGHT, LOW, REAL_STRIDE, law

TILTS = np.exp(np.arange(-8.0, 16.5, 0.7))  # chosen: 1e6 releases of all, or one at q = 1e-5
GROUP = 2  # real nodes between two cuts. chosen: .76 noises
LEFT_OUT = 24.0  # nats below delta of what lies above the top. chosen: 4e-11, if the top is sharp
CHERNOFF_SLACK = 2.5  # nats that a Chernoff bound gives away. measured: 2 to 3 in bulk
LEAST_SIZE = -300.0  # of the unit's logarithm. derived: what is left out, e^-125, overflows none
LARGER = 4.0  # nats by which A^n may be above the rest. measured: fewest brackets are wide

# Distance of the real nodes in noises, and the nodes.
_STEP = REAL_STRIDE * LIGHT.step
GROUP_WIDTH = GROUP * _STEP  # between two cuts
_X = LOW + _STEP * np.arange(LIGHT.size // REAL_STRIDE)
# Where the noise is cut in two, between nodes, and the first cut above half a noise.
_CUTS = _X[GROUP - 1 :: GROUP] + 0.5 * _STEP
_SHAPE = TILTS * np.log1p(1.0 / TILTS) - np.log(TILTS)  # log |1 / z (z + 1)| less Chernoff's
_FIRST_CUT = int(np.searchsorted(_CUTS, 0.5))


class Plan(NamedTuple):
    """`top` and `cut` in units of the noise; `size`: about log delta, at `epsilon`."""

    top: Reals
    cut: Reals
    epsilon: Reals
    size: Reals
    tilt: Reals  # about that of the law below the top, where it is not cut


def log_chernoff(tilt: Reals) -> Reals:
    """log of the largest (1 - e^-y) e^(-tilt y): y >= 0."""
    safe = jnp.where(tilt > 0, tilt, 1.0)
    return jnp.where(tilt > 0, -log1p(tilt) - safe * log1p(1.0 / safe), 0.0)


def log_excess(base: Reals, more: Reals, n: Reals) -> Reals:
    """log((e^base + e^more)^n - e^(n base))."""
    rise = n * jnp.logaddexp(0.0, more - base)
    grown = jnp.log(jnp.expm1(jnp.clip(rise, 1e-300, 30.0)))
    return n * base + jnp.where(rise > 30.0, rise, grown)


def plan(kind: str, sigma, q, sign, n, epsilon, log_delta) -> Plan:
    """Plan at `epsilon`, or where that is None at an epsilon of about `log_delta`.

    A "plain" plan searches no cut.
    """
    loss, log_weight = law(sigma, q, sign, jnp.asarray(_X), _STEP)
    tilts = jnp.asarray(TILTS)
    tilted = log_weight[:, None] + loss[:, None] * tilts[None]
    mass = jnp.logaddexp(log_weight[0::GROUP], log_weight[1::GROUP])
    beyond = jnp.append(lax.cumlogsumexp(mass, reverse=True)[1:], -jnp.inf) + jnp.log(n)
    beyond = beyond.at[-1].set(beyond[-2] - 3.0)

    def chernoff(top):
        kept = (jnp.arange(len(_X)) < GROUP * (top + 1))[:, None]
        cumulant = jax.nn.logsumexp(jnp.where(kept, tilted, -jnp.inf), 0)
        return n * cumulant + log_chernoff(tilts)

    size = log_delta
    if epsilon is not None:
        bound = jnp.min(chernoff(len(_CUTS) - 1) - tilts * epsilon)
        bound = jnp.min(chernoff(_top(beyond - bound)) - tilts * epsilon)
        size = jnp.clip(bound, LEAST_SIZE, 0.0) - CHERNOFF_SLACK
    top = _top(beyond - size)
    bound = chernoff(top)
    at = jnp.asarray(_CUTS)
    if kind == "plain":
        if epsilon is None:
            epsilon = jnp.maximum(jnp.min((bound - size - CHERNOFF_SLACK) / tilts), 0.0)
        tilt = tilts[jnp.argmin(bound - tilts * epsilon + _SHAPE)]
        return Plan(at[top], at[top], epsilon, size, tilt)
    grouped = tilted.reshape(-1, GROUP, len(TILTS))
    below = lax.cumlogsumexp(jnp.logaddexp(grouped[:, 0], grouped[:, 1]))  # cuts, tilts
    if epsilon is None:
        epsilon = _epsilon(below, top, n, size + CHERNOFF_SLACK)
    small, large = _bounds(below, top, n, epsilon)
    best = jnp.min(jnp.logaddexp(small, large))
    cut = jnp.argmin(jnp.maximum(small - LARGER, large))
    if log_delta is None:
        size = jnp.clip(best, LEAST_SIZE, 0.0) - CHERNOFF_SLACK
    return Plan(at[top], at[cut], epsilon, size, jnp.ones_like(epsilon))


def _top(beyond: Reals) -> Index:
    """The first cut beyond which little enough lies, or the last."""
    fits = (beyond < -LEFT_OUT) & (jnp.arange(len(_CUTS)) >= _FIRST_CUT)
    return jnp.where(jnp.any(fits), jnp.argmax(fits), len(_CUTS) - 1)


def _parts(below: Reals, top: Index, n: Reals) -> tuple[Reals, Reals]:
    """log of A^n and of (A + D)^n - A^n at every cut and tilt: infinite where no cut may be."""
    k = jnp.arange(len(_CUTS))[:, None]
    whole = below[top][None]
    rest = jnp.where(
        k < top, whole + jnp.log(-jnp.expm1(jnp.minimum(below - whole, -1e-16))), -1e30
    )
    rest = jnp.where(k < top, log_excess(below, rest, n), -1e30)
    allowed = (k >= _FIRST_CUT) & (k <= top)
    return jnp.where(allowed, n * below, 1e30), jnp.where(allowed, rest, 1e30)


def _bounds(below: Reals, top: Index, n: Reals, epsilon: Reals) -> tuple[Reals, Reals]:
    """Least Chernoff bounds of both parts at every cut."""
    tilts = jnp.asarray(TILTS)
    fall = (log_chernoff(tilts) - tilts * epsilon)[None]
    small, large = (jnp.min(cumulant + fall, -1) for cumulant in _parts(below, top, n))
    return small, large


def _epsilon(below, top, n, size) -> Reals:
    """The least epsilon at which both Chernoff bounds are `size`."""
    tilts = jnp.asarray(TILTS)
    small, large = (
        jnp.min((k + (log_chernoff(tilts) - size)[None]) / tilts[None], -1)
        for k in _parts(below, top, n)
    )
    return jnp.maximum(jnp.min(jnp.maximum(small, large)), 0.0)
