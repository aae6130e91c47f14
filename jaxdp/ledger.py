"""Steps of a running budget: exact sums, and a text that resumes them."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from jaxdp._core.files import Format, sealed, unsealed

# Why a running budget is not used while JAX traces.
ONE_CHARGE = "it is charged once, in Python, whatever the number of calls and entries"


@dataclasses.dataclass(frozen=True)
class Step:
    """`count` releases of cost `cost` each, in the currency of the ledger."""

    name: str
    cost: tuple[float, ...]
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


def exact(name: str, values: Sequence[float]) -> tuple[Fraction, ...]:
    """The numbers without rounding; they must be finite and not negative."""
    for value in values:
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must lie in [0, inf), got {value}")
    return tuple(Fraction(value) for value in values)


def rounded(value: Fraction, up: bool) -> float:
    """The nearest double that is not below `value` (`up`), or not above it."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf if up else float.fromhex("0x1.fffffffffffffp+1023")
    if up and Fraction(near) < value:
        return math.nextafter(near, math.inf)
    if not up and Fraction(near) > value:
        return math.nextafter(near, -math.inf)
    return near


def rounded_root(value: Fraction, up: bool) -> float:
    """The square root, as `rounded`."""
    shift = 2**1200
    root = rounded(Fraction(math.isqrt(math.floor(value * shift * shift)), shift), up=False)
    while Fraction(root) ** 2 < value and up:
        root = math.nextafter(root, math.inf)
    return root


def dump(form: Format, payload: dict[str, Any], steps: Sequence[Step]) -> str:
    """JSON with every number in hexadecimal, hence exact, and a digest of the rest."""
    rows = [[step.name, to_hex(step.cost), step.count] for step in steps]
    return sealed(form, {**payload, "steps": rows})


def parse(form: Format, text: str, keys: Sequence[str]) -> tuple[dict[str, Any], list[Step]]:
    """Parse what `dump` wrote, with these `keys`; anything else raises `ValueError`."""
    body = unsealed(form, text)
    missing = [key for key in (*keys, "steps") if not isinstance(body.get(key), str | list)]
    if missing:
        raise ValueError(f"text must hold {', '.join(missing)}")
    steps = [Step(name, from_hex(cost), whole_count(count)) for name, cost, count in body["steps"]]
    return body, steps


def to_hex(values: Sequence[float]) -> list[str]:
    """Text that holds every bit."""
    return [value.hex() for value in values]


def from_hex(values: Sequence[str]) -> tuple[float, ...]:
    """The inverse of `to_hex`."""
    return tuple(float.fromhex(value) for value in values)
