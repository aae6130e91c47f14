"""Density of the loss of a random allocation, log(S / t) under Q, with the error of its logarithm.

Concrete ratios are run again with more nodes where two runs differ by too much. A traced ratio
carries the derivative of its nodes, from a forward pass beside them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.namespace import custom_jvp, lax, updated, vmap, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.mills import log_normal_survival
from jaxdp._numeric.sum_density import LogDensity, Resolution, log_normal_sum

# Nodes of a density and points of its integrals. measured: 1e-11 of delta in most cases
_FEW = Resolution(200, 80)
# The same for lanes whose first error is too large. measured: 1e-8 of delta at worst
_MANY = Resolution(320, 144)
# Nodes that are kept. measured: interpolation errors are below the density's own
KEPT = 320
# Factor on the range of the nodes of the second run. chosen
_WIDER = 1.25
# Share of the difference of both runs that is stated as the error. derived: with Lagrange's
# polynomial through 10 nodes the second run's error is 1.25^10 = 9 times as large; measured: 6.6
# times at least
_SHARE = 0.3
# Relative error of a density above which more nodes are used. chosen: below 1e-6 of delta
_DOUBTFUL = 5e-8
# Least log mass of nodes whose errors count in this. chosen: smaller deltas are rare
_SEEN = -37.0
# Stretches of nodes whose largest errors are kept. chosen: 5 nodes each
STRETCHES = 64
# Relative error where two runs agree. chosen: above the rounding of an interpolation
_ROUNDING = 1e-12
# Ratio above which a fixed step bounds the pair. chosen: no delta is small there
_LARGEST_RATIO = 12.0
# Least ratio; a pair raises smaller ones to it. chosen: the loss keeps its digits
LEAST_RATIO = 1e-4


class Lane(NamedTuple):
    """One pair's density under Q, the errors of its logarithm, and the log masses beyond."""

    density: LogDensity
    errors: Reals  # (STRETCHES,)
    log_left_out: Reals
    ratio: Reals

    def error_at(self, v: Reals) -> Reals:
        """The largest error of the stretch of nodes at v."""
        node = (v - self.density.low) / self.density.step
        index = xp.floor(node * (STRETCHES / KEPT))
        return self.errors[xp.clip(index, 0, STRETCHES - 1).astype(int)]


def known_lanes(ratio: Reals, steps: int) -> Lane:
    """Lanes of concrete ratios (L,); lanes with a large error use more nodes."""
    density, error = _density(ratio, steps, _FEW)
    index = np.flatnonzero(np.asarray(_largest_error(density, error)) > _DOUBTFUL)
    density, error = _reduced(density, error)
    if index.size:
        refined = _reduced(*_density(ratio[index], steps, _MANY))
        lanes = density, error
        density, error = jax.tree.map(lambda x, y: updated(x, index, y), lanes, refined)
    return _lane(density, error, ratio, steps)


def traced_lane(ratio: Reals, steps: int) -> Lane:
    """The lane of a traced ratio, of shape ()."""
    density, errors = _traced(ratio, steps)
    return _lane(density, errors, ratio, steps)


def _lane(density: LogDensity, errors: Reals, ratio: Reals, steps: int) -> Lane:
    log_beyond = np.log(steps) + log_normal_survival(10.5 + ratio)
    log_low = log_normal_survival(xp.full_like(ratio, 10.5))
    left_out = xp.logaddexp(log_low, log_beyond) + np.log(2.0)
    centre = density.centre - np.log(steps)
    return Lane(density._replace(centre=centre), errors, lax.stop_gradient(left_out), ratio)


@partial(custom_jvp, nondiff_argnums=(1,))
def _traced(ratio: Reals, steps: int) -> tuple[LogDensity, Reals]:
    lanes = _reduced(*_density(ratio[None], steps, _FEW))
    return jax.tree.map(lambda x: x[0], lanes)


@_traced.defjvp
def _traced_jvp(steps: int, primals: Any, tangents: Any) -> Any:
    lane, slopes = jax.jvp(
        lambda ratio: jax.tree.map(lambda x: x[0], _reduced(*_density(ratio[None], steps, _FEW))),
        primals,
        (xp.ones(()),),
    )
    return lane, jax.tree.map(lambda x: x * tangents[0], slopes)


def _density(ratio: Reals, steps: int, resolution: Resolution) -> tuple[LogDensity, Reals]:
    """The density of each lane, and its difference to a coarser run at its nodes."""
    size = ratio.size
    safe = xp.minimum(ratio, _LARGEST_RATIO)
    spread = xp.concatenate([xp.ones(size), xp.full(size, _WIDER)])
    runs = log_normal_sum(xp.concatenate([safe, safe]), spread, steps, resolution)
    fine, coarse = (jax.tree.map(lambda x, i=i: x[i : i + size], runs) for i in (0, size))
    error = _difference(fine, coarse)
    if steps == 1 or (checks.is_concrete(ratio) and bool(xp.all(ratio <= _LARGEST_RATIO))):
        return fine, error
    # A fixed step: its law is one log-normal's, shifted as the sum is divided by t.
    single = log_normal_sum(ratio, xp.ones(size), 1, resolution)
    single = single._replace(centre=single.centre + np.log(steps))
    large = ratio > _LARGEST_RATIO

    def choose(x: Reals, y: Reals) -> Reals:
        return xp.where(large.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(choose, single, fine), xp.where(large[:, None], 0.0, error)


@partial(compiled, static_argnums=())
@vmap
def _difference(fine: LogDensity, coarse: LogDensity) -> Reals:
    values = coarse.read(coarse.at_place(fine.nodes[0]))
    return lax.stop_gradient(xp.minimum(xp.abs(fine.values - values), 1.0))


@partial(compiled, static_argnums=())
@vmap
def _largest_error(density: LogDensity, error: Reals) -> Reals:
    """The largest error at nodes where either law has mass."""
    place, dl = density.nodes
    mass = density.values + xp.log(dl)
    larger = xp.maximum(mass, mass + place - density.centre)
    return _SHARE * xp.max(xp.where(larger > _SEEN, error, 0.0))


@partial(compiled, static_argnums=())
@vmap
def _reduced(density: LogDensity, error: Reals) -> tuple[LogDensity, Reals]:
    """The density at the nodes that are kept, and the largest errors of its stretches.

    The errors include the interpolation error between these nodes.
    """
    step = (density.high - density.low) / (KEPT - 1.0)
    v = density.low + step * xp.arange(1.0 * KEPT)
    reduced = density._replace(step=step, values=density.read(v))
    middle = v + 0.5 * step
    read_error = xp.abs(reduced.read(middle) - density.read(middle))
    index = xp.clip((v - density.low) / density.step, 0.0, error.size - 1.0)
    near = error[xp.floor(index).astype(int)], error[xp.ceil(index).astype(int)]
    errors = _SHARE * xp.maximum(*near) + read_error + _ROUNDING
    errors = xp.maximum(errors, xp.append(errors[1:], errors[-1]))
    return reduced, lax.stop_gradient(xp.max(errors.reshape(STRETCHES, -1), axis=-1))
