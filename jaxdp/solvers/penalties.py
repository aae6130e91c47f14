"""Penalties of a linear model: convex, separable, with closed proximal operators."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals

# Largest strength. derived: an infinite one times 0 is NaN
_LARGEST = float(np.finfo(np.float64).max)


class Penalty:
    """The penalty sum_j strength_j (l1_ratio |theta_j| + (1 - l1_ratio) theta_j^2 / 2)."""

    strength: Reals
    l1_ratio: Any

    def __init__(self, strength: ArrayLike):
        assign(self, strength=checks.real("strength", strength, 0.0, _LARGEST, lift=True))

    @property
    def curvature(self) -> Reals:
        """Second derivative in each coordinate away from 0: (1 - l1_ratio) strength."""
        return (1.0 - self.l1_ratio) * self.strength

    def value(self, theta: Reals) -> Reals:
        """The penalty of the whole vector."""
        ratio = self.l1_ratio
        each = ratio * xp.abs(theta) + 0.5 * (1.0 - ratio) * theta**2
        return xp.sum(self.strength * each)

    def proximal(self, strength: Reals, point: Reals, step: Reals) -> Reals:
        """argmin_u penalty_j(u) + (u - point)^2 / (2 step), for one coordinate's `strength`."""
        size = xp.maximum(xp.abs(point) - strength * self.l1_ratio * step, 0.0)
        return xp.sign(point) * size / (1.0 + strength * (1.0 - self.l1_ratio) * step)


@final
@pytree
class L1(Penalty):
    """strength * sum |theta_j|; `strength` is a number or one a coordinate (0: an intercept)."""

    strength: Reals
    l1_ratio = 1.0

    __init__ = Penalty.__init__


@final
@pytree
class L2(Penalty):
    """strength / 2 * sum theta_j^2; `strength` is one number or one a coordinate."""

    strength: Reals
    l1_ratio = 0.0

    __init__ = Penalty.__init__


@final
@pytree
class ElasticNet(Penalty):
    """sum_j strength_j (l1_ratio |theta_j| + (1 - l1_ratio) theta_j^2 / 2); l1_ratio in [0, 1]."""

    strength: Reals
    l1_ratio: Reals

    def __init__(self, strength: ArrayLike, l1_ratio: ArrayLike):
        super().__init__(strength)
        assign(self, l1_ratio=checks.real("l1_ratio", l1_ratio, 0.0, 1.0))
