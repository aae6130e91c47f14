"""Of which noises a Poisson-sampled release is a `Mixture`, and what that takes."""

from jaxdp.noise.base import Loss
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian
from jaxdp.noise.staircase import Staircase
from jaxdp.noise.subbotin import Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace

ATOMIC = (DiscreteGaussian, DiscreteLaplace, Staircase)
LOG_CONCAVE = (Gaussian, Laplace, FlippedHuber, OffsetGaussian, Subbotin)
_COMPOSABLE = (*LOG_CONCAVE, *ATOMIC, TruncatedLaplace)


def require_log_concave(noise: Loss) -> None:
    """ValueError unless `noise` has a log-concave density on all reals."""
    _require(noise, LOG_CONCAVE, "where sampled records are replaced")


def require_composable(noise: Loss) -> None:
    """ValueError unless sampled releases of `noise` compose: its losses rise with the answer."""
    _require(noise, _COMPOSABLE, "to compose sampled releases")


def _require(noise: Loss, kinds: tuple[type[Loss], ...], where: str) -> None:
    if not isinstance(noise, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"noise must be one of {names} {where}, got {type(noise).__name__}")
