"""What every noise must do. `test_noise.py` runs all of it on every noise of the house."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
# Logarithms of the tilts that a saddlepoint may have.
LOG_TILTS = (-23.0, 50.0)
SCALES = (0.3, 1.0, 7.5)
SMOOTH = ((1.0, 1.0, 0.4), (2.0, 0.5, 0.01), (0.7, 1.5, -0.8), (1.0, 4.0, 1.0))


@dataclass(frozen=True)
class Case:
    """A one-parameter family, its law for the oracle, and its epsilons where a regime ends.

    On a line, `family(scale)` is `scale` times `family(1.0)`. On the lattice of the integers
    shifts are whole and there is no such rule.
    """

    name: str
    family: Callable[..., Noise]
    law: Callable[[float], Any]
    boundaries: Callable[[float], list[float]]  # of the ratio shift / scale
    has_fisher: bool = True
    lattice: bool = False
    # The support ends at this many scales: beyond, the loss is infinite.
    bound: float = np.inf
    # What an error calls the parameters.
    parameters: str = "scale"
    # (scale, shift, epsilon) where log delta has derivatives.
    smooth: tuple[tuple[float, float, float], ...] = SMOOTH

    def points(self) -> tuple[tuple[float, float], ...]:
        """(scale, shift)."""
        if self.lattice:
            return ((1.0, 1.0), (0.5, 3.0), (3.0, 2.0), (20.0, 1.0))
        ratios = ((1.0, 1.0), (0.5, 1e-3), (3.0, 4.0), (0.25, 17.0), (8.0, 0.125))
        return tuple((scale, ratio * scale) for scale, ratio in ratios)

    def inside(self, x: np.ndarray) -> np.ndarray:
        """Those of x, in scales, that the support contains."""
        return x[abs(x) < self.bound]


def ulps_around(x: float) -> list[float]:
    return [float(np.nextafter(x, -np.inf)), x, float(np.nextafter(x, np.inf))]


def check_density(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)
        if case.lattice:
            x = np.array([-9.0, -2.0, -1.0, 0.0, 1.0, 3.0, 25.0])
            assert noise.log_density(0.5) == -np.inf
        else:
            x = case.inside(np.array([-9.0, -1.3, -1e-3, 0.0, 1e-9, 0.4, 3.0, 25.0])) * scale
        for point in x:
            truth = law.log_density(mp.mpf(float(point)))
            assert abs(oracle.relative_error(float(noise.log_density(point)), truth)) < 1e-13
        assert abs(total_mass(case, noise, law, scale) - 1) < 1e-12


def total_mass(case: Case, noise: Noise, law: Any, scale: float) -> float:
    if case.lattice:
        x = np.arange(-1000.0, 1001.0)
        return float(np.sum(np.exp(np.asarray(noise.log_density(x)))))
    ends = [float(min(abs(k), 40 * scale)) for k in law.kinks]
    ends += [] if np.isinf(case.bound) else [case.bound * scale]
    edges = (
        np.concatenate([np.geomspace(1e-6, 0.1, 11), np.linspace(0, 8, 33), [12, 20, 40]]) * scale
    )
    edges = np.unique([*edges[edges <= case.bound * scale], *ends])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1] + edges[1:])[:, None] / 2 + half * nodes
    return 2 * float(np.sum(half * weights * np.exp(np.asarray(noise.log_density(x)))))


def check_survival(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)
        ratios = np.array([-30.0, -6.0, -1.0, -1e-8, 0.0, 1e-3, 0.7, 1.0, 8.0, 38.0, 60.0])
        unit = 1.0 if case.lattice else scale
        for point in case.inside(ratios) * unit:
            truth = mp.log(law.survival(float(point)))
            value = float(noise.log_survival(point))
            if abs(truth) < mp.mpf(10) ** -30:  # the oracle's own digits are spent on the 1
                assert -1e-29 < value <= 0
                continue
            assert abs(oracle.relative_error(value, truth)) < 2e-13, (scale, point)
    if case.bound < np.inf:
        assert case.family(1.0).log_survival(case.bound) == -np.inf
        assert case.family(1.0).log_survival(-case.bound) == 0


def check_quantile(case: Case) -> None:
    noise = case.family(1.7)
    u = np.array([1e-300, 1e-16, 1e-3, 0.2, 0.4999999, 0.5, 0.61, 0.999, 1 - 1e-12])
    at = np.asarray(noise.quantile(u))
    if case.lattice:
        assert np.all(at == np.round(at))
        assert np.all(np.exp(np.asarray(noise.log_survival(-at - 1))) >= u * (1 - 1e-11))
        assert np.all(np.exp(np.asarray(noise.log_survival(-at))) < u * (1 + 1e-11))
    else:
        below = np.exp(np.asarray(noise.log_survival(-at)))
        # Near the end of a bounded support the quantile has no relative accuracy to give.
        well = abs(at) < 0.99 * 1.7 * case.bound
        np.testing.assert_allclose(below[well], u[well], rtol=1e-11)
        assert np.all(abs(at) <= 1.7 * case.bound)
    assert noise.quantile(0.0) == -1.7 * case.bound
    assert noise.quantile(1.0) == 1.7 * case.bound


def check_moments(case: Case) -> None:
    for scale in SCALES:
        noise, law = case.family(scale), case.law(scale)

        def slope(t: mp.mpf, law: Any = law) -> mp.mpf:
            return mp.diff(law.log_density, t)

        for value, truth in (
            (noise.variance(), law.expectation(lambda t: t * t)),
            (noise.mean_absolute(), law.expectation(abs)),
            (noise.absolute_moment(3.5), law.expectation(lambda t: abs(t) ** 3.5)),
        ):
            assert abs(oracle.relative_error(float(value), truth)) < 1e-13
        if case.has_fisher:
            truth = law.expectation(lambda t, slope=slope: slope(t + mp.mpf(10) ** -30) ** 2)
            assert abs(oracle.relative_error(float(noise.fisher_information()), truth)) < 1e-10
        else:
            assert noise.fisher_information() == np.inf


def check_delta(case: Case) -> None:
    """Against the hockey-stick integral, in and around every regime; never below it."""
    for scale, shift in case.points():
        noise, law, ratio = case.family(scale), case.law(scale), shift / scale
        inner = [0.0, 0.3 * ratio, ratio, 2 * ratio + 1.0, ratio**2, 25.0]
        around = [e for b in case.boundaries(ratio) for e in ulps_around(b)]
        for epsilon in sorted({*inner, *around, *(-e for e in inner), *(-e for e in around)}):
            truth = law.hockey_stick(shift, epsilon)
            value = float(noise.log_delta(shift, epsilon))
            if truth < mp.mpf(10) ** -40:  # the quadrature's own floor
                assert value < -90
                continue
            if truth > 1 - mp.mpf(10) ** -40:
                assert -1e-39 < value <= 0
                continue
            error = oracle.relative_error(value, mp.log(truth) if truth < 1 else mp.mpf(0))
            assert -1e-30 <= error < 1e-12, (scale, shift, epsilon, value, error)


def check_cgf(case: Case) -> None:
    for scale, shift in ((1.0, 1.0), (2.0, 1.0 if case.lattice else 0.2), (0.5, 2.0)):
        noise, law = case.family(scale), case.law(scale)
        if case.bound < np.inf:
            assert np.all(np.isinf(np.asarray(noise.cgf(shift, np.array([0.01, 1.0, 9.5])))))
            continue
        for z in (0.01, 0.5, 1.0, 3.0, 9.5):
            truth = law.cumulant(shift, z)
            assert abs(oracle.relative_error(float(jnp.real(noise.cgf(shift, z))), truth)) < 1e-12
        turn = 1j * scale / shift
        for z in (0.5 + 2 * turn, 1 - turn, 0.1 + 4 * turn, -0.5 + turn, -0.7 + 0.1j):
            truth = complex(law.cumulant(shift, z))
            difference = complex(noise.cgf(shift, z)) - truth
            # A quadrature's error is one of M(Re z), which is the larger.
            fall = np.exp(float(noise.cgf(shift, np.real(z))) - truth.real)
            assert abs(np.exp(difference) - 1) < 1e-11 + 1e-13 * fall, (scale, shift, z)


def check_every_tilt(case: Case) -> None:
    """K(z) / z, the Renyi divergence, does not fall, at all tilts that a saddle may have."""
    tilts = np.exp(np.linspace(*LOG_TILTS, 147))
    for scale in SCALES:
        slope = np.asarray(case.family(scale).cgf(1.0, tilts)) / tilts
        assert np.all(slope == np.inf) or np.all(np.diff(slope) >= -1e-14 * slope[1:]), slope


def check_loss_atom(case: Case) -> None:
    """The cgf far up a vertical line recurs to no more than the atom's mass."""
    for shift in (1.0, 3.0):
        r, log_mass = (float(v) for v in case.family(2.0).loss_atom(shift))
        if np.isnan(log_mass):
            continue
        assert r >= 0
        height = 2 * np.pi * np.round(2000.0 / r) / r if r > 0 else 1e4
        far = complex(case.family(2.0).cgf(shift, 1e-3 + 1j * height)).real
        if np.isnan(far):  # a quadrature that cannot follow so fast an oscillation
            assert log_mass == -np.inf
            continue
        mass = np.exp(log_mass) * (1 + np.exp(-r))
        assert abs(np.exp(far) - mass) < 0.02, (shift, np.exp(far), mass)


