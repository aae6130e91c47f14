"""`python -m jaxdp`: the command line."""

from __future__ import annotations

from jaxdp.cli import main

main()
