"""The contract of every guarantee: worst case, composition, rounding up, bad values."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from kinds import KINDS, LEAST

import jaxdp as dp

pytestmark = pytest.mark.float64

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


def test_zcdp_delta_at_extreme_orders():
    """The best order is 1e16 here. Value of a peer's own test, recomputed."""
    np.testing.assert_allclose(dp.ZCDP(0.0, 5e-30).delta(1e-13), 2.61967632972956e-234, rtol=1e-11)
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.03125).delta(0.0), 0.150845784562286, rtol=1e-12)
    np.testing.assert_allclose(dp.ZCDP(0.0, 0.5).epsilon(1e-7), 5.67085883546877, rtol=1e-12)


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


COUNT = 60
DRAWN = np.random.default_rng(5)
VALUES = DRAWN.uniform(0.01, 3.0, (3, COUNT))
POWERS = 2.0 ** DRAWN.integers(-6, 7, (2, COUNT))
NUMBERS = DRAWN.integers(1, 60, COUNT)


def fractions(values):
    return [Fraction(float(x)) for x in values]


def assert_rounded_up(found, exact, power=1, ulps=8):
    """No result lies below the exact value, none far above, and what is a double stays one."""
    for each, true in zip(fractions(found), exact, strict=True):
        assert true <= each**power <= true * (1 + Fraction(ulps * power, 2**52))


@pytest.mark.parametrize("scales", [POWERS, VALUES[1:], (POWERS[0], VALUES[1])])
def test_above_threshold(scales):
    for answers in (1, 3, 8, 21):
        found = dp.above_threshold(
            VALUES[0], threshold_scale=scales[0], query_scale=scales[1], answers=answers
        ).epsilon_bound
        shift, threshold, query = map(fractions, (VALUES[0], *scales))
        parts = zip(shift, threshold, query, strict=True)
        assert_rounded_up(found, [d / b + 2 * answers * d / q for d, b, q in parts])


def test_exact_values_stay_as_they_are():
    known = {"threshold_scale": 4.0, "query_scale": 8.0}
    assert float(dp.above_threshold(1.0, **known).epsilon_bound) == 0.5
    assert float(dp.above_threshold(3.0, **known, answers=5).epsilon_bound) == 4.5
    assert float(dp.above_threshold(0.0, **known).epsilon_bound) == 0.0
    assert (
        float(dp.above_threshold(1e-300, threshold_scale=1e10, query_scale=8.0).epsilon_bound) > 0
    )
    assert float(dp.Mechanism(dp.Gaussian(2.0), 3.0).zcdp().rho) == 1.125


def test_rho_of_gaussians():
    """Of one release, and of groups, whose sensitivity is a product."""
    shift, scale = map(fractions, VALUES[:2])
    found = dp.Mechanism(dp.Gaussian(VALUES[1]), VALUES[0]).zcdp().rho
    assert_rounded_up(found, [(d / b) ** 2 / 2 for d, b in zip(shift, scale, strict=True)])
    for size in (3, 7):
        known = {"relation": "replace_one", "group_size": size}
        whole = dp.Mechanism(dp.Gaussian(VALUES[1]), VALUES[0], **known)
        exact = [(2 * size * d / b) ** 2 / 2 for d, b in zip(shift, scale, strict=True)]
        assert_rounded_up(whole.zcdp().rho, exact)
        assert_rounded_up(whole.sensitivity, [2 * size * d for d in shift])


def test_mu_of_trees():
    for steps in (1, 2, 5, 8, 9, 100):
        depth = (steps - 1).bit_length() + 1
        exact = [depth / x**2 for x in fractions(VALUES[0])]
        assert_rounded_up(dp.GDP.of_tree(steps, VALUES[0]).mu, exact, power=2)


def test_sums_and_multiples_of_guarantees():
    """Epsilon, delta, mu and rho add up, or their squares do."""
    a, b = map(fractions, VALUES[:2])
    small, other = VALUES[0] / 100, VALUES[1] / 100
    pairs, times = list(zip(a, b, strict=True)), [int(k) for k in NUMBERS]
    pure, gauss = dp.PureDP(VALUES[0]), dp.GDP(VALUES[0])
    assert_rounded_up((pure + dp.PureDP(VALUES[1])).epsilon_bound, [x + y for x, y in pairs])
    assert_rounded_up(
        (NUMBERS * pure).epsilon_bound, [k * x for k, x in zip(times, a, strict=True)]
    )
    assert_rounded_up((gauss + dp.GDP(VALUES[1])).mu, [x**2 + y**2 for x, y in pairs], 2)
    exact = [k * x**2 for k, x in zip(times, a, strict=True)]
    assert_rounded_up((NUMBERS * gauss).mu, exact, 2)
    assert_rounded_up(
        (NUMBERS * dp.ZCDP(0.0, VALUES[0])).rho, [k * x for k, x in zip(times, a, strict=True)]
    )
    both = (dp.ApproxDP(1.0, small) + dp.ApproxDP(1.0, other)).delta_bound
    exact = [1 - (1 - x) * (1 - y) for x, y in zip(fractions(small), fractions(other), strict=True)]
    assert_rounded_up(both, exact)
    many = (NUMBERS * dp.ApproxDP(1.0, small)).delta_bound
    exact = [1 - (1 - x) ** k for k, x in zip(times, fractions(small), strict=True)]
    assert_rounded_up(many, exact, ulps=32)
