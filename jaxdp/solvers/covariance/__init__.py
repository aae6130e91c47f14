"""Private second moments, and the subspaces that are read off them.

Rows x_i of norm at most `row_bound` have the second moment S = (1/n) sum_i x_i x_i^T. `plan` fixes
the noise on its entries before a row is read, `release` adds it. Adding or removing a row moves
n S by at most row_bound^2 in Frobenius norm, replacing one by sqrt(2) row_bound^2.

Why "goe" is the default: let the entries carry independent Gaussian noise, s_d on the diagonal
and s_o off it. A unit row costs mu^2 = q / s_d^2 + (1 - q) / (2 s_o^2), q = sum_i x_i^4, and q runs
from 1/d to 1: both ends cost the same at s_o = s_d / sqrt(2). That is the Gaussian orthogonal
ensemble, isotropic in Frobenius norm, and exact; nothing need be clipped.
"""

from jaxdp.solvers.covariance.plan import FAMILIES as FAMILIES
from jaxdp.solvers.covariance.plan import METHODS as METHODS
from jaxdp.solvers.covariance.plan import Plan as Plan
from jaxdp.solvers.covariance.plan import plan as plan
from jaxdp.solvers.covariance.release import goe_noise as goe_noise
from jaxdp.solvers.covariance.release import principal_subspace as principal_subspace
from jaxdp.solvers.covariance.release import release as release
from jaxdp.solvers.covariance.release import second_moment as second_moment
