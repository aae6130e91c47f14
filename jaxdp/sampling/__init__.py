"""Sampling schemes for `Mechanism(..., sampling=...)` and `dp.dpsgd`; see docs/sampling.md."""

from jaxdp.sampling.allocation import BallsInBins as BallsInBins
from jaxdp.sampling.allocation import RandomAllocation as RandomAllocation
from jaxdp.sampling.base import Known as Known
from jaxdp.sampling.base import SamplingStatement as SamplingStatement
from jaxdp.sampling.base import Scheme as Scheme
from jaxdp.sampling.base import TrainingSizes as TrainingSizes
from jaxdp.sampling.base import batch as batch
from jaxdp.sampling.poisson import Poisson as Poisson
from jaxdp.sampling.truncated import TruncatedPoisson as TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement as WithoutReplacement

# The classes of `sampling="..."`.
SCHEMES: dict[str, type[Scheme]] = {
    "poisson": Poisson,
    "truncated": TruncatedPoisson,
    "without_replacement": WithoutReplacement,
    "random_allocation": RandomAllocation,
    "balls_in_bins": BallsInBins,
}
