"""The Subbotin against a closed form in incomplete gamma functions at 60 digits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import noise_laws
import numpy as np
import oracle
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64

mp.mp.dps = 50

GENERATOR = np.random.default_rng(5)
POWERS = (1.0, 1.01, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 20.0)


def survival(t: mp.mpf, p: mp.mpf) -> mp.mpf:
    if t < 0:
        return 1 - survival(-t, p)
    x = t**p / p
    if x > 1:
        return mp.gammainc(1 / p, x, regularized=True) / 2
    return (1 - mp.gammainc(1 / p, 0, x, regularized=True)) / 2


def threshold(shift: mp.mpf, epsilon: mp.mpf, p: mp.mpf) -> mp.mpf:
    """The t where the loss is epsilon >= 0: bisection, then Newton."""
    if epsilon == 0:
        return -shift / 2

    def gap(x: mp.mpf) -> mp.mpf:
        return (abs(x + shift / 2) ** p - abs(x - shift / 2) ** p) / p - epsilon

    low, high = shift * mp.mpf(10) ** -30 * min(epsilon, 1), shift
    while gap(high) < 0:
        high *= 16
    for _ in range(50):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    for _ in range(7):
        v, u = low + shift / 2, low - shift / 2
        low -= gap(low) / (v ** (p - 1) - mp.sign(u) * abs(u) ** (p - 1))
    return low - shift / 2


def log_delta(shift: float, epsilon: float, power: float, scale: float = 1.0) -> mp.mpf:
    with mp.workdps(70):
        m, e, p = mp.mpf(shift) / mp.mpf(scale), abs(mp.mpf(epsilon)), mp.mpf(power)
        if p == 1 and e >= m:
            return -mp.inf if epsilon >= 0 else mp.log(-mp.expm1(epsilon))
        u = threshold(m, e, p)
        near, far = survival(u, p), mp.exp(e) * survival(u + m, p)
        delta, complement = near - far, survival(-u, p) + far
        if epsilon < 0:
            delta, complement = 1 - mp.exp(-e) * complement, mp.exp(-e) * complement
        return mp.log1p(-complement) if complement < 0.5 else mp.log(delta)


def loss(u, shift, power):
    return (np.abs(u + shift) ** power - np.abs(u) ** power) / power


def check(shift, epsilon, power, limit=1e-12):
    value = np.asarray(dp.Subbotin(1.0, power).log_delta(shift, epsilon))
    for m, e, p, v in zip(shift, epsilon, power, value, strict=True):
        truth = log_delta(float(m), float(e), float(p))
        oracle.check_upper_bound(float(v), truth, (m, e, p), limit)


def test_delta_around_every_boundary():
    """u = 0; A = 1 on both sides of 0; A + epsilon = 1.5; delta = 1/2; epsilon = 0."""
    points = []
    for power in POWERS[1:]:
        edge, reach = power ** (1 / power), (1.5 * power) ** (1 / power)
        for shift in (1e-3, 0.4, 1.0, 2.5):
            for u in (0.0, edge, -edge, reach - shift, -0.5 * shift, 3.0):
                if u < -0.5 * shift:
                    continue
                for e in noise_laws.ulps_around(float(loss(u, shift, power))):
                    points += [(shift, e, power), (shift, -e, power)]
    rows = np.array(points)[GENERATOR.permutation(len(points))[:200]]
    check(*rows.T)


def test_delta_over_wide_ranges():
    count = 250
    power = 1 + np.exp(GENERATOR.uniform(np.log(0.02), np.log(19.0), count))
    power = np.where(GENERATOR.random(count) < 0.3, GENERATOR.choice(POWERS[2:], count), power)
    shift = np.exp(GENERATOR.uniform(np.log(1e-8), np.log(100.0), count))
    u = np.exp(GENERATOR.uniform(-8, 4, count))
    u = np.where(GENERATOR.random(count) < 0.3, -np.minimum(u, shift * 0.499), u)
    epsilon = loss(u, shift, power)
    epsilon = np.where(epsilon > 0, epsilon, 0.1) * GENERATOR.choice([1, 1, 1, -1], count)
    kept = ((0.5 * shift) ** power / power < 300) & (abs(epsilon) < 1e200)
    check(shift[kept], epsilon[kept], power[kept])


def test_delta_of_large_shifts():
    """delta depends on the last places of shift and epsilon there: the bound stays above."""
    count = 60
    power = 1 + np.exp(GENERATOR.uniform(np.log(0.01), np.log(3.0), count))
    shift = np.exp(GENERATOR.uniform(np.log(100.0), np.log(1e4), count))
    epsilon = loss(GENERATOR.uniform(-0.6, 3.0, count), shift, power)
    check(shift, epsilon, power, limit=1e-10)


def test_delta_at_power_one_is_the_laplace():
    for shift in (1e-6, 0.7, 5.0):
        epsilon = np.array([*noise_laws.ulps_around(shift), 0.0, 0.3 * shift, -shift, -0.2, 9.0])
        value = dp.Subbotin(0.3, 1.0).log_delta(shift * 0.3, epsilon)
        np.testing.assert_array_equal(value, dp.Laplace(0.3).log_delta(shift * 0.3, epsilon))


@pytest.mark.long
def test_derivatives():
    """In shift, epsilon and power, on both sides of the first boundary; the second as well."""

    def family(shift, epsilon, power):
        return dp.Subbotin(1.0, power).log_delta(shift, epsilon)

    both = jax.jit(
        lambda *at: (jax.grad(family, (0, 1, 2))(*at), jax.hessian(family, (0, 1, 2))(*at))
    )
    step = mp.mpf(10) ** -15
    for shift, epsilon, power in (
        (1.0, 0.4, 1.5),
        (0.3, 0.01, 3.0),
        (4.0, 1.0, 8.0),
        (2.0, 9.0, 2.5),
    ):
        edge = shift**power / power
        for e in (epsilon, -epsilon, edge * (1 + 1e-7), edge * (1 - 1e-7)):
            slopes, curves = both(shift, e, power)
            for k in range(3):
                at = [mp.mpf(v) for v in (shift, e, power)]
                low, middle, high = (
                    log_delta(*(v + i * step * (j == k) for j, v in enumerate(at)))
                    for i in (-1, 0, 1)
                )
                slope, curve = (high - low) / (2 * step), (high - 2 * middle + low) / step**2
                np.testing.assert_allclose(slopes[k], float(slope), rtol=1e-11, atol=1e-13)
                np.testing.assert_allclose(curves[k][k], float(curve), rtol=1e-5)


def test_derivatives_at_power_one():
    gradient = jax.grad(lambda m, e: dp.Subbotin(2.0, 1.0).log_delta(m, e), (0, 1))
    for point in ((1.0, 0.1), (3.0, -0.4), (1.0, -2.0)):
        truth = jax.grad(dp.Laplace(2.0).log_delta, (0, 1))(*point)
        np.testing.assert_allclose(gradient(*point), truth, rtol=1e-13)


def delta_of_two(
    shift: float, power: float, epsilon: float, other_shift: float, other_power: float
) -> Any:
    """E delta(epsilon - L) over the loss L of the other release, by mpmath's own quadrature."""
    m, p, e = mp.mpf(other_shift), mp.mpf(other_power), mp.mpf(epsilon)

    def integrand(t: Any) -> Any:
        loss: Any = (abs(t + m) ** p - abs(t) ** p) / p
        return mp.exp(-(abs(t) ** p) / p + log_delta(shift, e - loss, power))

    kink: Any = mp.mpf(shift) ** mp.mpf(power) / mp.mpf(power)
    kinks = [threshold_of(e + sign * kink, m, p) for sign in (-1, 1)]
    reach: Any = (p * 75) ** (1 / p)
    cuts = sorted({-reach - m, -m, -m / 2, mp.mpf(0), reach, *kinks})
    cuts = [c for c in cuts if -reach - m <= c <= reach]
    return mp.quad(integrand, cuts) / (2 * p ** (1 / p - 1) * mp.gamma(1 / p))


