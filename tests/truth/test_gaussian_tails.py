"""The flipped Huber and the offset Gaussian by closed forms; misprints of the flipped Huber."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64


def _tail(x: mp.mpf) -> mp.mpf:
    return mp.erfc(x / mp.sqrt(2)) / 2


def _digits(*values: float) -> int:
    return 120 + sum(int(6 * abs(mp.log10(abs(mp.mpf(v))))) for v in values if v)


def _log_delta(upper: Callable, u: mp.mpf, v: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    size = abs(epsilon)

    def survival(t: mp.mpf) -> mp.mpf:
        return upper(t) if t >= 0 else 1 - upper(-t)

    value = survival(u) - mp.exp(size) * survival(v)
    complement = survival(-u) + mp.exp(size) * survival(v) if u < 0 else 1 - value
    if epsilon < 0:
        complement *= mp.exp(-size)
        value = 1 - complement
    return mp.log1p(-complement) if complement < 0.5 else mp.log(value)


def flipped_huber_log_delta(
    alpha: float, gamma: float, shift: float, epsilon: float
) -> tuple[mp.mpf, int]:
    """log delta, and the published regime, 1 to 5."""
    with mp.workdps(_digits(alpha / gamma, shift / gamma, 1 + abs(epsilon))):
        a, d = mp.mpf(alpha) / mp.mpf(gamma), mp.mpf(shift) / mp.mpf(gamma)
        e = mp.mpf(epsilon)
        size = abs(e)
        kappa = 2 * mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * _tail(a)
        kappa += -2 * mp.expm1(-a * a) / a if a else 0
        weight = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) / kappa

        def upper(t: mp.mpf) -> mp.mpf:
            if t >= a:
                return weight * _tail(t)
            return weight * _tail(a) + (mp.exp(-a * t) - mp.exp(-a * a)) / (a * kappa)

        middle, outer = (d * d + a * a) / 2, (d + 2 * a) * d / 2
        if size >= outer:
            regime, x = 5, size / d
        elif d >= 2 * a and size < (d - 2 * a) * d / 2:
            regime, x = 1, size / d
        elif size < min((2 * a - d) * a, a * d):
            regime, x = 2, size / (2 * a)
        elif d >= a and size < middle:
            regime, x = 3, mp.sqrt(2 * (size + a * d)) - a - d / 2
        else:
            regime, x = 4, mp.sqrt(2 * (size - a * d)) + a - d / 2
        return _log_delta(upper, x - d / 2, x + d / 2, e), regime


def flipped_huber_boundaries(alpha: float, gamma: float, shift: float) -> list[float]:
    """The epsilons between the regimes."""
    a, d = mp.mpf(alpha) / mp.mpf(gamma), mp.mpf(shift) / mp.mpf(gamma)
    values = [(d + 2 * a) * d / 2]
    values += [(d * d + a * a) / 2] if d >= a else [a * d]
    values += [abs(2 * a - d) * min(a, d / 2)] if d >= a else []
    return [float(v) for v in values]


def offset_gaussian_boundaries(offset: float, scale: float, shift: float) -> list[float]:
    """The epsilon between the regimes."""
    d = mp.mpf(shift) / mp.mpf(scale)
    return [float(d * (d / 2 + mp.mpf(offset) / mp.mpf(scale)))]


def offset_gaussian_log_delta(offset: float, scale: float, shift: float, epsilon: float) -> mp.mpf:
    with mp.workdps(_digits(offset / scale, shift / scale, 1 + abs(epsilon))):
        h, d, e = mp.mpf(offset) / mp.mpf(scale), mp.mpf(shift) / mp.mpf(scale), mp.mpf(epsilon)
        near = abs(e) < d * (d + 2 * h) / 2
        x = abs(e) / (d + 2 * h) if near else abs(e) / d - h
        return _log_delta(lambda t: _tail(t + h) / (2 * _tail(h)), x - d / 2, x + d / 2, e)


def _gaussian_piece(quadratic: tuple, low: mp.mpf, high: mp.mpf) -> mp.mpc:
    """int_low^high exp(A t^2 / 2 + B t + C) dt by error functions."""
    a, b, c = quadratic

    def power(t: mp.mpf) -> mp.mpc:
        return mp.exp(a * t * t / 2 + b * t + c)

    if a == 0:
        return mp.exp(c) * (high - low) if b == 0 else (power(high) - power(low)) / b
    root = mp.sqrt(-a / 2)

    def error(t: mp.mpf) -> mp.mpc:
        return mp.sign(t) if mp.isinf(t) else mp.erf(root * (t + b / a))

    scale = mp.sqrt(mp.pi) / (2 * root) * mp.exp(c - b * b / (2 * a))
    return scale * (error(high) - error(low))


def cumulant(pieces: Callable, breaks: list, shift: mp.mpf, z: complex, digits: int) -> mp.mpc:
    """log E exp(z L): `pieces(t)` is (A, B, C) of log g, up to a constant, around t."""
    with mp.workdps(digits):
        power = mp.mpmathify(z)
        cuts = sorted({*breaks, *(b - shift for b in breaks)})
        ends = list(zip([-mp.inf, *cuts], [*cuts, mp.inf], strict=True))
        total = mass = mp.mpf(0)
        for low, high in ends:
            inside = high - 1 if mp.isinf(low) else low + 1 if mp.isinf(high) else (low + high) / 2
            a, b, c = pieces(inside)
            a_far, b_far, c_far = pieces(inside + shift)
            c_far += b_far * shift + a_far * shift * shift / 2
            b_far += a_far * shift
            mass += _gaussian_piece((a, b, c), low, high)
            curve = (a, b, c), (a_far, b_far, c_far)
            mixed = tuple(
                (power + 1) * p - power * q if p != q else p for p, q in zip(*curve, strict=True)
            )
            total += _gaussian_piece(mixed, low, high)
        return mp.log(total / mass)


def flipped_huber_cumulant(ratio: float, step: float, z: complex, digits: int = 120) -> mp.mpc:
    """In units of gamma."""
    a, shift = mp.mpf(ratio), mp.mpf(step)

    def pieces(t: mp.mpf) -> tuple:
        inner = (mp.mpf(0), -a * mp.sign(t), mp.mpf(0))
        return inner if abs(t) < a else (mp.mpf(-1), mp.mpf(0), -a * a / 2)

    return cumulant(pieces, [-a, mp.mpf(0), a], shift, z, digits)


def offset_gaussian_cumulant(ratio: float, step: float, z: complex, digits: int = 120) -> mp.mpc:
    """In units of the scale."""
    h, shift = mp.mpf(ratio), mp.mpf(step)
    return cumulant(
        lambda t: (mp.mpf(-1), -h * mp.sign(t), mp.mpf(0)), [mp.mpf(0)], shift, z, digits
    )


class Family(NamedTuple):
    noise: Callable[..., dp.own.Noise]
    width: str
    scale: str
    # log delta of (width, scale, shift, epsilon); epsilons between regimes.
    log_delta: Callable
    boundaries: Callable
    # log E exp(z L) and int_0^inf x^p g(x) dx up to a constant, in units of the scale.
    cumulant: Callable
    moment: Callable


def _huber_moment(alpha, power):
    n = power + 1
    tail = mp.exp(-(alpha**2) / 2) * 2 ** (n / 2 - 1) * mp.gammainc(n / 2, alpha**2 / 2)
    return tail + (mp.gammainc(n, 0, alpha**2) / alpha**n if alpha else 0)


def _offset_moment(h, power):
    """A parabolic cylinder function, by Tricomi's U."""
    n = power + 1
    return mp.gamma(n) * mp.mpf(2) ** (-n / 2) * mp.hyperu(n / 2, mp.mpf(1) / 2, h * h / 2)


