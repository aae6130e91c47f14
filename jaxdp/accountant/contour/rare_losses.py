"""Cuts rare large losses off a law.

Unbounded losses far in the tail dominate the moments at large tilts, and the contour's bracket then
stays wide. Each release's law is multiplied by the smooth step

    erfc(sinh(log(l / c)) / w) / 2 = erfc((l / c - c / l) / (2 w)) / 2,

which is 1 for small losses and falls like e^(-l^2) for large ones; a law of atoms ends sharply. n
releases exceed c e^(-2 w), where it begins to fall, with probability e^-depth. The dropped
probability, with the difference of both rules, is added to delta, and far below it; or
`number_of_rare_losses` counts the dropped losses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, special, xp
from jaxdp._core.types import Reals

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


class Cut(NamedTuple):
    """log of the share that a law keeps at its nodes, and what it drops."""

    log_kept: Reals  # (nodes, phases, lanes)
    check_kept: Reals  # at the nodes of the second rule
    log_dropped: Reals  # log of the probability that some loss is dropped (lanes,)


def next_depth(depth: Reals) -> Reals:
    """The least of `DEPTHS` from `depth` on."""
    return xp.take(DEPTHS, xp.argmax(depth <= DEPTHS[:, None], 0))


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