def check_renyi(case: Case) -> None:
    """(xi, rho) and the pure epsilon bound every order."""
    order = 1.0 + np.logspace(-6, 4, 60)
    for shift in (1.0, 2.0, 40.0) if case.lattice else (1e-4, 0.3, 2.0, 40.0):
        noise = case.family(1.0)
        renyi = np.asarray(noise.renyi(shift, order))
        xi, rho = (float(v) for v in noise.zcdp(shift))
        assert noise.renyi(shift, np.inf) == noise.pure_epsilon(shift)
        if case.bound < np.inf:
            assert np.all(np.isinf(renyi))
            continue
        assert np.all(np.diff(renyi) > -1e-12 * renyi[1:])
        assert np.all(renyi <= (xi + rho * order) * (1 + 1e-12))
        assert np.all(renyi <= float(noise.pure_epsilon(shift)) * (1 + 1e-12))


def check_kullback_leibler(case: Case) -> None:
    """The divergence of order 1, against 40 digits; infinite where a loss may be."""
    noise, law = case.family(1.3), case.law(1.3)
    for shift in (1.0, 3.0) if case.lattice else (0.03, 1.0, 7.0):
        value = float(noise.renyi(shift, 1.0))
        if case.bound < np.inf:
            assert value == np.inf
            continue
        with mp.workdps(60):
            step = mp.mpf(10) ** -20
            truth = mp.re(law.cumulant(shift, step)) / step
        assert abs(oracle.relative_error(value, truth)) < 1e-14, (shift, value)


