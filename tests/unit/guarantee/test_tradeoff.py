"""Trade-offs from profiles and profiles from trade-offs, against closed forms."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.guarantee.tradeoff import tradeoff_by_lines

RATES = np.array([1e-12, 1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-9])


@given(st.floats(1e-4, 12), st.floats(-7.5, 7.5))
def test_gaussian_to_full_accuracy(mu, threshold):
    """Phi(t - mu) at the rate Phi(-t); the rate is a double, so t is found anew from it."""
    with mp.workdps(50):
        fpr = float(mp.ncdf(-mp.mpf(threshold)))
        rate = mp.mpf(fpr)
        t = mp.findroot(lambda t: mp.log(mp.ncdf(-t) / rate), threshold)
        truth = mp.ncdf(t - mp.mpf(mu))
        value = float(dp.risk.tradeoff_of_profile(dp.GDP(mu).log_delta, fpr))
        error = oracle.relative_error(value, truth)
    assert error <= 0
    # Measured: 6e-13 at the worst, for mu up to 35 and fnr down to 1e-250.
    assert error > -1e-11


@pytest.mark.parametrize("kind", [dp.PureDP(0.7), dp.ApproxDP(0.7, 1e-3)], ids=["pure", "approx"])
def test_kinks_are_found(kind):
    fnr = np.asarray(dp.risk.tradeoff_of_profile(kind.log_delta, RATES))
    truth = np.asarray(kind.tradeoff(RATES))
    np.testing.assert_allclose(fnr, truth, rtol=1e-9, atol=1e-15)
    assert np.all(fnr <= truth + 4e-16)


def test_laplace_is_its_three_pieces():
    """f(x) = 1 - e^r x, then e^-r / (4 x), then e^-r (1 - x)."""
    r = 1.5
    pieces = np.where(
        np.exp(r) * RATES < 0.5,
        1 - np.exp(r) * RATES,
        np.where(RATES < 0.5, np.exp(-r) / (4 * RATES), np.exp(-r) * (1 - RATES)),
    )
    mechanism = dp.Mechanism(dp.Laplace(2.0), 3.0)
    np.testing.assert_allclose(
        dp.risk.tradeoff_of_profile(mechanism.log_delta, RATES), pieces, rtol=1e-9, atol=1e-15
    )


def test_edges_and_compositions():
    guarantee = dp.GDP(np.array([0.5, 3.0]))
    ends = dp.risk.tradeoff_of_profile(guarantee.log_delta, np.array([[0.0], [1.0]]))
    assert ends.shape == (2, 2)
    assert np.all(ends[0] > 1 - 1e-14)
    assert np.all(ends[1] == 0)
    np.testing.assert_allclose(
        dp.risk.tradeoff_of_profile(dp.GDP(0.0).log_delta, RATES), 1 - RATES, rtol=1e-14
    )
    # The two-point argument is tighter, but for the orders that lie between those it looks at.
    zcdp = dp.ZCDP(0.0, 0.3)
    assert np.all(
        dp.risk.tradeoff_of_profile(zcdp.log_delta, RATES) <= zcdp.tradeoff(RATES) * (1 + 1e-5)
    )


def test_privacy_loss_has_a_tradeoff():
    total = 3 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(np.sqrt(3.0)), 1.0))
    fpr = np.array([1e-6, 0.1, 0.6])
    np.testing.assert_allclose(total.tradeoff(fpr), dp.GDP(1.0).tradeoff(fpr), rtol=1e-9)
    np.testing.assert_allclose(1 - total.tradeoff(0.1), 0.3891439292442, atol=1e-6)


def counted(log_delta):
    """The profile, and the numbers of epsilons of its calls."""
    sizes = []

    def call(epsilon):
        assert np.all(epsilon >= 0)
        sizes.append(np.size(epsilon))
        return np.asarray(log_delta(epsilon))

    return call, sizes


@pytest.mark.parametrize("kind", [dp.GDP(0.05), dp.GDP(0.8), dp.GDP(6.0), dp.PureDP(0.7)])
def test_many_rates_share_epsilons(kind):
    rates = np.concatenate([[0.0, 1.0], np.geomspace(1e-6, 0.99, 198)])
    log_delta, sizes = counted(kind.log_delta)
    fnr = np.asarray(tradeoff_by_lines(log_delta, rates, ()))
    truth = np.asarray(kind.tradeoff(rates))  # rounded down by 1e-14
    assert np.all((fnr <= truth + 5e-14) & (fnr >= truth - 1.1e-10))
    # A search for each rate takes 50 to 100 epsilons a rate.
    assert len(sizes) <= 6
    assert sum(sizes) <= 13 * rates.size


def test_a_batch_of_losses_has_epsilons_of_its_own():
    mu, rates = np.array([[0.3], [2.0], [0.0]]), np.array([1e-4, 0.2, 0.7, 0.9999])
    truth = np.asarray(dp.GDP(mu).tradeoff(rates))
    log_delta, sizes = counted(lambda epsilon: dp.GDP(mu).log_delta(epsilon))
    fnr = np.asarray(tradeoff_by_lines(log_delta, rates, mu.shape))
    np.testing.assert_allclose(fnr, truth, atol=1.1e-10)
    assert np.all(fnr <= truth + 5e-14)
    assert len(sizes) <= 7
    of_each = np.asarray(tradeoff_by_lines(dp.GDP(mu[:, 0]).log_delta, rates[:3], (3,)))
    np.testing.assert_allclose(of_each, np.diagonal(truth), atol=1.1e-10)
    bad = tradeoff_by_lines(lambda e: np.where(mu == 2.0, np.nan, 0.0 * e - 1), rates, mu.shape)
    np.testing.assert_array_equal(np.isnan(bad), np.isnan(bad[:, :1]) & np.ones((3, 4), bool))
    assert np.isnan(bad).any(axis=1).tolist() == [False, True, False]


def test_bad_input():
    gdp = dp.GDP(1.0)
    for fpr in (-0.1, 1.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="fpr"):
            dp.risk.tradeoff_of_profile(gdp.log_delta, fpr)
        traced = jax.jit(lambda x: dp.risk.tradeoff_of_profile(gdp.log_delta, x))
        assert not traced(fpr) > 0
    assert not dp.risk.tradeoff_of_profile(lambda e: e * jnp.nan, 0.1) > 0
