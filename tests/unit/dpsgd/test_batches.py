"""Batches of every scheme: what they hold, and an audit of one release that finds no more."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import jaxdp as dp
from jaxdp._core.random_key import seeded_key
from jaxdp.sampling.poisson import _mask
from jaxdp.sampling.truncated import _truncated
from jaxdp.sampling.without_replacement import _fixed

dpsgd, S = dp.dpsgd, dp.sampling
# Draws of an audit. chosen: a second each
DRAWS = 40_000
# Chance that an audit of a correct scheme fails.
FALSE_ALARM = 1e-6


@pytest.mark.float64
def test_truncated_batches_are_cut_uniformly():
    draw = jax.jit(jax.vmap(lambda k: _truncated(k, 0, jnp.array(0.5), 6, 2)))
    indices, mask = (np.asarray(x) for x in draw(jax.random.split(jax.random.key(0), 20_000)))
    assert indices.shape == (20_000, 2)
    kept = stats.binom.pmf(np.arange(7), 6, 0.5) @ np.minimum(np.arange(7), 2)
    assert mask.sum(axis=1).mean() == pytest.approx(kept, abs=0.02)
    counts = np.bincount(indices[mask], minlength=6) / 20_000
    np.testing.assert_allclose(counts, kept / 6, atol=0.02)
    assert np.all(indices[mask.all(axis=1)][:, 0] != indices[mask.all(axis=1)][:, 1])


@pytest.mark.float64
def test_numpy_draws_the_sample_of_the_program():
    """One step, then several together; and steps that were drawn before."""
    key = seeded_key(3)
    draw = S.Poisson(0.3).draw(key, 100)
    for step in (0, 1, 30, 2):
        mask = _mask(key, step, np.float64(0.3), 100)
        np.testing.assert_array_equal(draw(step)[0], np.flatnonzero(np.asarray(mask)))


def test_a_limit_above_the_records():
    indices, mask = S.batch(S.TruncatedPoisson(1.0, 5, 3), jax.random.key(1), 3, 5)
    assert sorted(indices[mask].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("scheme", [S.RandomAllocation(7), S.BallsInBins(7, 2)])
def test_the_batches_of_an_epoch_hold_every_record_once(scheme):
    parts = [S.batch(scheme, jax.random.key(0), 50, 4, step=step) for step in range(7)]
    assert sorted(i for indices, mask in parts for i in indices[mask].tolist()) == [*range(50)]
    assert all(indices.shape[1] == 4 for indices, _ in parts)
    again = S.batch(scheme, jax.random.key(0), 50, 4, step=8)
    is_same = np.array_equal(again[0][again[1]], parts[1][0][parts[1][1]])
    assert is_same == isinstance(scheme, S.BallsInBins)


def test_batches_of_a_training_are_those_of_its_steps():
    scheme, key = S.Poisson(0.5), jax.random.key(3)
    indices, mask = S.batch(scheme, key, 40, 40, step=2)
    np.testing.assert_array_equal(indices[mask], scheme.draw(key, 40)(2)[0])
    assert not np.array_equal(indices[mask], scheme.draw(key, 40)(1)[0])
    with pytest.raises(ValueError, match="size must be"):
        S.batch(scheme, key, 40, 0)


def drawn_with(scheme, records, key):
    """Indices and mask of one release under `jit`."""
    if isinstance(scheme, S.TruncatedPoisson):
        limit = int(scheme.batch_size_limit)
        return _truncated(key, 0, scheme.sampling_prob, records, limit)
    indices = _fixed(key, 0, records, int(scheme.batch_size))
    return indices, jnp.ones(indices.shape, bool)


@pytest.mark.float64
@pytest.mark.parametrize(
    "scheme", [S.TruncatedPoisson(0.4, 3, 8), S.WithoutReplacement(3, 8)], ids=["cut", "fixed"]
)
def test_an_audit_finds_nothing_above_the_claim(scheme):
    """Records of -1, and one of +1 or none; tests are half-lines of the noisy sum."""
    noise = 1.0

    def sums(records, values, key):
        def one(key):
            first, second = jax.random.split(key)
            indices, mask = drawn_with(scheme, records, first)
            total = jnp.sum(jnp.where(mask, values[indices], 0.0))
            return total + noise * jax.random.normal(second, dtype=jnp.float64)

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(key, DRAWS)))

    there = jnp.array([-1.0] * 7 + [1.0])
    with_record = sums(8, there, jax.random.key(0))
    without = sums(7, there[:7], jax.random.key(1))
    mechanism = dp.Mechanism(dp.Gaussian(noise), 1.0, sampling=scheme, relation="remove")
    assert_within(mechanism, with_record, without)


def assert_within(mechanism, with_record, without):
    cuts = np.linspace(-4.0, 4.0, 17)
    share = FALSE_ALARM / (3 * cuts.size)
    for epsilon in (0.1, 0.5, 1.0):
        claim = float(mechanism.delta(epsilon))
        p = np.array([(with_record > c).sum() for c in cuts])
        q = np.array([(without > c).sum() for c in cuts])
        low = stats.beta.ppf(share, p, DRAWS - p + 1)
        high = stats.beta.ppf(1 - share, q + 1, DRAWS - q)
        found = np.nanmax(low - np.exp(epsilon) * high)
        assert found <= claim, (epsilon, found, claim)
        # It is no empty audit: the test comes near.
        if epsilon == 0.1:
            assert np.max((p - np.exp(epsilon) * q) / DRAWS) > 0.5 * claim


def test_an_audit_of_random_allocation():
    """The largest of all steps' sums, of one record alone among four steps."""
    steps, rng = 4, np.random.default_rng(0)
    mechanism = dp.Mechanism(
        dp.Gaussian(1.0), 1.0, sampling=S.RandomAllocation(steps), relation="remove"
    )
    noise = rng.normal(size=(2, DRAWS, steps))
    draws = [S.RandomAllocation(steps).draw(k, 1) for k in jax.random.split(jax.random.key(2), 64)]
    joined = np.array([[draw(step)[1].sum() for step in range(steps)] for draw in draws])
    assert np.all(joined.sum(axis=1) == 1)
    moved = noise[0] + joined[rng.integers(0, 64, DRAWS)]
    assert_within(mechanism, moved.max(axis=1), noise[1].max(axis=1))