def check_least_numbers(case: Case) -> None:
    """Subnormal numbers: a scale is refused, a shift is lifted; traced ones as well."""
    least = float(np.finfo(np.float64).tiny)
    with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
        case.family(0.01 * least)
    if case.lattice:
        return
    noise, truth = case.family(2.4 * least), float(case.family(2.4).delta(1.0, 0.0))
    for shift in (0.5 * least, 5e-324):
        for delta in (noise.delta, jax.jit(noise.delta)):
            assert delta(shift, 0.0) == pytest.approx(truth, rel=1e-12)
        rho, far = case.family(1e200).zcdp(shift)[1], case.family(1e200).renyi(shift, 2.0)
        assert rho > 0
        assert far > 0


def check_sampler(case: Case) -> None:
    noise = case.family(2.5)
    draws = np.asarray(noise.sample(jax.random.key(7), (200_000,)))

    def cdf(x: np.ndarray) -> np.ndarray:
        return -np.expm1(np.asarray(noise.log_survival(x)))

    if case.lattice:
        points, counts = np.unique(draws, return_counts=True)
        chances = np.exp(np.asarray(noise.log_density(points)))
        often = chances * len(draws) > 20
        rest = len(draws) - counts[often].sum(), len(draws) * (1 - chances[often].sum())
        observed, wanted = [*counts[often], rest[0]], [*chances[often] * len(draws), rest[1]]
        assert stats.chisquare(observed, wanted, sum_check=False).pvalue > FALSE_ALARM
    else:
        assert stats.kstest(draws, cdf).pvalue > FALSE_ALARM
    scales = np.array([1.0, 10.0])
    wide = np.asarray(case.family(scales).sample(jax.random.key(8), (50_000, 2)))
    # The sample variance has a relative deviation below 0.012 here; 0.06 is 5 of them.
    expected = np.asarray(case.family(scales).variance())
    np.testing.assert_allclose(wide.var(axis=0) / expected, 1, atol=0.06)


