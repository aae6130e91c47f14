"""Accounting engines: pure functions of arrays, from dominating pairs to delta.

A release is its law: losses and masses, by quadrature of the noise's density between its kinks
(`noise/nodes`, `dominating_pair`). One small program a kind of pair makes a `Table` of it; the
engines are functions of tables and never see a noise, so that they compile once for all kinds.

* `engines` is the only place that chooses. Every engine states an error that holds; what is wide
  goes on to the next one.
* `contour`: delta by inversion of the moment generating function along a vertical line
  (`contour_plan`: tilt, step, aliasing; `line`: values; `contour_sum`: their sum, atoms smoothed;
  `truncation`: what lies beyond its end; `rare_losses`: large ones are dropped and counted).
* `sampled`: batches of sampled Gaussians in a few phases, lanes side by side, on complex
  nodes; a short sum for all, longer ones for the lanes that need them.
* `grid`: chord masses (`masses`) on a grid (`window`) and one FFT (`convolution`); the bound below
  by a coupling. Exact where losses lie on a lattice. The one engine that needs profiles, not nodes.
* `ends`: what the largest loss and the probability of an infinite one say, beside any engine.
* `unsampled`: no mixtures of Gaussians cost more than one Gaussian between their farthest means.
* `evaluate` lays out batches, calls the engines in turn, and takes the worse direction.
"""
