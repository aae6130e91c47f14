"""Compositions: against closed forms, high-precision values, and each other."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp

pytestmark = pytest.mark.float64


def loss_of(noise, shift=1.0):
    return dp.privacy_loss(dp.Mechanism(noise, shift))


def test_gaussians_compose_to_a_gaussian():
    """Any counts and scales: epsilons from -50 to 1e4, up to 1e9 releases."""
    scales = jnp.array([2.0, 3.0, 1.5])
    together = loss_of(dp.Gaussian(scales)).sum()
    mu = float(np.sqrt(np.sum(1 / np.asarray(scales) ** 2)))
    epsilon = jnp.array([-50.0, -3.0, -0.1, 0.0, 1e-3, 0.1, 1.0, 5.0, 50.0, 1e4])
    check_gaussian(together, epsilon, mu)
    for count in (2.0, 1e3, 1e9):
        check_gaussian(count * loss_of(dp.Gaussian(np.sqrt(count))), epsilon, 1.0)


def check_gaussian(loss, epsilon, mu):
    """The exact value lies between log delta and what it may be less."""
    value, error = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    exact = np.asarray(dp.GDP(mu).log_delta(epsilon))
    rounding, size = 4e-15 * abs(exact), np.maximum(1.0, abs(exact))
    assert np.all(value >= exact - rounding)
    assert np.all(value <= exact + 1e-10 * size)
    assert np.all(value - error <= exact + rounding)
    assert np.all(error < 1e-8 * np.maximum(1.0, size / 1e3)), error


def test_a_warm_question_runs_little_python():
    """Arguments are checked once; the rest are the kernel's own operations."""
    loss, calls = dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0)), []

    def profile(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        calls.append(event == "call" and name.partition(".")[0] == "jaxdp")

    for each in (None, profile, None):
        sys.setprofile(each)
        loss.log_delta(1.0)
    assert 0 < sum(calls) < 600, sum(calls)


def test_a_sum_is_a_repetition():
    stacked = loss_of(dp.Gaussian(jnp.full((3, 5), 4.0))).sum(axis=0).sum()
    many = 15 * loss_of(dp.Gaussian(4.0))
    np.testing.assert_allclose(stacked.log_delta(1.0), many.log_delta(1.0), rtol=1e-12)
    np.testing.assert_allclose(stacked.renyi(3.5), many.renyi(3.5), rtol=1e-13)


def test_three_laplaces_are_below_one_of_all():
    """Of scale 1 at once, and at a sensitivity of 3."""
    exact = 3 * loss_of(dp.Laplace(1.0))
    for epsilon in (0.3, 1.0, 2.0):
        value = exact.log_delta(epsilon)
        np.testing.assert_allclose(loss_of(dp.Laplace(jnp.ones(3))).sum().log_delta(epsilon), value)
        assert value < dp.Laplace(1.0).log_delta(3.0, epsilon)


def test_beyond_the_largest_loss():
    ten = 10 * loss_of(dp.Laplace(2.0))
    assert ten.delta(5.1) == 0
    assert ten.delta(4.999) > 0
    assert loss_of(dp.Gaussian(1.0)).epsilon(0.0) == np.inf
    one = loss_of(dp.Laplace(2.0))
    assert one.log_delta(0.5) == -np.inf
    assert one.log_delta_error(0.5) == 0.0
    assert np.all(one.log_delta_error(np.array([-2.0, 0.3])) <= 1e-11)


@settings(deadline=None, max_examples=4)
@given(
    st.floats(0.3, 30.0),
    st.integers(2, 400),
    st.floats(-200.0, -1.0),
)
def test_epsilon_is_on_the_safe_side(scale, count, log_delta):
    total = float(count) * loss_of(dp.Laplace(scale * np.sqrt(count)))
    target = float(np.exp(log_delta))
    epsilon = float(total.epsilon(target))
    # Brackets on two grids, each 1e-8 of log delta wide, but right at the end of the losses.
    error = max(float(total.log_delta_error(epsilon)), 1e-6)
    assert float(total.log_delta(epsilon)) <= log_delta + error + 1e-8 * abs(log_delta)
    if epsilon > 0:
        assert total.delta(epsilon * (1 - 1e-6)) > target


@pytest.mark.long
def test_monotone():
    """In the count, in epsilon and in the scale: one batch."""
    rng = np.random.default_rng(0)
    scale, epsilon = rng.uniform(0.5, 20.0, 15), rng.uniform(-3.0, 9.0, 15)
    count = rng.integers(1, 300, 15).astype(float)
    moved = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.01]])[
        ..., None
    ]
    loss = (count + moved[:, 0]) * loss_of(dp.Laplace(scale * (1.0 + moved[:, 2])))
    here, more, later, wider = np.asarray(loss.log_delta(epsilon + moved[:, 1]))
    slack = np.where(here > -np.inf, 1e-4, 0.0)
    assert np.all(more >= here - slack)
    assert np.all(later <= here + slack)
    assert np.all(wider <= here + slack)


