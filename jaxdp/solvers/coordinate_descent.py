"""Differentially private coordinate descent (Mangold, Bellet, Salmon & Tommasi, ICML 2022).

`plan` decides everything that privacy depends on, before a record is read: the sequence of
coordinates, steps, thresholds and noise scales, calibrated to the visits that the sequence makes.
`run` follows a plan, `run_many` a batch of them, `run_resumable` through a file.
"""

from jaxdp.solvers.descent_accounting import ACCOUNTING as ACCOUNTING
from jaxdp.solvers.descent_accounting import update_budget as update_budget
from jaxdp.solvers.descent_defaults import Defaults as Defaults
from jaxdp.solvers.descent_defaults import defaults as defaults
from jaxdp.solvers.descent_file import run_resumable as run_resumable
from jaxdp.solvers.descent_plan import ITERATES as ITERATES
from jaxdp.solvers.descent_plan import Plan as Plan
from jaxdp.solvers.descent_plan import noiseless_plan as noiseless_plan
from jaxdp.solvers.descent_plan import plan as plan
from jaxdp.solvers.descent_run import NotPrivateTrace as NotPrivateTrace
from jaxdp.solvers.descent_run import run as run
from jaxdp.solvers.descent_run import run_many as run_many
from jaxdp.solvers.descent_schedule import ALLOCATIONS as ALLOCATIONS
from jaxdp.solvers.descent_schedule import NOISES as NOISES
from jaxdp.solvers.descent_schedule import ORDERS as ORDERS
