"""The staircase: its records, its best split, its tails, moments and every atom of its loss."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import oracle_pieces
import pytest
from oracle import ulps_around
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

# Digits for 1 - delta down to 1e-300.
DIGITS = 700


def close(value, truth, tolerance):
    assert abs(oracle.relative_error(float(value), mp.mpf(truth))) < tolerance, (value, truth)


@pytest.mark.parametrize("objective", ["mean_absolute", "variance"])
def test_records_of_the_best_split(objective):
    name, error = ("l1", "mae_opt") if objective == "mean_absolute" else ("l2", "var_opt")
    for row in records("staircase", f"gamma_opt_{name}"):
        close(dp.optimal.staircase_split(row["params"]["eps"], objective), expected(row), 1e-14)
    for row in records("staircase", error):
        epsilon, sensitivity = row["params"]["eps"], row["params"]["Delta"]
        noise = dp.Staircase(epsilon, sensitivity, dp.optimal.staircase_split(epsilon, objective))
        close(getattr(noise, objective)(), expected(row), 2e-14)


def test_split_is_accurate_and_smooth_from_tiny_to_huge_epsilon():
    with mp.workdps(DIGITS):
        for epsilon in (1e-8, 1e-4, 0.3, 1.0, 5.0, 40.0, 200.0, 700.0):
            b = mp.exp(-mp.mpf(epsilon))
            cubic = (b - 2 * b**2 + 2 * b**4 - b**5) ** (mp.mpf(1) / 3)
            root = -b / (1 - b) + cubic / (mp.mpf(2) ** (mp.mpf(1) / 3) * (1 - b) ** 2)
            close(dp.optimal.staircase_split(epsilon), root, 1e-13)
            value = dp.optimal.staircase_split(epsilon, "mean_absolute")
            close(value, 1 / (1 + mp.exp(mp.mpf(epsilon) / 2)), 1e-13)
    slope = jax.vmap(jax.grad(dp.optimal.staircase_split))(jnp.array([1e-8, 1.0, 700.0]))
    assert np.all((slope < 0) & np.isfinite(slope))
    np.testing.assert_allclose(slope[0], -1 / 12, rtol=1e-6)


def random_points(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        epsilon = float(np.exp(rng.uniform(np.log(1e-8), np.log(700))))
        sensitivity = float(np.exp(rng.uniform(-30, 30)))
        splits = [1.0, 0.5, 0.25, rng.uniform(), rng.uniform() ** 16, 1 - rng.uniform() ** 16]
        split = float(rng.choice(splits))
        ratios = [rng.uniform(), rng.uniform() ** 30, 1 + rng.uniform() ** 30, rng.uniform(0, 9)]
        ratios += [
            rng.choice(ulps_around(v)) for v in (2 * split, rng.integers(1, 9), 1 + 2 * split)
        ]
        ratios += [rng.uniform(1, 40)]
        yield epsilon, sensitivity, split, float(rng.choice(ratios)) * sensitivity


@pytest.mark.long
def test_survival_and_quantile_from_tiny_to_huge_epsilon():
    rng = np.random.default_rng(8)
    with mp.workdps(DIGITS):
        for unit, sensitivity, split, shift in random_points(150, 7):
            noise = dp.Staircase(unit, sensitivity, split)
            e, s, g = (mp.mpf(v) for v in (unit, sensitivity, split))
            b = mp.exp(-e)
            ends = [split + int(rng.integers(0, 9)), rng.uniform(0, 700 / unit)]
            for x in (shift, *(v * sensitivity for end in ends for v in ulps_around(end))):
                level = max(0, int(mp.floor(mp.mpf(x) / s - g)) + 1)
                upper = b**level * (b + (1 - b) * (level + g - mp.mpf(x) / s))
                upper /= 2 * (g + b * (1 - g))
                close(noise.log_survival(x), mp.log(upper), 1e-13)
                if upper > mp.mpf(10) ** -300:
                    close(noise.log_survival(-x), mp.log1p(-upper), 2e-13)
            for u in (math.exp(-rng.uniform(0.7, 690)), rng.uniform(0, 0.5), 0.5 - 1e-9):
                scaled = mp.mpf(u) * 2 * (g + b * (1 - g))
                level = max(0, int(mp.floor(-mp.log(scaled) / e)))
                size = level + g - (scaled / b**level - b) / (1 - b)
                error = abs(float(noise.quantile(u)) / s + size)
                assert error < 2e-13 * size + 1e-15, (unit, split, u)
                assert noise.quantile(1 - u) == -noise.quantile(1 - (1 - u))


def test_moments_of_any_power():
    for epsilon, split in ((1e-8, 0.3), (0.05, 1.0), (0.3, 0.7), (2.0, 1e-6), (60.0, 0.5)):
        noise = dp.Staircase(epsilon, 1.5, split)
        b, g = mp.exp(-mp.mpf(epsilon)), mp.mpf(split)
        drop, norm = 1 - b, g + b * (1 - g)
        shells = b * (1 + b) / drop + g * (2 * b + g * drop)
        close(noise.mean_absolute(), 1.5 * shells / (2 * norm), 1e-13)
        shells = b * (1 + b * (4 + b)) / drop + 3 * g * b * (1 + b)
        shells = shells / drop + g * g * (3 * b + g * drop)
        close(noise.variance(), 2.25 * shells / (3 * norm), 1e-13)
        for power in (-0.9, 0.0, 0.5, 3.5, 16.0):
            q = mp.mpf(power) + 1
            if power == 0:
                truth = mp.mpf(1)
            elif epsilon < 1e-3:  # the continuous limit, to the order epsilon^2
                if power > 0:
                    continue
                truth = mp.gamma(q) * (mp.mpf(1.5) / epsilon) ** power
                close(noise.absolute_moment(power), truth, 1e-3)
                continue
            else:
                terms = int((150 + 10 * power) / epsilon) + 3
                total = mp.fsum(b**k * (k + g) ** q for k in range(terms))
                truth = mp.mpf(1.5) ** power * (1 - b) ** 2 * total / (q * (g + b * (1 - g)))
            close(noise.absolute_moment(power), truth, 1e-13)


def test_bad_input():
    good = {"epsilon": 1.0, "sensitivity": 1.0, "split": 0.5}
    for name, more in (("epsilon", np.inf), ("split", 1.5)):
        for bad in (0.0, -1.0, np.nan, more):
            with pytest.raises(ValueError, match=f"{name} must lie in"):
                dp.Staircase(**good | {name: bad})
            traced = jax.jit(lambda **x: dp.Staircase(**x).delta(jnp.array([0.0, 2.5]), 0.1))
            assert np.all(np.isnan(traced(**good | {name: bad})))
    with pytest.raises(ValueError, match="epsilon must lie in"):
        dp.optimal.staircase_split(-2.0)
    with pytest.raises(ValueError, match="objective must be one of"):
        dp.optimal.staircase_split(1.0, "entropy")


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
            levels = [e for j in rng.integers(0, steps + 1, 2) for e in ulps_around(j * unit)]
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
                for shift in ulps_around(kink * sensitivity):
                    if shift < 1e-300:
                        continue
                    found = masses(0.9, sensitivity, split, shift)
                    epsilon = [e for j in range(len(found) + 1) for e in ulps_around(0.9 * j)]
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
