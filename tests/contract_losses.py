"""What the privacy loss of every noise must do."""

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
from contract import SCALES, Case, ulps_around

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
