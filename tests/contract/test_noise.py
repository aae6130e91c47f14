"""The contract of every noise: its law, its privacy loss, bad input, limits and transformations."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import oracle_pieces
import own_noises
import pytest
from oracle import ulps_around
from scipy import stats

import jaxdp as dp
from jaxdp.own import Noise

pytestmark = pytest.mark.float64

# Chance that a correct sampler fails `check_sampler`: once in a million keys.
FALSE_ALARM = 1e-6
SCALES = (0.3, 1.0, 7.5)
KEY = jax.random.key(7)
SMOOTH = ((1.0, 1.0, 0.4), (2.0, 0.5, 0.01), (0.7, 1.5, -0.8), (1.0, 4.0, 1.0))


# Logarithms of the tilts that a saddlepoint may have.
LOG_TILTS = (-23.0, 50.0)


QUERIES = {
    "log_delta": (1.0, 0.5), "log_density": (0.5,), "log_survival": (0.5,), "quantile": (0.3,),
    "variance": (), "mean_absolute": (), "fisher_information": (), "pure_epsilon": (1.0,),
    "renyi": (1.0, 2.0), "zcdp": (1.0,),
}  # fmt: skip


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


def flipped_huber_boundaries(r, a=2.5):
    return [a * r, r * (r + 2 * a) / 2, (r * r + a * a) / 2, abs(r - 2 * a) * min(r / 2, a)]


BARS = (1, 2, 4, 9, 18, 30, 30, 18, 9, 4, 2, 1)

CASES = (
    Case("gaussian", dp.Gaussian, oracle.gaussian, lambda r: [r * r / 2]),
    Case("laplace", dp.Laplace, oracle.laplace, lambda r: [r]),
    Case(
        "truncated_laplace",
        lambda scale: dp.TruncatedLaplace(scale, 3.0 * scale),
        lambda scale: oracle.truncated_laplace(scale, 3.0 * scale),
        lambda r: [min(r, 6.0 - r)],
        has_fisher=False,
        bound=3.0,
        parameters="scale|bound",
    ),
    Case(
        "staircase",
        lambda scale: dp.Staircase(1.0, scale, 0.4),
        lambda scale: oracle_pieces.Steps(1.0, scale, 0.4),
        lambda r: [0.0, 1.0, float(np.floor(r)), float(np.ceil(r))],
        has_fisher=False,
        parameters="sensitivity",
        smooth=((1.0, 0.7, 0.4), (2.0, 0.5, 0.01), (0.7, 1.5, -0.8), (1.0, 4.3, 1.2)),
    ),
    Case(
        "histogram",
        lambda scale: dp.Histogram(0.5 * scale, BARS),
        lambda scale: oracle_pieces.Bars(0.5 * scale, BARS),
        lambda r: [0.0, float(np.log(3)), float(np.log(1.5))],
        has_fisher=False,
        bound=3.0,
        parameters="width",
        smooth=((1.0, 0.7, 0.4), (0.7, 1.6, -0.8)),
    ),
    Case(
        "flipped_huber",
        lambda scale: dp.FlippedHuber(jnp.minimum(2.5 * scale, 1e300), scale),
        lambda scale: oracle.flipped_huber(2.5 * scale, scale),
        flipped_huber_boundaries,
        parameters="alpha|gamma",
    ),
    Case(
        "offset_gaussian",
        lambda scale: dp.OffsetGaussian(jnp.minimum(1.5 * scale, 1e300), scale),
        lambda scale: oracle.offset_gaussian(1.5 * scale, scale),
        lambda r: [r * (r + 3.0) / 2],
        parameters="offset|scale",
    ),
    Case(
        "subbotin_low",
        lambda scale: dp.Subbotin(scale, 1.5),
        lambda scale: oracle.subbotin(scale, 1.5),
        lambda r: [r**1.5 / 1.5],
    ),
    Case(
        "subbotin_high",
        lambda scale: dp.Subbotin(scale, 3.0),
        lambda scale: oracle.subbotin(scale, 3.0),
        lambda r: [r**3 / 3],
    ),
    Case(
        "discrete_gaussian",
        dp.DiscreteGaussian,
        oracle.discrete_gaussian,
        lambda r: [r * r / 2],
        has_fisher=False,
        lattice=True,
    ),
    Case(
        "discrete_laplace",
        dp.DiscreteLaplace,
        oracle.discrete_laplace,
        lambda r: [r, r / 3],
        has_fisher=False,
        lattice=True,
    ),
    Case("own_logistic", own_noises.logistic, oracle.logistic, lambda r: [r], own=True),
)


# What compiles for longer than two seconds is long. measured: `pytest --durations=0`
_DEAR = {"subbotin_low", "subbotin_high", "own_logistic"}
_LESS_DEAR = {"flipped_huber", "offset_gaussian"}
SLOW = {
    "delta": _DEAR | _LESS_DEAR,
    "divergence": _DEAR,
    "gradients": _DEAR | _LESS_DEAR | {"discrete_gaussian", "discrete_laplace", "staircase"},
    "bad_input_is_never_private": _DEAR,
    "empty_batches": {"subbotin_high"},
    "moments": {"own_logistic"},
    "sampler": {"own_logistic"},
    "survival": {"subbotin_low", "subbotin_high"},
    "transformations": _DEAR,
}


def every_noise(check: Callable[[Case], None]) -> Any:
    """The check of each noise, where it is slow as a long test."""
    slow = SLOW.get(check.__name__[5:], ())
    cases = [
        pytest.param(case, id=case.name, marks=pytest.mark.long if case.name in slow else ())
        for case in CASES
    ]
    return pytest.mark.parametrize("case", cases)(check)


@every_noise
def test_density(case: Case) -> None:
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


@every_noise
def test_survival(case: Case) -> None:
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


@every_noise
def test_quantile(case: Case) -> None:
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


@every_noise
def test_moments(case: Case) -> None:
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


@every_noise
def test_sampler(case: Case) -> None:
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


@every_noise
def test_delta(case: Case) -> None:
    """Against the hockey-stick integral, in and around every regime; never below it."""
    for scale, shift in case.points():
        noise, law, ratio = case.family(scale), case.law(scale), shift / scale
        inner = [0.0, 0.3 * ratio, ratio, 2 * ratio + 1.0, ratio**2, 25.0]
        around = [e for b in case.boundaries(ratio) for e in ulps_around(b)]
        for epsilon in sorted({*inner, *around, *(-e for e in inner), *(-e for e in around)}):
            truth = law.hockey_stick(shift, epsilon)
            value = float(noise.log_delta(shift, epsilon))
            if truth < mp.mpf(10) ** -40:  # the quadrature's own floor
                assert value < (-40 if case.own else -90)
                continue
            if truth > 1 - mp.mpf(10) ** -40:
                assert -1e-39 < value <= 0
                continue
            error = oracle.relative_error(value, mp.log(truth) if truth < 1 else mp.mpf(0))
            # A difference of two survival functions loses its digits at the largest loss.
            limit = 1e-12 if not case.own else np.inf if abs(epsilon) in around else 1e-9
            assert -1e-30 <= error < limit, (scale, shift, epsilon, value, error)


@every_noise
def test_divergence(case: Case) -> None:
    for scale, shift in ((1.0, 1.0), (2.0, 1.0 if case.lattice else 0.2), (0.5, 2.0)):
        noise, law = case.family(scale), case.law(scale)
        orders = np.array([1.01, 1.5, 2.0, 4.0, 10.5])
        values = np.asarray(noise.renyi(shift, orders))
        if case.bound < np.inf:
            assert np.all(np.isinf(values))
            continue
        for order, value in zip(orders, values, strict=True):
            excess = mp.mpf(order) - 1
            truth = mp.re(law.cumulant(shift, excess)) / excess
            assert abs(oracle.relative_error(float(value), truth)) < 1e-13


@every_noise
def test_every_tilt(case: Case) -> None:
    """The divergence does not fall, at all tilts that a saddle may have."""
    order = 1.0 + np.exp(np.linspace(*LOG_TILTS, 147))
    for scale in SCALES:
        slope = np.asarray(case.family(scale).renyi(1.0, order))
        assert np.all(slope == np.inf) or np.all(np.diff(slope) >= -1e-14 * slope[1:]), slope


@every_noise
def test_huge_orders(case: Case) -> None:
    """Near the largest loss, if that is finite, and never below the divergence."""
    order = np.sort(10.0 ** np.random.default_rng(0).uniform(8, 20, 300))
    for ratio in (3.0, 0.01, 1e-5):
        shift, scale = (1.0, 1.0 / ratio) if case.lattice else (ratio, 1.0)
        noise = case.family(scale)
        largest, value = float(noise.pure_epsilon(shift)), np.asarray(noise.renyi(shift, order))
        if np.isinf(largest):
            assert np.all(value[1:] >= value[:-1] * (1 - 1e-8))
            continue
        # With a probability of 1 / (9 order) the loss is within 1 / order of its largest.
        assert np.all(value <= largest)
        assert np.all(value >= largest * (1 - 2e-9) - (np.log(9.0 * order) + 1.0) / order)


@every_noise
def test_renyi(case: Case) -> None:
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


@every_noise
def test_kullback_leibler(case: Case) -> None:
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
        limit = 1e-12 if case.own else 1e-14
        assert abs(oracle.relative_error(value, truth)) < limit, (shift, value)


@every_noise
def test_least_numbers(case: Case) -> None:
    """Subnormal numbers: a scale is refused, a shift is lifted; traced ones as well."""
    least = float(np.finfo(np.float64).tiny)
    with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
        case.family(0.01 * least)
    if case.lattice or case.own:
        return
    noise, truth = case.family(2.4 * least), float(case.family(2.4).delta(1.0, 0.0))
    for shift in (0.5 * least, 5e-324):
        for delta in (noise.delta, jax.jit(noise.delta)):
            assert delta(shift, 0.0) == pytest.approx(truth, rel=1e-12)
        rho, far = case.family(1e200).zcdp(shift)[1], case.family(1e200).renyi(shift, 2.0)
        assert rho > 0
        assert far > 0


@every_noise
def test_bad_input_is_never_private(case: Case) -> None:
    """Refused where it is known; in a trace, and past the constructor, it claims nothing."""
    scales, noise = np.array([0.0, -1.0, np.nan, -np.inf]), case.family(1.0)

    @jax.jit
    @jax.vmap
    def traced(scale, shift, epsilon):
        built = case.family(scale)
        return built.delta(shift, epsilon), built.zcdp(1.0)[1]

    # A bad value in each lane.
    lanes = [*((s, 1.0, 1.0) for s in scales), (1.0, -1.0, 1.0), (1.0, np.nan, 1.0)]
    delta, rho = traced(*np.transpose([*lanes, (1.0, 1.0, np.nan)]))
    assert not np.any(delta <= 1.0), delta
    assert not np.any(rho[: len(scales)] <= 1e300), rho
    replaced = jax.tree.map(lambda _: jnp.asarray(scales), noise)
    if case.own:
        with pytest.raises(ValueError, match=r"with scale = .*: a scale must be above 0"):
            replaced.delta(1.0, 1.0)
    else:
        assert not np.any(replaced.delta(1.0, 1.0) <= 1.0)
        assert not np.any(abs(replaced.sample(jax.random.key(0))) < 1e300)
    for scale in scales:
        with pytest.raises(ValueError, match=f"({case.parameters}) must lie in"):
            case.family(scale)
    for shift in (-1.0, np.nan):
        with pytest.raises(ValueError, match="shift must lie in"):
            noise.log_delta(shift, 1.0)
    with pytest.raises(ValueError, match="epsilon must lie in"):
        noise.log_delta(1.0, np.nan)
    with pytest.raises(ValueError, match="dtype"):
        noise.log_delta(1.0 + 1j, 1.0)
    for order in (0.999, 0.5, np.nan):
        with pytest.raises(ValueError, match="order must lie in"):
            noise.renyi(1.0, order)


@every_noise
def test_shifts_of_a_lattice_are_whole(case: Case) -> None:
    if not case.lattice:
        return
    noise = case.family(1.0)
    answers = partial(noise.log_delta, epsilon=1.0), partial(noise.renyi, order=2.0)
    for answer in (*answers, noise.zcdp, noise.pure_epsilon, noise.structure):
        with pytest.raises(ValueError, match=r"shift must be whole, got 1\.5"):
            answer(1.5)
        assert np.isnan(jax.tree.leaves(jax.jit(answer)(1.5))[-1])


@every_noise
def test_limits(case: Case) -> None:
    noise = case.family(1.0)
    assert noise.delta(0.0, 0.0) == 0
    assert noise.delta(0.0, 3.0) == 0
    np.testing.assert_allclose(noise.delta(0.0, -1.0), 1 - np.exp(-1), rtol=1e-14)
    assert noise.delta(1.0, np.inf) == (0 if np.isinf(case.bound) else noise.delta(1.0, 1e3))
    if not case.lattice and not case.own:
        # The ratio underflows, the loss does not.
        assert case.family(1e200).delta(1e-200, 0.0) > 0
    assert noise.delta(1.0, -np.inf) == noise.delta(1.0, -1e308) == 1
    assert noise.delta(1.0, 1e308) >= noise.delta(1.0, np.inf)
    # An infinite shift tells all, whatever epsilon is.
    assert np.all(noise.delta(np.inf, np.array([-np.inf, 1.0, 1e308, np.inf])) == 1)
    if case.own:
        with pytest.raises(ValueError, match="log_density must be a number everywhere"):
            case.family(np.inf).delta(1.0, 0.0)
        return
    assert case.family(np.inf).delta(1.0, 0.0) == 0
    assert not case.family(np.inf).delta(np.inf, 0.0) <= 1


@every_noise
def test_transformations(case: Case) -> None:
    """jit = eager, vmap = loop, broadcasting = both."""
    shifts = [[1.0], [2.0]] if case.lattice else [[0.1], [2.0]]
    scale, shift = jnp.array([0.5, 1.0, 4.0]), jnp.array(shifts)
    epsilon = jnp.array([0.7, -0.2, 3.0])

    def log_delta(s, m, e):
        return case.family(s).log_delta(m, e)

    @jax.jit
    def compiled(s, m, e):
        inner = jax.vmap(log_delta, (0, None, 0))
        return log_delta(s, m, e), jax.vmap(inner, (None, 0, None))(s, m[:, 0], e)

    eager = log_delta(scale, shift, epsilon)
    assert eager.shape == (2, 3)
    for found in compiled(scale, shift, epsilon):
        np.testing.assert_allclose(found, eager, rtol=1e-14)
    for i in range(2):
        for j in range(3):
            one = log_delta(float(scale[j]), float(shift[i, 0]), float(epsilon[j]))
            np.testing.assert_allclose(one, eager[i, j], rtol=1e-14)


@every_noise
def test_gradients(case: Case) -> None:
    """Forward and reverse derivatives against central differences; the second one as well."""
    whole = ((1.0, 1.0, 0.4), (2.0, 1.0, 0.01), (0.7, 2.0, -0.8), (1.0, 4.0, 1.0))
    points = np.array(whole if case.lattice else case.smooth)
    # On the lattice the shift is whole: there is no derivative in it.
    variables = (0, 2) if case.lattice else (0, 1, 2)

    @jax.jit
    @jax.vmap
    def answers(point):
        def log_delta(x):
            return case.family(x[0]).log_delta(x[1], x[2])

        reverse = jax.grad(log_delta)
        second = jnp.diag(jax.jacfwd(reverse)(point))
        return log_delta(point), reverse(point), jax.jacfwd(log_delta)(point), second

    steps = [1e-5 * np.maximum(abs(points), 0.1) * (np.arange(3) == k) for k in variables]
    lanes = np.stack([points, *(points + side * h for h in steps for side in (1, -1))])
    value, reverse, forward, second = (
        np.asarray(x).reshape(lanes.shape[:2] + x.shape[1:]) for x in answers(lanes.reshape(-1, 3))
    )
    for i, (k, h) in enumerate(zip(variables, steps, strict=True)):
        up, down, width = 2 * i + 1, 2 * i + 2, 2 * h[:, k]
        np.testing.assert_allclose(reverse[0, :, k], forward[0, :, k], rtol=1e-12)
        numeric = (value[up] - value[down]) / width
        np.testing.assert_allclose(reverse[0, :, k], numeric, rtol=3e-6, atol=1e-8)
        numeric = (reverse[up, :, k] - reverse[down, :, k]) / width
        np.testing.assert_allclose(second[0, :, k], numeric, rtol=3e-5, atol=1e-6)


@every_noise
def test_empty_batches(case: Case) -> None:
    """Shapes alone: what is compiled for none is what is compiled for one."""
    none = jnp.zeros(0)
    noise = case.family(none + 1.0)
    questions = [partial(getattr(noise, query), *given) for query, given in QUERIES.items()]
    questions.append(partial(noise.sample, jax.random.key(0)))
    questions.append(partial(case.family(1.0).log_delta, 1.0, none))
    for question in questions:
        assert {leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(question))} == {(0,)}
