"""Sampled Gaussians of which few hit the record: one large loss makes the total large."""

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp

# Far apart in what they need: hits, sizes of one loss, depth.
CASES = (
    (1e-4, 1.0, 1e4, 0.5),
    (1e-6, 0.5, 1e6, 0.5),
    (1e-3, 0.5, 100, 1.0),
    (1e-3, 1.0, 5e3, 1.0),
    (1e-2, 0.7, 1e3, 4.0),
    (1e-3, 2.0, 3e3, 0.5),
    (1e-8, 1.0, 1e9, 0.5),
    (1e-6, 1.0, 1e5, 0.01),
)


def composed(q, scale, count):
    release = dp.Mechanism(dp.Gaussian(scale), 1.0, q, "remove")
    return count * dp.privacy_loss(release)


def loss_of(x, c, q):
    return mp.log(1 - q + q * mp.exp(c * x - c * c / 2))


def twice(q, scale, epsilon):
    """log delta of two releases: that of one, averaged over the loss of the other."""
    with mp.workdps(30):
        q, c, epsilon = mp.mpf(q), 1 / mp.mpf(scale), mp.mpf(epsilon)

        def once(e):
            if e <= mp.log(1 - q):
                return 1 - mp.exp(e)
            x = mp.log((mp.exp(e) - 1 + q) / q) / c + c / 2
            upper = (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x)
            return upper - mp.exp(e) * mp.ncdf(-x)

        def weighed(x):
            loss = loss_of(x, c, q)
            return mp.npdf(x) * mp.exp(loss) * once(epsilon - loss)

        kink = mp.log((mp.exp(epsilon) / (1 - q) - 1 + q) / q) / c + c / 2
        points = [
            *range(-12, 0, 2),
            *mp.linspace(0, kink, 60),
            *mp.linspace(kink, kink + 12, 30)[1:],
        ]
        return float(mp.log(mp.quad(weighed, points)))


MORE_PAIRS = (
    (1e-5, 0.5, 1.0),
    (1e-2, 2.0, 0.3),
    (1e-4, 0.7, 4.0),
    (1e-6, 1.0, 0.01),
    (1e-6, 20.0, 3e-6),
)


@pytest.mark.parametrize(
    ("q", "scale", "epsilon"),
    [
        (1e-3, 1.0, 0.5),
        *(pytest.param(*x, marks=pytest.mark.long) for x in MORE_PAIRS),
    ],
)
def test_two_releases_by_quadrature(q, scale, epsilon):
    found, exact = float(composed(q, scale, 2).log_delta(epsilon)), twice(q, scale, epsilon)
    assert exact - 1e-12 <= found <= exact + 1e-9


def by_one_long_line(q, scale, count, epsilon, tilt, period):
    """log delta by one line at a low tilt, whose period holds the whole law."""
    c = 1 / scale
    x = np.linspace(-9.5, 2 * c + 16, 900)
    loss = np.log1p(q * np.expm1(c * x - c * c / 2))
    weight = np.exp(loss - x * x / 2 + tilt * loss) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    total = np.sum(weight * -np.expm1(-tilt * loss))
    height = 2 * np.pi / period * np.arange(16_384)
    turned = np.expm1(1j * np.outer(height, loss)) @ (weight / (1 + total))
    z = tilt + 1j * height
    line = np.exp(count * np.log1p(turned) - 1j * height * epsilon) / (z * (z + 1))
    line[0] /= 2
    assert abs(line[-1]) < 1e-15 * abs(line[0])
    size = count * np.log1p(total) - tilt * epsilon
    return size + np.log(np.sum(line.real) * 2 / period)


@pytest.mark.parametrize(
    ("q", "scale", "count", "epsilon", "tilt"),
    [(1e-3, 1.0, 1e3, 0.5, 10.0), (1e-2, 1.0, 300, 2.0, 4.0), (1e-2, 0.7, 1e3, 4.0, 2.0)],
)
def test_many_releases_by_one_long_line(q, scale, count, epsilon, tilt):
    found = float(composed(q, scale, count).log_delta(epsilon))
    # It rounds by 1e-13 of what it holds, which is more than delta.
    exact = by_one_long_line(q, scale, count, epsilon, tilt, 120.0)
    assert found == pytest.approx(exact, abs=2e-8)


