"""The bracket of a calibration, inside of what the parameter may be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import ArrayLike, Reals

T = TypeVar("T")
# Ends that are tried where none is given. chosen: beyond all scales and numbers of steps
LOWER, UPPER = 1e-9, 1e12
# Halvings of log(parameter) to an end of what it may be. derived: to the last place
_HALVINGS = 70


def naming(build: Callable[[Reals], T]) -> Callable[[Reals], T]:
    """`build`, whose `ValueError` for a parameter says where that came from."""

    def named(parameter: Reals) -> T:
        try:
            return build(parameter)
        except ValueError as error:
            if not checks.is_concrete(parameter):
                raise
            raise ValueError(
                f"{error}: lower and upper must lie inside of what the parameter of build may be"
            ) from error

    return named


def bracket_of(
    build: Callable[[Reals], object], lower: ArrayLike | None, upper: ArrayLike | None
) -> tuple[Reals, Reals]:
    """Both ends; where one is None, the last parameter that `build` takes on that side."""
    given = [x for x in (lower, upper) if x is not None and checks.is_concrete(x)]
    inside = [float(y) for x in given for y in np.ravel(np.asarray(x))]
    start = next((x for x in (*inside, *_middle()) if x > 0 and _takes(build, x)), None)
    low, high = (
        (default if start is None else _end(build, start, default)) if end is None else end
        for end, default in ((lower, LOWER), (upper, UPPER))
    )
    low, high = checks.positive("lower", low), checks.positive("upper", high)
    if checks.all_concrete((low, high)) and not bool(xp.all(low < high)):
        raise ValueError(f"lower must lie below upper, got {low} and {high}")
    return low, high


def _middle() -> list[float]:
    """Powers of ten from 1 on outwards."""
    outwards = [(10.0**k, 10.0**-k) for k in range(1, 10)]
    return [1.0, *itertools.chain(*outwards)]


def _takes(build: Callable[[Reals], object], parameter: float) -> bool:
    try:
        build(xp.asarray(parameter))
    except ValueError:
        return False
    return True


def _end(build: Callable[[Reals], object], good: float, bad: float) -> float:
    """`bad`, or the last parameter on the way to it that `build` takes."""
    if _takes(build, bad):
        return bad
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(good) * np.sqrt(bad))
        good, bad = (middle, bad) if _takes(build, middle) else (good, middle)
    return good
