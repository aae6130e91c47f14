"""The Subbotin's delta against records and a 60-digit closed form."""

import jax
import mpmath as mp
import noise_laws
import numpy as np
import oracle
import pytest
from subbotin_closed_form import GENERATOR, POWERS, log_delta, loss

import jaxdp as dp


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
    rows = np.array(points)[GENERATOR.permutation(len(points))[:400]]
    check(*rows.T)


def test_delta_over_wide_ranges():
    count = 500
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


@pytest.mark.long
def test_derivatives_at_power_one():
    gradient = jax.grad(lambda m, e: dp.Subbotin(2.0, 1.0).log_delta(m, e), (0, 1))
    for point in ((1.0, 0.1), (3.0, -0.4), (1.0, -2.0)):
        truth = jax.grad(dp.Laplace(2.0).log_delta, (0, 1))(*point)
        np.testing.assert_allclose(gradient(*point), truth, rtol=1e-13)