def quadratic(params, x):
    return jnp.sum((params["w"] - x) ** 2)


def test_training_runs_what_is_accounted():
    params, data, scheme = {"w": jnp.zeros(2)}, jnp.ones((100, 2)), S.WithoutReplacement(20, 100)
    plan = dpsgd.plan((8.0, 1e-5), params, clip=1.0, sampling=scheme, steps=10, dataset_size=100)
    assert float(plan.guarantee.epsilon(1e-5)) == pytest.approx(8.0, rel=1e-6)
    assert float(plan.expected_batch) == pytest.approx(20.0)
    trained = dpsgd.train(quadratic, params, data, plan, optax.sgd(0.1), jax.random.key(0), part=8)
    assert np.all(np.isfinite(trained["w"]))


def test_other_numbers_of_records_and_steps_are_refused():
    params = {"w": jnp.zeros(2)}
    with pytest.raises(ValueError, match="steps must be whole epochs"):
        dpsgd.plan(
            (1.0, 1e-5), params, clip=1.0, sampling=S.RandomAllocation(5), steps=7, dataset_size=10
        )
    with pytest.raises(ValueError, match="give either"):
        dpsgd.plan((1.0, 1e-5), params, clip=1.0, steps=7, dataset_size=10)
    with pytest.raises(ValueError, match="data must hold"):
        S.WithoutReplacement(2, 10).draw(jax.random.key(0), 8)