def check_bad_input_is_never_private(case: Case) -> None:
    for scale in (0.0, -1.0, np.nan, -np.inf):
        with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
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
    for order in (0.999, 0.5, np.nan):
        with pytest.raises(ValueError, match="order must lie in"):
            noise.renyi(1.0, order)


def check_limits(case: Case) -> None:
    noise = case.family(1.0)
    assert noise.delta(0.0, 0.0) == 0
    assert noise.delta(0.0, 3.0) == 0
    np.testing.assert_allclose(noise.delta(0.0, -1.0), 1 - np.exp(-1), rtol=1e-14)
    assert noise.delta(1.0, np.inf) == (0 if np.isinf(case.bound) else noise.delta(1.0, 1e3))
    if not case.lattice:
        # The ratio underflows, the loss does not.
        assert case.family(1e200).delta(1e-200, 0.0) > 0
    assert noise.delta(1.0, -np.inf) == 1
    assert noise.delta(np.inf, 1.0) == 1
    assert case.family(np.inf).delta(1.0, 0.0) == 0
    assert not case.family(np.inf).delta(np.inf, 0.0) <= 1


def check_transformations(case: Case) -> None:
    """jit = eager, vmap = loop, broadcasting = both."""
    shifts = [[1.0], [2.0]] if case.lattice else [[0.1], [2.0]]
    scale, shift = jnp.array([0.5, 1.0, 4.0]), jnp.array(shifts)
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
    whole = ((1.0, 1.0, 0.4), (2.0, 1.0, 0.01), (0.7, 2.0, -0.8), (1.0, 4.0, 1.0))
    for point in whole if case.lattice else case.smooth:

        def log_delta(s, m, e):
            return case.family(s).log_delta(m, e)

        # On the lattice the shift is whole: there is no derivative in it.
        variables = (0, 2) if case.lattice else (0, 1, 2)
        gradient = dict(zip(variables, jax.grad(log_delta, variables)(*point), strict=True))
        forward = dict(zip(variables, jax.jacfwd(log_delta, variables)(*point), strict=True))
        for k in variables:
            np.testing.assert_allclose(gradient[k], forward[k], rtol=1e-12)
            h = 1e-5 * max(abs(point[k]), 0.1)
            up, down = list(point), list(point)
            up[k], down[k] = point[k] + h, point[k] - h
            numeric = (log_delta(*up) - log_delta(*down)) / (2 * h)
            np.testing.assert_allclose(gradient[k], numeric, rtol=3e-6, atol=1e-8)

            def slope(x, k=k, point=point):
                return jax.grad(log_delta, k)(*(x if i == k else v for i, v in enumerate(point)))

            numeric = (slope(up[k]) - slope(down[k])) / (2 * h)
            np.testing.assert_allclose(jax.grad(slope)(point[k]), numeric, rtol=3e-5, atol=1e-6)
