"""Batches of sampled Gaussians: one answer in every size, in jit, mapped and differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.accountant import cascade, engines, evaluate, inverse
from jaxdp.accountant.bounds import LogBounds
from jaxdp.accountant.sampled import cumulant, curve, engine, errors, law
from jaxdp.accountant.sampled.releases import releases_of
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.public_coin import PublicCoin

# Brackets of what few releases hit, and the share that is narrower.
_WIDE, _FAR = 1e-5, 1e-3


def language_models(rng, size):
    """Noise multipliers, rates, steps and deltas of trainings that rarely see a record."""
    sigma, q = rng.uniform(0.4, 1.6, size), 10 ** rng.uniform(-6.5, -3.3, size)
    steps = np.ceil(10 ** rng.uniform(-1.5, 1.5, size) / q)
    return sigma, q, steps, 10 ** rng.uniform(-12, -6, size)


def ordinary_runs(rng, size):
    sigma, q = rng.uniform(0.7, 4.0, size), 10 ** rng.uniform(-3, -1, size)
    return sigma, q, np.ceil(10 ** rng.uniform(2, 4, size)), np.full(size, 1e-6)


def training(sigma, q, steps, relation="add_remove"):
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation=relation))


def epsilon_bounds(sigma, q, steps, delta):
    loss = training(sigma, q, steps)
    return evaluate.epsilon(loss.terms, jnp.asarray(delta), loss.both)


def width(found):
    return np.asarray((found.upper - found.lower) / (1 + found.upper))


def test_nearly_all_ordinary_runs_are_bracketed_within_1e_6():
    found = epsilon_bounds(*ordinary_runs(np.random.default_rng(0), 128))
    assert np.mean(width(found) < 1e-6) >= 0.98
    assert np.all(width(found) < 1e-4)


def test_language_models_are_bracketed():
    found = epsilon_bounds(*language_models(np.random.default_rng(1), 96))
    assert np.all(np.isfinite(found.upper))
    assert np.mean(width(found) < _FAR) >= 0.95
    assert np.mean(width(found) < _WIDE) >= 0.85


def test_every_stage_brackets_the_same_value():
    """The stages plan on their own nodes and tilts: no bracket lies beside another."""
    rng = np.random.default_rng(2)
    sigma, q, steps, delta = (
        np.concatenate(x) for x in zip(language_models(rng, 8), ordinary_runs(rng, 8), strict=True)
    )
    for relation in ("remove", "add"):
        batch = engine.Batch(releases_of(training(sigma, q, steps, relation).terms)[0], delta)
        lower, upper = np.zeros(16), np.full(16, np.inf)
        for stage, blocks in ((engine.BULK, 1), *((engine.LONG, n) for n in (1, 4, 16))):
            program = engine._PROGRAMS["epsilon", stage]
            found = program(batch, np.full(16, np.nan), np.int32(blocks))
            assert np.all(found.lower <= upper * (1 + 1e-13))
            assert np.all(found.upper >= lower * (1 - 1e-13))
            lower, upper = np.maximum(lower, found.lower), np.minimum(upper, found.upper)


def test_alone_in_batches_and_mapped_the_same():
    rng = np.random.default_rng(3)
    asked = [
        np.concatenate(x) for x in zip(language_models(rng, 3), ordinary_runs(rng, 5), strict=True)
    ]
    together = epsilon_bounds(*asked)
    alone = np.array([float(training(*x[:3]).epsilon(x[3])) for x in zip(*asked, strict=True)])
    many = training(*(np.tile(x, 12) for x in asked[:3])).epsilon(np.tile(asked[3], 12))

    def one(sigma, q, steps, delta):
        return training(sigma, q, steps).epsilon(delta)

    # So many that they go on in several packs, each lane with both directions.
    mapped = jax.jit(jax.vmap(one))(*(np.tile(x, 12) for x in asked))
    for found in (alone, np.asarray(many)[:8], np.asarray(mapped)[:8]):
        assert np.all(found >= together.lower)
        np.testing.assert_allclose(found, together.upper, rtol=2e-6, atol=2e-6)


@given(st.floats(0.5, 5.0), st.floats(1e-4, 0.9), st.integers(10, 10_000), st.floats(1e-9, 1e-2))
@settings(max_examples=15, deadline=None)
def test_log_delta_at_epsilon_is_delta(sigma, q, steps, delta):
    loss = training(sigma, q, float(steps))
    epsilon = float(loss.epsilon(delta))
    if epsilon > 0:
        found = evaluate.log_delta(loss.terms, jnp.asarray([epsilon]), loss.both)
        assert found.lower[0] <= np.log(delta) * (1 - 1e-9)
        rough = evaluate.log_delta(loss.terms, jnp.asarray([epsilon * (1 - 1e-3)]), loss.both)
        assert rough.upper[0] >= np.log(delta)


def test_equal_phases_are_one():
    whole = training(1.1, 0.01, 3000.0)
    parts = training(1.1, 0.01, 1000.0) + training(1.1 * (1 + 1e-12), 0.01, 2000.0)
    np.testing.assert_allclose(parts.epsilon(1e-6), whole.epsilon(1e-6), rtol=2e-6)


def test_a_release_that_samples_all_is_a_gaussian():
    noise = dp.privacy_loss(dp.Mechanism(dp.Gaussian(5.0), 1.0))
    beside = training(1.0, 0.01, 500.0) + 7 * noise
    whole = training(1.0, 0.01, 500.0) + training(5.0, 1.0, 7.0)
    np.testing.assert_allclose(beside.epsilon(1e-6), whole.epsilon(1e-6), rtol=2e-6)
    assert beside.epsilon(1e-6) > training(1.0, 0.01, 500.0).epsilon(1e-6)


def test_far_away_nothing_is_claimed_below():
    """log delta is far below what doubles hold."""
    loss = training(100.0, 0.01, 1000.0)
    found = evaluate.log_delta(loss.terms, jnp.ones(1), loss.both)
    assert found.lower[0] <= found.upper[0] < -1e4


def test_bad_lanes_are_unknown_and_leave_others_alone():
    @jax.jit
    def ask(sigma):
        return training(sigma, 0.01, 1000.0).epsilon(1e-6)

    found = np.asarray(ask(jnp.asarray([1.0, jnp.nan, 2.0])))
    assert np.isnan(found[1])
    np.testing.assert_allclose(
        found[[0, 2]], ask(jnp.asarray([1.0, 1.5, 2.0]))[jnp.asarray([0, 2])]
    )


@pytest.mark.long
def test_derivatives_forward_reverse_and_by_differences():
    def ask(x):
        return training(x[0], x[1], 1000.0).epsilon(x[2])

    at = jnp.asarray([1.1, 0.01, 1e-6])
    forward, reverse = jax.jacfwd(ask)(at), jax.grad(ask)(at)
    steps = 1e-4 * at
    for i in range(3):
        move = jnp.zeros(3).at[i].set(steps[i])
        difference = (ask(at + move) - ask(at - move)) / (2 * steps[i])
        np.testing.assert_allclose(forward[i], difference, rtol=2e-6)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)


def test_single_releases_beside_many_are_calibrated():
    """One release is asked of its profile, so that the kernel sees a part of the lanes."""
    counts = jnp.array([1.0, 1000.0, 1.0, 50.0])
    least = dp.calibrate(lambda scale: training(scale, 0.01, counts), (1.0, 1e-6))
    alone = [
        float(dp.calibrate(lambda scale, n=n: training(scale, 0.01, n), (1.0, 1e-6)))
        for n in (1.0, 1000.0)
    ]
    np.testing.assert_allclose(least[:2], alone, rtol=2e-6)
    assert least[0] == least[2] < least[3] < least[1]


@np.errstate(all="ignore")  # as around a kernel
def test_what_no_node_stands_for_is_taken_off_delta(monkeypatch):
    """Whether it is counted as it is or tilted, Chernoff's epsilon grows by it."""
    unknown = np.full(1, np.nan)
    releases = releases_of(training(np.ones(1), 0.01, 1000.0, "remove").terms)[0]
    batch = jax.tree.map(np.transpose, releases)
    shares = {"none": (0.0, 0.0), "plain": (0.4, 0.0), "tilted": (0.0, 0.4)}
    found = {}
    for name, share in shares.items():
        lost = tuple(np.full(1, x) for x in share)
        monkeypatch.setattr(errors, "lost", lambda *_, lost=lost: lost)
        # No sum serves: Chernoff's bound is left.
        monkeypatch.setattr(errors, "height_of", lambda *_: np.full((1, 1), np.nan))
        answer = curve.epsilon_bounds(engine.LONG, batch, np.full(1, 1e-6), unknown, 1)
        found[name] = float(answer.upper[0])
    assert found["none"] < found["plain"]
    assert found["none"] < found["tilted"]


