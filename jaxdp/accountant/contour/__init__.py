"""Bounds by inversion along a vertical contour: a whole batch at once, lanes along the last axis.

`engine` is the interface. `mixtures` and `laws` turn pairs into rows and bound the errors of the
rows. Each stage chooses a contour (`plan`) and sums along it (`nodes`, `terms`). `curve` bounds the
errors of the sum, inverts it and differentiates it. `few_hits` has a contour of its own, and
`number_of_rare_losses` counts rare losses. `shared` evaluates many epsilons, or deltas, of one loss
on a few contours.
"""
