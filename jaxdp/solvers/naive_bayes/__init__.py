"""Private naive Bayes: tables of counts and bounded sums, in whole numbers, with noise on each.

One record adds 1 to one cell of the class table and of the (class, value) table of every
categorical column; a continuous column is mapped to z in [-1, 1] by its public bounds and adds
round(L z) and round(K (2 z^2 - 1)), L = `levels`, K = `square_levels`, to the two sums of its
class. So every cell of every table gets noise, seen or not, and no sensitivity depends on a private
count.

Cells are whole, and so is the noise: nothing of a record is left in the low bits of a float.
Gaussian and Laplace draws are rounded, which is post-processing and costs nothing.
"""

from jaxdp.solvers.naive_bayes.model import Model as Model
from jaxdp.solvers.naive_bayes.model import log_joint as log_joint
from jaxdp.solvers.naive_bayes.model import release as release
from jaxdp.solvers.naive_bayes.plan import FAMILIES as FAMILIES
from jaxdp.solvers.naive_bayes.plan import Plan as Plan
from jaxdp.solvers.naive_bayes.plan import plan as plan