FAMILIES = {
    "flipped_huber": Family(
        dp.FlippedHuber,
        "alpha",
        "gamma",
        lambda *at: flipped_huber_log_delta(*at)[0],
        flipped_huber_boundaries,
        flipped_huber_cumulant,
        _huber_moment,
    ),
    "offset_gaussian": Family(
        dp.OffsetGaussian,
        "offset",
        "scale",
        offset_gaussian_log_delta,
        offset_gaussian_boundaries,
        offset_gaussian_cumulant,
        _offset_moment,
    ),
}
both = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def check(family, width, scale, shift, epsilon):
    at = float(width), float(scale), float(shift), float(epsilon)
    value = float(family.noise(*at[:2]).log_delta(*at[2:]))
    oracle.check_upper_bound(value, family.log_delta(*at), at)


@both
def test_delta_at_the_boundaries_and_an_ulp_to_either_side(family):
    scale = 0.7
    widths, factors = (1e-6, 1e-3, 0.1, 1.0, 7.0, 40.0, 300.0), (1e-9, 0.3, 1.0, 2.0, 2.6, 30.0)
    for h, factor in itertools.product(widths, factors):
        width, shift = h * scale, h * factor * scale
        for boundary in family.boundaries(width, scale, shift):
            for epsilon in (np.nextafter(boundary, 0), boundary, np.nextafter(boundary, np.inf)):
                check(family, width, scale, shift, epsilon)
            check(family, width, scale, shift, -boundary)