SCHEMES = {
    "truncated": {"sampling": dp.sampling.TruncatedPoisson(0.01, 112, 10_000)},
    "group": {"sampling": dp.sampling.Poisson(0.004), "group_size": 3},
    "fixed": {"sampling": dp.sampling.WithoutReplacement(40, 10_000), "group_size": 2},
    "large_group": {"sampling": dp.sampling.Poisson(0.002), "group_size": 32},
}
# Share of lanes that are bracketed within 1e-6.
NEAR = {"truncated": 0.8, "group": 0.9, "fixed": 0.8, "large_group": 0.5}


def quick(chosen):
    """The schemes, all but one of them long."""
    return [pytest.param(x, marks=() if x == chosen else pytest.mark.long) for x in SCHEMES]


def scheme_training(name, sigma, steps, relation="add_remove"):
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, relation=relation, **SCHEMES[name])
    return steps * dp.privacy_loss(mechanism)


@pytest.mark.parametrize("name", quick("group"))
def test_schemes_are_in_the_brackets_of_the_contour(name):
    """Both engines bracket one value, in both directions; of mixtures the nodes are other ones."""
    rng = np.random.default_rng(7)
    sigma, steps = rng.uniform(0.6, 4.0, 16), np.ceil(10 ** rng.uniform(0, 4, 16))
    delta = 10 ** rng.uniform(-10, -4, 16)
    widths = []
    for relation in ("remove", "add"):
        terms = scheme_training(name, sigma, steps, relation).terms
        stages = engine.steps("epsilon", 1e-6)
        here = cascade.answered(stages, inverse.width, (terms, delta), 1)
        there = engines.epsilon_by_contour(terms, delta)
        assert np.all(here.lower <= there.upper * (1 + 1e-12))
        assert np.all(there.lower <= here.upper * (1 + 1e-12))
        widths.append(width(here))
    assert np.mean(np.concatenate(widths) < 1e-6) >= NEAR[name]


