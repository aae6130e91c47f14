"""Mechanisms of which a bounded number of coordinates changes: l0 and linf."""

import math

import jax
import numpy as np
import pytest

import jaxdp as dp

NOISES = {
    "gaussian": dp.Gaussian(4.0),
    "laplace": dp.Laplace(6.0),
    "discrete_gaussian": dp.DiscreteGaussian(4.0),
    "discrete_laplace": dp.DiscreteLaplace(6.0),
}


@pytest.mark.parametrize("name", NOISES)
def test_it_is_the_composition_of_its_coordinates(name):
    one, five = (dp.Mechanism(NOISES[name], 2.0, coordinates=k) for k in (1, 5))
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


@pytest.mark.parametrize("name", NOISES)
def test_a_release_states_and_charges_all_of_them(name, tmp_path):
    one = dp.Mechanism(NOISES[name], 1.0)
    ledger = dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 1.0))
    counts = np.arange(30)
    four = dp.Mechanism(NOISES[name], 1.0, coordinates=4)
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
