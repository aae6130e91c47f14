from jaxdp.tables.plan import TablePlan as TablePlan
from jaxdp.tables.plan import plan as plan
from jaxdp.tables.release import ReleasedTable as ReleasedTable
from jaxdp.tables.release import release as release
