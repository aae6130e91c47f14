"""The grid engine against frozen values, their derivatives, and what it says of itself."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compositions import KINDS

import jaxdp as dp
from jaxdp.accountant.composition import Term
from jaxdp.accountant.grid import epsilon_bounds, log_bounds
from jaxdp.dominating_pair.additive import Additive

ROWS = json.loads((Path(__file__).parent / "reference" / "engine.json").read_text())
GRIDDED = ["laplace", "laplaces", "flipped_huber", "subbotin", "truncated_laplace", "guarantees"]
ON_LATTICE = ["staircase", "discrete_laplace", "discrete_gaussian"]
# The frozen derivative of a discrete Gaussian was taken across a kink.
SMOOTH = [*GRIDDED, "staircase", "discrete_laplace"]
POINTS, FEW = 2**16, 2**12


def rows_of(kind):
    return [row for row in ROWS if row["kind"] == kind]


@functools.cache
def engine(kind, points):
    """Bounds on log delta from parameters (*batch,) and epsilon (*batch,)."""

    def bounds(parameters, epsilon):
        terms = KINDS[kind](**parameters).terms
        wide = epsilon.shape
        terms = jax.tree.map(lambda x: jnp.broadcast_to(x, (*wide, x.shape[-1])), terms)
        return log_bounds(terms, epsilon, points)

    return jax.jit(bounds)


def bracket(kind, row, points):
    parameters = {k: jnp.asarray(v) for k, v in row["parameters"].items()}
    found = engine(kind, points)(parameters, jnp.asarray(row["epsilon"]))
    return np.asarray(found.lower), np.asarray(found.upper)


@pytest.mark.parametrize("kind", [*GRIDDED, "hubers_and_laplace", *ON_LATTICE])
def test_frozen_values_lie_in_the_bracket(kind):
    for row in rows_of(kind)[:3]:
        lower, upper = bracket(kind, row, FEW if kind in ON_LATTICE else POINTS)
        frozen, error = np.array(row["log_delta"]), np.array(row["log_delta_error"])
        assert np.all(upper >= frozen - error)
        assert np.all(lower <= frozen)
        above, wide = (5e-10, 1e-8) if kind in ON_LATTICE else (1e-5, 1e-3)
        assert np.all(upper - frozen <= above)
        assert np.all(upper - lower <= wide)


@pytest.mark.parametrize("kind", SMOOTH)
def test_frozen_derivatives(kind):
    row = rows_of(kind)[0]
    known = row["derivative"]
    epsilon = jnp.asarray(row["epsilon"][0])
    points = FEW if kind in ON_LATTICE else POINTS

    def upper(value):
        parameters = row["parameters"] | {known["parameter"]: value}
        return log_bounds(KINDS[kind](**parameters).terms, epsilon, points).upper

    slope = jax.jit(jax.grad(upper))(row["parameters"][known["parameter"]])
    assert abs(slope - known["value"]) <= 1e-5 * abs(known["value"]) + known["error"]


@pytest.mark.parametrize("kind", ["laplace", "flipped_huber"])
def test_bracket_falls_like_the_step_squared(kind):
    row = rows_of(kind)[2]
    coarse, fine = (bracket(kind, row, points) for points in (2**13, 2**15))
    ratio = (coarse[1] - coarse[0]) / (fine[1] - fine[0])
    assert np.all(ratio > 8.0)


def test_both_modes_agree():
    row = rows_of("laplaces")[1]

    def upper(parameters, epsilon):
        return log_bounds(KINDS["laplaces"](**parameters).terms, epsilon, FEW).upper

    given = row["parameters"], jnp.asarray(row["epsilon"][0])
    modes = (jax.jit(mode(upper, argnums=(0, 1)))(*given) for mode in (jax.grad, jax.jacfwd))
    for backward, forward in zip(*map(jax.tree.leaves, modes), strict=True):
        np.testing.assert_allclose(backward, forward, rtol=1e-9)


def test_epsilon_is_feasible_and_near():
    row = rows_of("laplaces")[0]

    def bounds(delta):
        terms = KINDS["laplaces"](**row["parameters"]).terms
        wide = delta.shape
        terms = jax.tree.map(lambda x: jnp.broadcast_to(x, (*wide, x.shape[-1])), terms)
        return epsilon_bounds(terms, delta, FEW)

    known = np.array([*row["epsilon"], 0.0])
    delta = jnp.array([*np.exp(row["log_delta"]), 0.9])
    lower, upper = jax.jit(bounds)(delta)
    assert np.all(lower <= known + 1e-12)
    assert np.all(upper >= known - 1e-12)
    np.testing.assert_allclose(upper, known, atol=1e-6)
    np.testing.assert_allclose(lower, known, atol=1e-5)


def laplaces(scale, count, epsilon):
    """Compositions of Laplaces, parameters that no constructor has checked."""
    pair = Additive(dp.Laplace(jnp.ones(2)), jnp.ones(2))
    pair = jax.tree.unflatten(jax.tree.structure(pair), [jnp.asarray(scale), jnp.ones(2)])
    return compiled((Term(pair, jnp.asarray(count)),), jnp.asarray(epsilon))


compiled = jax.jit(functools.partial(log_bounds, points=FEW))


def test_no_release_and_bad_input():
    alone = laplaces([2.0, jnp.nan], [3.0, 0.0], 0.3)
    np.testing.assert_array_equal(alone, laplaces([2.0, 2.0], [3.0, 0.0], 0.3))
    assert np.all(np.isneginf(laplaces([2.0, 2.0], [0.0, 0.0], 0.3)))
    for bad in ([2.0, jnp.nan], [3.0, 1.0], 0.3), ([2.0, 2.0], [3.0, jnp.nan], 0.3):
        assert np.all(np.isnan(laplaces(*bad)))
    assert np.all(np.isnan(laplaces([2.0, 2.0], [3.0, 1.0], jnp.nan)))
    # Beyond what floats hold nothing is known.
    assert laplaces([1e-200, 1e-3], [1.0, 1.0], 0.3).upper == 0.0


def test_negative_epsilon():
    one = dp.Laplace(jnp.asarray(2.0))
    for epsilon in (-3.0, -0.3, 0.0, 0.4, 0.49):
        lower, upper = laplaces([2.0, 2.0], [1.0, 0.0], epsilon)
        known = float(one.log_delta(1.0, epsilon))
        assert lower <= known <= upper
        assert upper - lower < 1e-6


def test_losses_with_infinite_ones():
    loss = 5 * dp.privacy_loss(dp.ApproxDP(1.0, 1e-3))
    terms = loss.terms
    bounds = jax.jit(functools.partial(log_bounds, points=FEW))
    for epsilon in (-1.0, 0.0, 4.99, 7.0):
        lower, upper = bounds(terms, jnp.asarray(epsilon))
        known = float(loss.log_delta(epsilon))
        assert lower <= known <= upper
        assert upper - lower < 1e-8
