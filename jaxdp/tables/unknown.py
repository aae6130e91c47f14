"""Counts of categories that the records bring: published from a noisy threshold on.

A label that only one person has must stay hidden. Each label that is found is counted with noise,
and published if the noisy count is at least the threshold tau. If a person with n_1, n_2, ...
records of labels that nobody else has is added, n_1 + n_2 + ... <= `rows`, some of these labels are
published with probability

    sum of P[n_i + noise >= tau] <= rows max over 1 <= j <= rows of P[j + noise >= tau] / j,

which is at most the plan's `unknown_delta`. If the person has at most `rows` records of each of at
most k labels, it is at most k P[rows + noise >= tau]. Up to this total variation, the release is
one of the labels that both neighbours have, whose counts move as public cells do.
Source: Korolova, Kenthapadi, Mishra & Ntoulas, WWW 2009; Desfontaines, Voss & Gipson, PoPETs 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdp.mechanism import Mechanism
from jaxdp.released import BITS
from jaxdp.tables.cells import MOST_CELLS
from jaxdp.tables.labels import MISSING, label_of, normal

# Rounding of log survival. measured: relative errors of the noises' own, 1e-12 and less
_ROUNDING = 1e-9


def threshold_of(mechanism: Mechanism, moves: tuple[int, int], delta: float) -> int:
    """The least tau for whole noisy counts, by rounding if the noise is continuous.

    moves: the records of a person, if in more than one cell those in each, and the cells.
    """
    rows, cells = moves
    noise = mechanism.noise
    scale = float(np.asarray(noise.scale))  # pyright: ignore[reportAttributeAccessIssue]
    # P[T > x] with x so that rounded counts of tau or more are within it, on any lattice.
    margin = 1.0 if noise.on_integers else 0.5 + scale * 2.0 ** (1 - BITS)
    numbers = np.arange(1.0, rows + 1.0)
    # Of labels with so many records a person has as many.
    labels = rows / numbers if cells == 1 else np.full(rows, float(cells))

    def is_safe(tau: int) -> bool:
        logs = np.asarray(noise.log_survival(tau - numbers - margin)) + np.log(labels)
        return bool(float(np.max(logs)) <= math.log(delta) - _ROUNDING)

    low, high = 0, 1
    while not is_safe(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_safe(middle) else (middle, high)
    return high


def count_labels(
    counts: Counter[str], column: str, values: Sequence[Any], place: np.ndarray
) -> None:
    """Add the records whose place is not -1 to the counts of the labels that are not missing."""
    kept = (value for value, i in zip(values, place.tolist(), strict=True) if i >= 0)
    counts.update(text for text in map(text_of_label, kept) if text not in MISSING)
    if len(counts) > MOST_CELLS:
        raise ValueError(f"column {column!r} must have at most {MOST_CELLS:,} labels, and has more")


def text_of_label(value: Any) -> str:
    """The label as a text, empty or in `MISSING` if it is missing."""
    if isinstance(value, str):
        return normal(value)
    label = label_of(value)
    return "" if label is None else str(label.value)
