"""jaxdp: a numerical privacy accountant in JAX. Importing it runs nothing and sets nothing."""

from jaxdp import solvers as solvers
from jaxdp.allocate import allocate as allocate
from jaxdp.allocate import allocation_error as allocation_error
from jaxdp.calibrate import calibrate as calibrate
from jaxdp.calibrate import fit_noise as fit_noise
from jaxdp.conversions import to_approx as to_approx
from jaxdp.conversions import to_gdp as to_gdp
from jaxdp.conversions import to_pure as to_pure
from jaxdp.conversions import to_zcdp as to_zcdp
from jaxdp.guarantee.approximate import ApproxDP as ApproxDP
from jaxdp.guarantee.base import Budget as Budget
from jaxdp.guarantee.base import Guarantee as Guarantee
from jaxdp.guarantee.gaussian_dp import GDP as GDP
from jaxdp.guarantee.gaussian_dp import largest_gdp as largest_gdp
from jaxdp.guarantee.pure import PureDP as PureDP
from jaxdp.guarantee.zcdp import ZCDP as ZCDP
from jaxdp.lower_bounds import lower_bound as lower_bound
from jaxdp.lower_bounds import lower_bound_covariance as lower_bound_covariance
from jaxdp.lower_bounds import randomised_response as randomised_response
from jaxdp.mechanism import Mechanism as Mechanism
from jaxdp.noise.base import Noise as Noise
from jaxdp.noise.gaussian import Gaussian as Gaussian
from jaxdp.noise.laplace import Laplace as Laplace
from jaxdp.privacy_loss import PrivacyLoss as PrivacyLoss
from jaxdp.privacy_loss import privacy_loss as privacy_loss
from jaxdp.problems import L1 as L1
from jaxdp.problems import L2 as L2
from jaxdp.problems import Problem as Problem
from jaxdp.problems import Smoothness as Smoothness
from jaxdp.problems import bounded_smoothness as bounded_smoothness
from jaxdp.problems import coordinate_smoothness as coordinate_smoothness
from jaxdp.problems import glm as glm
from jaxdp.problems import private_smoothness as private_smoothness
from jaxdp.profiles import gini as gini
from jaxdp.profiles import sensitivity_profile as sensitivity_profile

__version__ = "0.1.0"
