"""Laws of whole numbers proportional to exp(-h(|n|)), and h relative to a block's value.

h(n) = n^2 / (2 s^2), n / s, or n alpha / gamma^2 + (n - start)_+^2 / (2 gamma^2); blocks of W =
ceil(unit / 2) numbers, see `whole_draws`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, final

from jaxdp._core.namespace import xp
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import Reals, Shape
from jaxdp._numeric.double_double import Double, divide, scaled, total_pair
from jaxdp.noise.kernels.precise_exponential import product

Kind = Literal["normal", "exponential", "huber", "offset"]


@final
@pytree
class WholeLaw:
    """h of one kind with its scale s, up to `bound`, at least 0; all numbers if None.

    "huber" and "offset" with alpha and gamma as well, s = gamma^2 / alpha.
    """

    kind: Kind = static()
    scale: Reals
    alpha: Reals
    gamma: Reals
    bound: Reals | None = None

    @property
    def proposal(self) -> str:
        """The law of the blocks."""
        return "normal" if self.kind == "normal" else "exponential"

    @property
    def start(self) -> Reals:
        """First number with a quadratic term in h."""
        return self.alpha if self.kind == "huber" else xp.zeros(())


class Candidate(NamedTuple):
    """A block, a place in it, and the block's size."""

    block: Reals
    place: Reals
    size: Reals


def exponent(law: WholeLaw, candidate: Candidate) -> Reals:
    """h(n) - h of the block, a sum of parts that are not negative: relative error 8 ulp."""
    k, j, size = candidate
    beyond = (j + k * (size - 0.5 * law.scale)) / law.scale
    if law.kind == "normal":
        return 0.5 * beyond * (beyond + k)
    if law.kind == "exponential":
        return beyond
    return beyond + 0.5 * (xp.maximum(k * size + j - law.start, 0.0) / law.gamma) ** 2


def exponent_pair(law: WholeLaw, candidate: Candidate) -> Double:
    """`exponent` to 1e-30."""
    k, j, size = candidate
    everywhere = xp.ones(k.shape, bool)
    zero = xp.zeros(k.shape)

    def exactly(x: Reals) -> Double:
        return Double(xp.broadcast_to(x, k.shape), zero)

    inside = size - 0.5 * law.scale
    n = k * size + j
    if law.kind in ("huber", "offset"):
        slope = _ratio_pair(law, k.shape)
        centre = total_pair(product(exactly(n), slope), -0.5 * k)
        outside = total_pair(exactly(n), exactly(-law.start))
        share = divide(outside, exactly(law.gamma), outside.high > 0)
        square = scaled(product(share, share), 0.5)
        return total_pair(centre, Double(*(xp.where(outside.high > 0, x, 0.0) for x in square)))
    part = product(exactly(k), exactly(inside))
    above = total_pair(part, j)
    beyond = divide(above, exactly(law.scale), everywhere)
    if law.kind == "exponential":
        return beyond
    return scaled(product(beyond, total_pair(beyond, k)), 0.5)


def _ratio_pair(law: WholeLaw, shape: Shape) -> Double:
    """alpha / gamma^2 to 1e-30."""
    zero, everywhere = xp.zeros(shape), xp.ones(shape, bool)
    gamma = Double(xp.broadcast_to(law.gamma, shape), zero)
    return divide(
        Double(xp.broadcast_to(law.alpha, shape), zero), product(gamma, gamma), everywhere
    )