def of_hits_told_apart(q, scale, count, epsilon):
    """log delta: of k hits the total is normal, but for an overlap of e^(-c^2 / 8)."""
    with mp.workdps(30):
        c, p = 1 / mp.mpf(scale), mp.mpf(q)

        def of_hits(k):
            mean = k * (mp.log(p) + c * c / 2) + (count - k) * mp.log(1 - p)
            width, above = c * mp.sqrt(k), mean - epsilon
            if above < -60 * width:
                return mp.mpf(0)
            less = mp.exp(width**2 / 2 - above) * mp.ncdf(above / width - width)
            share = mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
            return share * (mp.ncdf(above / width) - less)

        usual = count * q
        most = min(int(count), int(usual + 40 * math.sqrt(usual) + 60))
        return float(mp.log(mp.fsum(of_hits(k) for k in range(1, most + 1))))


@pytest.mark.parametrize(
    ("q", "scale", "count", "epsilon"),
    [
        (0.01, 0.05, 20, 250.0),
        (1e-3, 0.04, 3, 900.0),
        (1e-5, 0.03, 1e4, 500.0),
        # |phi| comes back up where all hits are in phase.
        (0.0313, 0.0192, 231, 27_600.0),
        (0.4, 0.04, 100, 17_500.0),
        # Without hits it falls below e^-200 in between.
        (0.435, 0.0275, 407, 133_700.0),
        (0.3, 0.05, 400, 27_500.0),
        # A loss just beyond epsilon, beside a wide edge.
        (0.0559, 0.0198, 19, 1704.0),
    ],
)
def test_hits_that_are_told_apart(q, scale, count, epsilon):
    exact = of_hits_told_apart(q, scale, count, epsilon)
    found = float(composed(q, scale, count).log_delta(epsilon))
    assert exact - 1e-12 <= found <= exact + 4e-9


def at_its_saddle(q, c, count, tilt):
    """The epsilon whose saddle the tilt is, and log delta there."""
    x = np.linspace(-10, (1 + tilt) * c + 10, 3000)
    loss = np.log1p(q * np.expm1(c * x - c * c / 2))
    exponent = (1 + tilt) * loss - x * x / 2
    top = np.max(exponent)
    total = np.sum(np.exp(exponent - top))
    weight = np.exp(exponent - top) / total
    mean = weight @ loss
    spread = np.sqrt(count * (weight @ (loss - mean) ** 2))
    height = np.arange(0.0, 7 / c, 2 * np.pi / (30 * spread))
    phi = np.exp(count * np.log(np.exp(1j * np.outer(height, loss - mean)) @ weight))
    z = tilt + 1j * height
    line = np.real(phi / (z * (z + 1)))
    line[0] /= 2
    log_moment = top + np.log(total / np.sum(np.exp(-x * x / 2)))
    size = count * (log_moment - tilt * mean)
    return count * mean, size + np.log(np.sum(line) * height[1] / np.pi)


@pytest.mark.parametrize(
    ("q", "c", "count", "tilt"),
    [(6.41974e-6, 0.528611, 4243, 85.2697), (2.2814e-5, 0.48573, 14_909, 90.1373)],
)
def test_far_out_small_losses_are_told_apart_as_well(q, c, count, tilt):
    epsilon, exact = at_its_saddle(q, c, count, tilt)
    assert exact < -90_000
    found = float(composed(q, 1 / c, count).log_delta(epsilon))
    assert exact - 1e-9 <= found <= exact + 2e-9


@pytest.mark.long
def test_many_hits_that_are_told_apart():
    random = np.random.default_rng(7)
    cases, exact = [], []
    while len(cases) < 60:
        c, q = (np.exp(random.uniform(*np.log(x))) for x in ((14, 70), (1e-3, 0.6)))
        count = max(2.0, np.round(np.exp(random.uniform(0, np.log(400))) / q))
        usual = count * q
        hits = np.floor(min(count, usual + random.uniform(0, 8) * np.sqrt(usual)))
        hit, miss = np.log(q) + c * c / 2, np.log1p(-q)
        epsilon = hits * hit + (count - hits) * miss + random.uniform(-1, 1) * (hit - miss)
        if epsilon > 0:
            cases.append((q, 1 / c, count, epsilon))
            exact.append(of_hits_told_apart(*cases[-1]))
    q, scale, count, epsilon = (jnp.asarray(x) for x in zip(*cases, strict=True))
    over = np.asarray(composed(q, scale, count).log_delta(epsilon)) - exact
    assert np.min(over) > -1e-9
    assert np.max(over) < 1e-2
    assert np.mean(over < 1e-8) > 0.8


