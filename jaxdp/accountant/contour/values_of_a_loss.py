"""Answers the values of one loss together (`shared`), if they are many.

Values of one loss are those whose terms are equal, byte by byte. The contours of the losses used
last are kept: they are functions of the loss alone, so that an answer does not depend on them.
Chosen by `engines` as the first step of concrete values. What it does not answer goes on alone.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.namespace import kernel
from jaxdp.accountant.batch import Batch, Loss
from jaxdp.accountant.bounds import LogBounds, of_numpy
from jaxdp.accountant.contour import engine as contour
from jaxdp.accountant.contour import shared
from jaxdp.accountant.contour.engine import LONG, OF_LAWS, Maker, at_once, sum_of
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.mixtures import mixtures_of
from jaxdp.accountant.contour.nodes import Stage
from jaxdp.accountant.steps import Engine, Question

# Width of a smoothed total's bracket that 16 times as many points leave wide. derived: over 16^2 it
# is above the width from which on the next engine is evaluated
HOPELESS = 3e-4
KEPT = 8  # losses whose contours are kept. chosen: 100 kB each, with all blocks 8 MB


class Way(NamedTuple):
    """Rows of laws or of mixtures."""

    stage: Stage
    rows_of: Maker
    fewest: int  # values of a loss. measured: as many take as long alone


MIXTURES = Way(LONG, mixtures_of, 24)
LAWS = Way(OF_LAWS, laws_of, 12)
_ANSWERS: dict[Question, shared.Answer] = {
    "log delta": shared.log_delta,
    "epsilon": shared.epsilon,
}


def engine(question: Question, way: Way) -> Engine:
    """The engine of values of one loss; the contour of one value has the slopes."""
    tangents = contour.engine(question, way.stage, way.rows_of).tangents
    return Engine(partial(_bounds, question, way), tangents=tangents)


def _bounds(question: Question, way: Way, batch: Batch, known: LogBounds, blocks: int) -> LogBounds:
    """Bounds of the lanes whose loss has enough of them, or was answered before."""
    values: Any = batch.values
    bounds: Any = of_numpy(np.full(values.shape, -np.inf), np.full(values.shape, np.inf))
    was_answered = np.isfinite(known.lower)
    if values.size < way.fewest and not was_answered.any():
        return bounds
    losses = [x for x in batch.losses if x.lanes.size >= way.fewest or was_answered[x.lanes].any()]
    if not losses:
        return bounds
    with kernel(), jax.numpy_rank_promotion("allow"):
        if blocks > 1:
            width = np.asarray(known.upper) - np.asarray(known.lower)
            losses = [x for x in losses if _can_narrow(way, batch, x, width[x.lanes])]
            if not losses:
                return bounds
        nodes = way.rows_of(batch.at(losses[0].lanes[:1]))[0].nodes(way.stage)
        size = max(at_once(way.stage, nodes) // shared.CONTOURS, 1)
        for start in range(0, len(losses), size):
            part = losses[start : start + size]
            for loss, of in zip(part, _contours(way, blocks, batch, part), strict=True):
                found = _ANSWERS[question](of, values[loss.lanes])
                bad = np.isnan(sum_of(of.rows))
                lower, upper = (bad | np.isnan(x) for x in found)
                bounds.lower[loss.lanes] = np.where(lower, -np.inf, found.lower)
                bounds.upper[loss.lanes] = np.where(upper, np.inf, found.upper)
    return bounds


def _can_narrow(way: Way, batch: Batch, loss: Loss, width: np.ndarray) -> bool:
    """False if more points leave the brackets of a smoothed total wide."""
    return bool(width.min() <= HOPELESS) or not _contours(way, 1, batch, [loss])[0].is_smoothed


# The last used one last. Single operations alone, which other threads and forks do not divide.
_kept: OrderedDict[Any, shared.Contours] = OrderedDict()


def _contours(way: Way, blocks: int, batch: Batch, losses: list[Loss]) -> list[shared.Contours]:
    """The contours of losses, kept or new."""
    keys = [(way, blocks, x.key) for x in losses]
    found = {key: kept for key in keys if (kept := _kept.get(key)) is not None}
    missing = {key: x for key, x in zip(keys, losses, strict=True) if key not in found}
    if missing:
        lanes = np.array([x.lanes[0] for x in missing.values()])
        new = shared.built(way.stage, way.rows_of, batch.at(lanes), blocks)
        found.update(zip(missing, new, strict=True))
    for key in keys:
        _kept.pop(key, None)
        _kept[key] = found[key]
    with contextlib.suppress(KeyError):
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return [found[key] for key in keys]
