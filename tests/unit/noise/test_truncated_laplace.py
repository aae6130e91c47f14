"""The truncated Laplace against records, a 50-digit closed form and the laws at its ends."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from oracle import ulps_around
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64

GENERATOR = np.random.default_rng(20)
SHAPES = ((1.0, 5.0), (2.0, 0.1), (0.3, 12.0), (1e5, 1.0), (1.0, 700.0))  # scale, bound
SHARES = (1e-9, 0.3, 0.999, 1.0, 1.0000001, 1.6, 1.9999)  # shift / bound


def tail(t: mp.mpf, scale: mp.mpf, bound: mp.mpf) -> mp.mpf:
    """P[T > t]."""
    if t < 0:
        return 1 - tail(-t, scale, bound)
    if t >= bound:
        return mp.mpf(0)
    if scale == mp.inf:
        return (bound - t) / (2 * bound)
    return mp.expm1((bound - t) / scale) / (2 * mp.expm1(bound / scale))


def log_delta(scale, bound, shift, epsilon) -> mp.mpf:
    s, a, d, e = (mp.mpf(v) for v in (scale, bound, shift, epsilon))
    with mp.workdps(60 + int(min((a / s if s < mp.inf else 0) + abs(e), 5000) / 2)):
        size = abs(e)
        point = min((size * s - d) / 2 if size * s < d else a - d, a - d)
        delta = tail(point, s, a) - mp.exp(size) * tail(point + d, s, a)
        complement = 1 - delta if e >= 0 else mp.exp(e) * (1 - delta)
        return mp.log(delta) if complement == 1 - delta and delta < 0.5 else mp.log1p(-complement)


def boundaries(scale: float, bound: float, shift: float) -> list[float]:
    ends = [shift / scale, (2 * bound - shift) / scale]
    return [e for b in ends for e in (*ulps_around(b), *ulps_around(-b))] + ulps_around(0.0)


def check(scale: float, bound: float, shift: float, epsilon: np.ndarray) -> None:
    value = np.asarray(dp.TruncatedLaplace(scale, bound).log_delta(shift, epsilon))
    for e, v in zip(epsilon, value, strict=True):
        truth = log_delta(scale, bound, shift, float(e))
        oracle.check_upper_bound(float(v), truth, (scale, bound, shift, e))


@pytest.mark.parametrize(("scale", "bound"), SHAPES)
def test_delta_around_every_boundary(scale, bound):
    for share in SHARES:
        shift = share * bound
        for moved in ulps_around(shift) if share == 1.0 else [shift]:
            check(scale, bound, moved, np.array(boundaries(scale, bound, moved)))


def test_delta_over_wide_ranges():
    for _ in range(60):
        scale = 10 ** GENERATOR.uniform(-8, 8)
        bound = scale * 10 ** GENERATOR.uniform(-4, 3.5)
        shift = bound * min(10 ** GENERATOR.uniform(-8, 0.5), 2.1)
        reach = min(shift, abs(2 * bound - shift)) / scale
        near = reach * (1 + GENERATOR.normal(size=4) * 10 ** GENERATOR.uniform(-17, 0, size=4))
        wide = 10 ** GENERATOR.uniform(-5, 3, size=3)
        epsilon = np.array([*near, *wide, 0.5 * reach])
        check(scale, bound, shift, np.concatenate([epsilon, -epsilon]))


def test_delta_where_the_bound_meets_the_shift_or_half_of_it():
    for x in (0.5, 3.7, 40.0, 281.3):
        for gap in (2e-16, 1e-15, 1e-13, 1e-9):
            for share in (1.0 - gap, 1.0 + gap, 2.0 - 2.0 * gap):
                scale, bound = 0.3, 0.3 * x
                shift = share * bound
                ends = [shift / scale, (2 * bound - shift) / scale]
                near = [s * e * (1 + k * gap) for s in (1, -1) for e in ends for k in (-2, 0, 1)]
                check(scale, bound, shift, np.array(near))


def test_delta_where_the_ends_meet_in_the_deep_tail():
    # exp(-1e5) is no double: the floor is reached in logarithms.
    for scale, bound, shift in ((1.0, 1e5, 3.0), (1e-5, 1.0, 0.5), (1e-3, 1e3, 999.99)):
        check(scale, bound, shift, np.array([shift / scale, shift / scale + 1.0, 1e7]))


def test_a_gap_below_the_least_double_is_no_privacy():
    value = float(dp.TruncatedLaplace(1.0, 1e3).log_delta(1e-300, (1 - 1e-10) * 1e-300))
    assert value >= log_delta(1.0, 1e3, 1e-300, (1 - 1e-10) * 1e-300)


def test_epsilon_derivative_on_both_sides_of_each_boundary():
    for scale, bound, shift in (
        (1.0, 5.0, 2.0),
        (1.0, 5.0, 7.0),
        (2.0, 0.7, 0.4),
        (0.3, 12.0, 4.0),
    ):
        slope = jax.grad(partial(dp.TruncatedLaplace(scale, bound).log_delta, shift))
        exact = partial(log_delta, scale, bound, shift)
        end = min(shift, 2 * bound - shift) / scale
        for edge in (end, -end, 0.0):
            for side in (-1, 1):
                at = edge + side * 1e-9
                truth = mp.diff(exact, at, h=mp.mpf(10) ** -20)
                np.testing.assert_allclose(float(slope(at)), float(truth), rtol=1e-7, atol=1e-9)
        truth = float(slope(1e-300))
        np.testing.assert_allclose(slope(0.0), truth, rtol=1e-12)


def designed(row) -> dp.TruncatedLaplace:
    """The noise that meets (epsilon, delta) at the shift with the least error."""
    epsilon, shift = row["params"]["eps_design"], row["params"]["Delta"]
    delta = float(row["params"]["delta_design"])
    scale = shift / epsilon
    return dp.TruncatedLaplace(scale, scale * np.log1p(np.expm1(epsilon) / (2 * delta)))


def test_design_records():
    asked = {
        "B": (lambda noise: np.exp(noise.log_density(0.0)), 1e-14),
        "var": (lambda noise: noise.variance(), 1e-13),
        "mae": (lambda noise: noise.mean_absolute(), 1e-13),
    }
    for quantity, (method, tolerance) in asked.items():
        for row in records("truncated_laplace", quantity):
            value = float(method(designed(row)))
            assert abs(oracle.relative_error(value, expected(row))) < tolerance, row["id"]
    for row in records("truncated_laplace", "delta_at_design"):
        value = designed(row).delta(row["params"]["Delta"], row["inputs"]["eps"])
        # The bound's own rounding moves delta by |log delta| ulp.
        np.testing.assert_allclose(value, float(expected(row)), rtol=5e-12)


@pytest.mark.parametrize(("scale", "bound"), SHAPES)
def test_quantile_and_moments(scale, bound):
    noise, s, a = dp.TruncatedLaplace(scale, bound), mp.mpf(scale), mp.mpf(bound)
    for u in (1e-300, 1e-20, 0.01, 0.3, float(np.nextafter(0.5, 0))):
        truth = s * mp.log(mp.exp(-a / s) - 2 * mp.mpf(u) * mp.expm1(-a / s))
        assert abs(oracle.relative_error(float(noise.quantile(u)), truth)) < 1e-14
        assert noise.quantile(1 - u) == -noise.quantile(1 - (1 - u))
    for power in (-0.9, -0.5, 0.0, 1.0, 2.0, 3.5, 10.0):
        p = mp.mpf(power)
        truth = -(s**p) * mp.gammainc(p + 1, 0, a / s) / mp.expm1(-a / s)
        value = float(noise.absolute_moment(power))
        assert abs(oracle.relative_error(value, truth)) < 1e-13, power


def test_an_infinite_scale_is_the_uniform_law():
    noise = dp.TruncatedLaplace(jnp.inf, 3.0)
    for shift, truth in ((1.5, 0.25), (3.0, 0.5), (4.5, 0.75)):
        np.testing.assert_allclose(noise.delta(shift, jnp.array([0.0, 1.0])), truth, rtol=1e-14)
        np.testing.assert_allclose(
            noise.delta(shift, -1.0), 1 - np.exp(-1) * (1 - truth), rtol=1e-14
        )
    np.testing.assert_allclose(noise.variance(), 3.0, rtol=1e-15)
    np.testing.assert_allclose(noise.quantile(jnp.array([0.1, 0.9])), [-2.4, 2.4], rtol=1e-15)
    np.testing.assert_allclose(jnp.exp(noise.log_density(-2.0)), 1 / 6, rtol=1e-15)
    np.testing.assert_allclose(jnp.exp(noise.log_survival(-1.5)), 0.75, rtol=1e-15)
    assert float(jnp.max(jnp.abs(noise.sample(jax.random.key(1), (1000,))))) > 2.9
    assert dp.TruncatedLaplace(1.0, 3.0).delta(6.0, 100.0) == 1


def test_an_infinite_bound_is_the_laplace():
    noise, laplace = dp.TruncatedLaplace(1.5, jnp.inf), dp.Laplace(1.5)
    epsilon = jnp.array([-3.0, -0.5, 0.0, 0.7, 1.4, 2.0])
    for shift in (0.0, 0.3, 2.0, 40.0):
        expected_delta = laplace.log_delta(shift, epsilon)
        np.testing.assert_allclose(noise.log_delta(shift, epsilon), expected_delta, rtol=1e-13)
        for method in ("zcdp", "pure_epsilon"):
            np.testing.assert_array_equal(
                getattr(noise, method)(shift), getattr(laplace, method)(shift)
            )
        np.testing.assert_allclose(noise.renyi(shift, 4.0), laplace.renyi(shift, 4.0), rtol=1e-13)
        assert noise.structure(shift).singularities == laplace.structure(shift).singularities
    np.testing.assert_allclose(noise.variance(), laplace.variance(), rtol=1e-14)
    np.testing.assert_allclose(noise.fisher_information(), laplace.fisher_information())
    slopes = [jax.grad(n.log_delta, 1)(2.0, 0.7) for n in (noise, laplace)]
    np.testing.assert_allclose(*slopes, rtol=1e-13)


def test_proxy_bounds_the_moment_generating_function():
    for scale, bound in ((1e6, 1.0), (1.0, 1.0), (0.2, 1.0)):
        proxy = float(dp.TruncatedLaplace(scale, bound).sub_gaussian_proxy())
        for t in (0.1, 1.0, 5.0, 40.0):
            s = mp.mpf(scale)
            mean = mp.quad(lambda x, s=s, t=t: mp.exp(-x / s) * mp.cosh(t * x), [0, bound])
            assert mp.log(mean / (-s * mp.expm1(-bound / s))) <= proxy * t * t / 2


def test_derivatives_in_the_parameters():
    """Against differences of the closed form, with every regime and both directions."""
    cases = ((1.0, 5.0, 2.0), (1.0, 5.0, 7.0), (2.0, 0.7, 0.4), (1e-3, 1.0, 0.5), (1e4, 1.0, 1.5))
    for scale, bound, shift in cases:
        for epsilon in (0.1 * shift / scale, -0.3, 2e3):
            point = (scale, bound, shift)
            slopes = jax.grad(
                lambda s, a, m, e=epsilon: dp.TruncatedLaplace(s, a).log_delta(m, e), (0, 1, 2)
            )(*point)
            for k, slope in enumerate(slopes):

                def along(x, k=k, point=point, e=epsilon):
                    s, a, m = (x if i == k else mp.mpf(v) for i, v in enumerate(point))
                    return log_delta(s, a, m, e)

                truth = mp.diff(along, mp.mpf(point[k]), h=mp.mpf(10) ** -20)
                error = abs(float(slope) - float(truth)) * point[k]
                assert error < 1e-12 * (1 + abs(float(truth)) * point[k]), (point, epsilon, k)


def test_bad_input():
    for bound in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="bound must lie in"):
            dp.TruncatedLaplace(1.0, bound)
        noise = dp.TruncatedLaplace(1.0, 1.0)
        broken = jax.tree.unflatten(jax.tree.structure(noise), [noise.scale, jnp.asarray(bound)])
        assert np.isnan(broken.delta(1.0, 1.0))
        for value in (broken.pure_epsilon(0.5), broken.variance(), broken.sub_gaussian_proxy()):
            assert not value <= 1e300
