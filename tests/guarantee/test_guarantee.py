"""Guarantees: their own worst case, composition, and every conversion."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxdp as dp

EXACT_KINDS = (dp.PureDP(0.7), dp.ApproxDP(0.7, 1e-3), dp.GDP(0.6))
KINDS = (*EXACT_KINDS, dp.ZCDP(0.01, 0.2))
EPSILONS = np.array([-3.0, -0.7, -0.1, 0.0, 0.2, 0.7, 0.71, 1.5, 4.0])


def randomised_response(bound, epsilon, failure=0.0):
    """delta of the four-point worst pair, from its probabilities."""
    p = 1 / (1 + mp.exp(-mp.mpf(bound)))
    pairs = ((p, 1 - p), (1 - p, p))
    e = mp.exp(mp.mpf(epsilon))
    inner = sum(max(mp.mpf(0), a - e * b) for a, b in pairs) if epsilon < bound else mp.mpf(0)
    return mp.mpf(failure) + (1 - mp.mpf(failure)) * inner


@pytest.mark.parametrize("bound", [1e-9, 0.3, 2.0, 30.0])
def test_pure_is_randomised_response(bound):
    for epsilon in (*EPSILONS, bound, -bound, float(np.nextafter(bound, 0)), bound / 2):
        truth = randomised_response(bound, float(epsilon))
        value = float(dp.PureDP(bound).log_delta(epsilon))
        error = oracle.relative_error(value, mp.log(truth) if truth else -mp.inf)
        assert 0 <= error < 1e-13, (bound, epsilon)


@pytest.mark.parametrize(("bound", "failure"), [(0.5, 1e-6), (2.0, 0.2), (1.0, 0.0), (1.0, 1.0)])
def test_approximate_is_the_four_point_pair(bound, failure):
    for epsilon in (*EPSILONS, bound, -bound):
        truth = randomised_response(bound, float(epsilon), failure)
        value = float(dp.ApproxDP(bound, failure).delta(epsilon))
        assert 0 <= mp.mpf(value) - truth <= 3e-14 * truth


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: type(k).__name__)
def test_epsilon_inverts_delta(kind):
    deltas = np.array([1e-300, 1e-9, 1.1e-3, 0.05, 0.3])
    epsilon = np.asarray(kind.epsilon(deltas))
    finite = np.isfinite(epsilon)
    assert np.all(kind.delta(epsilon[finite]) <= deltas[finite])
    inside = finite & (epsilon > 0)
    assert np.all(kind.delta(epsilon[inside] * (1 - 1e-9)) > deltas[inside] * (1 - 1e-6))
    assert kind.epsilon(1.0) == 0
    assert np.all(np.diff(epsilon[finite]) <= 0)


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


def test_zcdp_delta_at_extreme_orders():
    """The best order is 1e16 here. Value of a peer's own test, recomputed."""
    np.testing.assert_allclose(dp.ZCDP(0.0, 5e-30).delta(1e-13), 2.61967632972956e-234, rtol=1e-11)
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.03125).delta(0.0), 0.150845784562286, rtol=1e-12)
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.5).epsilon(1e-7), 5.67085883546877, rtol=1e-12)


def test_gdp_tradeoff_is_rounded_down():
    for mu in (1e-3, 0.5, 3.0, 20.0):
        for fpr in (1e-300, 1e-12, 0.1, 0.5, 0.97):
            with mp.workdps(60):
                threshold = mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(fpr)) if fpr > 1e-40 else None
                if threshold is None:
                    continue
                truth = mp.erfc((mu - threshold) / mp.sqrt(2)) / 2
            error = oracle.relative_error(float(dp.GDP(mu).tradeoff(fpr)), truth)
            assert -1e-10 < error <= 0, (mu, fpr)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: type(k).__name__)
