"""The special functions against mpmath, and the brackets on functions with known roots."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxdp._core.namespace import xp
from jaxdp._numeric import double_double, elementary
from jaxdp._numeric.mills import log_normal_survival, mills, mills_pair, mills_slope
from jaxdp._numeric.search import (
    bisect,
    last_feasible,
    secant_bracket,
    secants,
    with_slopes_of_root,
    zoom,
)

pytestmark = pytest.mark.float64


def sinhc_truth(x):
    return mp.sinh(x) / x - 1


def normal_truth(x):
    return mp.sqrt(mp.pi / 2) * mp.erf(x / mp.sqrt(2)) * mp.exp(x * x / 2)


RNG = np.random.default_rng(0)

mp.mp.dps = 50

ULP = 2.0**-52


def mills_truth(t):
    t = mp.mpf(t)
    if t < 1000:
        return mp.sqrt(mp.pi / 2) * mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2))
    return sum((-1) ** k * mp.fac2(2 * k - 1) / t ** (2 * k + 1) for k in range(25))


def worst(function, truth, points):
    values = np.asarray(jax.jit(function)(jnp.asarray(points)))
    errors = [
        abs(mp.mpf(float(v)) - truth(mp.mpf(float(x)))) / abs(truth(mp.mpf(float(x))))
        for x, v in zip(points, values, strict=True)
    ]
    return float(max(errors)) / ULP


def signed(low, high):
    """400 numbers of either sign, whose logarithms to base 10 are uniform."""
    return RNG.choice([-1, 1], 400) * 10 ** RNG.uniform(low, high, 400)


def log1mexp_truth(y):
    return mp.log(-mp.expm1(-y))


def slope_truth(t):
    return 1 - t * mills_truth(t)


def survival_truth(x):
    tail = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log(tail) if x > 0 else mp.log1p(-tail)


# Function, truth, points, and the most ulps.
SPECIAL = {
    "log1p": (elementary.log1p, mp.log1p, RNG.uniform(-0.999, 3, 400), 4),
    "log1p_small": (elementary.log1p, mp.log1p, signed(-18, -1), 4),
    "log1m": (elementary.log1m, lambda y: mp.log1p(-y), abs(signed(-18, -0.01)), 4),
    "log1mexp": (elementary.log1mexp, log1mexp_truth, abs(signed(-18, 2)), 8),
    "expm1_minus": (elementary.expm1_minus, lambda x: mp.expm1(x) - x, signed(-12, 2), 16),
    "mills": (mills, mills_truth, abs(signed(-12, 10)), 16),
    "mills_slope": (lambda t: mills_slope(t)[1], slope_truth, abs(signed(-12, 6)), 36),
    "survival": (log_normal_survival, survival_truth, RNG.uniform(-30, 38, 400), 450),
    "sinhc_excess": (elementary.sinhc_excess, sinhc_truth, RNG.uniform(1e-6, 2, 400), 4),
    "normal": (elementary.normal_integral_over_density, normal_truth, RNG.uniform(0, 0.75, 400), 4),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name):
    function, truth, points, ulps = SPECIAL[name]
    with mp.workdps(60):
        assert worst(function, truth, points) < ulps


def test_mills_difference_keeps_its_digits():
    rng = np.random.default_rng(0)
    lower = 10 ** rng.uniform(-12, 6, 400)
    width = 10 ** rng.uniform(-12, 6, 400)
    pair = jax.jit(mills_pair)(lower, width)
    with mp.workdps(100):
        for a, w, difference in zip(lower, width, np.asarray(pair.difference), strict=True):
            low, high = mp.mpf(float(a)), mp.mpf(float(a)) + mp.mpf(float(w))
            truth = mills_truth(low) - mills_truth(high)
            if low < 1000 <= high and high - low < 1:
                continue  # the oracle changes its formula between the ends
            assert abs(mp.mpf(float(difference)) / truth - 1) < 8e-15, (a, w)


def test_product_gap_is_exact_to_the_last_place():
    rng = np.random.default_rng(0)
    a = rng.uniform(0.5, 2, 2000)
    b = rng.uniform(0.5, 2, 2000)
    c = a * b * (1 + rng.integers(-3, 4, 2000) * ULP)
    gaps = np.asarray(jax.jit(elementary.product_gap)(c, a, b))
    for x, y, z, gap in zip(a, b, c, gaps, strict=True):
        truth = mp.mpf(float(z)) - mp.mpf(float(x)) * mp.mpf(float(y))
        assert abs(mp.mpf(float(gap)) - truth) <= 2 * ULP * abs(truth)
    assert elementary.product_gap(*jnp.array([0.0005, 0.001, 0.5])) == 0


def test_sums_keep_their_errors_beside_constants():
    """A compiler that knows one of the two may not take (1 + x) - 1 for x."""
    rng = np.random.default_rng(0)
    for large, size in zip(rng.uniform(0.5, 2, 20), rng.uniform(-20, 20, 20), strict=True):
        small = large * 10.0**size
        first, second = jnp.asarray(large), jnp.asarray(small)
        for total, error in (
            jax.jit(lambda x, c=first: elementary.two_sum(c, x))(small),
            jax.jit(lambda x, c=second: elementary.two_sum(x, c))(large),
        ):
            assert Fraction(float(total)) + Fraction(float(error)) == Fraction(large) + Fraction(
                small
            )
        folded = jax.jit(lambda x, c=first: double_double.total_pair(c, x, -c))(small)
        exact = Fraction(float(folded.high)) + Fraction(float(folded.low)) - Fraction(small)
        assert abs(exact) <= Fraction(1e-31) * Fraction(max(large, small))


def test_last_feasible_ends_on_the_safe_side():
    target = jnp.array([1e-8, 0.3, 2.0, 7e8, 1e13, jnp.nan])
    safe, unsafe = jnp.full(6, 1e12), jnp.full(6, 1e-10)
    slack = jnp.full(6, 1e-15)

    def find(goal):
        return last_feasible(lambda x: jnp.log(goal) - jnp.log(x), safe, unsafe, slack)

    found = find(target)
    assert np.all(found[:4] >= target[:4])
    np.testing.assert_allclose(found[:4], target[:4], rtol=1e-13)
    assert np.all(np.isinf(found[4:]))
    assert find(jnp.full(6, 1e-11))[0] == 1e-10
    np.testing.assert_allclose(jax.jacrev(find)(target).diagonal()[:4], 1.0, rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(find)(target).diagonal()[:4], 1.0, rtol=1e-12)


RESIDUALS = {
    "straight": lambda x, root: np.log(root) - xp.log(x),
    "a cliff beyond the root": lambda x, root: root - x - 1e3 * xp.maximum(x - 1.001 * root, 0.0),
    "flat, then steep": lambda x, root: xp.sign(root - x) * xp.abs(root / x - 1.0) ** 3,
    "infinite": lambda x, root: xp.where(x > 1.5 * root, -xp.inf, (root - x) / root),
}


@pytest.mark.parametrize("shape", RESIDUALS)
@np.errstate(all="ignore")
def test_secants_end_on_the_safe_side(shape):
    roots = np.array([1e-8, 0.3, 2.0, 7e8])
    ends = np.full(4, 1e12), np.full(4, 1e-10)
    evaluations = []

    def residual(x):
        evaluations.append(x)
        return RESIDUALS[shape](x, roots)

    found = secant_bracket(residual, *ends)
    assert np.all(found >= roots)
    np.testing.assert_allclose(found, roots, rtol=3e-11)
    assert len(evaluations) < 90
    traced = jax.jit(lambda *x: secant_bracket(lambda y: RESIDUALS[shape](y, roots), *x))(*ends)
    assert np.all(traced >= roots)
    np.testing.assert_allclose(traced, roots, rtol=3e-11)


@np.errstate(all="ignore")
def test_secants_where_nothing_or_all_passes():
    safe, unsafe = np.full(2, 1e3), np.full(2, 1e-3)
    assert np.all(np.isinf(secant_bracket(lambda x: x * 0.0 + 1.0, safe, unsafe)))
    assert np.all(np.isinf(secant_bracket(lambda x: x * np.nan, safe, unsafe)))
    np.testing.assert_allclose(secant_bracket(lambda x: -x, safe, unsafe), 1e-3, rtol=1e-10)
    # From a guess with a slope, without halvings to an end that fails.
    state = secants(lambda x, _: xp.full_like(x, xp.inf), safe, unsafe, np.full(2, 300.0), -1.0)
    assert np.all(np.isnan(state.found))
    assert state.steps <= 2


def test_slopes_of_a_root_follow_the_implicit_function():
    squares = jnp.array([4.0, 0.0, jnp.nan, jnp.inf])
    root = jnp.sqrt(squares)

    def doubled(squares):
        return with_slopes_of_root(
            lambda x, n: x * x - n, lambda x, _: 2.0 * x, root, squares, 2.0 * root
        )

    value, slope = jax.jvp(doubled, (squares,), (jnp.ones(4),))
    np.testing.assert_array_equal(value, 2.0 * root)
    np.testing.assert_allclose(slope, [0.5, 0.0, np.nan, 0.0], rtol=1e-15)


def test_bisection_and_zoom():
    good, bad = bisect(lambda x: x * x <= 2.0, np.zeros(1), np.full(1, 9.0))
    assert good[0] ** 2 <= 2.0 < bad[0] ** 2
    assert bad[0] - good[0] <= 4.5e-16
    centre = np.array([0.1, 0.7])
    place, value = zoom(lambda x: (x - centre[None]) ** 2, np.zeros(2), np.ones(2), 16, 12)
    np.testing.assert_allclose(place, centre, atol=1e-9)
    np.testing.assert_allclose(value, 0.0, atol=1e-18)
