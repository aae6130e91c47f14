"""What every noise must do. `test_noise.py` runs all of it on every noise of the house."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from scipy import stats

from jaxdp import Noise

# Chance that a correct sampler fails `check_sampler`: once in a million keys.
FALSE_ALARM = 1e-6
SCALES = (0.3, 1.0, 7.5)


@dataclass(frozen=True)
class Case:
    """A one-parameter family, its law for the oracle, and its epsilons where a regime ends."""

    name: str
    family: Callable[..., Noise]
    law: Callable[[float], oracle.Law]
    boundaries: Callable[[float], list[float]]  # of the ratio shift / scale
    has_fisher: bool = True


def ulps_around(x: float) -> list[float]:
    return [float(np.nextafter(x, -np.inf)), x, float(np.nextafter(x, np.inf))]


def check_density(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)
        for x in np.array([-9.0, -1.3, -1e-3, 0.0, 1e-9, 0.4, 3.0, 25.0]) * scale:
            truth = law.log_density(mp.mpf(float(x)))
            assert abs(oracle.relative_error(float(noise.log_density(x)), truth)) < 1e-13
        edges = np.concatenate([np.linspace(0, 8, 33), [12, 20, 40]]) * scale
        nodes, weights = np.polynomial.legendre.leggauss(40)
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1] + edges[1:])[:, None] / 2 + half * nodes
        mass = 2 * np.sum(half * weights * np.exp(np.asarray(noise.log_density(x))))
        assert abs(mass - 1) < 1e-12


def check_survival(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)
        for ratio in (-30.0, -6.0, -1.0, -1e-8, 0.0, 1e-3, 0.7, 1.0, 8.0, 38.0, 60.0):
            truth = mp.log(oracle.survival(law, ratio * scale))
            value = float(noise.log_survival(ratio * scale))
            assert abs(oracle.relative_error(value, truth)) < 2e-13, (scale, ratio)


def check_quantile(case: Case) -> None:
    noise = case.family(1.7)
    u = np.array([1e-300, 1e-16, 1e-3, 0.2, 0.4999999, 0.5, 0.61, 0.999, 1 - 1e-12])
    below = np.exp(np.asarray(noise.log_survival(-noise.quantile(u))))
    np.testing.assert_allclose(below, u, rtol=1e-11)
    assert noise.quantile(0.0) == -np.inf
    assert noise.quantile(1.0) == np.inf


def check_moments(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)

        def slope(t: mp.mpf, law: oracle.Law = law) -> mp.mpf:
            return mp.diff(law.log_density, t)

        for value, truth in (
            (noise.variance(), oracle.expectation(law, lambda t: t * t)),
            (noise.mean_absolute(), oracle.expectation(law, abs)),
            (noise.absolute_moment(3.5), oracle.expectation(law, lambda t: abs(t) ** 3.5)),
        ):
            assert abs(oracle.relative_error(float(value), truth)) < 1e-13
        if case.has_fisher:
            truth = oracle.expectation(
                law, lambda t, slope=slope: slope(t + mp.mpf(10) ** -30) ** 2
            )
            assert abs(oracle.relative_error(float(noise.fisher_information()), truth)) < 1e-10


def check_delta(case: Case) -> None:
    """Against the hockey-stick integral, in and around every regime; never below it."""
    for scale, ratio in ((1.0, 1.0), (0.5, 1e-3), (3.0, 4.0), (0.25, 17.0), (8.0, 0.125)):
        noise, law, shift = case.family(scale), case.law(scale), ratio * scale
        inner = [0.0, 0.3 * ratio, ratio, 2 * ratio + 1.0, ratio**2, 25.0]
        around = [e for b in case.boundaries(ratio) for e in ulps_around(b)]
        for epsilon in sorted({*inner, *around, *(-e for e in inner), *(-e for e in around)}):
            truth = oracle.hockey_stick(law, shift, epsilon)
            value = float(noise.log_delta(shift, epsilon))
            if truth < mp.mpf(10) ** -40:  # the quadrature's own floor
                assert value < -90
                continue
            error = oracle.relative_error(value, mp.log(truth) if truth < 1 else mp.mpf(0))
            assert -1e-30 <= error < 1e-12, (scale, shift, epsilon, value, error)


def check_cgf(case: Case) -> None:
    for scale, shift in ((1.0, 1.0), (2.0, 0.2), (0.5, 2.0)):
        noise, law = case.family(scale), case.law(scale)
        for z in (0.01, 0.5, 1.0, 3.0, 9.5):
            truth = oracle.cumulant(law, shift, z)
            assert abs(oracle.relative_error(float(jnp.real(noise.cgf(shift, z))), truth)) < 1e-12
        turn = 1j * scale / shift
        for z in (0.5 + 2 * turn, 1 - turn, 0.1 + 4 * turn, -0.5 + turn, -0.7 + 0.1j):
            difference = complex(noise.cgf(shift, z)) - complex(oracle.cumulant(law, shift, z))
            assert abs(np.exp(difference) - 1) < 1e-11, (scale, shift, z)


def check_renyi(case: Case) -> None:
    """(xi, rho) and the pure epsilon bound every order."""
    order = 1.0 + np.logspace(-6, 4, 60)
    for shift in (1e-4, 0.3, 2.0, 40.0):
        noise = case.family(1.0)
        renyi = np.asarray(noise.renyi(shift, order))
        xi, rho = (float(v) for v in noise.zcdp(shift))
        assert np.all(np.diff(renyi) > -1e-12 * renyi[1:])
        assert np.all(renyi <= (xi + rho * order) * (1 + 1e-12))
        assert np.all(renyi <= float(noise.pure_epsilon(shift)) * (1 + 1e-12))


def check_sampler(case: Case) -> None:
    noise = case.family(2.5)
    draws = np.asarray(noise.sample(jax.random.key(7), (200_000,)))

    def cdf(x: np.ndarray) -> np.ndarray:
        return -np.expm1(np.asarray(noise.log_survival(x)))

    assert stats.kstest(draws, cdf).pvalue > FALSE_ALARM
    scales = np.array([1.0, 10.0])
    wide = np.asarray(case.family(scales).sample(jax.random.key(8), (50_000, 2)))
    # The sample variance has a relative deviation below 0.012 here; 0.06 is 5 of them.
    expected = np.asarray(case.family(scales).variance())
    np.testing.assert_allclose(wide.var(axis=0) / expected, 1, atol=0.06)


def check_bad_input_is_never_private(case: Case) -> None:
    for scale in (0.0, -1.0, np.nan, -np.inf):
        with pytest.raises(ValueError, match="scale must lie in"):
            case.family(scale)
        traced = jax.jit(lambda s: case.family(s).delta(1.0, 1.0))(scale)
        assert not traced <= 1.0
        assert not jax.jit(lambda s: case.family(s).zcdp(1.0)[1])(scale) <= 1e300
        replaced = jax.tree.map(lambda _, s=scale: jnp.asarray(s), case.family(1.0))
        assert not replaced.delta(1.0, 1.0) <= 1.0
        assert not abs(replaced.sample(jax.random.key(0))) < 1e300
    noise = case.family(1.0)
    for shift in (-1.0, np.nan):
        with pytest.raises(ValueError, match="shift must lie in"):
            noise.log_delta(shift, 1.0)
        assert not jax.jit(noise.delta)(shift, 1.0) <= 1.0
    with pytest.raises(ValueError, match="epsilon must lie in"):
        noise.log_delta(1.0, np.nan)
    assert not jax.jit(noise.delta)(1.0, np.nan) <= 1.0
    with pytest.raises(ValueError, match="dtype"):
        noise.log_delta(1.0 + 1j, 1.0)
    for order in (1.0, 0.5, np.nan):
        with pytest.raises(ValueError, match="order must lie in"):
            noise.renyi(1.0, order)


def check_limits(case: Case) -> None:
    noise = case.family(1.0)
    assert noise.delta(0.0, 0.0) == 0
    assert noise.delta(0.0, 3.0) == 0
    np.testing.assert_allclose(noise.delta(0.0, -1.0), 1 - np.exp(-1), rtol=1e-14)
    assert noise.delta(1.0, np.inf) == 0
    assert case.family(1e200).delta(1e-200, 0.0) > 0  # the ratio underflows, the loss does not
    assert noise.delta(1.0, -np.inf) == 1
    assert noise.delta(np.inf, 1.0) == 1
    assert case.family(np.inf).delta(1.0, 0.0) == 0
    assert not case.family(np.inf).delta(np.inf, 0.0) <= 1


def check_transformations(case: Case) -> None:
    """jit = eager, vmap = loop, broadcasting = both."""
    scale, shift = jnp.array([0.5, 1.0, 4.0]), jnp.array([[0.1], [2.0]])
    epsilon = jnp.array([0.7, -0.2, 3.0])

    def log_delta(s, m, e):
        return case.family(s).log_delta(m, e)

    eager = log_delta(scale, shift, epsilon)
    assert eager.shape == (2, 3)
    np.testing.assert_allclose(jax.jit(log_delta)(scale, shift, epsilon), eager, rtol=1e-14)
    inner = jax.vmap(log_delta, (0, None, 0))
    mapped = jax.vmap(inner, (None, 0, None))(scale, shift[:, 0], epsilon)
    np.testing.assert_allclose(mapped, eager, rtol=1e-14)
    for i in range(2):
        for j in range(3):
            one = log_delta(float(scale[j]), float(shift[i, 0]), float(epsilon[j]))
            np.testing.assert_allclose(one, eager[i, j], rtol=1e-14)


def check_gradients(case: Case) -> None:
    """Forward and reverse derivatives against central differences; the second one as well."""
    for point in ((1.0, 1.0, 0.4), (2.0, 0.5, 0.01), (0.7, 1.5, -0.8), (1.0, 4.0, 1.0)):

        def log_delta(s, m, e):
            return case.family(s).log_delta(m, e)

        gradient = jax.grad(log_delta, (0, 1, 2))(*point)
        forward = jax.jacfwd(log_delta, (0, 1, 2))(*point)
        np.testing.assert_allclose(gradient, forward, rtol=1e-12)
        for k in range(3):
            h = 1e-5 * max(abs(point[k]), 0.1)
            up, down = list(point), list(point)
            up[k], down[k] = point[k] + h, point[k] - h
            numeric = (log_delta(*up) - log_delta(*down)) / (2 * h)
            np.testing.assert_allclose(gradient[k], numeric, rtol=3e-6, atol=1e-8)

            def slope(x, k=k, point=point):
                return jax.grad(log_delta, k)(*(x if i == k else v for i, v in enumerate(point)))

            numeric = (slope(up[k]) - slope(down[k])) / (2 * h)
            np.testing.assert_allclose(jax.grad(slope)(point[k]), numeric, rtol=3e-5, atol=1e-6)
