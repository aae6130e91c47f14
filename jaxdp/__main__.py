"""`python -m jaxdp`: the command line."""

from jaxdp.cli import main

main()
