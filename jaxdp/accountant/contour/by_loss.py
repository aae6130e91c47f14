"""Steps of the cascade that answer the values of one loss together (`shared`), if they are many.

Values of one loss are those whose terms are equal, byte by byte. The contours of the losses used
last are kept: they are functions of the loss alone, so that an answer does not depend on them.
Chosen by `engines` as the first step of concrete values. What it does not answer goes on alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core.tracing import kernel
from jaxdp._core.types import Lanes
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.cascade import Step
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.contour import shared
from jaxdp.accountant.contour.engine import (
    BLOCKS,
    LAW_BLOCKS,
    LONG,
    MOST_LEFT,
    OF_LAWS,
    Maker,
    Question,
    at_once,
    sum_of,
)
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.mixtures import mixtures_of
from jaxdp.accountant.contour.nodes import Stage

KEPT = 16  # losses whose contours are kept. chosen: some 100 kB each


class _Way(NamedTuple):
    """Rows of laws or of mixtures."""

    stage: Stage
    rows_of: Maker
    fewest: int  # values of a loss. measured: as many take as long alone


MIXTURES = _Way(LONG, mixtures_of, 24)
LAWS = _Way(OF_LAWS, laws_of, 12)
_ANSWERS: dict[Question, shared.Answer] = {
    "log delta": shared.log_delta,
    "epsilon": shared.epsilon,
}


def mixture_step(question: Question, near: float) -> Step:
    """The step of sampled Gaussians, with more points where a bracket is wider than `near`."""
    engine = partial(_bounds, question, MIXTURES)
    return Step(engine, near, BLOCKS, concrete_only=True, most_left=MOST_LEFT)


def law_step(question: Question) -> Step:
    """The step of any laws."""
    engine = partial(_bounds, question, LAWS)
    return Step(engine, shared.CLOSE, LAW_BLOCKS, concrete_only=True, most_left=MOST_LEFT)


class _Loss(NamedTuple):
    """A loss, and its lanes in the batch."""

    key: Any
    terms: Terms  # one lane
    lanes: np.ndarray


def _bounds(
    question: Question, way: _Way, terms: Terms, values: Lanes, known: LogBounds, blocks: int
) -> LogBounds:
    """Bounds of the lanes whose loss has enough of them, or was answered before."""
    bounds = LogBounds(np.full(values.shape, -np.inf), np.full(values.shape, np.inf))
    was_answered = np.isfinite(known.lower)
    if values.size < way.fewest and not was_answered.any():
        return bounds
    losses = _losses(terms, (way, blocks))
    losses = [x for x in losses if x.lanes.size >= way.fewest or was_answered[x.lanes].any()]
    if not losses:
        return bounds
    with kernel(), jax.numpy_rank_promotion("allow"):
        nodes = way.rows_of(losses[0].terms)[0].nodes(way.stage)
        size = max(at_once(way.stage, nodes, True) // shared.CONTOURS, 1)
        for start in range(0, len(losses), size):
            part = losses[start : start + size]
            for loss, of in zip(part, _contours(way, blocks, part), strict=True):
                found = _ANSWERS[question](of, values[loss.lanes])
                bad = np.isnan(sum_of(of.rows))
                lower, upper = (bad | np.isnan(x) for x in found)
                bounds.lower[loss.lanes] = np.where(lower, -np.inf, found.lower)
                bounds.upper[loss.lanes] = np.where(upper, np.inf, found.upper)
    return bounds


def _losses(terms: Terms, options: Any) -> list[_Loss]:
    """The different losses of a batch."""
    leaves, tree = jax.tree.flatten(terms)
    size = leaves[0].shape[0]
    flat = (np.ascontiguousarray(x).reshape(size, -1).view(np.uint8) for x in leaves)
    lanes: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.concatenate(list(flat), axis=1)):
        lanes.setdefault(row.tobytes(), []).append(i)
    kind = options, tree, tuple(x.shape[1:] for x in leaves)
    return [
        _Loss((*kind, row), jax.tree.map(lambda x, i=at[0]: x[i : i + 1], terms), np.array(at))
        for row, at in lanes.items()
    ]


_kept: OrderedDict[Any, shared.Contours] = OrderedDict()  # the last used one last
_lock = threading.Lock()


def _contours(way: _Way, blocks: int, losses: list[_Loss]) -> list[shared.Contours]:
    """The contours of losses, kept or new."""
    with _lock:
        found = {x.key: _kept[x.key] for x in losses if x.key in _kept}
    missing = [x for x in losses if x.key not in found]
    if missing:
        terms = jax.tree.map(lambda *x: np.concatenate(x), *(x.terms for x in missing))
        new = shared.built(way.stage, way.rows_of, terms, blocks)
        found.update(zip((x.key for x in missing), new, strict=True))
    with _lock:
        for x in losses:
            _kept[x.key] = found[x.key]
            _kept.move_to_end(x.key)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return [found[x.key] for x in losses]
