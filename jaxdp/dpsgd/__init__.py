"""DP-SGD in one call: epsilon, delta, noise, steps, the course of epsilon, and what it means.

Noise multipliers are the standard deviation of the noise over the clipping norm; every function
takes either (dataset_size, batch_size, epochs) or (sampling_prob, steps), or a list of `Phase`s.
"""

from jaxdp.dpsgd.accountant import Accountant as Accountant
from jaxdp.dpsgd.accountant import register as register
from jaxdp.dpsgd.base import Phase as Phase
from jaxdp.dpsgd.course import Curve as Curve
from jaxdp.dpsgd.course import curve as curve
from jaxdp.dpsgd.questions import delta as delta
from jaxdp.dpsgd.questions import epsilon as epsilon
from jaxdp.dpsgd.questions import noise_multiplier as noise_multiplier
from jaxdp.dpsgd.questions import steps as steps
from jaxdp.dpsgd.schedule import Schedule as Schedule
from jaxdp.dpsgd.schemes import batch_size_limit as batch_size_limit
from jaxdp.dpsgd.schemes import shuffled_bounds as shuffled_bounds
from jaxdp.dpsgd.schemes import steps_of_a_group as steps_of_a_group
from jaxdp.dpsgd.wording import statement as statement
