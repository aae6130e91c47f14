"""DP-SGD: clipping by groups, noise, sampling and accounting."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp import dpsgd

KEY = jax.random.key(0)
PARAMS = {
    "first": {"weight": jnp.zeros((4, 3)), "bias": jnp.zeros(3)},
    "second": {"weight": jnp.zeros((3, 2)), "bias": jnp.zeros(2)},
}


KNOWN = {"clip": 1.0, "sampling_prob": 0.01, "steps": 1000, "dataset_size": 5000}


def make_plan(budget=None, **other):
    noise = 1.3 if budget is None else None
    return dpsgd.plan(budget, PARAMS, noise_multiplier=noise, **(KNOWN | other))


def gradients(examples, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda p: jnp.asarray(rng.normal(size=(examples, *p.shape)).astype(dtype)), PARAMS
    )


def norms(tree):
    flat = [np.asarray(x, dtype=np.float64).ravel() for x in jax.tree.leaves(tree)]
    return float(np.linalg.norm(np.concatenate(flat)))


def test_groups_and_their_sizes():
    own = {"first": {"weight": "w", "bias": "b"}, "second": {"weight": "w", "bias": "b"}}
    for groups, members, sizes in (
        ("layer", (0, 0, 1, 1), (15, 8)),
        ("leaf", (0, 1, 2, 3), (3, 12, 2, 6)),
        ("all", (0, 0, 0, 0), (23,)),
        (own, (0, 1, 0, 1), (5, 18)),
    ):
        made = make_plan(groups=groups)
        assert (made.members, made.sizes) == (members, sizes)


@pytest.mark.float64
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_scales_cost_what_the_accountant_is_told(noise):
    for allocation in dpsgd.ALLOCATIONS:
        made = make_plan(allocation=allocation, clip=jnp.array([0.3, 2.0]), noise=noise)
        if noise == "gaussian":
            spent = jnp.sum((made.clips / made.scales) ** 2) ** 0.5
        else:
            spent = jnp.sum(np.sqrt([15.0, 8.0]) * made.clips / made.scales)
        np.testing.assert_allclose(spent, 1.0 / 1.3, rtol=1e-12)


@pytest.fixture(scope="module")
def one_group():
    """Of five parameters: no calibration, any threshold."""

    def plan_of(clip):
        ones = jnp.ones(1)
        bounds = jnp.array([clip])
        group = ((0,), (5,), ((5,),), ("float16",))
        return dpsgd.Plan(bounds, bounds, ones[0], ones[0], ones[0], *group, 1, "gaussian", "add")

    return plan_of


@pytest.mark.float64
@pytest.mark.parametrize("factor", [3.05e-8, 1e-7, 1e-3, 0.5])
def test_half_precision_gradients_keep_their_threshold(one_group, factor):
    """Below 6e-5 the factor is subnormal in float16: a product there was up to 1.99 thresholds."""
    gradient = jnp.zeros((1, 5), dtype=jnp.float16).at[0, 0].set(6e4)
    clip = 6e4 * factor
    total = dpsgd.clip_groups(one_group(clip)).update(gradient, None)[0]
    assert (1 - 1e-9) * clip < norms(total) <= clip


@pytest.mark.float64
@pytest.mark.parametrize("clip", [1e-285, 1e-200, 1e150])
def test_norms_far_from_one_neither_under_nor_overflow(one_group, clip):
    gradient = jnp.full((1, 5), 1e30 * clip)
    total = dpsgd.clip_groups(one_group(clip)).update(gradient, None)[0]
    np.testing.assert_allclose(np.asarray(total) / clip, 5**-0.5, rtol=1e-8)


def test_a_batch_has_an_axis_of_examples_and_one_only(one_group):
    """Without it each of the five entries passed as an example: the sum was five thresholds."""
    clip, noise = dpsgd.clip_groups(one_group(1.0)), dpsgd.add_noise(one_group(1.0), KEY)
    for shape in ((5,), (2, 6), (2, 5, 1), ()):
        with pytest.raises(ValueError, match="\\(examples, 5\\), a gradient an example, got"):
            clip.update(jnp.ones(shape), None)
    for shape in ((2, 5), (6,), ()):
        with pytest.raises(ValueError, match="shape \\(5,\\) of its parameter"):
            noise.update(jnp.ones(shape), noise.init(None))


def test_one_key_for_samples_and_noise_draws_no_bits_twice(one_group):
    state = dpsgd.add_noise(one_group(1.0), KEY).init(None)
    assert np.any(jax.random.key_data(state.key) != jax.random.key_data(KEY))
    taken = np.flatnonzero(jax.random.uniform(KEY, (300,)) < 0.5)
    indices, mask = dp.sampling.batch(dp.sampling.Poisson(0.5), KEY, 300, 300)
    assert not np.array_equal(indices[mask], taken)


def test_gradients_that_are_not_finite_count_as_nothing():
    made = make_plan()
    batch = gradients(3)
    batch["first"]["bias"] = batch["first"]["bias"].at[1, 0].set(jnp.nan).at[2, 1].set(jnp.inf)
    clip: Any = dpsgd.clip_groups(made).update
    total, _ = clip(batch, None)
    alone, _ = clip(jax.tree.map(lambda g: g[:1], batch), None)
    np.testing.assert_array_equal(total["first"]["weight"], alone["first"]["weight"])
    assert np.isfinite(norms(total))


def test_a_poisson_batch_is_never_cut():
    sizes, hits = [], np.zeros(300)
    for key in jax.random.split(KEY, 400):
        indices, mask = dp.sampling.batch(dp.sampling.Poisson(0.1), key, 300, 16)
        taken = indices[mask]
        assert np.unique(taken).size == taken.size
        sizes.append(taken.size)
        hits[taken] += 1
    # Binomial: 5 standard errors of the mean, 5.5 of the worst record of 300 (1 run in 1e5).
    assert abs(np.mean(sizes) - 30.0) < 5 * np.sqrt(27.0 / 400)
    assert np.abs(hits / 400 - 0.1).max() < 5.5 * np.sqrt(0.09 / 400)
    empty = dp.sampling.batch(dp.sampling.Poisson(0.0), KEY, 10, 4)
    assert empty[0].shape == (1, 4)
    assert not empty[1].any()
    assert dp.sampling.batch(dp.sampling.Poisson(1.0), KEY, 10, 4)[1].sum() == 10


def test_bad_input():
    for bad in (
        {"allocation": "best"},
        {"noise": "cauchy"},
        {"relation": "replace_one"},
        {"release": "exact"},
        {"groups": "none"},
        {"groups": {"first": 1}},
        {"clip": -1.0},
        {"clip": jnp.ones(3)},
        {"sampling_prob": 0.0},
        {"sampling_prob": 1.5},
        {"steps": 0},
        {"dataset_size": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make_plan(**bad)
    with pytest.raises(ValueError, match="params"):
        dpsgd.plan(dp.Budget(1.0, 1e-6), {}, clip=1.0, sampling_prob=0.1, steps=1, dataset_size=1)
    with pytest.raises(ValueError, match="budget cannot be met"):
        make_plan(dp.Budget(1.0, 0.0))
    with pytest.raises(ValueError, match="4 leaves"):
        dpsgd.clip_groups(make_plan()).update({"other": jnp.ones((2, 3))}, None)
