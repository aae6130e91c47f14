"""The smooth upper cutoff of a law: a factor erfc(z) / 2 that falls within a few nodes.

Its place and width are whole numbers of nodes, near the last ones, so one table serves every lane.
Off the real axis |erfc(a + i b)| <= e^(b^2) erfc(a), by the integral of e^(-(s + i b)^2).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

WIDTH = 2.7  # nodes. chosen
BEYOND = int(6 * WIDTH)  # nodes above the middle of the cutoff. derived: erfc(6) = 2e-17
_LEGENDRE_NODES = 200  # of a table of erfc. measured: 1e-15


class Tables(NamedTuple):
    """log of erfc(z) / 2, the share that the cutoff keeps, at every node."""

    below: np.ndarray  # on the real axis
    above: np.ndarray  # log of the share that the cutoff removes
    modulus: np.ndarray  # of the share kept, on the nodes' line
    angle: np.ndarray


@functools.cache
def tables(nodes: int, height: float) -> Tables:
    """Tables of `nodes` nodes, whose line is `height` nodes above the real axis."""
    distance = (np.arange(nodes) - (nodes - 1 - BEYOND)) / WIDTH
    below, above = (np.real(_log_half_erfc(x + 0j)) for x in (distance, -distance))
    line = _log_half_erfc(distance + 1j * (height / WIDTH))
    return Tables(below, above, np.real(line), np.imag(line))


def _log_half_erfc(z: np.ndarray) -> np.ndarray:
    """log(erfc(z) / 2) from erfc(z) = 2 e^(-z^2) / sqrt(pi) int_0^inf e^(-s^2 - 2 z s) ds."""
    side = np.where(np.real(z) < 0, -z, z)
    points, weights = np.polynomial.legendre.leggauss(_LEGENDRE_NODES)
    s = 3.5 * (points + 1.0)
    integral = np.exp(-s * s - 2.0 * side[..., None] * s) @ (3.5 * weights)
    small = np.log(integral / np.sqrt(np.pi)) - side * side
    return np.where(np.real(z) < 0, np.log1p(-np.exp(small)), small)
