"""Functions over grids of any size, in memory or streamed to a store that resumes."""

from jaxdp.sweep.run import sweep as sweep
