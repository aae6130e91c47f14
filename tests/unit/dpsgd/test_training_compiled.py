"""What a training compiles, and what of it is kept: programs, neither records nor keys."""

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp import dpsgd
from jaxdp.dpsgd import training_plan
from jaxdp.dpsgd.programs import Traced, shared_jit
from jaxdp.solvers import lattice

RECORDS = 12
DATA = np.random.default_rng(0).normal(size=(RECORDS, 2))
FIRST = {"w": jnp.zeros(2)}
KEY = jax.random.key(3)


@pytest.fixture(scope="module", name="plan")
def _plan():
    known = {"clip": 1.0, "sampling_prob": 1.0, "steps": 3, "dataset_size": RECORDS}
    made = dpsgd.plan((1.0, 1e-5), FIRST, release="float", **known)
    return dataclasses.replace(made, sampling=dp.sampling.Poisson(0.5))


class Distance:
    """A loss without a hash."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, params, x):
        return self.factor * jnp.sum((params["w"] - x) ** 2)


def train(plan, factor=1.0, rate=0.1, key=None, data=DATA, loss=None):
    loss = loss or Distance(factor)
    return dpsgd.train(loss, FIRST, data, plan, optax.sgd(rate), key, part=8)


@pytest.mark.parametrize(
    "sampling",
    [
        dp.sampling.Poisson(0.5),
        dp.sampling.TruncatedPoisson(0.5, 6, RECORDS),
        dp.sampling.WithoutReplacement(6, RECORDS),
        dp.sampling.RandomAllocation(3),
    ],
    ids=["poisson", "cut", "fixed", "allocated"],
)
def test_a_second_training_without_a_key_compiles_nothing(plan, sampling, monkeypatch):
    """Nor does one of another number of steps, or with other noise; noise is drawn on the host."""
    monkeypatch.setattr(lattice, "_drawn", None)
    plan = dataclasses.replace(plan, sampling=sampling)
    train(plan)
    scaled = dataclasses.replace(plan, scales=2.0 * plan.scales)
    longer = dataclasses.replace(plan, steps=6)
    with counted() as compiled:
        train(plan)
        train(plan, data=DATA + 1.0)
        train(scaled)
        train(longer)
    assert compiled == []


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_plan_compiles_nothing_and_begins_near_its_noise(noise, monkeypatch):
    """Its arithmetic was JAX's, and its search began in the middle of 1e-2 to 1e7."""
    tried, loss = [], dpsgd.Plan._loss

    def watched(plan, noise_multiplier):
        if isinstance(noise_multiplier, np.ndarray):
            tried.append(float(noise_multiplier))
        return loss(plan, noise_multiplier)

    monkeypatch.setattr(dpsgd.Plan, "_loss", watched)
    params = {f"layer {i}": {"w": np.zeros(2 + i)} for i in range(13)}
    known = {"sampling_prob": 0.1, "steps": 20, "dataset_size": 100}
    with counted() as compiled:
        dpsgd.plan((1.0, 1e-5), params, clip=1.0, noise=noise, **known)
    assert compiled == []
    searched = [x for x in tried if 1e-2 < x < 1e7]  # without the ends
    assert len(searched) < 8
    assert max(searched) < 2.0 * min(searched)


@pytest.mark.parametrize("budget", [(np.inf, 1e-5), (np.inf, 0.0), (1.0, 1.0)])
def test_a_budget_that_needs_no_noise_is_not_searched_for(budget, monkeypatch):
    """An infinite epsilon took 7 s, a delta of 1 25."""
    monkeypatch.setattr(training_plan, "calibrate_from", None)
    known = {"sampling_prob": 0.1, "steps": 20, "dataset_size": 100}
    made = dpsgd.plan(budget, {"w": np.zeros(2)}, clip=1.0, **known)
    assert made.noise_multiplier == 0.01


def test_what_a_training_reads_is_what_it_runs_with(plan):
    """Programs are shared by what they compute, not by which objects compute it."""
    loss, first = Distance(1.0), train(plan, key=KEY)
    np.testing.assert_array_equal(train(plan, key=KEY, loss=loss)["w"], first["w"])
    loss.factor = 0.01
    changed = train(plan, key=KEY, loss=loss)["w"]
    assert np.any(changed != first["w"])
    np.testing.assert_array_equal(changed, train(plan, 0.01, key=KEY)["w"])
    assert np.any(train(plan, rate=0.2, key=KEY)["w"] != first["w"])


def test_a_loss_with_arrays_of_its_own(plan):
    """They are arguments of the program, and go with the loss."""

    def run(centre):
        def loss(params, x):
            return jnp.sum((params["w"] - x - centre) ** 2)

        return train(plan, key=KEY, loss=loss)["w"]

    centre = jnp.array([5.0, 5.0])
    seen, near = weakref.ref(centre), run(centre)
    with counted() as compiled:
        far = run(jnp.array([-5.0, -5.0]))
    assert compiled == []
    assert np.all(near > far)
    del centre
    gc.collect()
    assert seen() is None


def test_programs_that_call_python_back_are_not_shared():
    def adds(number):
        def add(x):
            return np.asarray(x + number)

        return shared_jit(lambda x: jax.pure_callback(add, jax.ShapeDtypeStruct((), x.dtype), x))

    assert [float(adds(number)(jnp.ones(()))) for number in (1.0, 2.0)] == [2.0, 3.0]
    assert not Traced.of(lambda x: jax.debug.callback(print, x), 1.0).is_text_alone


@pytest.mark.float64
def test_types_that_change_between_calls_are_traced_again():
    double = shared_jit(lambda x: 2 * x)
    assert double(jnp.ones(2)).dtype == jnp.float64
    assert double(jnp.ones(3, jnp.float32)).shape == (3,)
    assert double({"a": 1}["a"]) == 2


def batches(turn):
    for scheme in (
        dp.sampling.Poisson(0.2),
        dp.sampling.TruncatedPoisson(0.2, 16, 50),
        dp.sampling.WithoutReplacement(16, 50),
        dp.sampling.RandomAllocation(7),
        dp.sampling.BallsInBins(7, 2),
    ):
        for step in range(3):
            dp.sampling.batch(scheme, dp.secure_key(), 50, 16, step=step)


def step_by_hand(turn):
    """By a plan of other steps and relation, with another key."""
    known = {"sampling_prob": 0.1, "dataset_size": 100, "relation": ("add", "remove")[turn]}
    made = dpsgd.plan(None, FIRST, clip=1.0, noise_multiplier=3.0, steps=3 + turn, **known)
    clipping, noising = dpsgd.clip_groups(made), dpsgd.add_noise(made, dp.secure_key())
    total, _ = clipping.update({"w": jnp.asarray(DATA + turn)}, clipping.init(None))
    noising.update(total, noising.init(FIRST))


@pytest.mark.parametrize("call", [batches, step_by_hand])
def test_loops_of_ones_own_compile_once(call):
    """Outside of `jit`, too: batches, sums and noise are programs that are kept."""
    call(0)
    with counted() as compiled:
        call(1)
    assert compiled == []


def test_no_training_within_a_trace(plan):
    """One key would give all members of a batch the same samples and the same noise."""
    batch = jnp.stack([DATA, DATA + 1.0])
    for key in (KEY, None):
        with pytest.raises(ValueError, match="train must be called outside of jit, vmap"):
            jax.vmap(lambda data, key=key: train(plan, key=key, data=data))(batch)
    with pytest.raises(ValueError, match="train must be called outside of jit, vmap"):
        jax.jit(lambda: train(plan, key=KEY))()
