"""The staircase's loss: every atom of it at any shift, delta, cumulants, zCDP."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import oracle_pieces
import pytest
from test_staircase import DIGITS, around, close, random_points

import jaxdp as dp
from jaxdp.noise.kernels.staircase_loss import place

pytestmark = pytest.mark.float64


def masses(epsilon, sensitivity, split, shift):
    """p_j for j >= 1, step by step: the closed form before its sums; p_-j = b^j p_j."""
    b, g, m = mp.exp(-mp.mpf(epsilon)), mp.mpf(split), mp.mpf(shift) / mp.mpf(sensitivity)
    top = (1 - b) / (2 * (g + b * (1 - g)))
    found = {}
    for j in range(1, int(mp.ceil(m)) + 1):
        mass = b / (1 - b) * max(0, 1 - abs(m - j))
        mass += max(0, min(m, j) + g - max(m - g, j - 1 + g))
        at = m - 2 * g - j + 1
        for k in (int(mp.floor(at / 2)), int(mp.floor(at / 2)) + 1):
            mass += b**k * max(0, 1 - abs(at - 2 * k)) if k >= 1 else 0
        found[j] = top * mass
    return found


def exact_log_delta(found, unit, epsilon):
    unit, size = mp.mpf(unit), mp.mpf(abs(float(epsilon)))
    delta = mp.fsum(p * -mp.expm1(size - j * unit) for j, p in found.items() if j * unit > size)
    if epsilon < 0:
        delta = -mp.expm1(-size) + mp.exp(-size) * delta
    return mp.log(delta) if delta else -mp.inf


def test_no_step_of_the_closed_form_is_missing():
    """`masses` against integration of the density, piece by piece."""
    for epsilon, split, shift in (
        (0.7, 0.3, 0.2),
        (0.7, 0.3, 1.4),
        (1.1, 0.8, 3.9),
        (2.0, 1.0, 2.5),
        (1.0, 0.5, 3.0),
        (0.9, 0.01, 4.6),
    ):
        integrated = oracle_pieces.Steps(epsilon, 1.5, split).losses(1.5 * shift)
        for j, mass in masses(epsilon, 1.5, split, 1.5 * shift).items():
            assert abs(integrated.get(j, 0) - mass) < mp.mpf(10) ** -40, (epsilon, split, shift, j)
            mirrored = mass * mp.exp(-j * mp.mpf(epsilon))
            assert abs(integrated.get(-j, 0) - mirrored) < mp.mpf(10) ** -40


@pytest.mark.long
def test_delta_is_an_upper_bound_and_tight():
    rng, worst = np.random.default_rng(1), 0.0
    with mp.workdps(DIGITS):
        for unit, sensitivity, split, shift in random_points(250, 2):
            found = masses(unit, sensitivity, split, shift)
            steps = len(found)
            inner = steps * unit * np.array([0.0, 0.3, rng.uniform(), 1 - rng.uniform() ** 20])
            levels = [e for j in rng.integers(0, steps + 1, 2) for e in around(j * unit)]
            epsilon = np.array([*inner, -inner[2], *levels])
            values = dp.Staircase(unit, sensitivity, split).log_delta(shift, epsilon)
            for e, value in zip(epsilon, np.asarray(values), strict=True):
                truth = exact_log_delta(found, unit, e)
                if abs(truth) > mp.mpf(10) ** -300:
                    error = oracle.relative_error(value, truth)
                    assert 0 <= error < 1e-12, (unit, sensitivity, split, shift, e)
                    worst = max(worst, error)
                else:
                    assert -1e-300 < value <= 0
    assert worst < 5e-13


def test_delta_where_pieces_meet():
    """Exactly at, and one ulp beside, every kink in the shift and in epsilon."""
    with mp.workdps(200):
        for sensitivity, split in ((0.1, 0.3), (3.0, 0.5), (0.7, 0.85), (1.0, 1.0)):
            noise = dp.Staircase(0.9, sensitivity, split)
            for kink in (1.0, 2.0, 7.0, 2 * split, 1 + 2 * split, 2 * split - 1):
                for shift in around(kink * sensitivity):
                    if shift < 1e-300:
                        continue
                    found = masses(0.9, sensitivity, split, shift)
                    epsilon = [e for j in range(len(found) + 1) for e in around(0.9 * j)]
                    values = np.asarray(noise.log_delta(shift, np.array(epsilon)))
                    for e, value in zip(epsilon, values, strict=True):
                        truth = exact_log_delta(found, 0.9, e)
                        assert 0 <= oracle.relative_error(value, truth) < 1e-12, (shift, e)


def test_delta_reaches_far_down():
    """One atom of any mass: log delta to -700, and no shift too small to be seen."""
    noise = dp.Staircase(2.0, 1.0, 0.3)
    with mp.workdps(DIGITS):
        for shift in (1e-300, 1e-100, 1e-17, 1 + 2**-52):
            truth = exact_log_delta(masses(2.0, 1.0, 0.3, shift), 2.0, 2.0 * math.floor(shift) + 1)
            value = float(noise.log_delta(shift, 2.0 * math.floor(shift) + 1))
            assert 0 <= oracle.relative_error(value, truth) < 1e-13
    assert dp.Staircase(2.0, 1e200, 0.3).delta(1e-200, 1.0) > 0
    assert noise.log_delta(1.0, 2.0) == -np.inf
    assert noise.log_delta(1.0, np.nextafter(2.0, 0)) > -np.inf
    assert noise.log_delta(1e17, 1e3) == 0
    assert noise.log_delta(1e17, 2.1e17) == -np.inf
    assert noise.delta(1e308, 1e3) == 1


def test_delta_increases_with_the_shift():
    shift = jnp.linspace(0.0, 6.0, 601)[:, None]
    for epsilon, split in itertools.product((0.2, 1.0, 4.0), (0.05, 0.5, 0.9, 1.0)):
        at = epsilon * jnp.linspace(-3.0, 6.0, 40)
        log_delta = dp.Staircase(epsilon, 1.0, split).log_delta(shift, at)
        rise = np.diff(np.asarray(jnp.exp(log_delta)), axis=0)
        assert np.all(rise > -1e-14)


def test_derivatives_in_epsilon_on_both_sides():
    noise, h = dp.Staircase(0.9, 1.0, 0.3), 1e-6
    slope = jax.jit(jax.grad(noise.log_delta, 1))
    for shift in (0.4, 1.0, 2.7, 5.2):
        found = masses(0.9, 1.0, 0.3, shift)
        for j in range(-2, len(found)):
            for epsilon in (0.9 * j - 1e-3, 0.9 * j + 1e-3):
                up, down = (exact_log_delta(found, 0.9, epsilon + s) for s in (h, -h))
                numeric = float((up - down) / (2 * h))
                np.testing.assert_allclose(slope(shift, epsilon), numeric, rtol=1e-7)


@pytest.mark.parametrize("z", [2.0**-20, 0.01, 0.5, 3.0, 100.0, 1e4])
def test_divergences(z):
    order = 1.0 + z
    z = mp.mpf(order) - 1
    with mp.workdps(DIGITS):
        for unit, sensitivity, split, shift in random_points(80, 3):
            found, e = masses(unit, sensitivity, split, shift), mp.mpf(unit)
            excess = (
                p * mp.expm1(z * j * e) * -mp.expm1(-(z + 1) * j * e) for j, p in found.items()
            )
            value = float(dp.Staircase(unit, sensitivity, split).renyi(shift, order))
            truth = mp.log1p(mp.fsum(excess))
            if z * unit > 300:
                assert abs(value * z - truth) < 1e-14 * (1 + abs(truth))
            else:
                close(value, truth / z, 1e-13)


def test_zcdp_is_the_least_below_the_sensitivity():
    """No order exceeds it, and one comes near it."""
    rng = np.random.default_rng(6)
    order = 1.0 + np.logspace(-7, 5, 1500)[:, None, None]
    epsilon, split = np.exp(rng.uniform(-3, 3, (20, 1))), rng.uniform(0.01, 1, (20, 1))
    noise = dp.Staircase(epsilon, 1.0, split)
    shift = np.array([[1e-9, 1e-3, 0.2, 1.0]])
    xi, rho = (np.asarray(v) for v in noise.zcdp(shift))
    ratio = np.asarray(noise.renyi(shift[None], order)) / order
    assert np.all(xi == 0)
    assert np.all(ratio <= rho * (1 + 1e-13))
    assert np.all(np.max(ratio, axis=0) > rho * (1 - 1e-3))
    shift = np.array([[1.01, 2.0, 3.7, 20.0]])
    rho = np.asarray(noise.zcdp(shift)[1])
    assert np.all(np.asarray(noise.renyi(shift[None], order)) <= rho * order)
    assert np.all(rho <= 0.5 * noise.pure_epsilon(shift) ** 2)
    slope = jax.grad(lambda e: dp.Staircase(e, 1.0, 0.4).zcdp(0.01)[1])
    numeric = dp.Staircase(jnp.array([1 + 1e-5, 1 - 1e-5]), 1.0, 0.4).zcdp(0.01)[1]
    np.testing.assert_allclose(slope(1.0), (numeric[0] - numeric[1]) / 2e-5, rtol=1e-5)


def test_pure_epsilon_counts_the_steps():
    noise = dp.Staircase(0.3, 0.1, 0.4)
    shift = np.array([0.0, 1e-300, 0.1, np.nextafter(0.1, 1), 0.2, 0.3, np.nextafter(0.3, 1)])
    # In doubles 3 x 0.1 lies above 0.3 and below its successor.
    np.testing.assert_allclose(noise.pure_epsilon(shift) / 0.3, [0, 1, 1, 2, 2, 3, 4])
    assert np.all(noise.delta(shift, noise.pure_epsilon(shift)) == 0)
    assert noise.pure_epsilon(np.inf) == np.inf
    assert dp.Staircase(0.3, np.inf, 0.4).pure_epsilon(5.0) == 0
    assert noise.structure(0.05).singularities == dp.own.Lattice(0.3, 0.0)


def test_place_is_exact():
    """Ratios that rounding carries over a whole number, and ratios beyond 2^53."""
    rng = np.random.default_rng(9)
    unit = rng.uniform(0.1, 1, 1000)
    length = unit * rng.integers(1, 4000, 1000)
    length = np.concatenate([np.nextafter(length, 0), length, np.nextafter(length, np.inf)])
    unit = np.tile(unit, 3)
    at = jax.tree.map(np.asarray, place(jnp.asarray(length), jnp.asarray(unit)))
    floors = [int(mp.floor(mp.mpf(x) / d)) for x, d in zip(length, unit, strict=True)]
    carried = np.flatnonzero(np.floor(length / unit) != floors)
    for i in [*range(40), *carried]:
        whole, d = floors[i], mp.mpf(unit[i])
        rest = mp.mpf(length[i]) / d - whole
        assert at.whole[i] == whole
        close(at.fraction.high[i], rest, 1e-15)
        close(at.rest[i], 1 - rest, 1e-15)
    assert len(carried) > 20
    tiny = jax.tree.map(
        np.asarray, place(*(jnp.asarray(v[:40] * 2.0**-1000) for v in (length, unit)))
    )
    assert np.array_equal(tiny.fraction.high, at.fraction.high[:40])
    assert place(jnp.asarray(1e300), jnp.asarray(3.0)).whole >= 1e300 / 3
