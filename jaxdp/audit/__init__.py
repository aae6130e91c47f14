"""Attempts to prove a guarantee wrong, with lower bounds that hold with known confidence."""

from jaxdp.audit.one_run import audit_one_run as audit_one_run
from jaxdp.audit.run import audit as audit
