"""Privacy losses for and from other libraries, which are imported only where they are used."""

from jaxdp.interop import dp_accounting as dp_accounting
from jaxdp.interop import opacus as opacus
