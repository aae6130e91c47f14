"""DP-SGD: what a training costs, in one call, and the training itself, for optax.

Noise multipliers are the standard deviation of the noise over the clipping norm; every question
takes either (dataset_size, batch_size, epochs) or (sampling_prob, steps), or a list of `Phase`s.

A training follows a `Plan` of groups of parameters. Every step sees a Poisson sample, or what
another scheme of `dp.sampling` draws. Each example's gradient is clipped to norm C_g in every group
g of d_g parameters, these are summed, and each entry of group g gets noise of scale s_g:

    optimizer = optax.chain(clip_groups(plan), add_noise(plan, key), optax.sgd(0.5))

An example moves the whole sum, in units of the scales, by sum_g C_g^2 / s_g^2 = 1 / multiplier^2
(Gaussian) or, in l1, sum_g sqrt(d_g) C_g / s_g = 1 / multiplier (Laplace). What its one-dimensional
worst case costs, sampled, is accounted exactly, see `privacy_loss`; sampling an example or not is
one draw for all groups, so the worst case of the mixture is the mixture of the worst case.
"""

from jaxdp._core.lazy import attach as _attach

__all__ = _attach(__name__, __file__)  # pyright: ignore
