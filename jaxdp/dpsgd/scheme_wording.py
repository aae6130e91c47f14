"""Sampling schemes in words: how batches are drawn, what is public, and which trap applies."""

from __future__ import annotations

import numpy as np

from jaxdp._core.types import Reals
from jaxdp.sampling.allocation import BallsInBins, RandomAllocation
from jaxdp.sampling.base import Scheme
from jaxdp.sampling.truncated import TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement


def how_drawn(scheme: Scheme | None, rate: float) -> str:
    """Words for the way a batch is drawn, after "where"."""
    if isinstance(scheme, TruncatedPoisson):
        limit, size = _whole(scheme.batch_size_limit), _whole(scheme.dataset_size)
        return (
            f"each of {size} records is drawn with probability {rate:g}, on its own, and at most "
            f"{limit} of them, uniformly, are kept (truncated Poisson)"
        )
    if isinstance(scheme, WithoutReplacement):
        batch, size = _whole(scheme.batch_size), _whole(scheme.dataset_size)
        return f"exactly {batch} of {size} records are drawn without replacement"
    if isinstance(scheme, RandomAllocation):
        return f"each record joins one of the {scheme.steps:,} steps of every epoch, drawn anew"
    if isinstance(scheme, BallsInBins):
        return f"each record joins one of {scheme.steps:,} steps, the same in every epoch"
    return f"each record takes part in a step with probability {rate:g}, on its own (Poisson)"


def conditions_of(scheme: Scheme | None) -> list[str]:
    """Conditions on the way in which batches are drawn."""
    if isinstance(scheme, TruncatedPoisson):
        return [
            "every batch is a Poisson sample drawn anew, cut by a uniform choice where it is "
            "larger than the limit, and never filled up with other records",
            "the size of the data set, the larger of two neighbours', is public",
        ]
    if isinstance(scheme, WithoutReplacement):
        return [
            "every batch is drawn anew from all records: not by cutting one shuffled pass",
            "the batch size is fixed, and the size of the data set is public",
        ]
    if isinstance(scheme, RandomAllocation | BallsInBins):
        kept = "in every epoch" if isinstance(scheme, RandomAllocation) else "once"
        return [
            f"each record draws its step on its own, {kept}, so that batches vary in size: none is "
            "cut, filled up with other records, or divided by its own size",
        ]
    return [
        "batches are really drawn by Poisson sampling, anew in every step, of varying size: not by "
        "shuffling and not of fixed size",
    ]


def _whole(value: Reals) -> str:
    return f"{float(np.asarray(value).item()):,.0f}"
