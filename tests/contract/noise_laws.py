"""What the law of every noise must do. `test_noise.py` checks every noise of the house."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import mpmath as mp
import numpy as np
import oracle
from scipy import stats

from jaxdp.own import Noise

# Chance that a correct sampler fails `check_sampler`: once in a million keys.
FALSE_ALARM = 1e-6
SCALES = (0.3, 1.0, 7.5)
KEY = jax.random.key(7)
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
    # Known by its two formulas: nothing lies beyond the quantile of e^-300, and scales that are
    # infinite, subnormal or out of range contradict the formulas.
    own: bool = False
    # (scale, shift, epsilon) where log delta has derivatives.
    smooth: tuple[tuple[float, float, float], ...] = SMOOTH

    def points(self) -> tuple[tuple[float, float], ...]:
        """(scale, shift)."""
        if self.lattice:
            return ((1.0, 1.0), (0.5, 3.0), (3.0, 2.0), (20.0, 1.0), (0.7, 5.0))
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
    u = np.array(
        [1e-130 if case.own else 1e-300, 1e-16, 1e-3, 0.2, 0.4999999, 0.5, 0.61, 0.999, 1 - 1e-12]
    )
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


def check_sampler(case: Case) -> None:
    """The law of one column, the variance of two, and whole numbers far out."""
    scales = np.array([2.5, 1.0, 10.0, *((0.01, 1e6, 1e13) if case.lattice else ())])
    every = np.stack([case.family(s).sample(KEY, (100_000,)) for s in scales], axis=1)
    noise, draws = case.family(2.5), every[:, 0]

    def cdf(x: np.ndarray) -> np.ndarray:
        return -np.expm1(np.asarray(noise.log_survival(x)))

    if case.lattice:
        points, counts = np.unique(draws, return_counts=True)
        chances = np.exp(np.asarray(noise.log_density(points)))
        often = chances * len(draws) > 20
        rest = len(draws) - counts[often].sum(), len(draws) * (1 - chances[often].sum())
        observed, wanted = [*counts[often], rest[0]], [*chances[often] * len(draws), rest[1]]
        assert stats.chisquare(observed, wanted, sum_check=False).pvalue > FALSE_ALARM
        assert np.all((every == np.round(every)) & (abs(every) < 2.0**53))
    else:
        assert stats.kstest(draws, cdf).pvalue > FALSE_ALARM
    # The sample variance has a relative deviation below 0.012 here; 0.06 is 5 of them.
    expected = np.asarray(case.family(scales[1:3]).variance())
    np.testing.assert_allclose(every[:, 1:3].var(axis=0) / expected, 1, atol=0.06)
