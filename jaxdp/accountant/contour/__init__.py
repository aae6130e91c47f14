"""Bounds by inversion along a vertical contour: a whole batch at once, lanes along the last axis.

`engine` is the interface. `mixtures` and `laws` turn pairs into rows, which know their errors. Each
stage plans a contour (`plan`), sums along it (`nodes`, `terms`), bounds the errors of the sum,
inverts it and differentiates it (`curve`). `few_hits` has a contour of its own, and
`number_of_rare_losses` counts rare losses. `shared` reads many epsilons, or deltas, of one loss
from a few contours.
"""
