"""Private solvers. They consume scales and know nothing of epsilon beyond their plan.

A solver is a `plan`, made before a record is read, and a call that follows it. Statistics of a
record are bounded first and noisy second; nothing is divided by a count that is private. An
estimator (`jaxdp/estimators`) checks, clips to public bounds, splits the key and calls one of them.
"""

from jaxdp.solvers import coordinate_descent as coordinate_descent
from jaxdp.solvers import covariance as covariance
from jaxdp.solvers import exponential_mechanism as exponential_mechanism
from jaxdp.solvers import naive_bayes as naive_bayes
from jaxdp.solvers import scaling as scaling