def test_batches_are_worked_off_in_chunks():
    scale, epsilon = jnp.linspace(3.0, 9.0, 29)[:, None], jnp.linspace(-1.0, 6.0, 31)
    total = 20 * loss_of(dp.Gaussian(scale))
    assert total.log_delta(epsilon).shape == (29, 31)
    check_gaussian(total, epsilon, np.sqrt(20) / scale)


def test_traced_counts_and_bad_input():
    total = jax.jit(lambda n: (n * loss_of(dp.Gaussian(3.0))).log_delta(1.0))
    np.testing.assert_allclose(total(9.0), dp.Gaussian(1.0).log_delta(1.0, 1.0), rtol=1e-9)
    assert not total(2.5) <= 0
    with pytest.raises(ValueError, match="count must be whole"):
        2.5 * loss_of(dp.Gaussian(1.0))
    for count in (-1, np.inf):
        with pytest.raises(ValueError, match=r"count must lie in \[0, 1.79769e\+308\]"):
            count * loss_of(dp.Gaussian(1.0))
    with pytest.raises(TypeError):
        loss_of(dp.Gaussian(1.0)) + 1.0
    with pytest.raises(ValueError, match="axis must be one of the batch"):
        loss_of(dp.Gaussian(1.0)).sum()


@pytest.mark.long
@pytest.mark.parametrize("weak", [1e-9, 1e-4])
def test_atoms_that_are_not_split_still_count(weak):
    """|phi| comes back up at pi / r: stopping before it would claim too little.

    Beside a Gaussian so wide that it hides no atom no sum settles: the grid bounds the error.
    """
    epsilon = jnp.array([0.0, 0.05, 0.2, 0.5, 1.0])
    laplace = loss_of(dp.Laplace(10.0))
    alone = (20 * laplace).log_delta(epsilon)
    beside = 20 * laplace + loss_of(dp.Gaussian(1.0 / weak))
    together, error = beside.log_delta(epsilon), beside.log_delta_error(epsilon)
    # The Gaussian moves a loss by `weak`.
    assert np.all((together - error <= alone + 100.0 * weak) & (error < 1e-1)), error
    different = (10 * laplace + 10 * loss_of(dp.Laplace(10.0 + 1e-12))).log_delta(epsilon)
    for bound in (together, different):
        assert bool(jnp.all((bound >= alone - 1e-10) & (bound <= alone + 3e-4)))


def test_too_many_different_releases_are_refused():
    """Equal ones are one, and Gaussians are one release."""
    scales = np.linspace(10.0, 20.0, 100_000)
    loss = dp.privacy_loss(dp.Mechanism(dp.Laplace(scales), 1.0)).sum()
    with pytest.raises(ValueError, match=r"at most [\d,]+ different releases .* got 100,000"):
        loss.epsilon(1e-5)
    gaussians = dp.privacy_loss(dp.Mechanism(dp.Gaussian(100.0 * scales), 1.0)).sum()
    assert 0 < gaussians.epsilon(1e-5) < 10
