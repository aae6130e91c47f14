"""Accounting engines: pure functions of arrays, from dominating pairs to delta.

A composition is a tuple of terms (`composition`). A term stacks the releases of one kind of pair.

* `engines` alone chooses the engines of a composition. Each engine reports bounds that hold, and
  where they are wide the next engine is evaluated.
* `profile` evaluates the privacy profile of the pair itself, for a single release and for plain
  Gaussians, which are one release.
* `contour` inverts the moment generating function along a vertical line (`contour_plan`: tilt,
  step, aliasing; `line`: values; `contour_sum`: their sum, atoms smoothed; `truncation`: what lies
  beyond its end; `rare_losses`: large losses are dropped and counted). It reads a `Table`, not a
  pair: one small program a kind of pair fills it with losses and masses, by quadrature of the
  density between its kinks (`tables`, `dominating_pair`). The contour compiles once for all kinds.
* `sampled` inverts batches of sampled Gaussians in a few phases, lanes side by side, on complex
  nodes. It reads the parameters of the Gaussians and of their scheme. A short sum serves most
  lanes, longer ones the others.
* `grid` places chord masses of the privacy profiles (`masses`) on a grid (`window`, which reads the
  table) and multiplies them by one FFT (`convolution`); the bound below is by a coupling. It is
  exact where losses lie on a lattice.
* `ends` bounds delta by the largest finite loss and the probability of an infinite one, beside any
  engine. `inverse` bounds epsilon where an engine's own inverse is wide, by a search and by
  `chernoff`.
* `unsampled` bounds a mixture of Gaussians by one Gaussian between its farthest means.
* `evaluate` lays out batches and takes the worse direction. `ladder` asks the engines in turn, of
  known lanes by NumPy and of traced ones in packs (`mapped`). `refusal` names the law that
  contradicts itself.
"""
