"""Differentially private coordinate descent (Mangold, Bellet, Salmon & Tommasi, ICML 2022).

`plan` decides everything that privacy depends on, before a record is read: the sequence of
coordinates, steps, thresholds and noise scales, calibrated to the visits that the sequence makes.
`run` follows a plan. With `order="greedy"` coordinates are selected
privately as the descent goes, and their choice is accounted for (`GreedyPlan`).
"""

from jaxdp.solvers.coordinate_descent.defaults import Defaults as Defaults
from jaxdp.solvers.coordinate_descent.defaults import GreedyDefaults as GreedyDefaults
from jaxdp.solvers.coordinate_descent.defaults import defaults as defaults
from jaxdp.solvers.coordinate_descent.defaults import greedy_defaults as greedy_defaults
from jaxdp.solvers.coordinate_descent.greedy import GreedyPlan as GreedyPlan
from jaxdp.solvers.coordinate_descent.plan import ALLOCATIONS as ALLOCATIONS
from jaxdp.solvers.coordinate_descent.plan import NOISES as NOISES
from jaxdp.solvers.coordinate_descent.plan import ORDERS as ORDERS
from jaxdp.solvers.coordinate_descent.plan import Plan as Plan
from jaxdp.solvers.coordinate_descent.plan import noiseless_plan as noiseless_plan
from jaxdp.solvers.coordinate_descent.plan import plan as plan
from jaxdp.solvers.coordinate_descent.run import NotPrivateTrace as NotPrivateTrace
from jaxdp.solvers.coordinate_descent.run import run as run
