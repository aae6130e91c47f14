"""Penalties of a linear model: convex, separable, with closed proximal operators."""

from __future__ import annotations

import abc
from typing import final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals


class Penalty(abc.ABC):
    """A convex, separable penalty with a closed proximal operator."""

    strength: Reals

    @property
    def curvature(self) -> Reals:
        """Second derivative of the penalty of each coordinate, away from 0."""
        return xp.zeros(())

    @abc.abstractmethod
    def value(self, theta: Reals) -> Reals:
        """The penalty of the whole vector."""

    @abc.abstractmethod
    def proximal(self, strength: Reals, point: Reals, step: Reals) -> Reals:
        """argmin_u penalty_j(u) + (u - point)^2 / (2 step), for one coordinate's `strength`."""


@final
@pytree
class L1(Penalty):
    """strength * sum |theta_j|; `strength` is a number or one a coordinate (0: an intercept)."""

    strength: Reals

    def __init__(self, strength: ArrayLike):
        assign(self, strength=checks.nonnegative("strength", strength))

    def value(self, theta: Reals) -> Reals:
        """sum_j strength_j |theta_j|."""
        return xp.sum(self.strength * xp.abs(theta))

    def proximal(self, strength: Reals, point: Reals, step: Reals) -> Reals:
        """Soft thresholding."""
        return xp.sign(point) * xp.maximum(xp.abs(point) - strength * step, 0.0)


@final
@pytree
class L2(Penalty):
    """strength / 2 * sum theta_j^2; `strength` is one number or one a coordinate."""

    strength: Reals

    def __init__(self, strength: ArrayLike):
        assign(self, strength=checks.nonnegative("strength", strength))

    @property
    def curvature(self) -> Reals:
        """strength."""
        return self.strength

    def value(self, theta: Reals) -> Reals:
        """sum_j strength_j theta_j^2 / 2."""
        return 0.5 * xp.sum(self.strength * theta**2)

    def proximal(self, strength: Reals, point: Reals, step: Reals) -> Reals:
        """point / (1 + strength step)."""
        return point / (1.0 + strength * step)


@final
@pytree
class ElasticNet(Penalty):
    """sum_j strength_j (l1_ratio |theta_j| + (1 - l1_ratio) theta_j^2 / 2); l1_ratio in [0, 1]."""

    strength: Reals
    l1_ratio: Reals

    def __init__(self, strength: ArrayLike, l1_ratio: ArrayLike):
        strength = checks.nonnegative("strength", strength)
        assign(self, strength=strength, l1_ratio=checks.real("l1_ratio", l1_ratio, 0.0, 1.0))

    @property
    def curvature(self) -> Reals:
        """(1 - l1_ratio) strength."""
        return (1.0 - self.l1_ratio) * self.strength

    def value(self, theta: Reals) -> Reals:
        """The sum of both parts."""
        ratio = self.l1_ratio
        each = ratio * xp.abs(theta) + 0.5 * (1.0 - ratio) * theta**2
        return xp.sum(self.strength * each)

    def proximal(self, strength: Reals, point: Reals, step: Reals) -> Reals:
        """Soft thresholding, then shrinking."""
        size = xp.maximum(xp.abs(point) - strength * self.l1_ratio * step, 0.0)
        return xp.sign(point) * size / (1.0 + strength * (1.0 - self.l1_ratio) * step)