def threshold_of(loss: Any, shift: Any, power: Any) -> Any:
    """The t where the loss is `loss`, of either sign."""
    if loss < 0:
        return -shift - threshold_of(-loss, shift, power)
    return threshold(shift, loss, power)


@pytest.mark.long
@pytest.mark.parametrize(
    ("power", "shift", "epsilon"),
    [
        (1.5, 0.2, 0.6),
        (3.0, 0.5, 1.5),
        (4.0, 0.5, 3.0),
        # Nearly atoms: at +-1, and at 0.
        (1.05, 1.0, 0.5),
        (8.0, 0.5, 0.3),
    ],
)
def test_two_releases(power, shift, epsilon):
    with mp.workdps(20):
        truth = delta_of_two(shift, power, epsilon, shift, power)
        total = 2 * dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, power), shift))
        excess = mp.mpf(float(total.log_delta(epsilon))) - mp.log(truth)
    error = float(total.log_delta_error(epsilon))
    assert 0 <= excess <= error < 1e-4, (excess, error)


@pytest.mark.long
def test_two_unequal_releases():
    """The other one's profile over the loss of the first, by the oracle's own quadrature."""
    pairs = (((0.5, 3.0), (0.2, 8.0), 0.7), ((1.0, 1.3), (0.5, 4.0), 1.5))
    for one, other, epsilon in pairs:
        shifts, powers = (jnp.array(x) for x in zip(one, other, strict=True))
        total = dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, powers), shifts)).sum()
        truth = mp.log(delta_of_two(*one, epsilon, *other))
        excess = float(float(total.log_delta(epsilon)) - truth)
        error = float(total.log_delta_error(epsilon))
        assert 0 <= excess <= error < 1e-4, (one, other, excess, error)


