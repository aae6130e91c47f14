"""Attempts to prove a guarantee wrong, with lower bounds that hold with known confidence."""

from jaxdp.audit.run import audit as audit
