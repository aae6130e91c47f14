"""Accounting engines: pure functions of arrays, from dominating pairs to delta.

A composition is a tuple of terms (`composition`). A term stacks the releases of one kind of pair.

* `engines` alone chooses the engines of a composition. Each engine reports valid bounds. Where they
  are wide, the next engine is evaluated.
* `closed_forms` evaluates the privacy profile of the pair itself, for single releases and for plain
  Gaussians, which compose to one release. It also bounds every composition by the largest finite
  loss and the probability of an infinite loss.
* `contour` inverts the moment generating function along a vertical line, a whole batch at once. It
  reads rows, not pairs: sampled Gaussians on complex nodes, or any other loss on the nodes of a
  `Table`, which each kind of pair fills with losses and masses by quadrature of the density between
  its kinks (`batch`, `dominating_pair`). If many epsilons, or deltas, belong to one loss, a few
  contours serve all of them (`contour.shared`).
* `grid` places chord masses of the privacy profiles (`masses`) on a grid (`window`, which reads the
  table) and multiplies them by one FFT (`convolution`). The lower bound comes from a coupling.
  Losses on a lattice are exact. Values of one loss share grids.
* `inverse` finds the epsilons of all engines, from bounds on log delta at epsilons.
* `divergences` bounds delta and epsilon by Renyi divergences, after all other engines.
* `evaluate` answers a batch of any shape, in the worse direction. `primitive` lays out its lanes (a
  `batch`, whose different losses are tabulated once) and brings them to the host from inside of any
  transformation. `runner` runs the `steps` of the decision table in turn, in NumPy, and
  `derivatives` has the slopes. `gpu` is what a program for a GPU computes by itself. `batch`
  reports a law that contradicts itself.
"""
