"""DP-SGD: the privacy cost of a training in one call, and the training itself, for optax.

The noise multiplier is the standard deviation of the noise divided by the clipping norm. Every
function takes (dataset_size, batch_size, epochs), (sampling_prob, steps) or a list of `Phase`s.

A training follows a `Plan` of groups of parameters. Every step uses a batch of a scheme of
`dp.sampling`. Each example's gradient is clipped to norm C_g in every group g of d_g parameters,
the clipped gradients are summed, and each entry of group g gets noise of scale s_g:

    optimizer = optax.chain(clip_groups(plan), add_noise(plan, key), optax.sgd(0.5))

An example moves the whole sum, in units of the scales, by sum_g C_g^2 / s_g^2 = 1 / multiplier^2
(Gaussian) or, in l1, sum_g sqrt(d_g) C_g / s_g = 1 / multiplier (Laplace). `privacy_loss` accounts
exactly for the one-dimensional worst case, sampled. An example is sampled once for all groups, so
the worst case of the mixture is the mixture of the worst case.
"""

from jaxdp._core.lazy import attach as _attach

__all__ = _attach(__name__, __file__)  # pyright: ignore
