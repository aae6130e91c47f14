"""Attempts to prove a guarantee wrong, with lower bounds that hold with known confidence."""

from jaxdp.audit.one_run import OneRunAudit as OneRunAudit
from jaxdp.audit.one_run import one_run as one_run
from jaxdp.audit.run import Audit as Audit
from jaxdp.audit.run import of_outputs as of_outputs
from jaxdp.audit.run import run as run
