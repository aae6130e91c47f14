"""Steps of a running budget: exact sums, and a text that resumes them."""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

# Why a running budget is not used while JAX traces.
ONE_CHARGE = "it is charged once, in Python, whatever the number of calls and entries"
# A sum without rounding; infinity is a float.
Number: TypeAlias = Fraction | float


@dataclasses.dataclass(frozen=True)
class Step:
    """`count` releases of cost `cost` each, in the numbers of the budget."""

    name: str
    cost: tuple[Number, ...]
    count: int


def whole_count(count: object) -> int:
    """A number of releases: a whole number, 1 or more."""
    try:
        number = operator.index(count)  # pyright: ignore[reportArgumentType]
    except TypeError:
        number = 0
    if number < 1 or isinstance(count, bool):
        raise ValueError(f"count must be a whole number, 1 or more, got {count!r}")
    return number


def exact(value: float) -> Number:
    """The cost without rounding; it must be 0 or more, or infinite."""
    if not value >= 0:
        raise ValueError(f"cost must lie in [0, inf], got {value}")
    return value if math.isinf(value) else Fraction(value)


def as_written(value: float) -> Number:
    """The decimal that Python prints: 0.1 is a tenth, so that ten of them make 1."""
    return exact(value) if math.isinf(value) else Fraction(repr(value))


def rounded(value: Number, up: bool) -> float:
    """The nearest double that is not below `value` (`up`), or not above it."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf if up else sys.float_info.max
    if math.isinf(near) or as_written(near) == value:
        return near
    if Fraction(near) != value and (Fraction(near) < value) is up:
        return math.nextafter(near, math.inf if up else -math.inf)
    return near


def rounded_root(value: Number, up: bool) -> float:
    """The square root, as `rounded`."""
    if not isinstance(value, Fraction):
        return value
    shift = 2**1200
    exact_root = Fraction(math.isqrt(math.floor(value * shift * shift)), shift)
    root = float(exact_root)
    if as_written(root) ** 2 == value:
        return root
    root = rounded(exact_root, up=False)
    while Fraction(root) ** 2 < value and up:
        root = math.nextafter(root, math.inf)
    return root


def to_text(value: Number) -> str:
    """Text that holds the number without rounding: a decimal, a double in hexadecimal, a ratio."""
    near = float(value)
    if math.isinf(near) or as_written(near) == value:
        return repr(near)
    return near.hex() if Fraction(near) == value else str(value)


def from_text(text: str) -> Number:
    """The number that `to_text` wrote; `ValueError` below 0."""
    if text == "inf":
        return math.inf
    value = Fraction(float.fromhex(text)) if "0x" in text else Fraction(text)
    if value < 0:
        raise ValueError(f"cost must lie in [0, inf], got {text}")
    return value


def rows_of(steps: Sequence[Step]) -> list[list[Any]]:
    """The steps as lists for JSON."""
    return [[step.name, [*map(to_text, step.cost)], step.count] for step in steps]


def steps_of(rows: Sequence[Sequence[Any]]) -> list[Step]:
    """The inverse of `rows_of`."""
    return [Step(name, (*map(from_text, cost),), whole_count(n)) for name, cost, n in rows]
