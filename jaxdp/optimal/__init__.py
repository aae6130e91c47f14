"""Noise and mechanisms designed by linear programming, with certificates.

What a solver says is not believed. `program` (one noise) and `table_program` (a table of laws) are
the linear programs on `highs`, `saddle` and `halpern` a first-order method for tables; `measure` is
the loss; `exact` and `close_pairs` turn masses into whole weights over 2^40 and take delta in
rationals, e^epsilon rounded down; `dual`, `table_program.table_bound` and `range_bound` prove lower
bounds from any multipliers. What is in no paper is argued where it is used: shifts between cells
(`noise/histogram`), the hat functions and the mass beyond the grid of the lower bound (`noise`,
`program`), ranges of many sensitivities (`range_bound`), rounding between nodes, even or not
(`close_pairs`), the hull of all shifts that composes (`dominating_pair/finite`).
"""
