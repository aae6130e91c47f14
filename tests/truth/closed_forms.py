"""Closed forms of the flipped Huber and the offset Gaussian with digits to spare, as published."""

from collections.abc import Callable

import mpmath as mp


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