@both
@pytest.mark.parametrize(("reach", "count"), [((-6, 1.5, -10, 1.5), 200), ((-1, 5, -2, 6), 150)])
def test_delta_over_wide_ranges(family, reach, count):
    rng = np.random.default_rng(6)
    scale = 10 ** rng.uniform(-3, 3, count)
    width = scale * 10 ** rng.uniform(reach[0], reach[1], count)
    shift = scale * 10 ** rng.uniform(reach[2], reach[3], count)
    size = 10 ** rng.uniform(-3, 2, count) * shift * (shift + width) / scale**2
    for at in zip(width, scale, shift, rng.choice([-1, 1], count) * size, strict=True):
        check(family, *at)


@both
def test_one_minus_delta_keeps_its_digits(family):
    """delta from 1/2 to 1 - 1e-300, in all regimes left of 0."""
    rng = np.random.default_rng(5)
    h = np.concatenate([10 ** rng.uniform(-3, 1, 60), rng.uniform(20, 50, 60)])
    shift = np.where(h < 15, rng.uniform(2, 73, 120), h * rng.uniform(0.3, 1.5, 120))
    shift = np.minimum(shift, 1300.0 / h)
    epsilon = rng.uniform(0, 0.3, 120) * h * shift * rng.choice([-1, 1], 120)
    for at in zip(h, shift, epsilon, strict=True):
        check(family, at[0], 1.0, *at[1:])


@both
def test_derivatives_on_both_sides_of_each_boundary(family):
    def log_delta(h, m, e):
        return family.noise(h, 1.0).log_delta(m, e)

    slopes = jax.jit(jax.grad(log_delta, (0, 1, 2)))
    for h, shift in ((1.5, 0.5), (0.2, 0.05), (2.0, 3.0), (1.0, 1.0), (0.5, 2.5), (6.0, 0.3)):
        for boundary, side in itertools.product(family.boundaries(h, 1.0, shift), (-1, 1)):
            point = [h, shift, boundary * (1 + side * 1e-6)]
            found = slopes(*point)
            for k in range(3):
                step = mp.mpf(10) ** -12 * point[k]
                ends = [
                    [mp.mpf(v) + s * step * (i == k) for i, v in enumerate(point)] for s in (1, -1)
                ]
                with mp.workdps(60):
                    up, down = (family.log_delta(x, mp.mpf(1), m, e) for x, m, e in ends)
                    truth = (up - down) / (2 * step)
                error = oracle.relative_error(float(found[k]), truth)
                assert abs(error) < 1e-8, (h, shift, boundary, side, k)


def test_the_slope_jumps_where_the_loss_has_an_atom():
    """On the plateau of the flipped Huber; the offset Gaussian has none."""
    found = {}
    for name, edge in (("flipped_huber", 0.75), ("offset_gaussian", 0.875)):
        slope = jax.grad(FAMILIES[name].noise(1.5, 1.0).log_delta, 1)
        found[name] = [float(slope(0.5, edge + side)) for side in (-1e-12, 1e-12)]
    below, above = found["flipped_huber"]
    assert below < 1.5 * above < 0
    np.testing.assert_allclose(*found["offset_gaussian"], rtol=1e-10)


@both
def test_quantile_inverts_survival(family):
    rng = np.random.default_rng(5)
    u = np.concatenate([10 ** rng.uniform(-300, -0.31, 200), [0.5, 0.5 - 1e-9, 0.5 + 1e-14]])
    for h in (0.0, 1e-7, 0.3, 2.0, 5.5, 30.0, 1e4):
        noise = family.noise(h * 3.0, 3.0)
        log_survival = np.asarray(noise.log_survival(-noise.quantile(u)))
        np.testing.assert_allclose(log_survival, np.log(u), rtol=1e-13)
    noise, near = family.noise(2.0, 1.0), 0.5 - 1e-12
    density = float(jnp.exp(noise.log_density(0.0)))
    np.testing.assert_allclose(noise.quantile(near), -(0.5 - near) / density, rtol=1e-11)


