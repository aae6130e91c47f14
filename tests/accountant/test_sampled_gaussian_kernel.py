"""The engine of sampled Gaussians against frozen values, and its derivatives."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.sampled_gaussian import Releases, epsilon_bounds, log_bounds

_KINDS = ("removed_gaussian", "added_gaussian", "rarely_hit_gaussian")
_DIRECTION = {"removed_gaussian": 0, "added_gaussian": 1, "rarely_hit_gaussian": 0}
_ROWS = json.loads((Path(__file__).parents[1] / "reference" / "engine.json").read_text())


def _in_both_directions(function, sigma, q, count, values):
    """The nearer bounds of one contour and of the law cut in two; (2, lanes): removed, added."""
    ends = []
    for sign in (1.0, -1.0):
        releases = Releases(sigma, q, jnp.full_like(q, sign), count)
        plain, cut = (function(releases, values, kind) for kind in ("plain", "cut"))
        ends.append((jnp.fmax(plain.lower, cut.lower), jnp.fmin(plain.upper, cut.upper)))
    return LogBounds(*(jnp.stack(x) for x in zip(*ends, strict=True)))


def log_delta(sigma, q, count, values):
    return _in_both_directions(log_bounds, sigma, q, count, values)


def epsilon(sigma, q, count, log_of_delta):
    return _in_both_directions(epsilon_bounds, sigma, q, count, jnp.exp(log_of_delta))


def _frozen():
    """sigma, q, count, epsilon, log delta, its error and the direction's index, one a column."""
    values = []
    for row in _ROWS:
        if row["kind"] in _KINDS:
            p = row["parameters"]
            start = p["scale"], p["sampling_prob"], p["count"]
            values += [
                (*start, *point, _DIRECTION[row["kind"]])
                for point in zip(
                    row["epsilon"], row["log_delta"], row["log_delta_error"], strict=True
                )
            ]
    return np.asarray(values).T


@pytest.fixture(scope="module")
def bounds():
    found = jax.jit(log_delta)(*map(jnp.asarray, _frozen()[:4]))
    index = _frozen()[6].astype(int), np.arange(_frozen().shape[1])
    return np.asarray(found.lower)[index], np.asarray(found.upper)[index]


def test_brackets_hold_the_frozen_values(bounds):
    """Also where few releases hit, down to delta = e^-600, where the bracket is wide."""
    lower, upper = bounds
    truth, error = _frozen()[4:6]
    assert np.all(lower <= truth + error)
    assert np.all(upper >= truth - error)


def test_brackets_of_ordinary_deltas_are_narrow(bounds):
    lower, upper = bounds
    ordinary = _frozen()[4] > -32
    assert np.quantile((upper - lower)[ordinary], 0.9) < 1e-7


@pytest.mark.long
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_epsilon_is_where_log_delta_says(delta):
    sigma = jnp.array([0.8, 1.0, 2.0, 4.0])
    q = jnp.array([0.01, 0.05, 0.003, 0.02])
    count = jnp.array([500.0, 1000.0, 5000.0, 10000.0])
    lower, upper = jax.jit(epsilon)(sigma, q, count, jnp.full(4, np.log(delta)))
    for direction in range(2):
        at = jax.jit(log_delta)(sigma, q, count, upper[direction])
        assert np.all(np.asarray(at.lower)[direction] <= np.log(delta))
        np.testing.assert_allclose(at.upper[direction], np.log(delta), atol=1e-6)
    np.testing.assert_allclose(lower, upper, rtol=1e-6)


def _loss(x, direction):
    sigma, q, count, log_of_delta = (v[None] for v in x)
    return epsilon(sigma, q, count, log_of_delta)[1][direction, 0]


@pytest.mark.long
@pytest.mark.parametrize("direction", [0, 1])
def test_derivatives_of_epsilon(direction):
    """Against central differences, in both modes."""
    x = jnp.array([1.1, 0.02, 800.0, np.log(1e-6)])
    loss = jax.jit(lambda y: _loss(y, direction))
    steps = 1e-4 * jnp.abs(x)
    differences = [
        (loss(x.at[i].add(h)) - loss(x.at[i].add(-h))) / (2 * h) for i, h in enumerate(steps)
    ]
    reverse = jax.jit(jax.grad(lambda y: _loss(y, direction)))(x)
    forward = jax.jit(jax.jacfwd(lambda y: _loss(y, direction)))(x)
    np.testing.assert_allclose(reverse, differences, rtol=2e-6)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)


def test_epsilon_is_zero_where_delta_is_large():
    found = epsilon(*(jnp.array([v]) for v in (2.0, 1e-4, 5.0, np.log(0.01))))
    np.testing.assert_array_equal(np.stack(found), 0.0)


def test_nan_gives_no_bound():
    found = log_delta(*(jnp.array([v]) for v in (jnp.nan, 0.01, 100.0, 1.0)))
    assert not np.any(np.asarray(found.upper) < 0)
    found = epsilon(*(jnp.array([v]) for v in (1.0, jnp.nan, 100.0, -10.0)))
    assert not np.any(np.isfinite(np.asarray(found[1])))


def test_a_delta_of_nearly_one_is_no_small_one():
    """So many steps that Chernoff bounds at every tilt searched say nothing: delta is about 1."""
    counts = jnp.array([1e7, 1e8, 1e10, 1e12])
    sigma, q = jnp.ones(4), jnp.full(4, 0.5)
    found = log_delta(sigma, q, counts, jnp.full(4, 2.0))
    np.testing.assert_array_equal(found.upper, jnp.zeros((2, 4)))


@pytest.mark.parametrize("count", [1e13, 3e14, 1e15, 2.0**53, 3.7e16, 1e17, 1e19])
def test_counts_whose_rounding_is_not_small(count):
    """There the rounding of one cumulant counts n times; in the limit the total is a Gaussian."""
    lanes = _frozen().shape[1]
    sigma, epsilon = 1e4 * np.exp(np.linspace(-1.0, 1.0, lanes)), np.linspace(0.0, 3.0, lanes)
    q = np.full(lanes, 1e-3)
    found = jax.jit(log_delta)(*map(jnp.asarray, (sigma, q, np.full(lanes, count), epsilon)))
    truth = np.asarray(dp.Gaussian(sigma / (q * np.sqrt(count))).log_delta(1.0, epsilon))
    assert np.all(np.asarray(found.upper) >= 1.003 * truth)
    assert np.all(np.asarray(found.lower) <= 0.997 * truth)
