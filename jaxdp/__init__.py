"""jaxdp: a numerical privacy accountant in JAX. Importing it runs nothing and sets nothing.

Every name below is imported where it is first used.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxdp import datasets as datasets
    from jaxdp import dpsgd as dpsgd
    from jaxdp import estimators as estimators
    from jaxdp import interop as interop
    from jaxdp import plot as plot
    from jaxdp import sampling as sampling
    from jaxdp import solvers as solvers
    from jaxdp._core.cache import enable_cache as enable_cache
    from jaxdp._core.pytree import pytree as pytree
    from jaxdp._core.random_key import secure_key as secure_key
    from jaxdp.adaptive.filter import BudgetExceededError as BudgetExceededError
    from jaxdp.adaptive.filter import Filter as Filter
    from jaxdp.adaptive.ledger_file import Ledger as Ledger
    from jaxdp.adaptive.odometer import Odometer as Odometer
    from jaxdp.audit import audit as audit
    from jaxdp.audit import audit_one_run as audit_one_run
    from jaxdp.audit.one_run import OneRunAudit as OneRunAudit
    from jaxdp.audit.run import Audit as Audit
    from jaxdp.composition.privacy_loss import PrivacyLoss as PrivacyLoss
    from jaxdp.composition.privacy_loss import privacy_loss as privacy_loss
    from jaxdp.design.allocate import allocate as allocate
    from jaxdp.design.allocate import allocation_error as allocation_error
    from jaxdp.design.allocate_exact import allocate_exact as allocate_exact
    from jaxdp.design.calibrate import calibrate as calibrate
    from jaxdp.design.compare import compare as compare
    from jaxdp.design.expected_error import ExpectedError as ExpectedError
    from jaxdp.design.expected_error import expected_error as expected_error
    from jaxdp.design.fit import fit_noise as fit_noise
    from jaxdp.design.lower_bounds import lower_bound as lower_bound
    from jaxdp.design.sensitivity import JointSensitivity as JointSensitivity
    from jaxdp.dominating_pair.base import DominatingPair as DominatingPair
    from jaxdp.dominating_pair.base import Law as Law
    from jaxdp.dominating_pair.base import law_on as law_on
    from jaxdp.dominating_pair.gaussian_mixture import GaussianMixture as GaussianMixture
    from jaxdp.dominating_pair.known_guarantee import RandomisedResponse as RandomisedResponse
    from jaxdp.estimators import DPPCA as DPPCA
    from jaxdp.estimators import DPLasso as DPLasso
    from jaxdp.estimators import DPLogisticRegression as DPLogisticRegression
    from jaxdp.estimators import DPNaiveBayes as DPNaiveBayes
    from jaxdp.exponential_mechanism import ExponentialMechanism as ExponentialMechanism
    from jaxdp.guarantee.approximate import ApproxDP as ApproxDP
    from jaxdp.guarantee.attack_risk import advantage as advantage
    from jaxdp.guarantee.attack_risk import bayes_risk as bayes_risk
    from jaxdp.guarantee.attack_risk import tpr_at_fpr as tpr_at_fpr
    from jaxdp.guarantee.base import Budget as Budget
    from jaxdp.guarantee.base import Guarantee as Guarantee
    from jaxdp.guarantee.conversions import to_approx as to_approx
    from jaxdp.guarantee.conversions import to_gdp as to_gdp
    from jaxdp.guarantee.conversions import to_pure as to_pure
    from jaxdp.guarantee.conversions import to_rdp as to_rdp
    from jaxdp.guarantee.conversions import to_zcdp as to_zcdp
    from jaxdp.guarantee.gaussian_dp import GDP as GDP
    from jaxdp.guarantee.gaussian_dp import largest_gdp as largest_gdp
    from jaxdp.guarantee.pure import PureDP as PureDP
    from jaxdp.guarantee.renyi import RDP as RDP
    from jaxdp.guarantee.selection import above_threshold as above_threshold
    from jaxdp.guarantee.selection import repeat_and_select as repeat_and_select
    from jaxdp.guarantee.tradeoff import tradeoff_of_profile as tradeoff_of_profile
    from jaxdp.guarantee.zcdp import ZCDP as ZCDP
    from jaxdp.mechanism import Mechanism as Mechanism
    from jaxdp.mechanism import release as release
    from jaxdp.noise.base import Noise as Noise
    from jaxdp.noise.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
    from jaxdp.noise.discrete_histogram import DiscreteHistogram as DiscreteHistogram
    from jaxdp.noise.discrete_laplace import DiscreteLaplace as DiscreteLaplace
    from jaxdp.noise.flipped_huber import FlippedHuber as FlippedHuber
    from jaxdp.noise.gaussian import Gaussian as Gaussian
    from jaxdp.noise.histogram import Histogram as Histogram
    from jaxdp.noise.laplace import Laplace as Laplace
    from jaxdp.noise.nodes import panels as panels
    from jaxdp.noise.numerical import NumericalNoise as NumericalNoise
    from jaxdp.noise.offset_gaussian import OffsetGaussian as OffsetGaussian
    from jaxdp.noise.staircase import Staircase as Staircase
    from jaxdp.noise.staircase import staircase_split as staircase_split
    from jaxdp.noise.structure import Kinks as Kinks
    from jaxdp.noise.structure import Lattice as Lattice
    from jaxdp.noise.structure import Smooth as Smooth
    from jaxdp.noise.subbotin import Subbotin as Subbotin
    from jaxdp.noise.truncated_laplace import TruncatedLaplace as TruncatedLaplace
    from jaxdp.optimal.measure import pinball as pinball
    from jaxdp.optimal.mechanism import optimal_mechanism as optimal_mechanism
    from jaxdp.optimal.noise import optimal_integer_noise as optimal_integer_noise
    from jaxdp.optimal.noise import optimal_noise as optimal_noise
    from jaxdp.released import Released as Released
    from jaxdp.solvers.problems import L1 as L1
    from jaxdp.solvers.problems import L2 as L2
    from jaxdp.solvers.problems import Problem as Problem
    from jaxdp.solvers.problems import bounded_smoothness as bounded_smoothness
    from jaxdp.solvers.problems import coordinate_smoothness as coordinate_smoothness
    from jaxdp.solvers.problems import glm as glm
    from jaxdp.solvers.problems import private_smoothness as private_smoothness
    from jaxdp.sweep import sweep as sweep
    from jaxdp.tables.plan import TablePlan as TablePlan
    from jaxdp.tables.plan import plan_table as plan_table
    from jaxdp.tables.release import ReleasedTable as ReleasedTable
    from jaxdp.tables.release import release_table as release_table
else:
    _MODULES = ("datasets", "dpsgd", "estimators", "interop", "plot", "sampling", "solvers")
    _NAMES = {
        "_core.cache": "enable_cache",
        "_core.pytree": "pytree",
        "_core.random_key": "secure_key",
        "adaptive.filter": "BudgetExceededError Filter",
        "adaptive.ledger_file": "Ledger",
        "adaptive.odometer": "Odometer",
        "audit": "audit audit_one_run",
        "audit.one_run": "OneRunAudit",
        "audit.run": "Audit",
        "composition.privacy_loss": "PrivacyLoss privacy_loss",
        "design.allocate": "allocate allocation_error",
        "design.allocate_exact": "allocate_exact",
        "design.calibrate": "calibrate",
        "design.compare": "compare",
        "design.expected_error": "ExpectedError expected_error",
        "design.fit": "fit_noise",
        "design.lower_bounds": "lower_bound",
        "design.sensitivity": "JointSensitivity",
        "dominating_pair.base": "DominatingPair Law law_on",
        "dominating_pair.gaussian_mixture": "GaussianMixture",
        "dominating_pair.known_guarantee": "RandomisedResponse",
        "estimators": "DPPCA DPLasso DPLogisticRegression DPNaiveBayes",
        "exponential_mechanism": "ExponentialMechanism",
        "guarantee.approximate": "ApproxDP",
        "guarantee.attack_risk": "advantage bayes_risk tpr_at_fpr",
        "guarantee.base": "Budget Guarantee",
        "guarantee.conversions": "to_approx to_gdp to_pure to_rdp to_zcdp",
        "guarantee.gaussian_dp": "GDP largest_gdp",
        "guarantee.pure": "PureDP",
        "guarantee.renyi": "RDP",
        "guarantee.selection": "above_threshold repeat_and_select",
        "guarantee.tradeoff": "tradeoff_of_profile",
        "guarantee.zcdp": "ZCDP",
        "mechanism": "Mechanism release",
        "noise.base": "Noise",
        "noise.discrete_gaussian": "DiscreteGaussian",
        "noise.discrete_histogram": "DiscreteHistogram",
        "noise.discrete_laplace": "DiscreteLaplace",
        "noise.flipped_huber": "FlippedHuber",
        "noise.gaussian": "Gaussian",
        "noise.histogram": "Histogram",
        "noise.laplace": "Laplace",
        "noise.nodes": "panels",
        "noise.numerical": "NumericalNoise",
        "noise.offset_gaussian": "OffsetGaussian",
        "noise.staircase": "Staircase staircase_split",
        "noise.structure": "Kinks Lattice Smooth",
        "noise.subbotin": "Subbotin",
        "noise.truncated_laplace": "TruncatedLaplace",
        "optimal.measure": "pinball",
        "optimal.mechanism": "optimal_mechanism",
        "optimal.noise": "optimal_integer_noise optimal_noise",
        "released": "Released",
        "solvers.problems": "L1 L2 Problem bounded_smoothness coordinate_smoothness glm "
        "private_smoothness",
        "sweep": "sweep",
        "tables.plan": "TablePlan plan_table",
        "tables.release": "ReleasedTable release_table",
    }
    _PLACES = {
        name: f"jaxdp.{module}" for module, names in _NAMES.items() for name in names.split()
    }
    # scikit-learn is an extra: without it these are not there.
    _EXTRA = ("estimators", *_NAMES["estimators"].split())
    __all__ = [name for name in (*_MODULES, *_PLACES) if name not in _EXTRA]

    class _Package(types.ModuleType):
        """A package whose functions `audit` and `sweep` are not hidden by their folders."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in _PLACES or not isinstance(value, types.ModuleType):
                types.ModuleType.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:
            if name not in _PLACES and name not in _MODULES:
                raise AttributeError(f"module 'jaxdp' has no attribute {name!r}")
            try:
                value = importlib.import_module(_PLACES.get(name, f"jaxdp.{name}"))
            except ImportError as error:
                if name not in _EXTRA:
                    raise
                raise AttributeError(
                    f"module 'jaxdp' has no attribute {name!r}: {error}"
                ) from error
            if name in _PLACES:
                value = getattr(value, name)
                setattr(self, name, value)
            return value

        def __dir__(self) -> list[str]:
            return sorted({*vars(self), *_MODULES, *_PLACES})

    sys.modules[__name__].__class__ = _Package


__version__ = "0.1.0"
