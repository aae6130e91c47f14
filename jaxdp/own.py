"""Bases and parts of your own noises, dominating pairs and guarantees."""

from jaxdp._core.pytree import pytree as pytree
from jaxdp.dominating_pair.base import DominatingPair as DominatingPair
from jaxdp.dominating_pair.base import Law as Law
from jaxdp.dominating_pair.base import law_on as law_on
from jaxdp.guarantee.base import Guarantee as Guarantee
from jaxdp.noise.base import Noise as Noise
from jaxdp.noise.nodes import panels as panels
from jaxdp.noise.numerical import NumericalNoise as NumericalNoise
from jaxdp.noise.structure import Kinks as Kinks
from jaxdp.noise.structure import Lattice as Lattice
from jaxdp.noise.structure import Smooth as Smooth
