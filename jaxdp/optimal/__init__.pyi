from jaxdp.design.compare import lower_bound as lower_bound
from jaxdp.noise.staircase import staircase_split as staircase_split
from jaxdp.optimal.measure import ErrorMeasure as ErrorMeasure
from jaxdp.optimal.mechanism import mechanism as mechanism
from jaxdp.optimal.noise import integer_noise as integer_noise
from jaxdp.optimal.noise import noise as noise