def test_many_small_losses():
    # A hit 190 standard deviations out would dominate every tilted law, and is as impossible.
    found = float(composed(3e-8, 24.0, 150_000).log_delta(1.4e-6))
    exact = by_one_long_line(3e-8, 24.0, 150_000, 1.4e-6, 6e6, 3e-5)
    assert found == pytest.approx(exact, abs=1e-9)


def test_losses_of_a_part_in_a_million():
    release = dp.Mechanism(dp.Gaussian(3e4), 1.0, 2.5e-6, "add_remove")
    found = (1e3 * dp.privacy_loss(release)).log_delta(3e-8)
    ratio = 2.5e-6 / 3e4 * np.sqrt(1e3)
    alone = dp.privacy_loss(dp.Mechanism(dp.Gaussian(1 / ratio), 1.0)).log_delta(3e-8)
    assert float(found) == pytest.approx(float(alone), abs=5e-3)


@pytest.mark.long
def test_windows_do_not_matter(monkeypatch):
    from jaxdp.loss import jump_parts, jump_sizes, jumps
    from jaxdp.loss.base import Term
    from jaxdp.loss.sampled import Sampled

    q, scale, count, epsilon = (jnp.asarray(x) for x in zip(*CASES, strict=True))
    ones = jnp.ones_like(q)[:, None]
    noise = Sampled(dp.Gaussian(scale[:, None]), q[:, None], 0.0 * ones)
    of = jump_parts.parameters_of((Term(noise, ones, count[:, None]),))

    def found():
        return jax.jit(lambda e: jumps.jumps_of(of, e, e > 0, 5e-11))(epsilon)

    usual = found()
    assert np.all(usual.settled)
    reported = composed(q, scale, count).log_delta(epsilon)
    np.testing.assert_allclose(reported, usual.log_delta, rtol=0, atol=1e-9)
    monkeypatch.setattr(jump_sizes, "APART", 0.2)
    np.testing.assert_allclose(found().log_delta, usual.log_delta, rtol=0, atol=2e-10)


@pytest.mark.long
def test_epsilon_and_calibration_meet_delta():
    q, scale, count, _ = (np.array(x) for x in zip(*CASES, strict=True))
    log_delta = np.array([-40.0, -20.0, -10.0, -30.0, -10.0, -60.0, -80.0, -50.0])
    loss = composed(q, scale, count)
    gap = np.asarray(loss.log_delta(loss.epsilon(np.exp(log_delta)))) - log_delta
    assert np.all(gap <= 1e-12 * np.abs(log_delta))
    assert np.all(gap > -1e-6)

    budget = dp.Budget(np.array([0.5, 0.5]), np.array([1e-17, 1e-9]))
    found = dp.calibrate(lambda s: composed(q[:2], s, count[:2]), budget)
    gap = np.asarray(composed(q[:2], found, count[:2]).log_delta(0.5)) - np.log([1e-17, 1e-9])
    assert np.all(gap <= 1e-12)
    assert np.all(gap > -1e-5)


@pytest.mark.long
def test_slopes_are_those_of_differences():
    def log_delta(q, scale, epsilon):
        return composed(q, scale, 1e3).log_delta(epsilon)

    at = (1e-3, 1.0, 0.5)
    slopes = jax.grad(log_delta, argnums=(0, 1, 2))(*at)
    for place, slope in enumerate(slopes):
        up, down = (
            log_delta(*(x * (1 + sign * 1e-5 * (i == place)) for i, x in enumerate(at)))
            for sign in (1, -1)
        )
        assert float(slope) == pytest.approx(float(up - down) / (2e-5 * at[place]), rel=1e-6)


def test_what_is_not_removed_is_left_alone():
    release = dp.Mechanism(dp.Gaussian(1.0), 1.0, 1e-4, "add_remove")
    both = (1e4 * dp.privacy_loss(release)).log_delta(0.5)
    assert float(both) == pytest.approx(float(composed(1e-4, 1.0, 1e4).log_delta(0.5)), abs=1e-9)


@pytest.mark.long
def test_unequal_releases():
    whole = float(composed(1e-4, 1.0, 1e4).log_delta(0.5))
    parts = composed(1e-4, 1.0, 4e3) + composed(1e-4, 1.0, 6e3) + composed(1e-2, 2.0, 0)
    assert float(parts.log_delta(0.5)) == pytest.approx(whole, abs=1e-9)
    rarer = composed(1e-4, 1.0, 4e3) + composed(5e-5, 1.0, 6e3) + composed(1e-4, 2.0, 10)
    assert whole - 2.0 < float(rarer.log_delta(0.5)) < whole
