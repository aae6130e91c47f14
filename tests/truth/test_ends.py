"""Where the finite losses end delta is the probability of an infinite one: for every engine."""

import functools
import itertools
import operator
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._numeric.double_double import Double, dot_up, gap_up, product_up, sum_up

pytestmark = pytest.mark.float64

loss_of = dp.privacy_loss


def composed(*known):
    return functools.reduce(operator.add, map(loss_of, known))


@pytest.mark.parametrize(
    ("epsilons", "failures", "target", "end"),
    [
        ((1.0,), (0.1,), 0.1, 1.0),
        ((0.3,), (1e-9,), 1e-9, 0.3),
        ((1.0, 2.0), (0.1, 0.2), 0.28, 3.0),
        ((1.0, 2.0), (0.0, 0.0), 0.0, 3.0),
        ((0.1, 0.2), (0.1, 0.1), 0.19, 0.30000000000000004),
        ((0.1,) * 3, (0.1,) * 3, 0.271, 0.30000000000000004),
    ],
)
def test_sums_of_stated_guarantees_are_exact(epsilons, failures, target, end):
    known = [dp.ApproxDP(*each) for each in zip(epsilons, failures, strict=True)]
    total = composed(*known)
    assert total.epsilon(target) == end
    assert total.epsilon(target * (1 - 1e-12)) == (np.inf if target else end)
    assert 0 <= total.delta(end) - target <= 1e-13 * target
    assert total.log_delta_error(end) < 1e-12
    # The guarantees' own sums as well, and a sum of equal ones.
    alone = functools.reduce(operator.add, known)
    assert alone.epsilon(target) == end
    assert 0 <= alone.delta(end) - target <= 1e-13 * target
    assert len(set(epsilons)) > 1 or (len(known) * known[0]).epsilon(target) == end


def test_pure_sums_owe_nothing_at_their_end():
    total = composed(dp.PureDP(1.0), dp.PureDP(2.0))
    assert total.delta(3.0) == 0
    assert (dp.PureDP(1.0) + dp.PureDP(2.0)).delta(3.0) == 0 == (3 * dp.PureDP(1.0)).delta(3.0)
    assert total.epsilon(jnp.array([0.0, 1.0])).tolist() == [3.0, 0.0]
    # 0.1 + 0.2 lies above 0.3, by less than any engine resolves.
    total = composed(dp.PureDP(0.1), dp.PureDP(0.2))
    with mp.workdps(40):
        over = mp.mpf(0.1) + mp.mpf(0.2) - mp.mpf(0.3)
        exact = -mp.expm1(-over) / ((1 + mp.exp(-mp.mpf(0.1))) * (1 + mp.exp(-mp.mpf(0.2))))
    assert exact <= float(total.delta(0.3)) <= 4 * exact


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Mechanism(dp.TruncatedLaplace(1.0, 5.0), 1.0),
        dp.Mechanism(dp.TruncatedLaplace(1.0, 5.0), 1.0, 0.1, "remove"),
        dp.ExponentialMechanism(1.0),
    ],
)
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_noise_meets_the_least_delta_at_a_finite_epsilon(mechanism, count):
    """By one profile, along a contour and on a grid."""
    total = count * loss_of(mechanism)
    least = float(total.delta(100.0))
    epsilon = float(total.epsilon(least))
    assert 0 < epsilon <= 2.001
    assert total.delta(epsilon) <= least * (1 + 1e-12)
    assert total.delta(epsilon * 0.99) > least
    assert least == 0 or total.epsilon(least * (1 - 1e-9)) == np.inf