@pytest.mark.long
@pytest.mark.parametrize("power", [1.5, 3.0, 8.0])
def test_three_and_four_releases_lie_within_their_bounds(power):
    for count in (3.0, 4.0):
        total = count * dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, power), 0.7))
        lower, upper = total.bounds(1.1)
        # Two bounds from above, of two engines.
        assert lower <= total.delta(1.1) <= upper * (1 + 1e-6)
        apart = dp.Subbotin(jnp.ones(int(count)), power)
        added = dp.privacy_loss(dp.Mechanism(apart, 0.7)).sum()
        np.testing.assert_allclose(added.log_delta(1.1), total.log_delta(1.1), atol=1e-4)


def cumulant(shift: float, z: float, power: float) -> mp.mpf:
    """log M by quadrature around the tilted mode, at t > 0 for z > 0."""
    m, p, w = mp.mpf(shift), mp.mpf(power), mp.mpf(z)

    def exponent(t):
        return w * (abs(t + m) ** p - abs(t) ** p) / p - abs(t) ** p / p

    mode = m / mp.expm1(mp.log1p(1 / w) / (p - 1))
    top = exponent(mode)
    width = mp.mpf(1)
    while top - exponent(mode + width) > 10:
        width /= 2
    while top - exponent(mode + width) < 5:
        width *= 2
    ends = [mode + width * k for k in (-40, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16)]
    cuts = [
        mp.mpf(0),
        -m,
        -m / 2,
        -m - 2,
        -m - 12,
        -m - 50,
        -m - 90,
        *(m * mp.mpf(10) ** k for k in (-1, 0, 1)),
    ]
    points = sorted({t for t in (*ends, *cuts) if -m - 90 <= t <= mode + 16 * width})
    mass = 2 * p ** (1 / p - 1) * mp.gamma(1 / p)
    return mp.log(mp.quad(lambda t: mp.exp(exponent(t) - top), points) / mass) + top


def test_divergences():
    with mp.workdps(34):
        for power, shift, order in (
            (1.01, 0.3, 3.0),
            (1.5, 1e-3, 1.01),
            (1.5, 3.0, 701.0),
            (2.5, 40.0, 1.001),
            (3.0, 0.2, 1e4),
            (8.0, 1.1, 1.7),
            (20.0, 0.4, 1.4),
            (20.0, 2.0, 56.0),
        ):
            value = float(dp.Subbotin(1.0, power).renyi(shift, order))
            excess = mp.mpf(order) - 1
            truth = cumulant(shift, excess, power) / excess
            assert abs(oracle.relative_error(value, truth)) < 1e-13, (power, shift, order)


