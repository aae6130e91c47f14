"""Lower and upper bounds on log delta; negative epsilons use the exchanged pair."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp.noise.base import mirrored_log_delta


class LogBounds(NamedTuple):
    """Bounds on log delta, or on epsilon, of one shape; `upper` is NaN where the input is bad."""

    lower: Reals
    upper: Reals

    def mirrored(self, is_mirrored: Bools, size: Reals) -> LogBounds:
        """Bounds of the exchanged pair at -`size` in some lanes: 1 - e^-size + e^-size delta."""
        return LogBounds(
            xp.where(is_mirrored, mirrored_log_delta(self.lower, size, -1.0), self.lower),
            xp.where(is_mirrored, mirrored_log_delta(self.upper, size, 1.0), self.upper),
        )


def of_numpy(lower: Any, upper: Any) -> LogBounds:
    """Bounds that are NumPy arrays or numbers."""
    return LogBounds(lower, upper)


def tighter(a: LogBounds, b: LogBounds) -> LogBounds:
    """The tighter of both bounds, on each side; NaN gives way to the other."""
    is_less = (b.upper < a.upper) | xp.isnan(a.upper) | (a.upper == xp.inf)
    is_more = (b.lower > a.lower) | xp.isnan(a.lower) & ~xp.isnan(b.lower)
    lower = xp.where(is_more, b.lower, a.lower)
    return LogBounds(lower, xp.where(is_less, b.upper, a.upper))


def width(bounds: LogBounds) -> Reals:
    """Widths of brackets on log delta; 0 where delta is 0, infinite where it is unknown."""
    size = xp.subtract(bounds.upper, bounds.lower)
    size = xp.where(bounds.upper == -xp.inf, 0.0, size)
    return xp.where(xp.isnan(size), xp.inf, size)


def epsilon_width(bounds: LogBounds) -> Reals:
    """Widths of brackets on epsilon, relative where epsilon is large."""
    size = xp.subtract(bounds.upper, bounds.lower) / xp.add(1.0, bounds.upper)
    size = xp.where(bounds.lower == xp.inf, 0.0, size)
    return xp.where(xp.isnan(size), xp.inf, size)


def exp_down(log_delta: Reals) -> Reals:
    """exp, rounded down by 4 ulp."""
    return xp.exp(log_delta) * (1.0 - 4.0 * xp.finfo(xp.float64).eps)
