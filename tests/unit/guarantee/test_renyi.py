"""Renyi guarantees: the conversion, the trade-off at their own orders, composition, bad input."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

ORDERS = np.array([1.25, 2.0, 5.0, 32.0, 500.0])
VALUES = 0.1 * ORDERS


def log_delta(order, value, epsilon):
    s = mp.mpf(order) - 1
    entropy = mp.log1p(s) + s * mp.log1p(1 / s)
    return s * (mp.mpf(value) - mp.mpf(epsilon)) - entropy


@given(st.floats(1.0000001, 1e8), st.floats(0, 50), st.floats(-20, 500), st.floats(1.5, 50))
def test_log_delta_is_the_conversion_rounded_up(order, value, epsilon, other):
    guarantee = dp.RDP(np.array([order, other]), np.array([value, 2 * value]))
    with mp.workdps(50):
        both = log_delta(order, value, epsilon), log_delta(other, 2 * value, epsilon)
        truth = min(*both, mp.mpf(0))
        reported = mp.mpf(float(guarantee.log_delta(epsilon)))
        scale = (order - 1) * (value + abs(epsilon)) + (other - 1) * (2 * value + abs(epsilon)) + 9
        assert 0 <= reported - truth <= 1e-14 * scale


def test_epsilon_against_the_reference():
    for row in records("conversion", "eps_rdp_cks"):
        order, value = row["params"]["alpha_order"], row["params"]["rdp"]
        epsilon = float(dp.RDP(order, value).epsilon(float(row["inputs"]["delta"])))
        assert 0 <= oracle.relative_error(epsilon, expected(row)) < 1e-12, row["id"]
    for row in records("conversion", "eps_rdp_orders"):
        guarantee = dp.RDP(np.array(row["params"]["orders"], float), row["params"]["rdp"])
        epsilon = float(guarantee.epsilon(float(row["inputs"]["delta"])))
        assert abs(oracle.relative_error(epsilon, expected(row))) < 1e-12, row["id"]


@pytest.mark.parametrize("fpr", [1e-12, 0.01, 0.5, 0.9])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_tradeoff_is_on_the_edge_of_its_orders(fpr, scale):
    """The two points obey every order both ways, and with less fnr they do not."""
    guarantee = dp.RDP(ORDERS, scale * VALUES)
    fnr = float(guarantee.tradeoff(fpr))

    def breaks(fnr):
        p, q = 1 - mp.mpf(fnr), mp.mpf(fpr)
        for order, value in zip(ORDERS, scale * VALUES, strict=True):
            a = mp.mpf(float(order))
            for u, v in ((p, q), (q, p)):
                moment = u**a * v ** (1 - a) + (1 - u) ** a * (1 - v) ** (1 - a)
                if mp.log(moment) / (a - 1) > float(value):
                    return True
        return False

    with mp.workdps(60):
        assert fnr == 0 or breaks(fnr)
        assert not breaks(min(fnr * (1 + 1e-6), 1 - fpr) + 1e-300)
    assert fnr <= dp.ZCDP(0.0, 0.1 * scale).tradeoff(fpr) * (1 + 1e-9)


def test_edges_of_the_tradeoff():
    guarantee = dp.RDP(ORDERS, VALUES)
    assert guarantee.tradeoff(jnp.array([0.0, 1.0])).tolist() == [1.0, 0.0]
    assert dp.RDP(2.0, np.inf).tradeoff(jnp.array([0.0, 0.3])).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(dp.RDP(2.0, 0.0).tradeoff(0.1), 0.9, atol=1e-6)


def test_infinite_values_and_epsilons():
    assert dp.RDP(2.0, 1.0).delta(np.inf) == 0
    assert dp.RDP(2.0, 1.0).delta(-np.inf) == 1
    some = dp.RDP(ORDERS, np.where(ORDERS > 10, np.inf, VALUES))
    assert some.log_delta(3.0) == dp.RDP(ORDERS[:3], VALUES[:3]).log_delta(3.0)
    assert dp.RDP(1e300, 1.0).epsilon(1e-6) <= 1.0 + 1e-12


def test_shapes_jit_and_vmap():
    values = np.linspace(0.1, 2.0, 12).reshape(4, 3)
    guarantee = dp.RDP(ORDERS[:3], values)
    assert guarantee.shape == (4,)
    assert guarantee.log_delta(1.0).shape == guarantee.tradeoff(0.1).shape == (4,)
    assert guarantee.log_delta(jnp.ones((2, 1))).shape == (2, 4)
    assert guarantee.epsilon(1e-3).shape == (4,)
    each = jax.vmap(lambda v: dp.RDP(ORDERS[:3], v).log_delta(1.0))(values)
    np.testing.assert_array_equal(each, guarantee.log_delta(1.0))
    assert (3 * guarantee).shape == (jnp.arange(4) * guarantee).shape == (4,)


def test_composition_adds_upwards():
    one, two = dp.RDP(ORDERS, VALUES), dp.RDP(ORDERS, 3 * VALUES)
    assert np.all((one + two).value >= 4 * VALUES)
    np.testing.assert_allclose((one + two).value, 4 * VALUES, rtol=1e-15)
    for other in (dp.RDP(ORDERS[:4], VALUES[:4]), dp.RDP(ORDERS + 1, VALUES)):
        with pytest.raises(ValueError, match="order"):
            one + other
    with pytest.raises(TypeError, match="cannot compose"):
        one + dp.ZCDP(0.0, 1.0)
    traced = jax.jit(lambda o: (one + dp.RDP(o, VALUES)).delta(1.0))
    assert not traced(ORDERS + 1) <= 1
    assert traced(ORDERS) <= 1


@pytest.mark.parametrize(
    ("order", "value", "name"),
    [
        *((bad, 0.1, "order") for bad in (0.999, 0.5, -2.0, np.nan, np.inf)),
        *((2.0, bad, "value") for bad in (-0.1, np.nan, [1.0, 2.0])),
        (ORDERS, VALUES[:2], "value"),
        (np.zeros(0), np.zeros(0), "value"),
    ],
)
def test_bad_input_raises(order, value, name):
    with pytest.raises(ValueError, match=name):
        dp.RDP(order, value)


def test_bad_traced_values_are_never_private():
    for bad in (-1.0, np.nan):
        for build in (lambda v: dp.RDP(v, 0.1), lambda v: dp.RDP(2.0, v)):
            assert not jax.jit(lambda v, build=build: build(v).delta(1.0))(bad) <= 1
            assert not jax.jit(lambda v, build=build: build(v).tradeoff(0.1))(bad) > 0
            assert not jax.jit(lambda v, build=build: build(v).epsilon(0.1))(bad) <= 1e300
    for field in ("order", "value"):
        broken = dp.RDP(ORDERS, VALUES)
        object.__setattr__(broken, field, jnp.asarray(getattr(broken, field)).at[2].set(-0.5))
        assert not broken.delta(1.0) <= 1
        assert not broken.tradeoff(0.1) > 0


def test_conversions_keep_every_order():
    zcdp = dp.to_rdp(dp.ZCDP(0.3, 0.1), ORDERS)
    np.testing.assert_allclose(zcdp.value, 0.3 + 0.1 * ORDERS, rtol=2e-15)
    gdp = dp.to_rdp(dp.GDP(np.array([0.5, 2.0])), ORDERS)
    assert gdp.shape == (2,)
    np.testing.assert_allclose(gdp.value[1], 2.0 * ORDERS, rtol=2e-15)
    assert np.all(dp.to_rdp(zcdp, ORDERS).value == zcdp.value)
    laplace = dp.Mechanism(dp.Laplace(np.array([1.0, 3.0])), 1.0)
    for source in (laplace, dp.privacy_loss(laplace)):
        found = dp.to_rdp(source, ORDERS)
        assert np.all(found.value[:, 1] >= laplace.renyi(2.0))
        np.testing.assert_allclose(found.value[:, 1], laplace.renyi(2.0), rtol=1e-11)
    for convert, source in (
        (dp.to_zcdp, zcdp),
        (dp.to_gdp, zcdp),
        (lambda g: dp.to_rdp(g, 2.0), dp.ApproxDP(1.0, 1e-3)),
    ):
        with pytest.raises(TypeError):
            convert(source)
    with pytest.raises(ValueError, match="order"):
        dp.to_rdp(dp.GDP(1.0), 0.9)


@given(st.floats(1e-9, 700), st.floats(1.000001, 1e6))
def test_pure_has_the_divergence_of_randomised_response(epsilon, order):
    value = float(dp.to_rdp(dp.PureDP(epsilon), order).value[0])
    with mp.workdps(60):
        a, e = mp.mpf(order), mp.mpf(epsilon)
        truth = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    assert 0 <= oracle.relative_error(value, truth) < 1e-12


def test_order_one_is_the_divergence_of_kullback_and_leibler():
    one, e = np.array([1.0, 2.0]), 0.7
    for source, truth in (
        (dp.PureDP(e), e * np.tanh(e / 2)),
        (dp.GDP(e), e**2 / 2),
        (dp.ZCDP(0.1, e), 0.1 + e),
        (dp.Mechanism(dp.Laplace(2.0), 2.0), np.exp(-1)),
        (3 * dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 2.0)), 3 * np.exp(-1)),
        (dp.privacy_loss(dp.PureDP(e)), e * np.tanh(e / 2)),
        (dp.privacy_loss(dp.ApproxDP(e, 0.1)), np.inf),
    ):
        found = dp.to_rdp(source, one).value
        assert found[0] >= truth * (1 - 1e-15)
        np.testing.assert_allclose(found[0], truth, rtol=2e-12)
        assert found[0] <= found[1]
        traced = jax.jit(lambda o, source=source: dp.to_rdp(source, o).value)(one)
        np.testing.assert_allclose(traced, found, rtol=1e-13)


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_order_one_of_a_sampled_release(relation):
    """E log(P / Q) by an integral in 40 digits; a tilt of 1e-9 was off by 6e-6."""
    q = mp.mpf(0.01)
    mechanism = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, relation)
    value = float((3 * dp.privacy_loss(mechanism)).renyi(1.0))

    def loss(x):
        return mp.log(1 - q + q * mp.exp(x - mp.mpf(1) / 2))

    with mp.workdps(40):
        if relation == "remove":
            truth = mp.quad(lambda x: mp.npdf(x) * mp.exp(loss(x)) * loss(x), range(-16, 20, 4))
        else:
            truth = mp.quad(lambda x: -mp.npdf(x) * loss(x), range(-16, 20, 4))
        assert 0 <= mp.mpf(value) / (3 * truth) - 1 < 1e-12


def test_order_one_bounds_the_tradeoff_alone():
    one = dp.RDP(1.0, 0.5)
    assert one.delta(3.0) == 1
    fnr = float(one.tradeoff(0.2))
    p, q = 1 - mp.mpf(fnr), mp.mpf(0.2)

    def divergence(p, q):
        return p * mp.log(p / q) + (1 - p) * mp.log((1 - p) / (1 - q))

    assert max(divergence(p, q), divergence(q, p)) == pytest.approx(0.5, rel=1e-12)
    both = dp.RDP([1.0, 2.0], [0.5, 1.0])
    assert both.log_delta(3.0) == dp.RDP(2.0, 1.0).log_delta(3.0)
    assert both.tradeoff(0.2) >= fnr
