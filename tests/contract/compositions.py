"""Compositions as rows of JSON: a kind, which is a way to build a loss, and its parameters."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import jaxdp as dp

Parameters = dict[str, Any]
NAMES_OF_RELEASES = ("count", "sensitivity", "sampling_prob")
# Of schemes: records of a data set and of a user, steps of an epoch, sensitivities of a mixture.
RECORDS, GROUP, STEPS, MIXED = 1000.0, 3, 3, (0.0, 1.0, 2.0)


def released(noise: Callable[..., dp.own.Noise], relation: str | None = None) -> Callable[..., Any]:
    """`count` releases of the noise of all other parameters."""

    def build(count=1.0, sensitivity=1.0, sampling_prob=1.0, **parameters):
        mechanism = dp.Mechanism(noise(**parameters), sensitivity, sampling_prob, relation)
        return count * dp.privacy_loss(mechanism)

    return build


def drawn(scheme: Callable[..., dp.sampling.Scheme], **more: Any) -> Callable[..., Any]:
    """`count` releases of a Gaussian over what the scheme of all other parameters draws."""

    def build(scale, count, **parameters):
        sampled = {"sampling": scheme(**parameters), "relation": "add_remove", **more}
        return count * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, **sampled))

    return build


def truncated(sampling_prob, limit):
    """Of RECORDS records."""
    return dp.sampling.TruncatedPoisson(sampling_prob, limit, RECORDS)


def fixed_batch(batch):
    """Of RECORDS records."""
    return dp.sampling.WithoutReplacement(batch, RECORDS)


def gaussian_mixture(scale, once, twice, count):
    """A sensitivity of 1, 2 or none."""
    pair = dp.GaussianMixture(MIXED, [1.0 - once - twice, once, twice], scale)
    return count * dp.privacy_loss(pair, "add_remove")


def laplaces(first, second, third):
    """One release of each scale."""
    return sum(dp.privacy_loss(dp.Mechanism(dp.Laplace(s), 1.0)) for s in (first, second, third))


def hubers_and_laplace(alpha, gamma, ratio, scale):
    """Two flipped Hubers of one shape, `ratio` apart in size, beside a Laplace."""
    noises = dp.FlippedHuber(alpha, gamma), dp.FlippedHuber(ratio * alpha, ratio * gamma)
    return sum(dp.privacy_loss(dp.Mechanism(x, 1.0)) for x in (*noises, dp.Laplace(scale)))


def steps_and_laplaces(scale, sampling_prob, count, laplace, laplaces):
    """Sampled Gaussians beside Laplaces that see every record."""
    step = dp.Mechanism(dp.Gaussian(scale), 1.0, sampling_prob, "add_remove")
    return count * dp.privacy_loss(step) + laplaces * dp.privacy_loss(
        dp.Mechanism(dp.Laplace(laplace), 1.0)
    )


def two_phases(first, second, sampling_prob, count):
    """Steps at two noise multipliers, the second at a third of the sampling probability."""
    return sum(
        count * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove"))
        for scale, q in ((first, sampling_prob), (second, sampling_prob / 3.0))
    )


def guarantees(epsilon, failure, mu, count):
    """What is known by its guarantee alone."""
    pure = dp.privacy_loss(dp.PureDP(epsilon)) + dp.privacy_loss(dp.ApproxDP(epsilon, failure))
    return count * pure + dp.privacy_loss(dp.GDP(mu))


def staircase(epsilon, split):
    """At its own sensitivity 1."""
    return dp.Staircase(epsilon, jnp.ones_like(jnp.asarray(epsilon)), split)


KINDS: dict[str, Callable[..., Any]] = {
    "gaussian": released(dp.Gaussian),
    "laplace": released(dp.Laplace),
    "laplaces": laplaces,
    "flipped_huber": released(dp.FlippedHuber),
    "hubers_and_laplace": hubers_and_laplace,
    "offset_gaussian": released(dp.OffsetGaussian),
    "subbotin": released(dp.Subbotin),
    "staircase": released(staircase),
    "discrete_laplace": released(dp.DiscreteLaplace),
    "discrete_gaussian": released(dp.DiscreteGaussian),
    "truncated_laplace": released(dp.TruncatedLaplace),
    "guarantees": guarantees,
    "removed_gaussian": released(dp.Gaussian, "remove"),
    "added_gaussian": released(dp.Gaussian, "add"),
    "rarely_hit_gaussian": released(dp.Gaussian, "add_remove"),
    "two_phases": two_phases,
    "steps_and_laplaces": steps_and_laplaces,
    "replaced_gaussian": released(dp.Gaussian, "replace_one"),
    "sampled_laplace": released(dp.Laplace, "add_remove"),
    "replaced_laplace": released(dp.Laplace, "replace_one"),
    "sampled_flipped_huber": released(dp.FlippedHuber, "remove"),
    "sampled_offset_gaussian": released(dp.OffsetGaussian, "add"),
    "sampled_subbotin": released(dp.Subbotin, "add"),
    "sampled_staircase": released(staircase, "remove"),
    "sampled_discrete_laplace": released(dp.DiscreteLaplace, "add_remove"),
    "sampled_discrete_gaussian": released(dp.DiscreteGaussian, "remove"),
    "sampled_truncated_laplace": released(dp.TruncatedLaplace, "remove"),
    "truncated_poisson": drawn(truncated),
    "without_replacement": drawn(fixed_batch),
    "random_allocation": drawn(lambda: dp.sampling.RandomAllocation(STEPS)),
    "group": drawn(dp.sampling.Poisson, group_size=GROUP),
    "gaussian_mixture": gaussian_mixture,
}


def over(scheme, relation="add_remove", **more):
    """The loss of one release by a scheme, as a function of the noise multiplier."""

    def build(noise_multiplier):
        mechanism = dp.Mechanism(
            dp.Gaussian(noise_multiplier), 1.0, sampling=scheme, relation=relation, **more
        )
        return dp.privacy_loss(mechanism)

    return build


SCHEMES = {
    "truncated": over(dp.sampling.TruncatedPoisson(0.02, 25, 1000)),
    "truncated-replaced": over(dp.sampling.TruncatedPoisson(0.02, 25, 1000), "replace_one"),
    "truncated-zeroed": over(dp.sampling.TruncatedPoisson(0.02, 25, 1000), "zero_out"),
    "fixed": over(dp.sampling.WithoutReplacement(20, 1000)),
    "fixed-replaced": over(dp.sampling.WithoutReplacement(20, 1000), "replace_one"),
    "group": over(dp.sampling.Poisson(0.02), group_size=3),
    "group-replaced": over(dp.sampling.Poisson(0.02), "replace_one", group_size=2),
    "allocation": over(dp.sampling.RandomAllocation(50)),
}