def test_divergences_of_large_powers_are_upper_bounds():
    with mp.workdps(34):
        for power, shift, order in ((60.0, 0.4, 1.4), (100.0, 0.3, 2.0), (100.0, 1.2, 5.0)):
            value = float(dp.Subbotin(1.0, power).renyi(shift, order))
            truth = cumulant(shift, mp.mpf(order) - 1, power) / (mp.mpf(order) - 1)
            assert 0 <= oracle.relative_error(value, truth) < 4e-10, (power, shift, order)


def test_divergence_is_small_with_the_shift():
    """Over the order it tends to shift^2 Fisher information / 2."""
    order = jnp.array([1.000001, 2.0, 101.0])
    for power in (1.5, 2.5, 4.0):
        noise = dp.Subbotin(1.0, power)
        scaled = noise.renyi(1e-7, order) / order / 1e-14
        np.testing.assert_allclose(scaled, 0.5 * noise.fisher_information(), rtol=3e-9)


@pytest.mark.parametrize("power", POWERS)
def test_tails_and_their_inverse(power):
    noise, p = dp.Subbotin(1.0, power), mp.mpf(power)
    edge = power ** (1 / power)  # where |t|^p / p = 1
    for t in (-6.0, -1.4, *noise_laws.ulps_around(-edge), -1e-8, 0.0, 1e-300, 0.7, edge, 8.0, 60.0):
        truth = mp.log(survival(mp.mpf(t), p))
        if truth > -1e-40:
            continue
        value = float(noise.log_survival(t))
        assert abs(oracle.relative_error(value, truth)) < 5e-14, t
    u = np.array([1e-300, 1e-100, 1e-16, 1e-3, 0.2, 0.4999999, np.nextafter(0.5, 0), 0.61, 0.999])
    for chance, x in zip(u, np.asarray(noise.quantile(u)), strict=True):
        t = mp.mpf(float(x))
        density = mp.exp(-(abs(t) ** p) / p) * p ** (1 - 1 / p) / (2 * mp.gamma(1 / p))
        error = (survival(-t, p) - mp.mpf(float(chance))) / density
        assert abs(error) < 5e-14 * abs(t), chance
    slope = jax.grad(noise.quantile)(0.2)
    np.testing.assert_allclose(slope, np.exp(-noise.log_density(noise.quantile(0.2))), rtol=1e-13)


@pytest.mark.long
def test_quantile_derivative_in_power():
    for u in (1e-9, 0.3, 0.8):
        slope = jax.grad(lambda p, u=u: dp.Subbotin(1.0, p).quantile(u))(1.7)
        up, down = (float(dp.Subbotin(1.0, 1.7 + h).quantile(u)) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-8)


@pytest.mark.long
def test_zcdp_is_close_to_the_least():
    for power in (1.05, 1.5, 1.9, 1.99):
        for shift in (1e-4, 0.5, 20.0):
            noise, order = dp.Subbotin(1.0, power), 1 + np.logspace(-6, 6, 60)
            least = np.max(np.asarray(noise.renyi(shift, order)) / order)
            xi, rho = noise.zcdp(shift)
            assert xi == 0
            assert least <= rho <= least * (1.005 if power > 1.9 else 1.000002)


def test_guarantees_of_special_powers():
    assert dp.Subbotin(1.0, 3.0).zcdp(1.0)[1] == np.inf
    assert dp.Subbotin(1.0, 3.0).zcdp(0.0)[1] == 0
    np.testing.assert_allclose(dp.Subbotin(2.0, 1.0).zcdp(1.0), dp.Laplace(2.0).zcdp(1.0))
    np.testing.assert_allclose(dp.Subbotin(2.0, 2.0).zcdp(1.0)[1], 0.125, rtol=1e-15)
    assert dp.Subbotin(2.0, 1.0).pure_epsilon(1.0) >= 0.5
    assert dp.Subbotin(2.0, 1.5).pure_epsilon(1.0) == np.inf
    assert dp.Subbotin(2.0, 1.5).sub_gaussian_proxy() == np.inf
    assert dp.Subbotin(2.0, 1.0).structure(1.0) == dp.Laplace(2.0).structure(1.0)


