"""The staircase: its records, its best split, its tails and its moments."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

# Digits for 1 - delta down to 1e-300.
DIGITS = 700


def noise_of(row):
    params = row["params"]
    return dp.Staircase(params["eps0"], params["Delta"], params["gamma"])


def around(x):
    return [float(np.nextafter(x, -np.inf)), float(x), float(np.nextafter(x, np.inf))]


def close(value, truth, tolerance):
    assert abs(oracle.relative_error(float(value), mp.mpf(truth))) < tolerance, (value, truth)


@pytest.mark.parametrize(
    ("quantity", "objective"), [("gamma_opt_l1", "mean_absolute"), ("gamma_opt_l2", "variance")]
)
def test_records_of_the_best_split(quantity, objective):
    for row in records("staircase", quantity):
        close(dp.optimal.staircase_split(row["params"]["eps"], objective), expected(row), 1e-14)


def test_records_of_the_least_errors():
    for quantity, objective in (("mae_opt", "mean_absolute"), ("var_opt", "variance")):
        for row in records("staircase", quantity):
            epsilon, sensitivity = row["params"]["eps"], row["params"]["Delta"]
            split = dp.optimal.staircase_split(epsilon, objective)
            noise = dp.Staircase(epsilon, sensitivity, split)
            value = noise.variance() if objective == "variance" else noise.mean_absolute()
            close(value, expected(row), 2e-14)


def log_delta_of_equal(noise, count, epsilon):
    """At the sensitivity the loss has three atoms: the composition is a trinomial sum."""
    unit = float(noise.epsilon)
    up = float(noise.delta(noise.sensitivity, 0.0)) / -math.expm1(-unit)
    down, total = up * math.exp(-unit), 0.0
    for i, j in itertools.product(range(count + 1), repeat=2):
        if i + j <= count and (i - j) * unit > epsilon:
            ways = math.comb(count, i) * math.comb(count - i, j)
            mass = ways * up**i * down**j * (1 - up - down) ** (count - i - j)
            total += mass * -math.expm1(epsilon - (i - j) * unit)
    return math.log(total)


def test_records_of_compositions():
    for row in records("staircase", "ln_delta_kfold"):
        noise, count, epsilon = noise_of(row), row["inputs"]["K"], row["inputs"]["eps"]
        truth = float(expected(row))
        np.testing.assert_allclose(log_delta_of_equal(noise, count, epsilon), truth, rtol=1e-11)
        loss = count * dp.privacy_loss(dp.Mechanism(noise, noise.sensitivity))
        error = float(loss.log_delta(epsilon)) - truth
        assert -1e-13 <= error < 1e-9, row["id"]


def test_split_is_accurate_and_smooth_from_tiny_to_huge_epsilon():
    with mp.workdps(DIGITS):
        for epsilon in (1e-8, 1e-4, 0.3, 1.0, 5.0, 40.0, 200.0, 700.0):
            b = mp.exp(-mp.mpf(epsilon))
            cubic = (b - 2 * b**2 + 2 * b**4 - b**5) ** (mp.mpf(1) / 3)
            root = -b / (1 - b) + cubic / (mp.mpf(2) ** (mp.mpf(1) / 3) * (1 - b) ** 2)
            close(dp.optimal.staircase_split(epsilon), root, 1e-13)
            value = dp.optimal.staircase_split(epsilon, "mean_absolute")
            close(value, 1 / (1 + mp.exp(mp.mpf(epsilon) / 2)), 1e-13)
    # The root as published loses everything at a small epsilon.
    b = np.exp(-1e-8)
    published = -b / (1 - b) + np.cbrt(b - 2 * b**2 + 2 * b**4 - b**5) / (
        2 ** (1 / 3) * (1 - b) ** 2
    )
    assert not abs(published - 0.5) < 0.1
    slope = jax.vmap(jax.grad(dp.optimal.staircase_split))(jnp.array([1e-8, 1.0, 700.0]))
    assert np.all((slope < 0) & np.isfinite(slope))
    np.testing.assert_allclose(slope[0], -1 / 12, rtol=1e-6)


def test_the_best_split_is_the_best():
    epsilon = jnp.array([0.1, 1.0, 6.0])
    for objective, power in (("mean_absolute", 1), ("variance", 2)):
        best = dp.optimal.staircase_split(epsilon, objective)

        def error(split, power=power):
            return dp.Staircase(epsilon, 2.0, split).absolute_moment(power)

        assert np.all(error(best) < np.minimum(error(0.99 * best), error(1.01 * best)))
        flat = jax.jacobian(lambda s: jnp.log(error(s)))(best)
        np.testing.assert_allclose(jnp.diag(flat), 0, atol=1e-13)
    best = dp.optimal.staircase_split(epsilon, "mean_absolute")
    least = 2.0 * np.exp(epsilon / 2) / np.expm1(epsilon)
    np.testing.assert_allclose(dp.Staircase(epsilon, 2.0, best).mean_absolute(), least, rtol=1e-14)
    assert np.all(least < 2.0 / epsilon)  # Laplace's


def random_points(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        epsilon = float(np.exp(rng.uniform(np.log(1e-8), np.log(700))))
        sensitivity = float(np.exp(rng.uniform(-30, 30)))
        splits = [1.0, 0.5, 0.25, rng.uniform(), rng.uniform() ** 16, 1 - rng.uniform() ** 16]
        split = float(rng.choice(splits))
        ratios = [rng.uniform(), rng.uniform() ** 30, 1 + rng.uniform() ** 30, rng.uniform(0, 9)]
        ratios += [rng.choice(around(v)) for v in (2 * split, rng.integers(1, 9), 1 + 2 * split)]
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
            for x in (shift, *(v * sensitivity for end in ends for v in around(end))):
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
    @jax.jit
    def traced(epsilon, sensitivity, split, shift, at):
        noise = dp.Staircase(epsilon, sensitivity, split)
        return noise.delta(shift, at), noise.zcdp(shift)[1], noise.pure_epsilon(shift)

    shift = jnp.array([0.0, 0.5, 2.5, jnp.inf])
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="epsilon must lie in"):
            dp.Staircase(bad, 1.0, 0.5)
        assert all(np.all(np.isnan(v)) for v in traced(bad, 1.0, 0.5, shift, 0.1))
    for bad in (0.0, -1.0, np.nan, 1.5):
        with pytest.raises(ValueError, match="split must lie in"):
            dp.Staircase(1.0, 1.0, bad)
        assert all(np.all(np.isnan(v)) for v in traced(1.0, 1.0, bad, shift, 0.1))
    for bad in (0.0, -1.0, np.nan):
        assert all(np.all(np.isnan(v)) for v in traced(1.0, bad, 0.5, shift, 0.1))
    assert np.all(np.isnan(traced(1.0, 1.0, 0.5, shift, np.nan)[0]))
    assert np.all(np.isnan(traced(1.0, 1.0, 0.5, -1.0, 0.1)[0]))
    for bad in (0.0, -2.0, np.nan):
        with pytest.raises(ValueError, match="epsilon must lie in"):
            dp.optimal.staircase_split(bad)
    with pytest.raises(ValueError, match="objective must be one of"):
        dp.optimal.staircase_split(1.0, "entropy")