def test_repetition_is_a_sum(kind):
    three, summed = 3 * kind, kind + kind + kind
    for a, b in zip(jax.tree.leaves(three), jax.tree.leaves(summed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    traced = jax.jit(lambda n: n * kind)(3)
    for a, b in zip(jax.tree.leaves(three), jax.tree.leaves(traced), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)
    zero = 0 * kind
    assert zero.delta(0.0) <= 1e-14


def test_kinds_never_mix():
    for one in KINDS:
        for two in KINDS:
            if type(one) is not type(two):
                with pytest.raises(TypeError, match="cannot compose"):
                    one + two


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: dp.PureDP(-1.0), "epsilon"),
        (lambda: dp.PureDP(np.nan), "epsilon"),
        (lambda: dp.ApproxDP(1.0, 1.5), "delta"),
        (lambda: dp.ApproxDP(-0.1, 0.5), "epsilon"),
        (lambda: dp.ZCDP(0.0, np.nan), "rho"),
        (lambda: dp.ZCDP(-1.0, 1.0), "xi"),
        (lambda: dp.GDP(-0.1), "mu"),
        (lambda: dp.Budget(-1.0, 0.1), "epsilon"),
        (lambda: dp.Budget(1.0, 2.0), "delta"),
        (lambda: dp.GDP(1.0).epsilon(-0.1), "delta"),
        (lambda: dp.GDP(1.0).tradeoff(1.1), "fpr"),
        (lambda: -1 * dp.GDP(1.0), "count"),
        (lambda: dp.GDP(np.array([1.0, -2.0])), "mu"),
        (lambda: dp.GDP("1"), "mu"),
    ],
)
def test_bad_values_raise(build, name):
    with pytest.raises(ValueError, match=name):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda v: dp.PureDP(v),
        lambda v: dp.ApproxDP(v, 0.1),
        lambda v: dp.ApproxDP(0.1, v),
        lambda v: dp.ZCDP(v, 0.1),
        lambda v: dp.ZCDP(0.1, v),
        lambda v: dp.GDP(v),
        lambda v: v * dp.GDP(1.0),
    ],
)
def test_bad_traced_values_are_never_private(build):
    for value in (-1.0, np.nan):
        assert not jax.jit(lambda v: build(v).delta(1.0))(value) <= 1
        assert not jax.jit(lambda v: build(v).epsilon(0.1))(value) <= 1e300


@pytest.mark.parametrize("kind", [*KINDS, dp.Budget(1.0, 0.1)], ids=lambda k: type(k).__name__)
def test_values_that_bypass_the_constructor_are_never_private(kind):
    """As an optimiser's step may leave them: negative, above one, NaN."""
    leaves, tree = jax.tree.flatten(kind)
    for k in range(len(leaves)):
        for bad in (-0.5, np.nan):
            broken = jax.tree.unflatten(
                tree, [jnp.asarray(bad) if i == k else leaf for i, leaf in enumerate(leaves)]
            )
            if isinstance(kind, dp.Budget):
                assert dp.largest_gdp(broken).mu == 0
                continue
            assert not jax.jit(lambda b: b.delta(1.0))(broken) <= 1
            assert not jax.jit(lambda b: b.tradeoff(0.1))(broken) > 0
    above = jax.tree.unflatten(
        jax.tree.structure(dp.Budget(1.0, 0.1)), [jnp.asarray(1.0), jnp.asarray(2.0)]
    )
    assert dp.largest_gdp(above).mu == 0


def test_counts_are_whole():
    for count in (0.5, -1, np.nan):
        with pytest.raises(ValueError, match="count"):
            count * dp.GDP(1.0)
        assert not jax.jit(lambda n: (n * dp.GDP(1.0)).delta(1.0))(count) <= 1
    assert (2**40 * dp.GDP(2.0**-20)).mu == pytest.approx(1.0, rel=1e-14)


@given(st.floats(1e-6, 30), st.floats(1.0001, 1e4))
def test_pure_to_zcdp_bounds_every_order(epsilon, order):
    """The divergence of randomised response, which no PureDP mechanism exceeds, and rho meets."""
    rho = float(dp.to_zcdp(dp.PureDP(epsilon)).rho)
    assert rho <= epsilon**2 / 2 * (1 + 1e-12)
    with mp.workdps(40):
        s = mp.mpf(order) - mp.mpf(1) / 2
        half = mp.mpf(epsilon) / 2
        divergence = (mp.log(mp.cosh(s * epsilon)) - mp.log(mp.cosh(half))) / (mp.mpf(order) - 1)
    assert divergence <= mp.mpf(order) * mp.mpf(rho)
    kullback_leibler = epsilon * np.tanh(epsilon / 2)
    np.testing.assert_allclose(rho, kullback_leibler, rtol=1e-13)


@given(st.floats(1e-6, 30), st.floats(1.000001, 1e4))
def test_laplace_zcdp_is_the_least_rho(ratio, order):
    """Below r^2 / 2, above every order's divergence, and met at order 1."""
    noise = dp.Laplace(1.0)
    rho = float(noise.zcdp(ratio)[1])
    assert rho <= ratio**2 / 2 * (1 + 1e-12)
    assert float(noise.renyi(ratio, order)) <= order * rho * (1 + 1e-13)
    np.testing.assert_allclose(float(noise.renyi(ratio, 1 + 1e-9)), rho, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.4, 1.0, 5.0, 12.0])
