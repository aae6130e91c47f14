"""A mechanism is its noise at its sensitivity, batched."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from differences import check_gradient

import jaxdp as dp


def test_it_is_the_noise_at_the_sensitivity():
    for noise in (dp.Gaussian(jnp.array([1.0, 3.0])), dp.Laplace(2.0)):
        mechanism = dp.Mechanism(noise, 1.5)
        epsilon = jnp.array([0.1, 0.6])
        np.testing.assert_array_equal(mechanism.log_delta(epsilon), noise.log_delta(1.5, epsilon))
        np.testing.assert_array_equal(mechanism.delta(epsilon), noise.delta(1.5, epsilon))
        np.testing.assert_array_equal(mechanism.renyi(3.0), noise.renyi(1.5, 3.0))
        assert isinstance(mechanism.zcdp(), dp.ZCDP)


@pytest.mark.float64
def test_epsilon_inverts_delta_from_the_safe_side():
    mechanism = dp.Mechanism(dp.Gaussian(jnp.array([[0.5], [4.0]])), 1.0)
    delta = 10.0 ** -jnp.array([300.0, 30.0, 5.0, 0.2])
    epsilon = mechanism.epsilon(delta)
    assert epsilon.shape == (2, 4)
    assert np.all(np.asarray(mechanism.delta(epsilon)) <= np.asarray(delta))
    inside = epsilon > 0
    closer = np.asarray(mechanism.delta(jnp.where(inside, epsilon * (1 - 1e-12), epsilon)))
    wanted = np.broadcast_to(delta, (2, 4))
    assert np.all(closer[inside] > wanted[inside] * (1 - 1e-9))
    assert mechanism.epsilon(1.0)[0, 0] == 0
    assert np.all(mechanism.epsilon(0.0) == np.inf)
    assert dp.Mechanism(dp.Laplace(0.5), 1.0).epsilon(0.0) == pytest.approx(2.0, rel=1e-14)
    assert dp.Mechanism(dp.Laplace(0.5), 0.0).epsilon(0.0) == 0


def test_epsilon_has_derivatives():
    def epsilon(scale, sensitivity, delta):
        return dp.Mechanism(dp.Gaussian(scale), sensitivity).epsilon(delta)

    check_gradient(epsilon, (2.0, 1.0, 1e-6))
    assert jax.grad(epsilon)(1e6, 1.0, 0.5) == 0  # clamped at epsilon = 0


def test_bad_input():
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="sensitivity"):
            dp.Mechanism(dp.Gaussian(1.0), bad)
        traced = jax.jit(lambda s: dp.Mechanism(dp.Gaussian(1.0), s).delta(1.0))(bad)
        assert not traced <= 1
    with pytest.raises(ValueError, match=r"sensitivity must be whole, got 1\.01"):
        dp.Mechanism(dp.DiscreteGaussian(3.0), 1.01)
    with pytest.raises(ValueError, match="delta"):
        dp.Mechanism(dp.Gaussian(1.0), 1.0).epsilon(1.5)


def test_large_losses_of_small_samples():
    """e^epsilon / q overflows before e^epsilon does."""
    epsilon = np.array([690.0, 695.0, 698.0, 705.0, 2000.0, 9999.0])
    for q in (1e-8, 1e-5):
        release = dp.Mechanism(dp.Gaussian(0.01), 1.0, q, "remove")
        found = np.asarray(release.log_delta(epsilon))
        whole = dp.Gaussian(0.01).log_delta(1.0, epsilon - np.log(q)) + np.log(q)
        np.testing.assert_allclose(found, whole, rtol=1e-12)


def test_a_guarantee_is_no_noise():
    plain = inspect.unwrap(dp.Mechanism.__init__)  # types are not checked for users
    for known in (dp.PureDP(1.0), dp.ExponentialMechanism(1.0)):
        with pytest.raises(ValueError, match=r"noise must be .* got (PureDP|Exponential)"):
            plain(object.__new__(dp.Mechanism), known, 1.0)


NOISES = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": lambda scale: dp.FlippedHuber(jnp.minimum(scale, 1e3), 0.8 * scale),
    "discrete_laplace": dp.DiscreteLaplace,
}


@pytest.mark.parametrize(
    ("name", "relation"),
    [*((name, r) for name in NOISES for r in (None, "add_remove")), ("gaussian", "replace_one")],
)
def test_the_ends_of_every_range_have_their_limits(name, relation):
    """No sampling, no sensitivity, no noise that is finite, no finite epsilon: never NaN."""
    epsilon = jnp.array([-np.inf, -1.0, 0.0, 0.2, np.inf])
    private = [0.0, np.log(-np.expm1(-1.0)), -np.inf, -np.inf, -np.inf]
    scale, sensitivity = jnp.array([10.0, 10.0, np.inf, 10.0]), jnp.array([1.0, 0.0, 1.0, 1.0])
    q = jnp.array([0.01, 0.01, 0.01, 0.0]) if relation else 1.0
    mechanism = dp.Mechanism(NOISES[name](scale), sensitivity, q, relation)
    found = np.stack([np.asarray(mechanism.log_delta(e)) for e in epsilon])
    assert not np.isnan(found).any()
    nothing = found[:, 1:] if relation else found[:, 1:3]
    np.testing.assert_allclose(np.exp(nothing).T, np.exp([private] * nothing.shape[1]), atol=1e-14)
    assert found[0, 0] == 0
    assert found[4, 0] == -np.inf
    least = np.asarray(mechanism.epsilon(1e-6))
    assert np.all(least[1:3] < 1e-14)
    assert 0 <= least[0] < np.inf


def test_a_steep_profile_has_a_root():
    """Two compilations differ by more than their slack there: the root gives way by ulps."""
    scale = 10 ** np.random.default_rng(0).uniform(-5, -2, 400)
    mechanism = dp.Mechanism(dp.Gaussian(scale), 1.0)
    epsilon = np.asarray(mechanism.epsilon(0.5))
    np.testing.assert_allclose(epsilon, 0.5 / scale**2, rtol=1e-3)
    assert np.all(np.asarray(mechanism.delta(epsilon)) <= 0.5)


@pytest.mark.parametrize(
    "compose",
    [lambda m: 10 * m, lambda m: m * 10, lambda m: m + m, lambda m: sum([m, m])],
)
def test_composing_mechanisms_names_the_privacy_loss(compose):
    with pytest.raises(TypeError, match=r"dp\.privacy_loss\(mechanism\)"):
        compose(dp.Mechanism(dp.Gaussian(2.0), 1.0))


# Noises of mechanisms of which a bounded number of coordinates changes: l0 and linf.
MOVED = {
    "gaussian": dp.Gaussian(4.0),
    "laplace": dp.Laplace(6.0),
    "discrete_gaussian": dp.DiscreteGaussian(4.0),
    "discrete_laplace": dp.DiscreteLaplace(6.0),
}


@pytest.mark.parametrize("name", MOVED)
def test_it_is_the_composition_of_its_coordinates(name):
    one, five = (dp.Mechanism(MOVED[name], 2.0, coordinates=k) for k in (1, 5))
    known = 5 * dp.privacy_loss(one)
    assert five.delta(0.5) == pytest.approx(float(known.delta(0.5)), rel=1e-9)
    assert five.epsilon(1e-5) == pytest.approx(float(known.epsilon(1e-5)), rel=1e-9)
    assert dp.privacy_loss(five).delta(0.5) == pytest.approx(float(known.delta(0.5)), rel=1e-9)
    for cost in (lambda m: m.zcdp().rho, lambda m: m.pure_epsilon(), lambda m: m.renyi(3.0)):
        assert 5 * float(cost(one)) <= float(cost(five)) * (1 + 1e-15)
        if math.isfinite(float(cost(one))):
            assert float(cost(five)) == pytest.approx(5 * float(cost(one)), rel=1e-12)


def test_a_gaussian_has_the_root_in_its_sensitivity():
    mechanism = dp.Mechanism(dp.Gaussian(1.0), 3.0, coordinates=10)
    assert mechanism.coordinates == 1
    assert 3.0 * math.sqrt(10) <= mechanism.sensitivity <= 3.0 * math.sqrt(10) * (1 + 1e-15)
    assert dp.Mechanism(dp.Gaussian(1.0), 3.0, coordinates=4).sensitivity == 6.0


def test_no_smaller_move_reveals_more():
    """On a lattice, of every move of three cells by two at most, in two of them at most."""
    noise, places = dp.DiscreteGaussian(2.0), np.arange(-30.0, 31.0)
    laws = [np.exp(np.asarray(noise.log_density(places - shift))) for shift in range(3)]
    worst = dp.Mechanism(noise, 2.0, coordinates=2)
    for epsilon in (0.0, 0.5, 2.0):
        for move in ((2, 0), (1, 1), (2, 1), (2, 2)):
            joint = np.outer(*(laws[shift] for shift in move))
            factor = math.exp(epsilon) * np.outer(laws[0], laws[0])
            assert np.maximum(joint - factor, 0.0).sum() <= worst.delta(epsilon) * (1 + 1e-9)
        assert np.maximum(joint - factor, 0.0).sum() >= worst.delta(epsilon) * (1 - 1e-6)


@pytest.mark.parametrize("name", MOVED)
def test_a_release_states_and_charges_all_of_them(name, tmp_path):
    one = dp.Mechanism(MOVED[name], 1.0)
    ledger = dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 1.0))
    counts = np.arange(30)
    four = dp.Mechanism(MOVED[name], 1.0, coordinates=4)
    released = dp.release(four, counts, jax.random.key(0), ledger=ledger)
    assert released.value.shape == (30,)
    assert np.max(np.abs(np.asarray(released.value) - counts)) < 60
    exact = float((4 * dp.privacy_loss(one)).epsilon(1e-6))
    assert exact * (1 - 1e-6) <= released.epsilon(1e-6) <= exact * (1 + 1e-6)
    assert ledger.spent().rho == pytest.approx(4 * float(one.zcdp().rho), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dp.Mechanism(dp.Gaussian(1.0), 1.0, coordinates=0), "coordinates must be"),
        (lambda: dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "remove", coordinates=2), "must be 1"),
        (lambda: dp.Mechanism(dp.Laplace(1.0), 1.0, 1.0, "remove", coordinates=2), "must be 1"),
        (lambda: dp.Mechanism(dp.Laplace(1.0), 1.0, group_size=2, coordinates=2), "must be 1"),
        (lambda: dp.Mechanism(dp.Staircase(1.0, 1.0, 0.5), 1.0, coordinates=2), "log-concave"),
    ],
)
def test_bad_coordinates_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
