"""Delta and epsilon by a second computation, which shares no code with jaxdp.

Compositions are convolved on a grid (`convolution`); Gaussians without sampling have the closed
form at 50 digits. Every value is computed on two grids with two tilts. The bracket has ten times
their difference on each side, and LEAST. `UndecidedError` is raised where no digit stands.
"""

import math
from typing import Any

import mpmath as mp
import numpy as np
from scipy import optimize

from benchmarks.conformance.convolution import Direction, UndecidedError
from benchmarks.conformance.pairs import ALLOCATED

# Its types are not declared as they are.
brentq: Any = optimize.brentq
# Two of each: points of the grid a standard deviation of the tilted loss; the tilt over the saddle
# point; hits apart from other losses. They are tried until two values agree: coarse grids, rare
# hits, smaller tilts, fine grids, and the finest where losses have atoms on the grid.
LEVELS = (
    ((300.0, 1.0, False), (450.0, 0.97, False)),
    ((300.0, 1.0, True), (450.0, 0.95, True)),
    ((300.0, 0.9, False), (450.0, 0.85, False)),
    ((300.0, 0.85, True), (450.0, 0.7, True)),
    ((300.0, 0.8, False), (450.0, 0.7, False)),
    ((200.0, 0.6, False), (300.0, 0.5, False)),
    ((3e3, 1.0, False), (5e3, 0.97, False)),
    ((3e4, 1.0, False), (5e4, 0.97, False)),
)
AGREED = 1e-10
# Relative error of delta that is claimed at best: 4.7e-9 was seen against integrals at 40 digits.
LEAST = 1e-8


class Second:
    """log delta and epsilon of one setting, each a pair (lower, upper)."""

    def __init__(self, setting: dict[str, Any]):
        releases = setting["releases"]
        self.gaussian = all(r["noise"] == "gaussian" and "sampling" not in r for r in releases)
        self.grain = False
        self.mu = mp.sqrt(mp.fsum(r["count"] / mp.mpf(r.get("scale", 1)) ** 2 for r in releases))
        shared = any(r.get("sampling") in ALLOCATED for r in releases)
        ways = (False, True) if any("sampling" in r for r in releases) else (False,)
        self.directions = [
            [Direction(setting, added, points) for added in ways]
            for points in ((1800, 2400) if shared else (0,))
            if not self.gaussian
        ]
        self.grain = any(one.grain for way in self.directions for one in way)

    def log_delta(self, epsilon: float, level: int, second: int) -> float:
        """One value; a direction whose bound is lower is not computed."""
        if self.gaussian:
            with mp.workdps(50):
                e, m = mp.mpf(epsilon), self.mu
                tails = [mp.erfc((e / m + s * m / 2) / mp.sqrt(2)) / 2 for s in (-1, 1)]
                return float(mp.log(tails[0] - mp.exp(e) * tails[1]))
        best, directions = -np.inf, self.directions[second % len(self.directions)]
        for one in sorted(directions, key=lambda d: -d.bound(epsilon)):
            if one.bound(epsilon) > best:
                best = max(best, one.log_delta(epsilon, LEVELS[level][second]))
        return best

    def agreed(self, epsilon: float) -> tuple[int, float, float]:
        """The level whose two values differ least or by less than AGREED, a value and its error."""
        found: list[tuple[float, int, float]] = []
        for level in range(len(LEVELS)):
            if LEVELS[level][0][0] > 1e4 and not self.grain:
                break
            try:
                one, two = (self.log_delta(epsilon, level, second) for second in (0, 1))
            except UndecidedError:
                continue
            found.append((abs(one - two), level, two))
            if found[-1][0] < AGREED:
                break
        if not found:
            raise UndecidedError("every grid is too large")
        gap, level, value = min(found)
        return level, value, 10 * gap + LEAST

    def delta_bracket(self, epsilon: float) -> tuple[float, float]:
        _, value, error = self.agreed(epsilon)
        return math.exp(value - error), math.exp(value + error)

    def epsilon_bracket(self, delta: float) -> tuple[float, float]:
        """A root by bisection and secants; the error of log delta there over the slope."""
        target = math.log(delta)

        def bound(x: float) -> float:
            if self.gaussian:
                return self.log_delta(x, 0, 1) - target
            return max(one.bound(x) for one in self.directions[0]) - target

        low, high = 1e-9, 1.0
        if any(one.infinite >= delta for way in self.directions for one in way):
            return math.inf, math.inf
        while bound(high) > 0:
            low, high = high, 2.0 * high
        high = brentq(bound, low, high, rtol=1e-6) * (1 + 2e-6) if bound(low) > 0 else low
        level = self.agreed(high)[0]

        def gap(x: float) -> float:
            try:
                return max(self.log_delta(x, level, 1), -1e4) - target
            except UndecidedError:
                return self.agreed(x)[1] - target

        low = high * 0.9
        while gap(low) < 0:
            low, high = low * 0.8, low
            if low < 1e-9:
                return 0.0, 0.0
        root = brentq(gap, low, high, xtol=1e-14 * high, rtol=1e-13) if gap(high) < 0 else high
        _, value, error = self.agreed(root)
        near = root * (1 - 1e-4)
        slope = (gap(near) + target - value) / (root - near)
        middle = root + (value - target) / slope
        return middle - 1.01 * error / slope, middle + 1.01 * error / slope
