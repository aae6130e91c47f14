"""Compositions of sampled Gaussians against averages, one long line and hits told apart."""

import mpmath as mp
import numpy as np
import pytest
from composition_checks import check, loss_of

import jaxdp as dp

pytestmark = pytest.mark.float64


def once(q, scale, epsilon):
    """delta of one sampled Gaussian, its record removed."""
    c = 1 / mp.mpf(scale)
    if epsilon <= mp.log(1 - q):
        return 1 - mp.exp(epsilon)
    x = mp.log((mp.exp(epsilon) - 1 + q) / q) / c + c / 2
    return (1 - q) * mp.ncdf(-x) + q * mp.ncdf(c - x) - mp.exp(epsilon) * mp.ncdf(-x)


def twice(q, scale, epsilon):
    """log delta of two releases: that of one, averaged over the loss of the other."""
    with mp.workdps(30):
        q, c, epsilon = mp.mpf(q), 1 / mp.mpf(scale), mp.mpf(epsilon)

        def weighed(x):
            loss = mp.log(1 - q + q * mp.exp(c * x - c * c / 2))
            return mp.npdf(x) * mp.exp(loss) * once(q, scale, epsilon - loss)

        kink = mp.log((mp.exp(epsilon) / (1 - q) - 1 + q) / q) / c + c / 2
        points = [
            *range(-12, 0, 2),
            *mp.linspace(0, kink, 60),
            *mp.linspace(kink, kink + 12, 30)[1:],
        ]
        return float(mp.log(mp.quad(weighed, points)))


@pytest.mark.long
def test_two_sampled_gaussians():
    loss = 2 * loss_of(dp.Gaussian(1.0), 1.0, 0.1, "remove")
    check(loss, 0.3, twice(0.1, 1.0, 0.3), 3e-6)


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
    [
        (1e-2, 1.0, 300, 2.0, 4.0),
        (1e-2, 0.7, 1e3, 4.0, 2.0),
    ],
)
def test_many_sampled_gaussians(q, scale, count, epsilon, tilt):
    # The oracle rounds by 1e-13 of what it holds, which is more than delta.
    exact = by_one_long_line(q, scale, count, epsilon, tilt, 120.0)
    loss = count * loss_of(dp.Gaussian(scale), 1.0, q, "remove")
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert exact - 2e-8 <= value <= exact + error + 2e-8
    assert error < 1e-7


@pytest.mark.long
@pytest.mark.parametrize("count", [1e13, 1e15, 2.0**53, 1e17])
def test_huge_counts(count):
    """In the limit a Gaussian: what rounding hides is refused, and never too good."""
    loss = count * loss_of(dp.Gaussian(1e4), 1.0, 1e-3, "remove")
    truth = float(dp.Gaussian(1e7 / np.sqrt(count)).log_delta(1.0, 1.0))
    value, error = float(loss.log_delta(1.0)), float(loss.log_delta_error(1.0))
    assert 1.003 * truth <= value <= 0.0
    assert value - error <= 0.997 * truth
    lower, upper = loss.bounds(1.0)
    assert lower <= np.exp(0.997 * truth)
    assert upper >= np.exp(1.003 * truth)


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
        most = min(int(count), int(usual + 40 * np.sqrt(usual) + 60))
        return float(mp.log(mp.fsum(of_hits(k) for k in range(1, most + 1))))


@pytest.mark.long
@pytest.mark.parametrize(
    ("q", "scale", "count", "epsilon"),
    [
        (0.01, 0.05, 20, 250.0),
        (1e-3, 0.04, 3, 900.0),
        (1e-5, 0.03, 1e4, 500.0),
        (0.0313, 0.0192, 231, 27_600.0),
        (0.4, 0.04, 100, 17_500.0),
        (0.3, 0.05, 400, 27_500.0),
        (0.0559, 0.0198, 19, 1704.0),
    ],
)
def test_hits_that_are_told_apart(q, scale, count, epsilon):
    exact = of_hits_told_apart(q, scale, count, epsilon)
    loss = count * loss_of(dp.Gaussian(scale), 1.0, q, "remove")
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert exact - 1e-10 * abs(exact) <= value
    assert value <= exact + error + 1e-10 * abs(exact)
    if not error < 1e-6:
        pytest.xfail("rare hits")


# Above any epsilon: of two responses.
RESPONSE = 0.19


@pytest.mark.parametrize(
    ("q", "scale", "epsilon"),
    [(1e-2, 0.7, 9.0), (1e-2, 0.3, 1.0), (2.8e-3, 1.5, 1.0), (1e-5, 0.4, 4.0)],
)
def test_one_sampled_gaussian_beside_responses(q, scale, epsilon):
    """An average over their four outcomes."""
    with mp.workdps(30):
        p = 1 / (1 + mp.exp(-mp.mpf(RESPONSE)))
        shares = (p * p, 2 * RESPONSE), (2 * p * (1 - p), 0), ((1 - p) ** 2, -2 * RESPONSE)
        of = mp.mpf(q), mp.mpf(scale)
        truth = float(mp.log(mp.fsum(m * once(*of, mp.mpf(epsilon) - r) for m, r in shares)))
    loss = loss_of(dp.Gaussian(scale), 1.0, q, "remove") + 2 * dp.privacy_loss(dp.PureDP(RESPONSE))
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert truth - 1e-12 * abs(truth) <= value <= truth + error + 1e-12
    if not error < 1e-3:
        pytest.xfail("rare hits")