@both
@pytest.mark.parametrize("power", [-0.9, 0.0, 0.5, 3.0, 20.0, 90.0])
def test_moments_at_any_power(family, power):
    for h in (0.0, 1e-3, 0.8, 1.2, 7.0, 200.0):
        x = mp.mpf(h)
        truth = family.moment(x, mp.mpf(power)) / family.moment(x, mp.mpf(0))
        value = float(family.noise(h, 1.0).absolute_moment(power))
        assert abs(oracle.relative_error(value, truth)) < 2e-13, (h, power)


@both
@pytest.mark.parametrize("h", [0.1, 1.0, 3.0])
def test_divergences_at_small_shifts_and_orders(family, h):
    """Full relative accuracy where M - 1 cancels to any depth."""
    for shift, z in itertools.product((1e-7, 1e-2, 1.5), (2.0**-20, 0.3, 8.0)):
        excess = mp.mpf(1.0 + z) - 1
        digits = int(200 + ((2 * z + 1) * h) ** 2 * 0.3)
        truth = family.cumulant(h, shift, excess, digits).real / excess
        value = float(family.noise(h, 1.0).renyi(shift, 1.0 + z))
        assert abs(oracle.relative_error(value, truth)) < 1e-13, (h, shift, z)


HIGH = {
    "flipped_huber": [
        *((0.1, 0.1, 1e4, 900), (2.0, 0.5, 60.0, 600), (0.1, 1e-3, 1e4, 300)),
        *((0.0, 1.0, 5.0, 120), (6.0, 1e-7, 2.0**-20, 700), (6.0, 1.5, 8.0, 700)),
    ],
    "offset_gaussian": [(0.3, 0.2, 1e4, 400), (20.0, 0.5, 300.0, 400)],
}


@pytest.mark.parametrize(("name", "at"), [(name, at) for name in HIGH for at in HIGH[name]])
def test_divergences_of_high_orders(name, at):
    (h, shift, z, digits), family = at, FAMILIES[name]
    truth = family.cumulant(h, shift, z, digits).real / z
    value = float(family.noise(h, 1.0).renyi(shift, 1.0 + z))
    assert abs(oracle.relative_error(value, truth)) < 1e-13


@both
def test_bad_input(family):
    traced = jax.jit(lambda width: family.noise(width, 1.0).delta(1.0, 1.0))
    for bad in (-1.0, np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=rf"{family.width} must lie in \[0, "):
            family.noise(bad, 1.0)
        assert np.isnan(traced(bad))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=rf"{family.scale} must lie in \(0, inf\]"):
            family.noise(1.0, bad)
    unknown = jax.tree.map(lambda _: jnp.array(jnp.nan), family.noise(1.0, 1.0))
    for value in (
        *unknown.zcdp(1.0),
        *unknown.structure(1.0).singularities.atoms,
        unknown.pure_epsilon(1.0),
        unknown.sub_gaussian_proxy(),
        unknown.renyi(1.0, 2.0),
        unknown.variance(),
        unknown.quantile(0.3),
        unknown.log_survival(0.3),
        unknown.fisher_information(),
    ):
        assert np.isnan(value)
    assert np.isnan(family.noise(1e200, 1.0).delta(1.0, 1.0))
    assert family.noise(1.0, 1.0).renyi(np.inf, 2.0) == np.inf


def test_zcdp_of_the_offset_gaussian_is_tight():
    for h, shift in ((1.0, 0.5), (0.01, 1.0), (3.0, 0.1), (30.0, 0.01), (1.0, 40.0)):
        noise = dp.OffsetGaussian(h, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 6, 600)
        excess = np.asarray(noise.renyi(shift, order)) - rho * order
        assert xi >= excess.max()
        assert xi <= h * shift * (1 + 1e-14)
        assert xi <= excess.max() * 1.01
        assert 0 <= rho * 2 / shift**2 - 1 < 1e-14


