"""Truncated Laplace noise over a Poisson sample: moments, compositions, infinite losses."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp


def loss_of(scale, bound, shift, q, relation="add_remove"):
    return dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(scale, bound), shift, q, relation))


def nodes(shift, bound):
    """Gauss-Legendre between all kinks, 500 times: what bends in between costs 1e-6."""
    unit, weight = np.polynomial.legendre.leggauss(8)
    kinks = np.unique([m + s for m in (0.0, shift) for s in (-bound, 0.0, bound)])
    edges = np.concatenate([np.linspace(a, b, 501)[:-1] for a, b in itertools.pairwise(kinks)])
    edges = np.append(edges, kinks[-1])
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    return (middle + half * unit).ravel(), (half * weight).ravel()


def densities(shift, bound, q, relation):
    """P and Q at the nodes, times the weights."""
    t, weight = nodes(shift, bound)
    whole = -2.0 * np.expm1(-bound)
    base, moved = (
        np.where(np.abs(t - m) <= bound, np.exp(-np.abs(t - m)), 0.0) * weight / whole
        for m in (0.0, shift)
    )
    pair = (1.0 - q) * base + q * moved, base
    return pair[::-1] if relation == "add" else pair


@pytest.mark.parametrize("relation", ["add", "remove"])
@pytest.mark.parametrize(("shift", "bound", "q"), [(0.8, 3.0, 0.1), (2.5, 2.0, 0.3)])
def test_one_and_two_releases(relation, shift, bound, q):
    p, other = densities(shift, bound, q, relation)
    release = dp.Mechanism(dp.TruncatedLaplace(1.0, bound), shift, q, relation)
    loss = dp.privacy_loss(release)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0, np.log(p) - np.log(other), 0.0)
    for epsilon in (-0.3, 0.04, 0.2):
        once = np.sum(np.maximum(p - np.exp(epsilon) * other, 0.0))
        left = np.asarray(release.delta(np.where(losses < np.inf, epsilon - losses, 0.0)))
        twice = np.sum(p * np.where(losses < np.inf, left, 1.0))
        for count, truth in ((1, once), (2, twice)):
            lower, upper = (float(b) for b in (count * loss).bounds(epsilon))
            assert lower * (1 - 1e-5) <= truth <= upper * (1 + 1e-5) + 1e-15
            assert upper <= lower * (1 + 2e-3) + 1e-15
        np.testing.assert_allclose(release.delta(epsilon), once, rtol=1e-5, atol=1e-15)


def test_infinite_losses_remain():
    loss = 2 * loss_of(1.0, 4.0, 1.0, 0.05, "remove")
    infinite = float(jnp.exp(dp.TruncatedLaplace(1.0, 4.0).log_survival(3.0)))
    total = -np.expm1(2 * np.log1p(-0.05 * infinite))
    np.testing.assert_allclose(loss.bounds(20.0), total, rtol=1e-12)
    assert loss.renyi(2.0) == jnp.inf


@pytest.mark.long
def test_epsilon_of_a_composition():
    loss = 30 * loss_of(1.0, 4.0, 1.0, 0.05)
    total = float(loss.delta(20.0))
    assert loss.epsilon(0.9 * total) == jnp.inf
    epsilon = float(loss.epsilon(1.1 * total))
    assert loss.delta(epsilon) <= 1.1 * total < loss.delta(0.99 * epsilon)


@pytest.mark.long
def test_without_a_bound_it_is_the_laplace():
    plain = dp.privacy_loss(dp.Mechanism(dp.Laplace(1.0), 1.0, 0.1, "add_remove"))
    for epsilon in (-0.2, 0.3, 1.0):
        lower, upper = (10 * loss_of(1.0, jnp.inf, 1.0, 0.1)).bounds(epsilon)
        assert lower <= (10 * plain).delta(epsilon) <= upper <= lower * (1 + 3e-3)


@pytest.mark.long
def test_beside_other_releases():
    sampled = 20 * loss_of(0.5, 4.0, 1.0, 0.02)
    other = dp.privacy_loss(dp.Mechanism(dp.Gaussian(3.0), 1.0))
    lower, upper = (sampled + other).bounds(1.0)
    assert max(sampled.bounds(1.0)[0], other.delta(1.0)) <= upper
    assert lower <= upper <= lower * (1 + 1e-2)


def test_bad_input():
    @jax.jit
    def values(scale, bound, q):
        return (3 * loss_of(scale, bound, 0.5, q, "remove")).log_delta(0.1)

    for at in ((1.0, 3.0, 1.5), (1.0, 3.0, jnp.nan), (-1.0, 3.0, 0.1), (1.0, jnp.nan, 0.1)):
        assert bool(jnp.isnan(values(*at))), at
