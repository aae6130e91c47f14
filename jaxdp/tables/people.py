"""Several records of a person: a public number of them is kept, chosen at random.

Neighbours differ by all records of one person. Which records of a person are kept depends on the
person's own records alone, so that neighbours differ by at most `rows` kept records. Such a record
moves one cell of a statistic by at most its sensitivity k to one record. Hence the cells move by
s_1, s_2, ... with |s_1| + |s_2| + ... <= rows k.

One cell that moves by rows k dominates them all. Let f_s be the trade-off of the noise and the
noise moved by s. To move one cell after the other gives f_s after 1 - f_t, at least (the triangle
inequality of trade-offs). The noises are log-concave: the best tests are thresholds for every s,
randomised on the integers, so that f_s after 1 - f_t is f_(s + t). Gaussian noise satisfies more,
the Euclidean norm of the moves, which is the same if all records are in one cell.

With `max_cells`, a person has at most `rows` kept records in each of at most so many cells: l0 and
linf are bounded. A cell here is one of the finest table, by all columns of cells of the plan. In a
table by all of them, `max_cells` cells move by rows k each, which is the worst: log-concave noise
reveals more the further a cell moves. In a table by fewer columns these cells may be one, which
moves by max_cells rows k.
Source: Dong, Roth & Su, Gaussian differential privacy, JRSS B 2022, section 2.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxdp.tables.labels import MISSING, is_missing, label_of, normal

Chunk = Mapping[str, Sequence[Any]]
# The cell of each record in the finest table; None for records in no table.
CellsOf = Callable[[Chunk], Sequence[Hashable]]


def kept(
    read: Callable[[], Iterable[Chunk]],
    person: str,
    bounds: tuple[int, int | None],
    secret: bytes,
    cells_of: CellsOf | None = None,
) -> Iterator[tuple[Chunk, np.ndarray]]:
    """Each chunk with a mask of the records that are kept: `rows` of each id, at random.

    bounds: rows, and of how many cells of an id they are kept, `rows` of each; None: of the id.
    `read` returns the chunks, and is called twice. Memory holds two numbers for each id and cell.
    Which of n records are kept depends on the records of the id and on `secret`; records without an
    id are not kept. Texts are one id if they are equal without the spaces around them, numbers if
    they are equal.
    """
    rows, most = bounds
    numbers = Counter[tuple[Hashable, Hashable]]()
    for chunk in read():
        numbers.update(key for key in _keys(chunk, person, cells_of) if key is not None)
    dropped = set() if most is None else _dropped(numbers, most, secret)
    seen, chosen = Counter[tuple[Hashable, Hashable]](), dict[Hashable, set[int]]()
    for chunk in read():
        keys = _keys(chunk, person, cells_of)
        mask = np.zeros(len(keys), bool)
        for i, key in enumerate(keys):
            if key is None:
                continue
            if key not in dropped and numbers[key] > rows:
                if key not in chosen:
                    chosen[key] = set(_source(secret, key).sample(range(numbers[key]), rows))
                mask[i] = seen[key] in chosen[key]
            else:
                mask[i] = key not in dropped and seen[key] < numbers[key]
            seen[key] += 1
        yield chunk, mask
    if seen != numbers:
        raise ValueError("columns must be the same records in both readings, and have changed")


def _dropped(
    numbers: Iterable[tuple[Hashable, Hashable]], most: int, secret: bytes
) -> set[tuple[Hashable, Hashable]]:
    """The ids and cells that are not kept: `most` cells of each id are, at random."""
    cells: dict[Hashable, list[Hashable]] = {}
    for who, cell in numbers:
        cells.setdefault(who, []).append(cell)
    many = {who: found for who, found in cells.items() if len(found) > most}
    return {
        (who, cell)
        for who, found in many.items()
        for cell in _source(secret, who).sample(found, len(found) - most)
    }


def _source(secret: bytes, who: Hashable) -> random.Random:
    return random.Random(secret + repr(who).encode())


def _keys(
    chunk: Chunk, person: str, cells_of: CellsOf | None
) -> list[tuple[Hashable, Hashable] | None]:
    """The id and the cell of each record, None if it is in no table or has no id."""
    ids = [_id(value) for value in chunk[person]]
    if cells_of is None:
        return [None if who is None else (who, ()) for who in ids]
    return [
        None if who is None or cell is None else (who, cell)
        for who, cell in zip(ids, cells_of(chunk), strict=True)
    ]


def _id(value: Any) -> Hashable:
    """The id of a person in a cell, or None if it is missing."""
    if isinstance(value, str):
        text = normal(value)
        return None if text in MISSING else text
    label = None if is_missing(value) else label_of(value)
    return None if label is None else (label.kind, label.value)
