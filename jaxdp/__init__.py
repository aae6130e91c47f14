"""jaxdp: a numerical privacy accountant in JAX. Importing it runs nothing and sets nothing."""

import importlib
from typing import TYPE_CHECKING, Any

from jaxdp import interop as interop
from jaxdp import solvers as solvers
from jaxdp.allocate import allocate as allocate
from jaxdp.allocate import allocation_error as allocation_error
from jaxdp.allocate_exact import allocate_exact as allocate_exact
from jaxdp.calibrate import calibrate as calibrate
from jaxdp.compare import Comparison as Comparison
from jaxdp.compare import compare as compare
from jaxdp.conversions import to_approx as to_approx
from jaxdp.conversions import to_gdp as to_gdp
from jaxdp.conversions import to_pure as to_pure
from jaxdp.conversions import to_rdp as to_rdp
from jaxdp.conversions import to_zcdp as to_zcdp
from jaxdp.exponential import ExponentialMechanism as ExponentialMechanism
from jaxdp.fit import fit_noise as fit_noise
from jaxdp.guarantee.approximate import ApproxDP as ApproxDP
from jaxdp.guarantee.base import Budget as Budget
from jaxdp.guarantee.base import Guarantee as Guarantee
from jaxdp.guarantee.gaussian_dp import GDP as GDP
from jaxdp.guarantee.gaussian_dp import largest_gdp as largest_gdp
from jaxdp.guarantee.pure import PureDP as PureDP
from jaxdp.guarantee.renyi import RDP as RDP
from jaxdp.guarantee.zcdp import ZCDP as ZCDP
from jaxdp.lower_bounds import lower_bound as lower_bound
from jaxdp.lower_bounds import lower_bound_covariance as lower_bound_covariance
from jaxdp.lower_bounds import randomised_response as randomised_response
from jaxdp.mechanism import Mechanism as Mechanism
from jaxdp.noise.base import Noise as Noise
from jaxdp.noise.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
from jaxdp.noise.discrete_histogram import DiscreteHistogram as DiscreteHistogram
from jaxdp.noise.discrete_laplace import DiscreteLaplace as DiscreteLaplace
from jaxdp.noise.flipped_huber import FlippedHuber as FlippedHuber
from jaxdp.noise.gaussian import Gaussian as Gaussian
from jaxdp.noise.histogram import Certificate as Certificate
from jaxdp.noise.histogram import Histogram as Histogram
from jaxdp.noise.laplace import Laplace as Laplace
from jaxdp.noise.offset_gaussian import OffsetGaussian as OffsetGaussian
from jaxdp.noise.staircase import Staircase as Staircase
from jaxdp.noise.staircase import staircase_split as staircase_split
from jaxdp.noise.subbotin import Subbotin as Subbotin
from jaxdp.noise.truncated_laplace import TruncatedLaplace as TruncatedLaplace
from jaxdp.odometer import Odometer as Odometer
from jaxdp.optimal.first_order import optimal_noise_table as optimal_noise_table
from jaxdp.optimal.measure import ErrorMeasure as ErrorMeasure
from jaxdp.optimal.measure import pinball as pinball
from jaxdp.optimal.mechanism import optimal_mechanism as optimal_mechanism
from jaxdp.optimal.noise import optimal_integer_noise as optimal_integer_noise
from jaxdp.optimal.noise import optimal_noise as optimal_noise
from jaxdp.optimal.published import PublishedKernel as PublishedKernel
from jaxdp.optimal.published import published_mechanism as published_mechanism
from jaxdp.optimal.table import RangeMechanism as RangeMechanism
from jaxdp.privacy_filter import BudgetExceededError as BudgetExceededError
from jaxdp.privacy_filter import Filter as Filter
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
from jaxdp.risk import advantage as advantage
from jaxdp.risk import bayes_risk as bayes_risk
from jaxdp.risk import tpr_at_fpr as tpr_at_fpr
from jaxdp.sensitivity import JointSensitivity as JointSensitivity
from jaxdp.sufficient import sufficient_log_delta as sufficient_log_delta
from jaxdp.sufficient import sufficient_zcdp as sufficient_zcdp
from jaxdp.tradeoff import profile_of_tradeoff as profile_of_tradeoff
from jaxdp.tradeoff import tradeoff_of_profile as tradeoff_of_profile

# scikit-learn is an extra: its estimators are imported where they are named.
if TYPE_CHECKING:
    from jaxdp.estimators import DPPCA as DPPCA
    from jaxdp.estimators import DPLasso as DPLasso
    from jaxdp.estimators import DPLogisticRegression as DPLogisticRegression
    from jaxdp.estimators import DPNaiveBayes as DPNaiveBayes
else:
    _ESTIMATORS = ("DPPCA", "DPLasso", "DPLogisticRegression", "DPNaiveBayes")

    def __getattr__(name: str) -> Any:
        if name in (*_ESTIMATORS, "estimators"):
            module = importlib.import_module("jaxdp.estimators")
            return module if name == "estimators" else getattr(module, name)
        raise AttributeError(f"module 'jaxdp' has no attribute {name!r}")


__version__ = "0.1.0"