def noise_of(row):
    return dp.FlippedHuber(row["params"]["alpha"], row["params"]["gamma"])


def test_reference_normaliser():
    for row in records("flipped_huber", "omega"):
        noise = noise_of(row)
        a = mp.mpf(float(noise.alpha)) / mp.mpf(float(noise.gamma))
        truth = a * a / 2 - mp.log(expected(row)) - mp.log(mp.mpf(float(noise.gamma)))
        assert abs(oracle.relative_error(float(noise.log_density(0.0)), truth)) < 1e-14


def test_reference_quantile():
    for row in records("flipped_huber", "isf"):
        p = float(row["inputs"]["p"])
        if p == 0:  # 1e-1000 is no double
            continue
        value = -float(noise_of(row).quantile(p))
        # The decimal rates are not doubles: near 1/2 that moves the result.
        tolerance = 1e-12 if p == 0.5001 else 1e-13
        assert abs(oracle.relative_error(value, expected(row))) < tolerance, row["id"]
    for row in records("flipped_huber", "ln_tradeoff"):
        noise, inputs = noise_of(row), row["inputs"]
        threshold = -noise.quantile(float(inputs["alpha_err"])) - inputs["Delta"]
        value = float(noise.log_survival(-threshold))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-10, row["id"]


def test_fisher_information_times_variance():
    """From 1, the Gaussian's, to 2, the Laplace's."""
    noise = dp.FlippedHuber(np.logspace(-4, 4, 50), 1.0)
    product = np.asarray(noise.variance() * noise.fisher_information())
    assert np.all(np.diff(product) > -1e-14)
    np.testing.assert_allclose(product[[0, -1]], [1, 2], rtol=1e-7)
    one = dp.FlippedHuber(1.0, 1.0)
    assert abs(one.variance() * one.fisher_information() - 1.2526) < 5e-5


def check_huber(noise, shift, epsilon):
    """One value against the closed form."""
    check(FAMILIES["flipped_huber"], noise.alpha, noise.gamma, shift, epsilon)


def test_the_design_on_the_plateau():
    """alpha shift = gamma^2 epsilon: the best variance for the budget, and the budget is met.

    An ulp past it delta is larger by a part in 1e7: half of the mass lies on the plateau.
    """
    roots = {
        (row["inputs"]["eps"], row["inputs"]["delta"]): expected(row)
        for row in records("flipped_huber", "plateau_a")
    }
    for (epsilon, delta), root in roots.items():
        a = float(root)
        noise = dp.FlippedHuber(a * a / epsilon * (1 - 1e-15), a / epsilon)
        log_delta = float(noise.log_delta(1.0, epsilon))
        assert abs(log_delta / np.log(float(delta)) - 1) < 1e-12
        for ulps in (-4, -1, 0, 1, 4):
            check_huber(
                dp.FlippedHuber(a * a / epsilon * (1 + ulps * 2.0**-52), a / epsilon), 1.0, epsilon
            )
    for row in records("flipped_huber", "plateau_var"):
        key = row["inputs"]["eps"], row["inputs"]["delta"]
        if key in roots:
            a = float(roots[key])
            value = float(dp.FlippedHuber(a * a / key[0], a / key[0]).variance())
            assert abs(oracle.relative_error(value, expected(row))) < 1e-13
    found = records("flipped_huber", "plateau_ln_delta")
    assert all(
        abs(expected(row) / mp.log(mp.mpf(row["inputs"]["delta"])) - 1) < 1e-15 for row in found
    )


@pytest.mark.long
def test_a_centre_of_no_width_has_derivatives():
    slope = jax.grad(lambda a: dp.FlippedHuber(a, 1.0).log_delta(1.0, 1.0))
    assert slope(0.0) == 0
    assert np.isfinite(jax.grad(slope)(0.0))


