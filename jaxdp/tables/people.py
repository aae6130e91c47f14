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
Source: Dong, Roth & Su, Gaussian differential privacy, JRSS B 2022, section 2.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxdp.tables.fields import number_of, text_of
from jaxdp.tables.labels import MISSING, label_of, normal
from jaxdp.tables.missing import is_missing

Chunk = Mapping[str, Sequence[Any]]

# Records of a person. chosen: sensitivities remain whole numbers that doubles hold
_MOST_ROWS = 10**6


def person_of(plan: Mapping[str, Any]) -> tuple[str | None, int]:
    """The column of ids, None without one, and the number of records of a person that are kept."""
    person = text_of("plan", plan, "person")
    if person is None:
        if "rows" in plan:
            raise ValueError("plan: rows must be given beside person, the column of ids")
        return None, 1
    rows = number_of("plan", plan, "rows", lower=1, upper=_MOST_ROWS)
    if rows != round(rows):
        raise ValueError(f"plan: rows must be whole, got {rows}")
    return normal(person), round(rows)


def kept(
    read: Callable[[], Iterable[Chunk]], person: str, rows: int, secret: bytes
) -> Iterator[tuple[Chunk, np.ndarray]]:
    """Each chunk with a mask of the records that are kept: `rows` of each id, at random.

    `read` returns the chunks, and is called twice. Memory holds two numbers for each id. Which of n
    records are kept depends on the id, on n and on `secret`; records without an id are not kept.
    Texts are one id if they are equal without the spaces around them, numbers if they are equal.
    """
    numbers = Counter[Hashable]()
    for chunk in read():
        numbers.update(_ids(chunk, person))
    seen, chosen = Counter[Hashable](), dict[Hashable, set[int]]()
    for chunk in read():
        ids = _ids(chunk, person)
        mask = np.zeros(len(ids), bool)
        for i, who in enumerate(ids):
            if who is None:
                continue
            if numbers[who] > rows:
                if who not in chosen:
                    source = random.Random(secret + repr(who).encode())
                    chosen[who] = set(source.sample(range(numbers[who]), rows))
                mask[i] = seen[who] in chosen[who]
            else:
                mask[i] = seen[who] < rows
            seen[who] += 1
        yield chunk, mask
    if any(seen[who] != number for who, number in numbers.items() if who is not None):
        raise ValueError("columns must be the same records in both readings, and have changed")


def _ids(chunk: Chunk, person: str) -> list[Hashable]:
    """The id of each record, None without one."""
    if person not in chunk:
        raise ValueError(f"columns must hold {person!r}, got {len(chunk)} without it")
    return [_id(value) for value in chunk[person]]


def _id(value: Any) -> Hashable:
    if isinstance(value, str):
        text = normal(value)
        return None if text in MISSING else text
    label = None if is_missing(value) else label_of(value)
    return None if label is None else (label.kind, label.value)
