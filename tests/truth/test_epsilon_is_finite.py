"""epsilon says something wherever log delta does, in every batch, and falls as delta grows."""

import jax
import numpy as np
import pytest
import references

import jaxdp as dp

_ROWS = references.load("few_hits.json")
# Its values are good to 2e-4.
_BELOW = 3e-4


def few_hits():
    """sigma, q, steps, delta and the true epsilon."""
    names = ("sigma", "q", "steps", "delta", "epsilon")
    return (np.array([row[name] for row in _ROWS["values"]]) for name in names)


def training(sigma, q, steps):
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation="remove")
    return steps * dp.privacy_loss(mechanism)


def by_renyi(loss, delta):
    """The least epsilon on a grid that the loss's own Renyi divergences prove."""
    orders = 1.0 + np.exp(np.linspace(-3.0, 8.0, 60))
    divergence = np.asarray(loss[:, None].renyi(orders))
    s = orders - 1.0
    entropy = np.log1p(s) + s * np.log1p(1.0 / s)
    return np.min(divergence - (entropy + np.log(delta)[:, None]) / s, axis=-1)


def test_epsilon_is_no_more_than_the_best_order_proves():
    """30 responses: Renyi divergences in closed form, at every order, and the largest loss."""
    loss, delta = 30 * dp.privacy_loss(dp.PureDP(1.0)), np.array([1e-3, 1e-9, 1e-40, 1e-200])
    found = np.asarray(loss.epsilon(delta))
    s = np.exp(np.linspace(-8.0, 8.0, 20_001))[:, None]
    p = 1 / (1 + np.exp(-1.0))
    cumulant = 30 * (s + np.log(p + (1 - p) * np.exp(-2 * s)))
    each = (cumulant - np.log1p(s) - s * np.log1p(1 / s) - np.log(delta)) / s
    assert np.all(found <= np.minimum(np.min(each, axis=0), 30.0) * (1 + 1e-9))
    assert found[-1] == pytest.approx(30.0, rel=1e-12)
    assert np.all(np.diff(found) >= 0)


def test_what_meets_a_smaller_delta_meets_a_larger_one():
    """Along a batch of 2 by 5 in which rare hits make brackets wide."""
    sigma, q = np.array([[0.6], [1.0]]), np.array([[1e-5], [1e-8]])
    delta = np.array([1e-9, 1e-3, 1e-6, 1e-12, 1e-30])
    found = np.asarray(training(sigma, q, 1e6).epsilon(delta))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found[:, np.argsort(delta)], axis=1) <= 0)


@pytest.mark.long
def test_few_hits_in_one_batch():
    sigma, q, steps, delta, truth = (np.resize(x, 64) for x in few_hits())
    loss = training(sigma, q, steps)
    found = np.asarray(loss.epsilon(delta))
    assert np.all(found >= truth * (1 - _BELOW))
    assert np.all(found <= 5.0 * truth)


@pytest.mark.long
def test_no_more_than_log_delta_and_renyi_divergences_say():
    sigma, q, steps, delta, _ = (np.resize(x, 64) for x in few_hits())
    loss = training(sigma, q, steps)
    found = np.asarray(loss.epsilon(delta))
    assert np.all(found <= by_renyi(loss, delta) * (1 + 1e-6))
    # No engine is asked at an epsilon at which it would say that delta is met.
    below = np.asarray(loss.log_delta(found * (1 - 1e-3) - 1e-8))
    assert np.all(below >= np.log(delta) - 1e-6)


@pytest.mark.long
def test_few_hits_alone_and_in_jit():
    sigma, q, steps, delta, truth = few_hits()
    alone = [float(training(*x).epsilon(d)) for *x, d in zip(sigma, q, steps, delta, strict=True)]
    traced = jax.jit(lambda *x: training(*x[:3]).epsilon(x[3]))(sigma, q, steps, delta)
    for found in (np.array(alone), np.asarray(traced)):
        assert np.all(found >= truth * (1 - _BELOW))
        assert np.all(np.isfinite(found))


@pytest.mark.long
@pytest.mark.parametrize(("sigma", "q"), [(1.0, 1e-9), (1.0, 1e-8), (0.6, 1e-5)])
def test_small_deltas(sigma, q):
    """Finite, and falling along the batch."""
    delta = np.array([1e-15, 1e-6, 1e-30, 1e-12, 1e-9, 1e-100])
    found = np.asarray(training(sigma, q, 1e6).epsilon(delta))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found[np.argsort(delta)]) <= 0)


@pytest.mark.long
@pytest.mark.parametrize("traced", [False, True])
def test_other_compositions(traced):
    """Lattices, atoms, infinite losses, several phases: an epsilon that log delta confirms."""
    sampled = dp.privacy_loss(dp.Mechanism(dp.Laplace(0.5), 1.0, 1e-4, relation="remove"))
    losses = (
        30 * dp.privacy_loss(dp.PureDP(1.0)),
        20 * dp.privacy_loss(dp.ApproxDP(0.1, 1e-12)),
        1e4 * sampled,
        training(0.8, 1e-5, 1e4) + training(0.6, 1e-5, 1e3),
    )
    for loss in losses:
        for delta in (1e-5, 1e-10):
            ask = jax.jit(loss.epsilon) if traced else loss.epsilon
            found = float(ask(delta))
            assert np.isfinite(found)
            assert float(loss.log_delta(found)) <= np.log(delta) + 1e-5
