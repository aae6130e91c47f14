"""Noise and mechanisms designed by linear programming, with certificates.

What a solver says is not believed. `program` and `kernel` are the linear programs, `saddle` and
`halpern` a first-order method for tables; `exact` and `points` turn their masses into whole weights
over 2^40 and take delta in rationals, e^epsilon rounded down; `dual`, `kernel.table_bound` and
`range_bound` prove lower bounds from any multipliers. What is in no paper is argued where it is
used: shifts between cells (`noise/histogram`), the hat functions and the mass beyond the grid of
the lower bound (`noise`, `program`), ranges of many sensitivities (`range_bound`), rounding between
nodes, even or not (`points`), the hull of all shifts that composes (`dominating_pair/finite`).
"""