def test_the_largest_losses_hold_the_truth():
    """Responses of 0.7 and 1.1, which may fail: against their four sums; bad values stay bad."""
    loss = loss_of(dp.ApproxDP(jnp.array([0.7, 1.1]), 1e-3)).sum()
    with mp.workdps(30):
        bounds, failure = [mp.mpf(0.7), mp.mpf(1.1)], mp.mpf(1e-3)
        end, finite = sum(bounds), (1 - failure) ** 2
        mass = finite / mp.fprod(1 + mp.exp(-b) for b in bounds)
        for gap in (-1.0, 0.0, 1e-15, 1e-6, 0.5):
            epsilon = float(end - gap)
            inside = max(end - mp.mpf(epsilon), mp.mpf(0))
            truth = 1 - finite + mass * -mp.expm1(-inside)
            value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
            assert value - error <= float(mp.log(truth)) <= value
            assert error < 1e-8
            assert loss.epsilon(float(truth)) >= epsilon * (1 - 1e-13) - (inside == 0)

    def epsilons(bound):
        return loss_of(dp.ApproxDP(bound, 0.1)).epsilon(np.array([0.0, 0.1, 0.5]))

    traced = np.asarray(jax.jit(jax.vmap(epsilons))(np.array([np.nan, -1.0, 0.7])))
    assert not np.any(traced[:2] < np.inf)
    np.testing.assert_allclose(traced[2], epsilons(0.7), rtol=1e-9)


def test_sums_and_products_are_rounded_up_and_exact_where_they_can_be():
    rng = np.random.default_rng(0)
    x = np.round(10.0 ** rng.uniform(0, 4, (200, 7)))
    y = 10.0 ** rng.uniform(-9, 9, (200, 7))
    y[:50] = np.round(y[:50], 3)
    total = jax.jit(dot_up)(x, y)
    near = np.asarray(total.high) * (1 + rng.uniform(-4e-16, 4e-16, 200))
    gaps = jax.jit(gap_up)(total, near)
    added, product = jax.jit(lambda a, b: (sum_up(a, b), product_up(a, b)))(x[:, 0], y[:, 0])
    with mp.workdps(80):
        for i in range(200):
            a, b = [mp.mpf(v) for v in x[i]], [mp.mpf(v) for v in y[i]]
            exact = mp.fdot(a, b)
            held = mp.mpf(float(total.high[i])) + mp.mpf(float(total.low[i]))
            assert 0 <= held - exact <= exact * mp.mpf(10) ** -29
            gap = held - mp.mpf(near[i])
            assert 0 <= mp.mpf(float(gaps[i])) - gap <= abs(gap) * 1e-14 + exact * 1e-30
            for value, truth in ((added[i], a[0] + b[0]), (product[i], a[0] * b[0])):
                assert 0 <= mp.mpf(float(value)) - truth <= 5e-16 * truth
    one, three = jnp.ones(()), jnp.full((), 3.0)
    whole = jax.jit(dot_up)(jnp.array([3.0, 0.0, 2.0]), jnp.array([1.5, jnp.inf, 0.25]))
    assert (float(whole.high), float(whole.low)) == (5.0, 0.0)
    assert gap_up(whole, 5.0 * one) == 0 == product_up(0.0 * one, three)
    assert (sum_up(one, 2.0 * one), product_up(one, three)) == (3.0, 3.0)
    endless = jax.jit(dot_up)(jnp.ones(2), jnp.array([1.0, jnp.inf]))
    assert gap_up(endless, one) == jnp.inf
    assert gap_up(Double(one, 0.0 * one), jnp.inf * one) == -jnp.inf


def bounded(rng):
    """A bounded loss, and its largest value as a fraction."""
    epsilon, scale, shift = rng.uniform([1e-3, 0.5, 0.1], [2.0, 5.0, 3.0]).tolist()
    known = (
        dp.PureDP(epsilon),
        dp.RandomisedResponse(epsilon, 2),
        dp.RandomisedResponse(epsilon, 4),
        dp.ExponentialMechanism(epsilon),
        dp.Mechanism(dp.Laplace(scale), shift),
        dp.Mechanism(dp.Subbotin(scale, 1.0), shift),
        dp.Mechanism(dp.DiscreteLaplace(scale), 3.0),
    )
    kind = int(rng.integers(len(known)))
    exact = Fraction(epsilon) if kind < 4 else Fraction(3 if kind == 6 else shift) / Fraction(scale)
    return known[kind], exact


