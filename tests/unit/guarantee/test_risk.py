"""What an attacker can do: closed forms of the Gaussian, and never less than the truth."""

import jax
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import expected, records

import jaxdp as dp


@given(st.floats(1e-6, 30))
def test_advantage_of_a_gaussian(mu):
    with mp.workdps(40):
        truth = mp.erf(mp.mpf(mu) / (2 * mp.sqrt(2)))
        assert 0 <= oracle.relative_error(float(dp.risk.advantage(dp.GDP(mu))), truth) < 1e-13


@given(st.floats(0.01, 10), st.floats(1e-9, 1 - 1e-9))
def test_bayes_risk_of_a_gaussian(mu, prior):
    """The likelihood-ratio test at (1 - prior) / prior, in 50 digits."""
    with mp.workdps(50):
        m, p = mp.mpf(mu), mp.mpf(prior)
        e = mp.log((1 - p) / p)
        truth = p * mp.ncdf(e / m - m / 2) + (1 - p) * mp.ncdf(-e / m - m / 2)
        error = oracle.relative_error(float(dp.risk.bayes_risk(dp.GDP(mu), prior)), truth)
    assert -1e-11 < error <= 0


@given(st.floats(0.01, 3), st.floats(0.01, 0.99))
@settings(max_examples=10)
def test_bayes_risk_is_the_least_over_the_tradeoff(scale, prior):
    mechanism = dp.Mechanism(dp.Laplace(scale), 1.0)
    fpr = np.linspace(0, 1, 4001)
    fnr = np.asarray(dp.risk.tradeoff_of_profile(mechanism.log_delta, fpr))
    least = np.min(prior * fnr + (1 - prior) * fpr)
    risk = float(dp.risk.bayes_risk(mechanism, prior))
    assert risk <= least + 1e-12
    np.testing.assert_allclose(risk, least, atol=3e-4)


def test_bayes_risk_at_the_ends():
    risk = dp.risk.bayes_risk(dp.GDP(np.array([0.0, 1.0, 50.0])), np.array([[0.0], [1.0], [0.5]]))
    assert risk.shape == (3, 3)
    assert np.all(risk[:2] == 0)
    assert risk[2, 0] == pytest.approx(0.5, rel=1e-12)
    assert 0.5 * (1 - dp.risk.advantage(dp.GDP(1.0))) == pytest.approx(float(risk[2, 1]), rel=1e-12)


def test_true_positive_rate():
    for row in records("gaussian", "tpr"):
        fpr = float(row["inputs"]["fpr"])
        for source in (dp.GDP(1.0), dp.Mechanism(dp.Gaussian(2.0), 2.0)):
            value = dp.risk.tpr_at_fpr(source, fpr)
            assert 0 <= float(value) - float(expected(row)) < 2e-14, row["id"]
    known = (np.array([0.125, 1e-10, 1e-9]), np.array([0.375, 3e-10, 3e-9]))
    kept_apart = dp.PureDP(float(np.log(3.0)))
    np.testing.assert_allclose(dp.risk.tpr_at_fpr(kept_apart, known[0]), known[1], atol=3e-15)
    ends = dp.risk.tpr_at_fpr(kept_apart, np.array([0.0, 1.0]))
    assert ends.tolist() == [0.0, 1.0]


def test_bad_input():
    for bad in (-0.1, 1.1, np.nan, -np.inf):
        with pytest.raises(ValueError, match="prior"):
            dp.risk.bayes_risk(dp.GDP(1.0), bad)
        with pytest.raises(ValueError, match="fpr"):
            dp.risk.tpr_at_fpr(dp.GDP(1.0), bad)
        assert not jax.jit(lambda p: dp.risk.bayes_risk(dp.GDP(1.0), p))(bad) >= 0
        assert not jax.jit(lambda p: dp.risk.tpr_at_fpr(dp.GDP(1.0), p))(bad) <= 1
    for bad in (-1.0, np.nan):
        assert not jax.jit(lambda m: dp.risk.advantage(dp.GDP(m)))(bad) <= 1
        assert not jax.jit(lambda m: dp.risk.bayes_risk(dp.GDP(m), 0.3))(bad) > 0
        assert not jax.jit(lambda m: dp.risk.tpr_at_fpr(dp.GDP(m), 0.3))(bad) < 1


@pytest.mark.parametrize("relation", ["add", "remove"])
def test_one_direction_has_the_advantage_alone(relation):
    """At q = .01, sigma = .1 a threshold reaches .01; the profile of "add" alone says 1e-6."""
    mechanism, both = (
        dp.Mechanism(dp.Gaussian(0.1), 1.0, 0.01, x) for x in (relation, "add_remove")
    )
    with pytest.raises(ValueError, match="relation must be 'add_remove'"):
        dp.risk.tpr_at_fpr(mechanism, 1e-6)
    assert dp.risk.tpr_at_fpr(both, 1e-6) >= 1.0000989e-2
    # The total variation is the same in both directions.
    np.testing.assert_allclose(dp.risk.advantage(mechanism), dp.risk.advantage(both), rtol=1e-13)


def advantage_of_rho(rho):
    """Of randomised response, whose divergence over its order is largest at order 1, where

    it is epsilon tanh(epsilon / 2): it meets the curve there, and keeps to it elsewhere.
    """
    epsilon = mp.findroot(
        lambda e: e * mp.tanh(e / 2) - rho, (1e-3, 2 * rho + 2), solver="anderson"
    )
    return mp.tanh(epsilon / 2)


@pytest.mark.long
@pytest.mark.parametrize("rho", [0.1, 1.0, 3.0])
def test_advantage_of_concentrated_privacy_is_that_of_its_tradeoff(rho):
    truth = float(advantage_of_rho(rho))
    for kind in (dp.ZCDP(0.0, rho), dp.RDP([1.0, 2.0], [rho, 2 * rho])):
        value = float(dp.risk.advantage(kind))
        assert 0 <= value - truth < 1e-13
    assert dp.risk.advantage(dp.ZCDP(0.0, 1.0)) == pytest.approx(0.6479182, abs=1e-7)


@pytest.mark.long
def test_bayes_risk_of_concentrated_privacy():
    kind, fpr = dp.ZCDP(0.0, 0.5), np.linspace(0.01, 0.99, 197)
    fnr = np.asarray(kind.tradeoff(fpr))
    priors = np.array([0.2, 0.9])
    risks = np.asarray(dp.risk.bayes_risk(kind, priors))
    for prior, risk in zip(priors, risks, strict=True):
        least = np.min(prior * fnr + (1 - prior) * fpr)
        assert risk <= least
        assert risk == pytest.approx(least, abs=5e-5)
    bad = jax.jit(lambda r: dp.risk.advantage(dp.ZCDP(0.0, r)))(np.nan)
    assert not bad <= 1
