"""A guarantee of every kind, and the least number that is no subnormal."""

import numpy as np

import jaxdp as dp

EXACT_KINDS = (dp.PureDP(0.7), dp.ApproxDP(0.7, 1e-3), dp.GDP(0.6))
KINDS = (*EXACT_KINDS, dp.ZCDP(0.01, 0.2))
LEAST = float(np.finfo(np.float64).tiny)
