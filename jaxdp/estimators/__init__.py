"""scikit-learn estimators whose `fit` is differentially private. They need the extra `learn`."""

from jaxdp.estimators.base import BoundsWarning as BoundsWarning
from jaxdp.estimators.base import FixedRandomStateWarning as FixedRandomStateWarning
from jaxdp.estimators.base import LittleBudgetWarning as LittleBudgetWarning
from jaxdp.estimators.base import NotPrivateWarning as NotPrivateWarning
from jaxdp.estimators.base import total_privacy as total_privacy
from jaxdp.estimators.linear import IntervalWarning as IntervalWarning
from jaxdp.estimators.scaler import DPStandardScaler as DPStandardScaler
from jaxdp.estimators.scaler import PublicScaler as PublicScaler
