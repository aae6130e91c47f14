"""The families that a fit searches: how a member is built from its shape and its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp.noise.base import Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.staircase import Staircase, staircase_split
from jaxdp.noise.subbotin import Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace


class Family(NamedTuple):
    """Family of noises: how a member is built from shape and deviation, and where shapes lie."""

    build: Callable[[Reals, Reals], Noise]
    shapes: tuple[float, float] = (1.0, 1.0)
    log_concave: bool = True
    lattice: bool = False


def _by_deviation(member: Callable[[Reals, Reals], Noise]) -> Callable[[Reals, Reals], Noise]:
    """`member(scale, shape)`, built from its shape and its standard deviation."""

    def build(shape: Reals, deviation: Reals) -> Noise:
        unit = member(xp.ones_like(shape), shape)
        return member(deviation / xp.sqrt(unit.variance()), shape)

    return build


# By name. Shapes are those between which a fit searches.
MEMBERS = {
    "gaussian": Family(lambda _, deviation: Gaussian(deviation)),
    "laplace": Family(lambda _, deviation: Laplace(deviation / xp.sqrt(2.0))),
    "truncated_laplace": Family(
        _by_deviation(lambda b, a: TruncatedLaplace(b, a * b)), (1e-3, 300.0)
    ),
    "flipped_huber": Family(_by_deviation(lambda b, a: FlippedHuber(a * b, b)), (2e-3, 30.0)),
    "offset_gaussian": Family(_by_deviation(lambda b, a: OffsetGaussian(a * b, b)), (1e-3, 3000.0)),
    "subbotin": Family(_by_deviation(lambda b, a: Subbotin(b, 1.0 + a)), (1e-5, 7.0)),
    "staircase": Family(lambda e, s: Staircase(e, s, staircase_split(e)), log_concave=False),
    "discrete_gaussian": Family(lambda _, scale: DiscreteGaussian(scale), lattice=True),
    "discrete_laplace": Family(
        lambda _, deviation: DiscreteLaplace(deviation / xp.sqrt(2.0)), lattice=True
    ),
}
FAMILIES = tuple(MEMBERS)
