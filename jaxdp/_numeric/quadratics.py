"""Densities whose logarithms are piecewise quadratic, off the real axis."""

from typing import NamedTuple

from jaxdp._types import Complexes, Reals


class Quadratic(NamedTuple):
    """constant + slope x + bend x^2."""

    constant: Reals
    slope: Reals
    bend: Reals


def continued(
    here: Quadratic, moved: Quadratic, x: Complexes, shift: Reals
) -> tuple[Complexes, Complexes]:
    """here(x), and moved(x - shift) - here(x): what is the same in both cancels exactly."""
    value = here.constant + x * (here.slope + x * here.bend)
    ratio = (moved.constant - here.constant) + x * (
        (moved.slope - here.slope) + x * (moved.bend - here.bend)
    )
    return value, ratio - shift * (moved.slope + moved.bend * (2.0 * x - shift))