def test_the_printed_fourth_regime_loses_every_digit():
    """delta = 1/2 - c (1 - exp(-a u)) - ..., as printed: nothing is left of it here."""
    a, shift, epsilon = 40.0, 0.025, 1.0001

    def printed(a, shift, epsilon):
        kappa = 2 * (1 - mp.exp(-a * a)) / a
        kappa += mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * mp.erfc(a / mp.sqrt(2))
        u = a - shift + mp.sqrt(2 * (epsilon - a * shift))
        weight = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) / kappa
        tail = weight * mp.erfc((u + shift) / mp.sqrt(2)) / 2
        return mp.mpf(1) / 2 - (1 - mp.exp(-a * u)) / (a * kappa) - mp.exp(epsilon) * tail

    arguments = [mp.mpf(v) for v in (a, shift, epsilon)]
    with mp.workdps(16):
        assert printed(*arguments) <= 0
    with mp.workdps(122):
        assert printed(*arguments) < 0
    noise = dp.FlippedHuber(a, 1.0)
    assert flipped_huber_log_delta(a, 1.0, shift, epsilon)[1] == 4
    check_huber(noise, shift, epsilon)


def test_the_printed_normaliser_overflows():
    """omega = kappa exp(alpha^2 / 2 gamma^2) is beyond every double for alpha > 37.7 gamma."""
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(38.0**2 / 2))
    noise = dp.FlippedHuber(38.0, 1.0)
    check_huber(noise, 1.0, 38.0)
    check_huber(noise, 0.01, 3.0)
    assert np.isfinite(noise.log_density(100.0))
    np.testing.assert_allclose(noise.variance(), 2 / 38.0**2, rtol=1e-13)


def test_divergence_is_differentiable():
    noise = dp.FlippedHuber(1.2, 0.9)
    derivative = jax.jit(jax.grad(noise.renyi, 1))
    for order, h in ((1.01, 1e-5), (5.0, 1e-4)):
        numeric = (noise.renyi(0.7, order + h) - noise.renyi(0.7, order - h)) / (2 * h)
        np.testing.assert_allclose(derivative(0.7, order), numeric, rtol=1e-7)


def test_the_atom_is_the_plateau():
    """Where the centre is wider than the shift."""
    noise = dp.FlippedHuber(1.5, 1.0)
    assert noise.structure(0.5).singularities == dp.own.Kinks((-0.75, 0.75))
    assert np.isnan(noise.structure(1.5).singularities.atoms).all()
    assert noise.structure(0.0).singularities.atoms[1] == 0


def test_zcdp_is_tight_and_published_xi_is_loose():
    """The published xi is valid but 1.5 to 94 times too large."""
    cases = {(1.0, 1.0, 0.5): 0.0503, (1.0, 1.0, 1.5): 0.1115, (3.0, 1.0, 0.5): 0.876}
    cases |= {(11.0, 3.3125, 1.0): 0.634, (0.1, 1.0, 1.0): 5.3e-5}
    looseness = []
    for (alpha, gamma, shift), tight in cases.items():
        noise = dp.FlippedHuber(alpha, gamma)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 5, 400)
        excess = np.asarray(noise.renyi(shift, order)) - rho * order
        assert xi >= excess.max()
        assert 0 <= rho * 2 * (gamma / shift) ** 2 - 1 < 1e-14
        assert abs(xi - tight) < (2e-3 * tight + 6e-5 if alpha > 0.1 else 5e-6)
        published = (alpha**2 - max(alpha - shift, 0) ** 2) / (2 * gamma**2)
        looseness.append(published / xi)
    assert 1.5 < min(looseness) < 1.6
    assert 80 < max(looseness) < 95
    (row,) = records("flipped_huber", "xi_tight")
    xi = float(noise_of(row).zcdp(row["inputs"]["Delta"])[0])
    assert 0 <= oracle.relative_error(xi, expected(row)) < 1e-4


def test_zcdp_at_the_edges():
    """Where the search is left to the published bound, and next to that."""
    for a, shift in ((1e-7, 1.0), (0.9e-6, 1.0), (1.1e-6, 1.0), (1.0, 1e-13), (1.0, 2e-12)):
        noise = dp.FlippedHuber(a, 1.0)
        xi, rho = (float(v) for v in noise.zcdp(shift))
        order = 1 + np.logspace(-6, 13, 200)
        assert np.all(np.asarray(noise.renyi(shift, order)) <= (xi + rho * order) * (1 + 1e-12))
        published = (a**2 - max(a - shift, 0) ** 2) / 2
        assert 0 <= xi <= published * (1 + 1e-12) or shift < 1e-11
    for shift in (0.0, 1e-200):
        xi, rho = (float(v) for v in dp.FlippedHuber(1.0, 1.0).zcdp(shift))
        assert 0 <= xi < 1e-199
        assert (rho > 0) == (shift > 0)