def test_pure_to_gdp_is_above_and_touches(epsilon):
    pure = dp.PureDP(epsilon)
    gdp = dp.to_gdp(pure)
    fpr = np.concatenate([np.logspace(-9, -0.001, 200), [1 / (1 + np.exp(epsilon))]])
    assert np.all(gdp.tradeoff(fpr) <= np.asarray(pure.tradeoff(fpr)) * (1 + 1e-12))
    np.testing.assert_allclose(gdp.tradeoff(fpr[-1]), pure.tradeoff(fpr[-1]), rtol=1e-9)


def test_conversions_between_kinds():
    gdp = dp.GDP(0.4)
    np.testing.assert_allclose(dp.to_zcdp(gdp).rho, 0.08, rtol=1e-15)
    approx = dp.to_approx(gdp, 1e-6)
    assert gdp.delta(approx.epsilon_bound) <= 1e-6
    assert dp.to_pure(dp.ApproxDP(1.0, 0.0)).epsilon_bound == 1.0
    assert dp.to_pure(dp.ApproxDP(1.0, 1e-9)).epsilon_bound == np.inf
    assert dp.to_approx(dp.PureDP(1.0), 0.0).epsilon_bound <= 1.0 + 1e-12
    for kind in KINDS:
        converters = {dp.PureDP: dp.to_pure, dp.ZCDP: dp.to_zcdp, dp.GDP: dp.to_gdp}
        if type(kind) in converters:
            assert converters[type(kind)](kind) is kind
    for convert, kind in (
        (dp.to_pure, dp.GDP(1.0)),
        (dp.to_pure, dp.ZCDP(0.0, 1.0)),
        (dp.to_zcdp, dp.ApproxDP(1.0, 0.1)),
        (dp.to_gdp, dp.ApproxDP(1.0, 0.1)),
        (dp.to_gdp, dp.ZCDP(0.0, 1.0)),
    ):
        with pytest.raises(TypeError):
            convert(kind)


@pytest.mark.long
@given(st.floats(0.01, 3), st.floats(0, 20))
def test_zcdp_of_a_gaussian_is_above_it(mu, epsilon):
    gdp = dp.GDP(mu)
    assert dp.to_zcdp(gdp).log_delta(epsilon) >= gdp.log_delta(epsilon) * (1 - 1e-12)


@given(st.floats(0, 8), st.floats(1e-14, 0.9), st.floats(0.05, 1.0))
def test_largest_gdp_is_safe_and_tight(epsilon, delta, power):
    target = float(np.float64(delta) ** (1 + 20 * (1 - power)))
    mu = float(dp.largest_gdp(dp.Budget(epsilon, target)).mu)
    truth = mp.exp(oracle.gaussian_log_delta(mu, epsilon))
    assert truth <= mp.mpf(target)
    assert mp.exp(oracle.gaussian_log_delta(mu * (1 + 1e-10), epsilon)) > mp.mpf(target)


@pytest.mark.long
def test_largest_gdp_is_batched_and_differentiable():
    budget = dp.Budget(jnp.array([[0.1], [1.0]]), jnp.array([1e-9, 1e-3, 0.0]))
    mu = dp.largest_gdp(budget).mu
    assert mu.shape == (2, 3)
    assert np.all(mu[:, 2] == 0)

    def level(epsilon, delta):
        return dp.largest_gdp(dp.Budget(epsilon, delta)).mu

    for k in (0, 1):
        point = [1.0, 1e-3]
        h = 1e-6 * point[k]
        up, down = list(point), list(point)
        up[k], down[k] = point[k] + h, point[k] - h
        numeric = (level(*up) - level(*down)) / (2 * h)
        np.testing.assert_allclose(jax.grad(level, k)(*point), numeric, rtol=1e-6)
    bad = jax.vmap(level)(jnp.array([1.0, jnp.nan, 1.0]), jnp.array([jnp.nan, 0.1, -0.1]))
    assert np.all(bad == 0)


LEAST = float(np.finfo(np.float64).tiny)


@pytest.mark.parametrize("traced", [False, True], ids=["known", "traced"])
def test_subnormal_guarantees_are_lifted(traced):
    """A CPU takes them for 0 otherwise: 1e308 times 1e-308 was 0."""
    run = jax.jit if traced else lambda f: f
    for build in (
        lambda v: (1e308 * dp.PureDP(v)).epsilon_bound,
        lambda v: (1e308 * dp.ApproxDP(v, 0.0)).epsilon_bound,
        lambda v: (1e308 * dp.ZCDP(0.0, v)).rho,
        lambda v: (1e308 * dp.ZCDP(v, 0.0)).xi,
        lambda v: (1e308 * dp.RDP(2.0, v)).value[0],
        lambda v: (1e308 * dp.GDP(v)).mu * 1e154,
    ):
        for value in (1e-308, 5e-324):
            assert run(build)(value) >= 1e308 * LEAST * (1 - 1e-12)
    assert run(lambda v: dp.ApproxDP(1.0, v).delta(2.0))(1e-310) >= LEAST
    assert run(lambda v: (1 * dp.ApproxDP(1.0, v) + dp.ApproxDP(0.0, 0.0)).delta_bound)(1e-310) > 0
    assert run(lambda v: dp.PureDP(v).epsilon_bound)(np.float32(1e-40)) >= np.float32(1e-40)
    assert run(lambda v: dp.PureDP(v).epsilon_bound)(np.float16(6e-8)) == np.float16(6e-8)
    release = run(lambda q: dp.Mechanism(dp.Gaussian(1.0), 1.0, q, "remove").delta(0.0))
    assert release(1e-310) > 0


