"""Error of a release before it is made: of its noise alone, so that it costs no privacy."""

from __future__ import annotations

from typing import final

from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise
from jaxdp.released import half_width_of


@final
@in_float64
@pytree
class ExpectedError:
    """Error of a release with additive noise, in the query's unit, batched like the noise.

    standard_deviation, mean_absolute: of the noise. half_width: the exact value lies in released
    value +- half_width with the requested probability, rounding to the granularity included.
    """

    standard_deviation: Reals
    mean_absolute: Reals
    half_width: Reals


@in_float64
def expected_error(
    mechanism: Mechanism | Noise, level: ArrayLike = 0.95, granularity: ArrayLike = 0.0
) -> ExpectedError:
    """Expected error of a release, computed from its noise alone.

    Args:
        mechanism: a `Mechanism`, or its noise T.
        level: probability of the half width, in [0, 1].
        granularity: of the release, 0 or more; 0 for noise on the integers, and if `release`
            chooses it (2^-32 of the scale).

    Returns:
        An `ExpectedError`: sqrt(E T^2), E|T| and the half width, the (1 + level) / 2 quantile of T
        plus half the granularity, as `Released.half_width` has it. A value of half_width / x or
        more has a relative error of x at most; this reads no record, so that you can use it to
        decide in advance which values to suppress or merge.

    Raises `ValueError` for other objects and for arguments out of range.

    >>> import jaxdp as dp
    >>> error = dp.expected_error(dp.Mechanism(dp.Laplace(2.0), 1.0))
    >>> print(f"{error.standard_deviation:.3f} {error.mean_absolute:.3f} {error.half_width:.3f}")
    2.828 2.000 5.991
    """
    noise = mechanism.noise if isinstance(mechanism, Mechanism) else mechanism
    if not isinstance(noise, Noise):
        raise ValueError(
            f"mechanism must be a dp.Mechanism(noise, sensitivity) or a noise, got {mechanism!r}"
        )
    half_width = half_width_of(noise, level, granularity)
    return ExpectedError(xp.sqrt(noise.variance()), noise.mean_absolute(), half_width)