def test_chernoff_says_nothing_by_nodes_that_are_too_far_apart():
    """Of large groups and tiny noise two sums may miss the same peak."""
    for scale, is_known in ((1.0, True), (0.02, False)):
        terms = training(np.full(1, scale), 0.01, 10.0, "add").terms
        releases = jax.tree.map(np.transpose, releases_of(terms)[0])
        places = law.placed(engine.BULK, releases, np.full(1, -10.0))
        nodes = law.on_nodes(engine.BULK, releases, *places)
        bounds = cumulant.chernoff(releases, nodes, np.ones((1, 1)))
        assert np.isfinite(bounds.log[0, 0]) == is_known


@pytest.mark.parametrize("name", quick("truncated"))
def test_slopes_of_schemes(name):
    """In the noise and the number of steps, within a trace, mapped: those of differences."""

    def epsilon(sigma, steps):
        return scheme_training(name, sigma, steps).epsilon(1e-6)

    at = 1.3, 700.0
    slopes = jax.jit(jax.vmap(jax.grad(epsilon, (0, 1))))(*(jnp.full(3, x) for x in at))
    for i, step in ((0, 1e-3), (1, 1.0)):
        moved = [[x + side * step * (j == i) for j, x in enumerate(at)] for side in (-2, -1, 1, 2)]
        each = np.asarray(epsilon(*map(np.asarray, zip(*moved, strict=True))))
        differences = (each[0] - 8 * each[1] + 8 * each[2] - each[3]) / (12 * step)
        np.testing.assert_allclose(slopes[i], differences, rtol=2e-5 if i == 0 else 1e-3)


def test_of_a_coin_that_decides_the_direction_nothing_is_known():
    """But that some sample must hold the record; the contour is asked."""
    whole = Additive(dp.Gaussian(1.0), jnp.ones(()))
    pairs = [Poisson(whole, 0.01, added) for added in (0.0, 1.0)]
    loss = 100 * dp.privacy_loss(PublicCoin(pairs, [jnp.log(0.5), jnp.log(0.5)]))
    terms = jax.tree.map(lambda x: x[None], loss.terms)
    unknown = LogBounds(np.full(1, -np.inf), np.full(1, np.inf))
    with np.errstate(invalid="ignore"):
        bounds = engine.log_bounds(engine.LONG, terms, np.full(1, 0.1), unknown, 1)
    assert np.isneginf(bounds.lower[0])
    np.testing.assert_allclose(bounds.upper[0], np.log(1 - 0.99**100), rtol=1e-12)


def test_shares_that_miss_one_are_refused():
    whole = Additive(dp.Gaussian(1.0), jnp.ones(()))
    pairs = [Poisson(whole, 0.01, 0.0), Poisson(whole, 0.02, 0.0)]
    loss = 100 * dp.privacy_loss(PublicCoin(pairs, [jnp.log(0.25), jnp.log(0.25)]))
    with pytest.raises(ValueError, match="add up"):
        loss.log_delta(0.1)
