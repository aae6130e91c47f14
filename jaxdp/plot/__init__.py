"""Plots of guarantees, noises and trainings, on given or new axes. Needs the extra `plot`."""

from jaxdp.plot.curves import compare as compare
from jaxdp.plot.curves import density as density
from jaxdp.plot.curves import epsilon_by_step as epsilon_by_step
from jaxdp.plot.curves import noise_by_epsilon as noise_by_epsilon
from jaxdp.plot.curves import profile as profile
from jaxdp.plot.curves import tradeoff as tradeoff
from jaxdp.plot.curves import training as training
