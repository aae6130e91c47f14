"""Noise and mechanisms designed by linear programming, with certificates.

A solver's result is not trusted. `program` (one noise) and `table_program` (a table of laws) are
the linear programs. `measure` is the loss. `exact` and `table` turn masses into
whole weights over 2^40 and compute delta in rationals, with e^epsilon rounded down. `dual`,
`table_program.table_bound` and `range_bound` prove lower bounds from any multipliers.

Results that no paper has are argued where they are used: shifts between cells
(`noise/histogram`), the hat functions and the mass beyond the grid of the lower bound (`noise`,
`program`), ranges of many sensitivities (`range_bound`), rounding between nodes, even or not
(`table`), the hull of all shifts that composes (`dominating_pair/finite`).
"""

from jaxdp._core.lazy import attach as _attach

__all__ = _attach(__name__, __file__)  # pyright: ignore
