"""Worst mechanisms of guarantees, composed: against sums over their atoms and integrals."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from references import expected, records

import jaxdp as dp
from jaxdp.dominating_pair.known_guarantee import BoundedRange

pytestmark = pytest.mark.float64


@pytest.fixture(autouse=True)
def _many_digits():
    with mp.workdps(50):
        yield


def atoms(e, n):
    """(loss, mass) of n randomised responses."""
    e = mp.mpf(e)
    p = 1 / (1 + mp.exp(-e))
    return [((2 * j - n) * e, mp.binomial(n, j) * p**j * (1 - p) ** (n - j)) for j in range(n + 1)]


def exact_delta(e, n, epsilon, failure=0.0):
    epsilon = mp.mpf(epsilon)
    finite = mp.fsum(m * (1 - mp.exp(epsilon - v)) for v, m in atoms(e, n) if v > epsilon)
    rest = (1 - mp.mpf(failure)) ** n
    return 1 - rest + rest * finite


def check(value, exact, tolerance):
    """value is an upper bound, `tolerance` above the exact log delta at most."""
    error = mp.mpf(float(value)) - mp.log(exact)
    assert -1e-30 <= error < tolerance, (float(value), mp.nstr(error, 5))


@pytest.mark.parametrize(
    ("e", "n", "failure", "tolerance"),
    [
        pytest.param(1.0, 10, 0.0, 1e-7, marks=pytest.mark.long),
        (3.0, 2, 0.0, 1e-7),
        (0.05, 400, 0.0, 1e-7),
        pytest.param(1e-3, 4096, 0.0, 1e-7, marks=pytest.mark.long),
        (40.0, 3, 0.0, 1e-7),
        # Losses are rounded by 2e-11: 1e-3 below the largest, this is 2e-8 of delta.
        *(pytest.param(1.0, 10, x, 2e-8, marks=pytest.mark.long) for x in (1e-3, 1e-12, 0.3, 0.9)),
    ],
)
def test_responses(e, n, failure, tolerance):
    """A sum over atoms while delta is a double; 1 - (1 - failure)^n above the largest loss."""
    total, end = n * dp.privacy_loss(dp.ApproxDP(e, failure) if failure else dp.PureDP(e)), e * n
    shares = np.array([-1.2, -1.1, -0.3, 0.0, 0.013, 0.1, 0.2, 0.5, 0.9, 0.95, 0.999])
    for value, point in zip(total.log_delta(shares * end), shares * end, strict=True):
        exact = exact_delta(e, n, point, failure)
        if exact > mp.mpf("1e-300"):
            check(value, exact, tolerance)
    infinite = float(-mp.expm1(n * mp.log1p(-mp.mpf(failure))))
    beyond = total.delta(np.array([end * (1 + 1e-14), end + 0.1, 1e6]))
    assert np.all((beyond >= infinite) & (beyond <= infinite * (1 + 1e-13)))
    # At the largest loss itself its rounding is what is left: the atom there may count in part.
    assert total.delta(end) <= infinite + 1e-8
    if failure:
        assert total.epsilon(infinite * 0.999) == np.inf
        assert float(total.renyi(2.0)) == np.inf
    if failure <= 0.5:
        target = infinite + (1 - infinite) * 1e-3
        value = float(total.epsilon(target))
        assert exact_delta(e, n, value, failure) <= target
        assert exact_delta(e, n, value * (1 - 3e-8), failure) > target


def test_no_release_of_a_gaussian_is_none():
    none = 0 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0))
    different = 30 * dp.privacy_loss(dp.PureDP(0.5)) + 30 * dp.privacy_loss(dp.PureDP(0.3))
    with_none = (different + none).log_delta(6.0)
    assert 0 <= float(with_none - different.log_delta(6.0)) < 1e-4


def test_the_next_epsilon_after_an_atom():
    """Neither an atom just above epsilon nor one just below is misjudged."""
    e, n = 0.3, 20
    total = n * dp.privacy_loss(dp.PureDP(e))
    for j in (11, 15, 20):
        atom = float(mp.mpf(e) * (2 * j - n))
        for point in (np.nextafter(atom, 0), atom, np.nextafter(atom, 99)):
            exact = exact_delta(e, n, point)
            value = float(total.log_delta(point))
            if exact == 0:
                assert value < -30
            else:
                check(value, exact, 1e-8 if j < n else 40.0)


def test_reference_compositions():
    """10 releases of 1 and 3, 400 of 0.05: epsilon to 1e-11 from above."""
    for row in records("composed_pure", "composed_epsilon"):
        total = row["inputs"]["count"] * dp.privacy_loss(dp.PureDP(row["params"]["epsilon"]))
        value = float(total.epsilon(row["inputs"]["delta"]))
        excess = mp.mpf(value) / expected(row) - 1
        assert 0 <= excess < 1e-8, (row["id"], excess)


def test_one_release_is_the_guarantee():
    epsilon = jnp.array([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0])
    for known in (dp.PureDP(1.0), dp.ApproxDP(1.0, 0.1), dp.GDP(0.7), dp.ExponentialMechanism(1.0)):
        once = dp.privacy_loss(known)
        np.testing.assert_allclose(once.log_delta(epsilon), known.log_delta(epsilon), rtol=1e-13)
        assert abs(float(known.epsilon(0.15)) - float(once.epsilon(0.15))) < 1e-9
    four = 4 * dp.privacy_loss(dp.GDP(0.5))
    np.testing.assert_allclose(four.log_delta(epsilon), dp.GDP(1.0).log_delta(epsilon), rtol=1e-9)


def test_nothing_and_everything():
    for known in (dp.PureDP(0.0), dp.ExponentialMechanism(0.0), dp.ApproxDP(0.0, 0.0)):
        none = 3 * dp.privacy_loss(known)
        np.testing.assert_allclose(none.delta(jnp.array([-1.0, 1.0])), [1 - np.exp(-1), 0])
    for known in (dp.PureDP(np.inf), dp.ExponentialMechanism(np.inf), dp.ApproxDP(1.0, 1.0)):
        for count in (1, 3):
            assert (count * dp.privacy_loss(known)).delta(2.0) == 1, known


def range_profile(b, e):
    """The largest over t of the two-point pairs with losses t and t - b: in closed form."""
    b, e = mp.mpf(b), mp.mpf(e)
    if e >= b:
        return mp.mpf(0)
    if e <= -b:
        return 1 - mp.exp(e)
    return (mp.exp(b / 2) - mp.exp(e / 2)) ** 2 / mp.expm1(b)


def two_points(b, t):
    """[(loss, mass)] of a mechanism of bounded range b."""
    p = (mp.exp(b) - mp.exp(t)) / mp.expm1(b)
    return [(t, p), (t - b, 1 - p)]


@pytest.mark.parametrize("b", [1e-6, 0.1, 1.0, 8.0, 60.0])
def test_bounded_range_profile(b):
    pair = BoundedRange(b)
    for share in (-1.2, -0.999, -0.4, 0.0, 0.3, 0.9, 0.999999, 1 - 1e-12):
        e = b * share
        value = float(pair.log_delta(e))
        check(value, range_profile(b, e), 1e-13 * max(1.0, abs(value)))
        pairs = [two_points(mp.mpf(b), mp.mpf(b) * k / 64) for k in range(65)]
        for two in pairs:
            delta = mp.fsum(m * max(1 - mp.exp(mp.mpf(e) - v), 0) for v, m in two)
            assert delta <= range_profile(b, e) * (1 + mp.mpf(10) ** -30)
    assert pair.log_delta(b) == -np.inf
    whole = mp.quad(lambda v: range_density(b, v), [-b, 0, b])
    assert abs(whole - 1) < 1e-20
    mean = mp.quad(lambda v: range_density(b, v) * mp.exp(-v), [-b, 0, b])
    assert abs(mean - 1) < 1e-20


def range_density(b, v):
    return mp.exp((mp.mpf(b) + v) / 2) / (2 * mp.expm1(mp.mpf(b)))


@pytest.mark.long
def test_two_bounded_ranges():
    """No more than by the integral of one delta over the other's loss, nor than a Renyi bound."""
    for b, other in ((1.0, 1.0), (0.3, 2.0)):
        both = dp.privacy_loss(dp.ExponentialMechanism(b))
        both = both + dp.privacy_loss(dp.ExponentialMechanism(other))
        for share in (0.0, 0.2, 0.7, 0.95):
            e = share * (b + other)
            kinks = sorted({-b, b, *(x for x in (e - other, e + other) if -b < x < b)})
            exact = mp.quad(
                lambda v, b=b, other=other, e=e: range_density(b, v) * range_profile(other, e - v),
                kinks,
            )
            assert float(both.log_delta(e)) <= float(mp.log(exact)) + 1e-3


def test_adaptive_pairs_are_below():
    """Two releases, the second chosen by the answer of the first, tell no more than the bound."""
    b = mp.mpf(1)
    total = 2 * dp.privacy_loss(dp.ExponentialMechanism(1.0))
    for e in (0.0, 0.4, 1.1):
        best = mp.mpf(0)
        for first in range(1, 12):
            delta = mp.mpf(0)
            for loss, mass in two_points(b, b * first / 12):
                delta += mass * range_profile(b, e - loss)
            best = max(best, delta)
        assert best <= float(total.delta(e)) < 1.25 * best
