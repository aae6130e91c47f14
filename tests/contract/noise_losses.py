"""What the privacy loss of every noise must do."""

import mpmath as mp
import numpy as np
import oracle
from noise_laws import SCALES, Case, ulps_around

# Logarithms of the tilts that a saddlepoint may have.
LOG_TILTS = (-23.0, 50.0)


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
                assert value < (-40 if case.own else -90)
                continue
            if truth > 1 - mp.mpf(10) ** -40:
                assert -1e-39 < value <= 0
                continue
            error = oracle.relative_error(value, mp.log(truth) if truth < 1 else mp.mpf(0))
            # A difference of two survival functions loses its digits at the largest loss.
            limit = 1e-12 if not case.own else np.inf if abs(epsilon) in around else 1e-9
            assert -1e-30 <= error < limit, (scale, shift, epsilon, value, error)


def check_divergence(case: Case) -> None:
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


def check_every_tilt(case: Case) -> None:
    """The divergence does not fall, at all tilts that a saddle may have."""
    order = 1.0 + np.exp(np.linspace(*LOG_TILTS, 147))
    for scale in SCALES:
        slope = np.asarray(case.family(scale).renyi(1.0, order))
        assert np.all(slope == np.inf) or np.all(np.diff(slope) >= -1e-14 * slope[1:]), slope


def check_huge_orders(case: Case) -> None:
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
        limit = 1e-12 if case.own else 1e-14
        assert abs(oracle.relative_error(value, truth)) < limit, (shift, value)
