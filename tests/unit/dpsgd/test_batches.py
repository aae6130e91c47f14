"""Batches of every scheme: what they hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp
from jaxdp._core.random_key import seeded_key
from jaxdp.sampling.poisson import _mask
from jaxdp.sampling.truncated import _truncated
from jaxdp.sampling.without_replacement import _fixed

S = dp.sampling


def cut(key):
    return _truncated(key, 0, jnp.array(0.5), 6, 2)


def fixed(key):
    return _fixed(key, 0, 6, 2), jnp.ones(2, bool)


@pytest.mark.float64
@pytest.mark.parametrize(
    ("draw", "kept"),
    [(cut, stats.binom.pmf(np.arange(7), 6, 0.5) @ np.minimum(np.arange(7), 2)), (fixed, 2.0)],
)
def test_batches_of_a_size_are_cut_uniformly(draw, kept):
    keys = jax.random.split(jax.random.key(0), 20_000)
    indices, mask = (np.asarray(x) for x in jax.jit(jax.vmap(draw))(keys))
    assert indices.shape == (20_000, 2)
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


def test_another_number_of_records_is_refused():
    with pytest.raises(ValueError, match="data must hold"):
        S.WithoutReplacement(2, 10).draw(jax.random.key(0), 8)
