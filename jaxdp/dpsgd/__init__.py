"""DP-SGD: what a training costs, in one call, and the training itself, for optax.

Noise multipliers are the standard deviation of the noise over the clipping norm; every question
takes either (dataset_size, batch_size, epochs) or (sampling_prob, steps), or a list of `Phase`s.

A training follows a `Plan` of groups of parameters. Every step sees a Poisson sample, or what
another scheme of `dp.sampling` draws. Each example's gradient is clipped to norm C_g in every group
g of d_g parameters, these are summed, and each entry of group g gets noise of scale s_g:

    optimizer = optax.chain(clip_groups(plan), add_noise(plan, key), optax.sgd(0.5))

An example moves the whole sum, in units of the scales, by sum_g C_g^2 / s_g^2 = 1 / multiplier^2
(Gaussian) or, in l1, sum_g sqrt(d_g) C_g / s_g = 1 / multiplier (Laplace). What its one-dimensional
worst case costs, sampled, is accounted exactly, see `privacy_loss`; sampling an example or not is
one draw for all groups, so the worst case of the mixture is the mixture of the worst case.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxdp.dpsgd.accountant import Accountant as Accountant
from jaxdp.dpsgd.accountant import register as register
from jaxdp.dpsgd.curve import Curve as Curve
from jaxdp.dpsgd.curve import curve as curve
from jaxdp.dpsgd.phase import Phase as Phase
from jaxdp.dpsgd.phase import combined_noise_multiplier as combined_noise_multiplier
from jaxdp.dpsgd.queries import batch_size_limit as batch_size_limit
from jaxdp.dpsgd.queries import delta as delta
from jaxdp.dpsgd.queries import epsilon as epsilon
from jaxdp.dpsgd.queries import noise_multiplier as noise_multiplier
from jaxdp.dpsgd.queries import steps as steps
from jaxdp.dpsgd.schedule import Schedule as Schedule
from jaxdp.dpsgd.shuffling import shuffled_bounds as shuffled_bounds
from jaxdp.dpsgd.statement import statement as statement
from jaxdp.sampling.allocation import allocated_batches as allocated_batches
from jaxdp.sampling.poisson import poisson_batch as poisson_batch
from jaxdp.sampling.truncated import truncated_batch as truncated_batch
from jaxdp.sampling.without_replacement import fixed_batch as fixed_batch

if TYPE_CHECKING:
    from jaxdp.dpsgd.training import train as train
    from jaxdp.dpsgd.training_plan import ALLOCATIONS as ALLOCATIONS
    from jaxdp.dpsgd.training_plan import FAMILIES as FAMILIES
    from jaxdp.dpsgd.training_plan import GROUPS as GROUPS
    from jaxdp.dpsgd.training_plan import Plan as Plan
    from jaxdp.dpsgd.training_plan import plan as plan
    from jaxdp.dpsgd.transformations import NoiseState as NoiseState
    from jaxdp.dpsgd.transformations import add_noise as add_noise
    from jaxdp.dpsgd.transformations import clip_groups as clip_groups
else:
    # Imported where they are first used: they need optax, and all questions do without.
    _TRAINING = {
        "training": "train",
        "training_plan": "ALLOCATIONS FAMILIES GROUPS Plan plan",
        "transformations": "NoiseState add_noise clip_groups",
    }
    _PLACES = {name: module for module, names in _TRAINING.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'jaxdp.dpsgd' has no attribute {name!r}")
        return getattr(importlib.import_module(f"jaxdp.dpsgd.{_PLACES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
