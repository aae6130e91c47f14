"""Adaptive thresholds and correlated noise of DP-SGD: cost, covariance, memory, errors."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp._core.precision import opened
from jaxdp.dpsgd.clipping import clipped_sums
from jaxdp.dpsgd.correlated_noise import Memory, coefficients, released
from jaxdp.dpsgd.transformations import initial_noise, noised
from jaxdp.solvers.lattice import Added

KEY = jax.random.key(0)
PARAMS = {"a": jnp.zeros(3), "b": jnp.zeros((2, 2))}
SIZES = {"clip": 1.0, "dataset_size": 400, "batch_size": 100}


def make(noise_multiplier=1.0, steps=6, release="float", params=PARAMS, **named):
    known = {"noise_multiplier": noise_multiplier, "steps": steps, "release": release}
    return dpsgd.plan(None, params, **(SIZES | known | named))


@pytest.mark.parametrize(("noise", "allocation"), [("gaussian", "inid"), ("laplace", "spr")])
def test_the_count_is_a_part_of_the_noise_multiplier(noise, allocation):
    plan = make(1.3, clip_quantile=0.5, noise=noise, allocation=allocation, groups="leaf")
    scales, sizes = map(np.asarray, plan.drawn)
    assert tuple(sizes) == (3, 4, 2)
    if noise == "gaussian":
        moved = (np.asarray(plan.clips) / scales[:2]) ** 2
        spent, counts = moved.sum(), 2 * (0.5 / scales[2]) ** 2
        whole = 1.3**-2
    else:
        spent = (np.sqrt(sizes[:2]) * np.asarray(plan.clips) / scales[:2]).sum()
        counts, whole = 2 * 0.5 / scales[2], 1 / 1.3
    assert spent + counts == pytest.approx(whole, rel=1e-12)
    assert counts == pytest.approx(0.01 * whole, rel=1e-12)
    assert plan.noise_multiplier == 1.3
    # The draws of counts are draws as well.
    fewer, more = (make(clip_quantile=q, release="lattice").sampling_error for q in (None, 0.5))
    assert float(more / fewer) == pytest.approx(8 / 7)


@pytest.mark.float64
def test_an_example_moves_its_counts_by_a_half():
    """Half up to the threshold, less a half above; nothing without a gradient or a mask."""
    plan = make(clip_quantile=0.5, groups="leaf", clip=jnp.array([1.0, 2.0]))
    rows = jnp.array([0.0, 0.5, 1.0, 1.5, np.nan, np.inf, 7.0])
    gradients = [jnp.outer(rows, jnp.eye(3)[0]), jnp.zeros((7, 2, 2)).at[:, 1, 1].set(rows)]
    mask = jnp.arange(7) < 6
    *sums, counts = clipped_sums(plan, gradients, mask)
    np.testing.assert_array_equal(counts, [0.5, 1.5])
    assert len(sums) == 2
    assert len(clipped_sums(make(groups="leaf"), gradients, mask)) == 2


@pytest.mark.float64
def test_thresholds_follow_noisy_counts_alone():
    """The next threshold is a function of the count plus noise of its scale."""
    plan = make(2.0, clip_quantile=0.3, groups="all", release="lattice")
    sums = [np.zeros(3), np.zeros((2, 2)), np.array([10.0])]
    with opened():
        states = [initial_noise(plan, dp.secure_key()) for _ in range(500)]
        means, after = zip(
            *(noised(plan, sums, state, plan.steps) for state in states), strict=True
        )
        clips = np.array([state.clips[0] for state in after])
        now = plan.at(after[0].clips)
    noise = (-np.log(clips) / 0.2 + 0.3 - 0.5) * 100 - 10
    scale = float(plan.drawn[0][-1])
    assert scale == pytest.approx(10.0)
    assert abs(noise.mean()) < 4 * scale / 500**0.5
    assert noise.std() == pytest.approx(scale, rel=0.15)
    # The gradients of the same steps have noise of their own.
    assert abs(np.corrcoef(noise, [mean[0][0] for mean in means])[0, 1]) < 0.2
    # Scales follow thresholds, and do not fall behind.
    assert np.all(now.scales / now.clips >= plan.scales / plan.clips)
    np.testing.assert_allclose(now.scales / now.clips, plan.scales / plan.clips, rtol=1e-13)


def test_thresholds_end_at_the_quantile():
    far, seen = jnp.full(3, 100.0), []
    rows = 100.0 + np.linspace(1.0, 3.0, 400)[:, None] * np.array([1.0, 0.0, 0.0])
    plan = make(0.2, 80, params={"w": far}, clip=0.01, clip_quantile=0.75)

    def distance(params, x):
        return 0.5 * jnp.sum((params["w"] - x) ** 2)

    options = {"every": 80, "callback": lambda steps, params, clips: seen.append(clips)}
    dpsgd.train(distance, {"w": far}, rows, plan, optax.sgd(0.0), KEY, **options)
    assert seen[0][0] == pytest.approx(2.5, rel=0.1)


@pytest.mark.float64
def test_noise_between_steps_has_the_stated_covariance():
    bands, steps, params = 3, 6, {"w": jnp.zeros(20_000)}
    plan = make(2.0, steps, "lattice", params, clip=0.5, bands=bands)
    with opened():
        state, seen = initial_noise(plan, KEY), []
        for step in range(steps):
            (mean,), state = noised(plan, [jnp.full(20_000, float(step))], state, plan.steps)
            seen.append(np.asarray(mean, dtype=float) * 100 - step)
    column = np.array([1.0, 0.5, 0.375])
    matrix = sum(c * np.eye(steps, k=-i) for i, c in enumerate(column))
    inverse = np.linalg.inv(matrix)
    scale = 2.0 * 0.5 * np.linalg.norm(column)
    assert float(plan.scales[0]) == pytest.approx(scale, rel=1e-12)
    found, stated = np.cov(seen), scale**2 * inverse @ inverse.T
    assert np.abs(found - stated).max() < 5 * stated.max() / 20_000**0.5


@pytest.mark.float64
def test_weighted_sums_are_exact():
    """Sums of 2^19 gradients, in multiples of 2^-22: rounding would depend on other records."""
    rng, column = np.random.default_rng(0), coefficients(16)
    with opened():
        whole = rng.integers(-(2**41), 2**41, (16, 50))
        sums = jnp.asarray(whole * 2.0**-22)
        memory = Memory(sums[1:], jnp.zeros((15, 50)))
        mixed, _ = released(column, sums[0], Added(jnp.zeros(50), jnp.zeros(())), memory)
    exact = sum(
        Fraction(c) * (x.astype(object) * Fraction(1, 2**22))
        for c, x in zip(column, whole, strict=True)
    )
    assert [Fraction(float(x)) for x in mixed] == list(exact)
    # Entries of gradients are multiples of that.
    plan = make(bands=2)
    total = clipped_sums(plan, [jnp.full((1, 3), 0.1), jnp.full((1, 2, 2), 0.1)])[0]
    assert np.all(np.asarray(total) * 2.0**22 % 1 == 0)
    with pytest.raises(ValueError, match="batch_size must be at most"):
        make(bands=2, dataset_size=10**8, batch_size=10**7)


def test_no_record_is_in_two_batches_within_the_bands():
    draw = dp.sampling.Poisson(0.9, 4).draw(KEY, 2000)
    batches = [set(draw(step)[0]) for step in range(9)]
    for first, second in itertools.combinations(range(9), 2):
        assert second - first >= 4 or not batches[first] & batches[second]
    assert len(set().union(*batches[:4])) == pytest.approx(1800, abs=60)
    assert all(len(batch) == pytest.approx(450, abs=90) for batch in batches)
    assert 300 < len(batches[0] & batches[4]) < 480


def test_bands_cost_one_sampled_step_a_cycle():
    plan = make(1.5, steps=21, bands=2)
    alone = dpsgd.epsilon(1.5, 1e-6, sampling_prob=0.5, steps=11)
    assert float(plan.guarantee.exact.epsilon(1e-6)) == float(alone)
    assert float(plan.expected_batch) == 100.0
    assert "correlated noise multiplier 1.5, where each record draws one of 2" in str(
        plan.statement()
    )
    every = make(1.5, steps=8, bands=4)
    strategy = sum(c * np.eye(8, k=-i) for i, c in enumerate(every.column))
    matrix = dp.GDP.of_matrix(strategy / every.column_norm, 1.5, min_sep=4, participations=2)
    found = float(every.guarantee.exact.epsilon(1e-6))
    assert found == pytest.approx(float(matrix.epsilon(1e-6)), rel=1e-9)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"bands": 5}, "bands must be at most 1 / sampling_prob"),
        ({"bands": 0}, "bands must be a positive integer"),
        ({"bands": 2, "noise": "laplace"}, "bands above 1 require noise='gaussian'"),
        ({"bands": 2, "group_size": 2}, "bands above 1 require .* group_size=1"),
        ({"bands": 2, "sampling": "without_replacement"}, "require sampling='poisson'"),
        ({"bands": 2, "clip_quantile": 0.5}, "bands must be 1 with clip_quantile"),
        ({"clip_quantile": 1.0}, "clip_quantile must be a number in"),
    ],
)
def test_what_is_not_accounted_for_is_refused(named, words):
    with pytest.raises(ValueError, match=words):
        make(**named)


@pytest.mark.parametrize("named", [{"clip_quantile": 0.5}, {"bands": 2}])
def test_own_loops_are_refused(named):
    for transformation in (dpsgd.clip_groups, lambda plan: dpsgd.add_noise(plan, KEY)):
        with pytest.raises(ValueError, match="plan must be without clip_quantile and bands"):
            transformation(make(**named))


def test_records_of_one_user_may_not_take_turns():
    with pytest.raises(ValueError, match="group_size must be 1 where records take turns"):
        dpsgd.epsilon(1.5, 1e-6, sampling=dp.sampling.Poisson(1.0, 8), steps=64, group_size=2)
