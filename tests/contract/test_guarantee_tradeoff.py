"""The trade-offs of guarantees: on the edge of their curves, never above, exact at the ends."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import EXACT_KINDS

import jaxdp as dp

pytestmark = pytest.mark.float64


@pytest.mark.parametrize("kind", EXACT_KINDS, ids=lambda k: type(k).__name__)
def test_tradeoff_and_profile_are_one(kind):
    """fnr is the best of the lines 1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr)."""
    fpr = np.array([0.0, 1e-6, 0.01, 0.2, 0.5, 0.9, 1.0])
    fnr = np.asarray(kind.tradeoff(fpr))
    epsilon = np.linspace(-12, 12, 4801)
    power = 1 - np.asarray(kind.delta(epsilon))
    falling = power - np.exp(epsilon) * fpr[:, None]
    flat = np.exp(-epsilon) * (power - fpr[:, None])
    best = np.maximum(np.maximum(falling, flat).max(axis=1), 0)
    np.testing.assert_allclose(fnr[1:], best[1:], atol=3e-4)
    assert fnr[-1] == 0


def two_point_divergence(p, q, order):
    p, q = mp.mpf(p), mp.mpf(q)
    total = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
    return mp.log(total) / (order - 1)


@pytest.mark.parametrize(("xi", "rho"), [(0.0, 0.5), (0.0, 0.01), (0.3, 0.1), (0.0, 20.0)])
def test_zcdp_tradeoff_is_on_the_edge_of_its_curve(xi, rho):
    """The two points (1 - fnr, fpr) keep to xi + a rho at all orders; with less fnr they do not."""
    orders = [1 + mp.mpf(10) ** (mp.mpf(k) / 25) for k in range(-150, 80)]
    for fpr in (1e-9, 0.01, 0.1, 0.2, 0.3, 0.8):
        fnr = float(dp.ZCDP(xi, rho).tradeoff(fpr))

        def excess(fnr, fpr=fpr):
            return max(
                two_point_divergence(*pair, a) - (xi + a * rho)
                for a in orders
                for pair in ((1 - mp.mpf(fnr), fpr), (fpr, 1 - mp.mpf(fnr)))
            )

        if fnr == 0:
            assert excess(1e-300) < 0
            continue
        assert excess(fnr * (1 - 1e-4)) > 0
        assert excess(min(fnr * (1 + 1e-4) + 1e-9, 1 - fpr)) < 1e-8
        assert fnr <= dp.GDP(np.sqrt(2 * (rho + xi))).tradeoff(fpr) + 1e-9 or xi > 0


def test_zcdp_tradeoff_is_below_the_gaussian_in_the_far_tail():
    """It once stopped at 6e-17, where 1 - fnr rounds to 1."""
    for mu in (10.0, 30.0):
        fnr = float(dp.ZCDP(0.0, mu * mu / 2).tradeoff(0.5))
        assert 0 < fnr <= dp.GDP(mu).tradeoff(0.5)


def test_zcdp_tradeoff_edges():
    assert dp.ZCDP(0.0, 0.5).tradeoff(jnp.array([0.0, 1.0])).tolist() == [1.0, 0.0]
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.5).tradeoff(0.1), 0.517, atol=1e-3)
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.0).tradeoff(0.1), 0.9, atol=1e-6)
    assert dp.ZCDP(np.inf, 1.0).tradeoff(0.1) == 0


def test_gdp_tradeoff_is_rounded_down():
    for mu in (1e-3, 0.5, 3.0, 20.0):
        for fpr in (1e-12, 0.1, 0.5, 0.97):
            with mp.workdps(60):
                threshold = mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(fpr))
                truth = mp.erfc((mu - threshold) / mp.sqrt(2)) / 2
            error = oracle.relative_error(float(dp.GDP(mu).tradeoff(fpr)), truth)
            assert -1e-10 < error <= 0, (mu, fpr)


ENDLESS = (
    dp.PureDP(np.inf),
    dp.ApproxDP(np.inf, 0.1),
    dp.GDP(np.inf),
    dp.ZCDP(0.0, np.inf),
    dp.RDP(2.0, np.inf),
    dp.to_pure(dp.ApproxDP(1.0, 0.5)),
)


@pytest.mark.parametrize("kind", ENDLESS, ids=lambda k: type(k).__name__)
def test_what_promises_nothing_has_no_tradeoff(kind):
    fpr = np.array([0.0, 1e-310, 0.3, 1.0])
    for found in (kind.tradeoff(fpr), jax.jit(lambda k: k.tradeoff(fpr))(kind)):
        assert found.tolist() == [0.0] * 4
    assert dp.risk.tpr_at_fpr(kind, 0.0) == 1
    assert kind.delta(np.array([0.0, 700.0])).tolist() == [1.0, 1.0]


@given(st.floats(0, 800), st.floats(0, 1), st.floats(0, 1), st.sampled_from([1.0, 1e-17, 1e-200]))
def test_pure_and_approximate_tradeoffs_are_never_above_their_own(bound, failure, fpr, small):
    failure, fpr = failure * small, fpr * small
    fnr = float(dp.ApproxDP(bound, failure).tradeoff(fpr))
    with mp.workdps(400):
        e, d, x = mp.mpf(bound), mp.mpf(failure), mp.mpf(fpr)
        truth = max(mp.mpf(0), 1 - d - mp.exp(e) * x, mp.exp(-e) * (1 - d - x))
        assert 0 <= truth - mp.mpf(fnr) <= 4e-15
        assert mp.mpf(float(dp.risk.tpr_at_fpr(dp.ApproxDP(bound, failure), fpr))) >= 1 - truth


def test_the_rate_that_nothing_costs():
    assert dp.risk.tpr_at_fpr(dp.ApproxDP(1.0, 1e-17), 0.0) >= 1e-17
    assert dp.risk.tpr_at_fpr(dp.PureDP(1.0), 0.0) == 0
    assert dp.PureDP(800.0).tradeoff(0.0) == 1
