"""Compositions: against closed forms, high-precision values, and each other."""

import sys

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64


def loss_of(noise, shift=1.0):
    return dp.privacy_loss(dp.Mechanism(noise, shift))


NOISES = {
    "gaussian": lambda p: dp.Gaussian(p["sigma"]),
    "laplace": lambda p: dp.Laplace(p["beta"]),
    "flipped_huber": lambda p: dp.FlippedHuber(p["alpha"], p["gamma"]),
    "offset_gaussian": lambda p: dp.OffsetGaussian(p["theta"], p["rho"]),
    "subbotin": lambda p: dp.Subbotin(p["xi"], p["p"]),
}


PARTS = ("params", "inputs")
SLOW = ("flipped_huber", "subbotin", "offset_gaussian")


@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in NOISES],
)
def test_reference_compositions(mechanism):
    rows = list(records(mechanism, "ln_delta_kfold"))
    params, inputs = ({k: np.array([r[x][k] for r in rows]) for k in rows[0][x]} for x in PARTS)
    total = inputs["K"] * loss_of(NOISES[mechanism](params), inputs["Delta"])
    answers = (np.asarray(f(inputs["eps"])) for f in (total.log_delta, total.log_delta_error))
    for row, value, error in zip(rows, *answers, strict=True):
        excess = mp.mpf(float(value)) - expected(row)
        # One value was computed to ten digits only.
        known = 1e-10 if "note" in row and "10 digits" in row["note"] else 0.0
        assert -known <= excess <= error + known, (row["id"], excess, error)
        # The bound below is far looser than the one above where many releases have atoms.
        assert error < (1e-8 if mechanism == "gaussian" else 0.1), (row["id"], error)
        # Beyond what doubles hold as a delta, moments of whole orders answer.
        assert excess < (1e-4 if expected(row) > -700 else 1e-3), (row["id"], excess)


def test_gaussians_compose_to_a_gaussian():
    """Any counts and scales: epsilons from -50 to 1e4, up to 1e9 releases."""
    scales = jnp.array([2.0, 3.0, 1.5])
    together = loss_of(dp.Gaussian(scales)).sum()
    mu = float(np.sqrt(np.sum(1 / np.asarray(scales) ** 2)))
    epsilon = jnp.array([-50.0, -3.0, -0.1, 0.0, 1e-3, 0.1, 1.0, 5.0, 50.0, 1e4])
    check_bound(together.log_delta(epsilon), dp.GDP(mu).log_delta(epsilon))
    for count in (2.0, 1e3, 1e9):
        many = count * loss_of(dp.Gaussian(np.sqrt(count)))
        check_bound(many.log_delta(epsilon), dp.GDP(1.0).log_delta(epsilon))


def check_bound(value, exact, tolerance=1e-10):
    assert np.all(value >= exact - 4e-15 * abs(exact))
    assert np.all(value <= exact + tolerance * np.maximum(1.0, abs(exact)))


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


def test_mixed_noises():
    """A Gaussian with a Laplace, against the expectation of one delta over the other's loss."""
    for sigma, beta, epsilon in ((2.0, 3.0, 0.5), (0.5, 1.0, 8.0), (1.0, 0.5, 0.0)):
        mixed = loss_of(dp.Gaussian(sigma)) + loss_of(dp.Laplace(beta))
        law = oracle.laplace(beta)

        def given_loss(t, sigma=sigma, law=law, epsilon=epsilon):
            loss = law.log_density(t) - law.log_density(t + 1)
            a = (epsilon - loss) * sigma - mp.mpf(1) / (2 * sigma)
            tail = mp.erfc(a / mp.sqrt(2)) / 2
            other = mp.erfc((a + mp.mpf(1) / sigma) / mp.sqrt(2)) / 2
            return mp.exp(law.log_density(t)) * (tail - mp.exp(epsilon - loss) * other)

        truth = mp.log(mp.quad(given_loss, [-mp.inf, -20, -5, -1, 0, 5, 20, mp.inf]))
        error = oracle.relative_error(float(mixed.log_delta(epsilon)), truth)
        assert 0 <= error < 1e-8, (sigma, beta, epsilon, error)


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
    table = total.log_delta(epsilon)
    assert table.shape == (29, 31)
    check_bound(table, dp.GDP(np.sqrt(20) / scale).log_delta(epsilon))


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
    """|phi| comes back up at pi / r: stopping before it would claim too little."""
    epsilon = jnp.array([0.0, 0.05, 0.2, 0.5, 1.0])
    laplace = loss_of(dp.Laplace(10.0))
    alone = (20 * laplace).log_delta(epsilon)
    together = (20 * laplace + loss_of(dp.Gaussian(1.0 / weak))).log_delta(epsilon)
    different = (10 * laplace + 10 * loss_of(dp.Laplace(10.0 + 1e-12))).log_delta(epsilon)
    for bound in (together, different):
        assert bool(jnp.all((bound >= alone - 1e-10) & (bound <= alone + 3e-4)))


def test_a_thousand_pairs_of_atoms():
    """The oracle sums 1.2e6 points."""
    n, r, epsilon, theta, period = 1000, 0.005, 0.4033, 40.0, 3.0
    z = theta + 2j * np.pi * np.arange(4000 * round(period / (2 * r))) / period
    cumulant = np.log(((z + 1) * np.exp(z * r) + z * np.exp(-(z + 1) * r)) / (2 * z + 1))
    summand = np.real(np.exp(n * cumulant - z * epsilon) / (z * (z + 1)))
    truth = np.log((2 * summand.sum() - summand[0]) / period)
    value = float((n * loss_of(dp.Laplace(1 / r))).log_delta(epsilon))
    assert -2e-9 <= value - truth < 1e-4


def test_too_many_different_releases_are_refused():
    """Equal ones are one, and Gaussians are one release."""
    scales = np.linspace(10.0, 20.0, 100_000)
    loss = dp.privacy_loss(dp.Mechanism(dp.Laplace(scales), 1.0)).sum()
    with pytest.raises(ValueError, match=r"at most [\d,]+ different releases .* got 100,000"):
        loss.epsilon(1e-5)
    gaussians = dp.privacy_loss(dp.Mechanism(dp.Gaussian(100.0 * scales), 1.0)).sum()
    assert 0 < gaussians.epsilon(1e-5) < 10
