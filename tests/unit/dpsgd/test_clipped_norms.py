"""Norms of clipped gradients in rational numbers: none is above its threshold, by no rounding."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp.dpsgd.clipping import clipped_sums

pytestmark = pytest.mark.float64

# Bits below a threshold of the multiples that clipped entries are. derived: as `clip_groups` says
BITS = 30


def plan_of(params, clip, **known):
    schedule = {"sampling_prob": 0.1, "steps": 2, "dataset_size": 100} | known
    return dpsgd.plan(None, params, noise_multiplier=1.0, clip=clip, **schedule)


def square_norms(tree, members):
    """Squares of the norms of groups of leaves, without rounding."""
    squares = dict.fromkeys(members, Fraction(0))
    for leaf, group in zip(jax.tree.leaves(tree), members, strict=True):
        squares[group] += sum(Fraction(float(x)) ** 2 for x in np.ravel(leaf))
    return squares


def clipped(plan, gradient):
    """What one example adds to the sum."""
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], gradient)
    return dpsgd.clip_groups(plan).update(batch, None)[0]


def require_within(plan, gradient):
    for group, square in square_norms(clipped(plan, gradient), plan.members).items():
        assert square <= Fraction(float(plan.clips[group])) ** 2


@pytest.mark.parametrize(
    ("clip", "dtype"),
    [(0.3, np.float32), (1.0, np.float64), (7.7e-9, np.float64), (3e20, np.float32)],
)
def test_random_gradients(clip, dtype):
    """Entries that are rounded to multiples, not truncated, exceed it in every second draw."""
    rng = np.random.default_rng(0)
    params = {"first": {"w": np.zeros((5, 4)), "b": np.zeros(4)}, "second": {"w": np.zeros(7)}}
    plan = plan_of(params, clip)
    for stretch, _ in itertools.product((1.0, 1.0 + 1e-15, 1.5, 1e4, 1e15), range(4)):
        drawn = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params)
        size = math.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(drawn)))
        factor = clip * stretch / size
        require_within(plan, jax.tree.map(lambda x, f=factor: (f * x).astype(dtype), drawn))


def multiples_beyond(rng, size):
    """Whole numbers whose squares add up to a little more than 4^BITS."""
    rest, numbers = 4**BITS, []
    for place in range(size - 1):
        share = rng.uniform(0.1, 0.9) if place < size - 5 else 1.0
        numbers.append(math.isqrt(int(rest * share) if share < 1.0 else rest))
        rest -= numbers[-1] ** 2
    return [*numbers, math.isqrt(rest) + 1]


def test_gradients_that_are_multiples_already():
    """Truncation moves none of them: the factor alone must be small enough."""
    rng = np.random.default_rng(1)
    plan = plan_of(np.zeros(12), 1.0)
    tight = 0
    for _ in range(30):
        gradient = np.array(multiples_beyond(rng, 12)) * 2.0**-BITS
        exact = square_norms(gradient, (0,))[0]
        assert exact > 1
        tight += exact < 1 + Fraction(1, 2**53)
        require_within(plan, gradient)
    # In float64 these norms are 1.
    assert tight > 20


def test_a_group_of_many_parameters():
    """Its sum of squares is rounded as many times."""
    rng = np.random.default_rng(2)
    plan = plan_of(np.zeros(20_000), 0.7)
    for dtype in (np.float32, np.float64):
        require_within(plan, rng.standard_cauchy(20_000).astype(dtype))
        require_within(plan, np.full(20_000, 0.1, dtype=dtype))


@pytest.mark.parametrize(("clip", "sign"), [(1.0, -1.0), (math.nextafter(2.0, 0.0), 1.0)])
def test_entries_as_large_as_their_threshold(clip, sign):
    """Their whole numbers of units reach 2^31, where int32 ends."""
    plan = plan_of(np.zeros(1), clip)
    (sums,) = clipped_sums(plan, [jnp.full((5, 1), 1e9 * sign)])
    np.testing.assert_allclose(sums, 5.0 * sign * clip, rtol=2.0 ** (1 - BITS))
    assert abs(Fraction(float(sums[0]))) <= 5 * Fraction(clip)


def test_sums_are_the_same_bits_in_any_order_and_in_parts():
    rng = np.random.default_rng(4)
    plan = plan_of(np.zeros((6, 3)), 0.7)
    batch = (rng.standard_cauchy((23, 6, 3)) * 0.2).astype(np.float32)
    whole = dpsgd.clip_groups(plan).update(jnp.asarray(batch), None)[0]
    alone = [np.asarray(clipped(plan, row)) for row in batch]
    for order in (np.arange(23)[::-1], rng.permutation(23)):
        moved = dpsgd.clip_groups(plan).update(jnp.asarray(batch[order]), None)[0]
        np.testing.assert_array_equal(moved, whole)
        np.testing.assert_array_equal(sum(alone[i] for i in order), whole)


def test_sums_write_no_gradients_in_float64():
    """They took twice the memory of the gradients; an example at a time is written."""
    shape = (200, 50)
    plan = plan_of(np.zeros(shape), 1.0)
    batch = jax.ShapeDtypeStruct((64, *shape), jnp.float32)
    found = jax.jit(clipped_sums).lower(plan, [batch]).compile().memory_analysis()
    assert found.temp_size_in_bytes < 64 * math.prod(shape) * 4 / 4


def test_sums_of_a_training():
    """Each record alone: the parameters of one step without noise are its clipped gradient."""
    rng = np.random.default_rng(3)
    params = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
    plan = plan_of(params, 0.3, groups="leaf", steps=1, sampling_prob=1.0, dataset_size=1)
    plan = dp.dpsgd.Plan(**(vars(plan) | {"scales": jnp.zeros_like(plan.scales)}))

    def loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) * jnp.array([3.0, -5.0]))

    for row in rng.normal(size=(4, 1, 3)) * 10.0:
        # Steps against the mean: the parameters become the sum, negated.
        found = dpsgd.train(loss, params, row, plan, optax.sgd(1.0), jax.random.key(0))
        squares = square_norms(found, plan.members)
        assert all(0 < squares[g] <= Fraction(float(plan.clips[g])) ** 2 for g in squares)
