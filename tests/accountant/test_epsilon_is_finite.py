"""epsilon says something wherever log delta does, in every batch, and falls as delta grows."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import inverse
from jaxdp.accountant.bounds import LogBounds

_ROWS = json.loads((Path(__file__).parents[1] / "reference" / "few_hits.json").read_text())
# Its values are good to 2e-4.
_BELOW = 3e-4


def few_hits():
    """sigma, q, steps, delta and the true epsilon."""
    names = ("sigma", "q", "steps", "delta", "epsilon")
    return (np.array([row[name] for row in _ROWS["values"]]) for name in names)


def training(sigma, q, steps):
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation="remove")
    return steps * dp.privacy_loss(mechanism)


def test_a_search_ends_on_the_safe_side():
    """Smooth, with a jump, with no start, with a start that is best, and with no end at all."""
    functions = (
        lambda x: -3.0 * x,
        lambda x: np.where(x > 7.3, -40.0, -1.0),
        lambda x: -(x**0.3),
        lambda x: np.zeros_like(x),
        lambda x: np.zeros_like(x),
    )
    kinds = np.resize(np.arange(5), 11)
    goals = np.resize([1e-4, 1e-9, 1e-3, 1e-5, 1e-5], 11)
    bound = np.resize([30.0, 1e3, np.inf, 4.0, np.inf], 11)
    expected = np.resize([np.log(1e4) / 3, 7.3, np.log(1e3) ** (1 / 0.3), 4.0, np.inf], 11)

    def log_delta(lanes, x):
        return np.array([functions[kind](at) for kind, at in zip(lanes[0], x, strict=True)])

    unknown = LogBounds(np.zeros(11), np.full(11, np.inf))
    lanes = (kinds, bound)
    found = inverse.searched(unknown, lanes, goals, lambda lanes, _: lanes[1], log_delta)
    assert np.all(found.upper >= expected * (1 - 1e-14))
    np.testing.assert_allclose(found.upper, expected, rtol=5e-4)
    settled = LogBounds(0.5 * expected, 0.5 * expected * (1 + 1e-8))
    np.testing.assert_array_equal(
        inverse.searched(settled, lanes, goals, lambda *_: 1 / 0, log_delta).upper, settled.upper
    )


def test_what_meets_a_smaller_delta_meets_a_larger_one():
    upper = np.array([[5.0, 2.0, 9.0], [7.0, 1.0, 4.0]])
    delta = np.array([1e-9, 1e-3, 1e-6])
    expected = [[5.0, 2.0, 5.0], [7.0, 1.0, 4.0]]
    np.testing.assert_array_equal(inverse.falling(upper, delta, (1,)), expected)
    np.testing.assert_array_equal(inverse.falling(upper, delta, ()), upper)
    traced = jax.jit(lambda x, d: inverse.falling(x, d, (1,)))(
        upper, jnp.broadcast_to(delta, (2, 3))
    )
    np.testing.assert_array_equal(traced, expected)


def by_renyi(loss, delta):
    """The least epsilon on a grid that the loss's own Renyi divergences prove."""
    orders = 1.0 + np.exp(np.linspace(-3.0, 8.0, 60))
    divergence = np.asarray(loss[:, None].renyi(orders))
    s = orders - 1.0
    entropy = np.log1p(s) + s * np.log1p(1.0 / s)
    return np.min(divergence - (entropy + np.log(delta)[:, None]) / s, axis=-1)


def test_chernoffs_bound_is_that_of_the_best_order():
    terms = (30 * dp.privacy_loss(dp.PureDP(1.0))).terms
    delta = np.array([1e-3, 1e-9, 1e-40, 1e-200, np.nan])
    lanes = jax.tree.map(lambda x: np.broadcast_to(x, (5, 1)), terms)
    found = np.asarray(inverse.chernoff_epsilon(lanes, delta))
    s = np.exp(np.linspace(-8.0, 8.0, 20_001))[:, None]
    p = 1 / (1 + np.exp(-1.0))
    cumulant = 30 * (s + np.log(p + (1 - p) * np.exp(-2 * s)))
    each = (cumulant - np.log1p(s) - s * np.log1p(1 / s) - np.log(delta[:3])) / s
    # Nothing is known of what lies below the last node of most noises.
    np.testing.assert_allclose(found[:3], np.minimum(np.min(each, axis=0), 30.0), rtol=1e-6)
    assert np.all(found[3:] >= 30.0)


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
