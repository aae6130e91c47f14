"""Sampling schemes, which go into `Mechanism(..., sampling=...)`.

A scheme says which dominating pairs a release is; docs/sampling.md says which to account for.
"""

from jaxdp.sampling.allocation import BallsInBins as BallsInBins
from jaxdp.sampling.allocation import RandomAllocation as RandomAllocation
from jaxdp.sampling.base import Release as Release
from jaxdp.sampling.base import Scheme as Scheme
from jaxdp.sampling.poisson import Poisson as Poisson
from jaxdp.sampling.truncated import TruncatedPoisson as TruncatedPoisson
from jaxdp.sampling.without_replacement import WithoutReplacement as WithoutReplacement