def test_the_largest_loss_is_never_below_the_exact_sum():
    """Where delta is 0, and of infinite order; within two ulp."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        parts = [bounded(rng) for _ in range(rng.integers(1, 4))]
        counts = rng.integers(1, 9, len(parts)).tolist()
        total = functools.reduce(
            operator.add, (n * loss_of(known) for n, (known, _) in zip(counts, parts, strict=True))
        )
        exact = sum(n * largest for n, (_, largest) in zip(counts, parts, strict=True))
        for found in (total.epsilon(0.0), total.renyi(np.inf)):
            assert exact <= Fraction(float(found)) <= exact * (1 + Fraction(2, 10**15))


@pytest.mark.parametrize("delta", [1.4324377846115515e-27, 1e-300])
def test_a_delta_below_the_largest_loss_rounds_up(delta):
    """Responses: delta there is P[largest] (1 - e^(epsilon - largest)), exactly."""
    rng = np.random.default_rng(1)
    compositions = [[(0.015050889734714181, 3)]]
    for size in (1, 2, 3, 3):
        bounds, counts = rng.uniform(1e-3, 2.0, size).tolist(), rng.integers(1, 7, size).tolist()
        compositions.append(list(zip(bounds, counts, strict=True)))
    for parts in compositions:
        loss = composed(*(dp.RandomisedResponse(bound, 4) for bound, n in parts for _ in range(n)))
        found = float(loss.epsilon(delta))
        exact = sum(n * Fraction(bound) for bound, n in parts)
        with mp.workdps(40):
            chance = mp.fprod((mp.exp(b) / (mp.exp(b) + 3)) ** n for b, n in parts)
            over = max(exact - Fraction(found), Fraction(0))
            over = mp.mpf(over.numerator) / mp.mpf(over.denominator)
            assert chance * -mp.expm1(-over) <= delta, parts
        assert found <= exact * (1 + Fraction(1, 10**15))


def given_law(rng):
    """Any masses under P and Q; the logarithms' differences are the losses."""
    p, q = rng.dirichlet(np.ones(4), 2).tolist()
    atoms = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(p, q, strict=True)]
    return dp.PrivacyLoss.from_pmf(np.log(p) - np.log(q), p, q, "remove"), atoms


def sampled_lattice(rng):
    """A sensitivity of 1 has two losses, which sampling mixes."""
    scale, rate = rng.uniform([0.5, 0.01], [5.0, 1.0]).tolist()
    up = 1 / (1 + mp.exp(-1 / mp.mpf(scale)))
    mixed = [side + mp.mpf(rate) * (1 - 2 * side) for side in (up, 1 - up)]
    loss = loss_of(dp.Mechanism(dp.DiscreteLaplace(scale), 1.0, rate, "remove"))
    return loss, list(zip(mixed, [up, 1 - up], strict=True))


def staircase(rng):
    """At the sensitivity the loss is one step up, none or one step down."""
    height, split = rng.uniform([0.01, 0.05], [3.0, 0.95]).tolist()
    fall, part = mp.exp(-mp.mpf(height)), mp.mpf(split)
    top = (1 - fall) / (2 * (part + fall * (1 - part)))
    up = mp.mpf(1) / 2 + top * min(part, 1 - part)
    level = 1 - up - up * fall
    loss = loss_of(dp.Mechanism(dp.Staircase(height, 1.0, split), 1.0))
    return loss, [(up, up * fall), (level, level), (up * fall, up)]


@pytest.mark.parametrize("law", [given_law, sampled_lattice, staircase])
def test_epsilon_meets_every_delta_by_exact_sums(law):
    """Atoms of up to three releases, listed; deltas far below that of the largest loss."""
    rng = np.random.default_rng(2)
    with mp.workdps(50):
        for count in (1, 2, 3):
            loss, atoms = law(rng)
            laws = list(itertools.product(atoms, repeat=count))
            sums = [[mp.fprod(side) for side in zip(*each, strict=True)] for each in laws]
            for delta in (1e-3, 1e-27, 1e-100, 1e-300):
                shrink = mp.exp(float((count * loss).epsilon(delta)))
                assert mp.fsum(max(p - shrink * q, 0) for p, q in sums) <= delta * (1 + 1e-15)