def test_a_subnormal_budget_is_met_as_zero():
    for budget in (dp.Budget(1.0, 1e-310), dp.Budget(0.0, 5e-324)):
        assert dp.largest_gdp(budget).mu == 0
    assert dp.PureDP(1.0).epsilon(1e-310) >= 1.0


def test_conversions_do_not_underflow():
    for small in (1e-160, 1e-300):
        assert dp.to_zcdp(dp.GDP(small)).rho >= LEAST
        assert dp.to_zcdp(dp.PureDP(small)).rho >= LEAST
        assert np.all(dp.to_rdp(dp.GDP(small), [1.5, 2.0]).value >= LEAST)
        assert np.all(dp.to_rdp(dp.PureDP(small), [1.5, 2.0]).value >= LEAST)
        assert dp.to_gdp(dp.PureDP(small)).mu >= small


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
    assert dp.tpr_at_fpr(kind, 0.0) == 1
    assert kind.delta(np.array([0.0, 700.0])).tolist() == [1.0, 1.0]


@given(st.floats(0, 800), st.floats(0, 1), st.floats(0, 1), st.sampled_from([1.0, 1e-17, 1e-200]))
def test_pure_and_approximate_tradeoffs_are_never_above_their_own(bound, failure, fpr, small):
    failure, fpr = failure * small, fpr * small
    fnr = float(dp.ApproxDP(bound, failure).tradeoff(fpr))
    with mp.workdps(400):
        e, d, x = mp.mpf(bound), mp.mpf(failure), mp.mpf(fpr)
        truth = max(mp.mpf(0), 1 - d - mp.exp(e) * x, mp.exp(-e) * (1 - d - x))
        assert 0 <= truth - mp.mpf(fnr) <= 4e-15
        assert mp.mpf(float(dp.tpr_at_fpr(dp.ApproxDP(bound, failure), fpr))) >= 1 - truth


def test_the_rate_that_nothing_costs():
    assert dp.tpr_at_fpr(dp.ApproxDP(1.0, 1e-17), 0.0) >= 1e-17
    assert dp.tpr_at_fpr(dp.PureDP(1.0), 0.0) == 0
    assert dp.PureDP(800.0).tradeoff(0.0) == 1


@given(st.floats(-300, 4))
def test_pure_to_gdp_is_the_least_mu_rounded_up(exponent):
    epsilon = 10.0**exponent
    mu = float(dp.to_gdp(dp.PureDP(epsilon)).mu)
    error = oracle.relative_error(mu, oracle.mu_of_pure(epsilon))
    assert 0 <= error < 3e-15, epsilon


def test_pure_to_gdp_beyond_every_search():
    mu = dp.to_gdp(dp.PureDP(np.array([0.0, 1e300, 1.7e308, np.inf]))).mu
    assert mu[0] == 0
    assert np.all(mu[1:3] >= 2 * np.sqrt(2) * np.sqrt([1e300, 1.7e308]))
    assert mu[3] == np.inf
    slope = jax.grad(lambda e: dp.to_gdp(dp.PureDP(e)).mu)(2.0)
    numeric = (oracle.mu_of_pure(2.0 + 1e-6) - oracle.mu_of_pure(2.0 - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope, float(numeric), rtol=1e-9)


@pytest.mark.parametrize(
    ("count", "kind"),
    [
        (0, dp.PureDP(np.inf)),
        (np.inf, dp.GDP(0.0)),
        (np.inf, dp.PureDP(0.0)),
        (0, dp.ApproxDP(1.0, 1.0)),
        (0, dp.ZCDP(0.0, np.inf)),
        (0, dp.RDP(2.0, np.inf)),
    ],
)
def test_nothing_times_infinity_names_the_count(count, kind):
    with pytest.raises(ValueError, match="count must not be 0 where"):
        count * kind
    assert not jax.jit(lambda n: (n * kind).delta(1.0))(count) <= 1