def test_sub_gaussian_proxy():
    t = np.linspace(0.01, 30, 40)
    for power in (2.0, 3.0, 8.0):
        noise = dp.Subbotin(1.0, power)
        x, w = np.polynomial.legendre.leggauss(200)
        x = 60 ** (1 / power) * power * x
        mgf = np.exp(noise.log_density(x)) @ (w[:, None] * np.exp(x[:, None] * t)) * np.ptp(x) / 2
        assert np.all(np.log(mgf) <= noise.sub_gaussian_proxy() * t**2 / 2 * (1 + 1e-3))


def test_draws_of_every_power():
    power = np.array([1.0, 1.2, 2.0, 5.0, 20.0])
    draws = np.asarray(dp.Subbotin(3.0, power).sample(jax.random.key(0), (40_000, 5)))
    for moment in (1.0, 2.0):
        ratio = np.mean(abs(draws) ** moment, axis=0)
        ratio /= dp.Subbotin(3.0, power).absolute_moment(moment)
        np.testing.assert_allclose(ratio, 1, atol=0.06)


def test_bad_powers():
    @jax.jit
    def traced(power):
        noise = dp.Subbotin(1.0, power)
        return noise.delta(1.0, 1.0), noise.renyi(0.0, 2.0)

    for power in (0.0, 0.999, -1.0, np.nan, 1e5, np.inf):
        with pytest.raises(ValueError, match="power must lie in"):
            dp.Subbotin(1.0, power)
        assert np.all(np.isnan(traced(power)))
        replaced = jax.tree.map(lambda _, p=power: jnp.asarray(p), dp.Subbotin(1.0, 1.5))
        assert not replaced.zcdp(1.0)[1] <= 1e300


def test_limits():
    for power in (1.5, 4.0, 1e4):
        noise = dp.Subbotin(1.0, power)
        assert noise.log_delta(1.0, 1e290) > -np.inf
        assert noise.log_delta(1e-300, 0.0) < -600
        assert noise.log_delta(1e300, 1.0) == 0
        assert noise.renyi(0.0, 3.0) == 0
    batch = partial(dp.Subbotin(jnp.ones((2, 1)), jnp.array([1.5, 2.0, 7.0])).log_delta, 0.5)
    assert batch(0.1).shape == (2, 3)


def test_powers_next_to_one():
    """Beyond shift / scale thresholds overflow: a value, near the Laplace's and above it."""
    scale, shift = 1.0, np.array([1.0, 1e-3])[:, None]
    at = np.array([0.0, 0.4, 1 - 1e-15, 1.0, 1 + 1e-15, 1.5, 300.0, 1e8])
    for excess in (2.0**-52, 1e-13, 1e-9, 9e-9, 2.1e-8, 1e-5):
        noise, laplace = dp.Subbotin(scale, 1.0 + excess), dp.Laplace(scale)
        for sign in (1.0, -1.0):
            epsilon = sign * at * shift
            found, known = (np.asarray(n.log_delta(shift, epsilon)) for n in (noise, laplace))
            # The profile itself moves with the power.
            assert np.all(found >= known * (1 + 1e-7 + excess) - 1e-13)
            inside = (at < 0.9) | (sign < 0)
            np.testing.assert_allclose(found[:, inside], known[:, inside], rtol=1e-6 + excess)
            assert sign < 0 or np.all(found[:, at >= 1] < -13.0)
        assert np.all(np.isfinite(noise.renyi(1.0, np.array([1.0, 1.5, 100.0]))))
    assert noise.log_delta(1.0, np.inf) == -np.inf
    # Where the loss exceeds shift / scale at e^5 scales: the tail of e^-148.
    slight = dp.Subbotin(1.0, 1.0 + 2.0**-52).log_delta(1.0, 1.0 + 3e-15)
    assert -1.2e6 < slight < -1e4


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 10])
def test_a_power_next_to_one_composes_as_the_laplace(count):
    near, laplace = (
        count * dp.privacy_loss(dp.Mechanism(noise, 0.7))
        for noise in (dp.Subbotin(1.0, 1.0 + 1e-9), dp.Laplace(1.0))
    )
    for ask in (lambda x: x.epsilon(1e-6), lambda x: x.log_delta(0.3), lambda x: x.log_delta(9.0)):
        assert ask(near) == pytest.approx(float(ask(laplace)), rel=1e-4) or ask(laplace) == -np.inf
    assert near.log_delta(9.0) < -20
