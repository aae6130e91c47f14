"""DP-SGD with one clipping threshold and one noise scale a group of parameters, for optax.

Every step sees a Poisson sample, or what another scheme of `dp.sampling` draws.
Each example's gradient is clipped to norm C_g in every group g of
d_g parameters, the clipped gradients are summed, each entry of group g gets noise of scale s_g:

    optimizer = optax.chain(clip_groups(plan), add_noise(plan, key), optax.sgd(0.5))

An example moves the whole sum, in units of the scales, by sum_g C_g^2 / s_g^2 = 1 / multiplier^2
(Gaussian) or, in l1, sum_g sqrt(d_g) C_g / s_g = 1 / multiplier (Laplace). What its one-dimensional
worst case costs, sampled, is accounted exactly, see `privacy_loss`; sampling an example or not is
one draw for all groups, so the worst case of the mixture is the mixture of the worst case.
"""

from jaxdp.solvers.dp_sgd.batches import allocated_batches as allocated_batches
from jaxdp.solvers.dp_sgd.batches import fixed_batch as fixed_batch
from jaxdp.solvers.dp_sgd.batches import truncated_batch as truncated_batch
from jaxdp.solvers.dp_sgd.plan import ALLOCATIONS as ALLOCATIONS
from jaxdp.solvers.dp_sgd.plan import FAMILIES as FAMILIES
from jaxdp.solvers.dp_sgd.plan import GROUPS as GROUPS
from jaxdp.solvers.dp_sgd.plan import RELATIONS as RELATIONS
from jaxdp.solvers.dp_sgd.plan import Plan as Plan
from jaxdp.solvers.dp_sgd.plan import plan as plan
from jaxdp.solvers.dp_sgd.training import poisson_batch as poisson_batch
from jaxdp.solvers.dp_sgd.training import train as train
from jaxdp.solvers.dp_sgd.transformations import NoiseState as NoiseState
from jaxdp.solvers.dp_sgd.transformations import add_noise as add_noise
from jaxdp.solvers.dp_sgd.transformations import clip_groups as clip_groups
