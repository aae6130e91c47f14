"""Slow truth: integrals of a density at 50 digits, which know none of our closed forms."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 50

Density = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Law:
    """A symmetric density with non-decreasing privacy loss, and the points where it has kinks."""

    log_density: Density
    kinks: tuple[float, ...] = ()
    bound: mp.mpf = mp.inf  # the density is 0 beyond
    method: str = "gauss-legendre"  # "tanh-sinh" for a kink that is no corner

    def decay(self, x: mp.mpf) -> mp.mpf:
        """A length over which the density changes by a factor e or so, to the right of x."""
        step = mp.mpf(2) ** -20 * (1 + abs(x))
        step = step if x + step < self.bound else -step
        slope = abs((self.log_density(x + step) - self.log_density(x)) / step)
        return 1 / max(slope, mp.mpf(1))

    def integral(self, function: Density, start: mp.mpf, cuts: list[mp.mpf]) -> mp.mpf:
        """The integral of `function` from `start` to infinity, for a tail like the density's."""
        tail = max(start, mp.mpf(0))
        length = self.decay(tail)
        steps = [length * k for k in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)]
        points = {start, *(tail + s for s in steps), *(-s for s in steps if start < -s), *cuts}
        points = sorted(p for p in points if start <= p <= min(tail + steps[-1], self.bound))
        # mpmath stops on an absolute error: bring the tail to size one first.
        size = mp.exp(self.log_density(tail))
        return size * mp.quad(lambda t: function(t) / size, points, method=self.method)

    def survival(self, x: float) -> mp.mpf:
        """P[T > x]."""
        point = mp.mpf(x)
        if point < 0:
            return 1 - self.survival(-x)
        if point >= self.bound:
            return mp.mpf(0)
        return self.integral(lambda t: mp.exp(self.log_density(t)), point, self.cuts(mp.mpf(0)))

    def cuts(self, shift: mp.mpf) -> list[mp.mpf]:
        ends = () if self.bound == mp.inf else (-self.bound, self.bound)
        return [c for k in (*self.kinks, *ends) for c in (mp.mpf(k), mp.mpf(k) - shift)]

    def hockey_stick(self, shift: float, epsilon: float) -> mp.mpf:
        """int [g(t) - e^epsilon g(t + shift)]_+ dt, the boundary of the set found by bisection."""
        m, e = mp.mpf(shift), mp.mpf(epsilon)

        def loss(t: mp.mpf) -> mp.mpf:
            if t + m > self.bound:
                return mp.inf
            if t < -self.bound:
                return -mp.inf
            return self.log_density(t) - self.log_density(t + m)

        reach = mp.mpf(1)
        while loss(reach) <= e:
            reach *= 2
            if reach > mp.mpf(10) ** 12:
                return mp.mpf(0)
        low = -reach - m - 1
        while loss(low) > e:
            low *= 2
            if low < -(mp.mpf(10) ** 12):
                return 1 - mp.exp(e)
        high = reach
        for _ in range(260):
            middle = (low + high) / 2
            low, high = (low, middle) if loss(middle) > e else (middle, high)

        def integrand(t: mp.mpf) -> mp.mpf:
            return mp.exp(self.log_density(t)) * -mp.expm1(e - loss(t))

        return self.integral(integrand, high, self.cuts(m))

    def cumulant(self, shift: float, z: complex) -> mp.mpc:
        """log E exp(z L) by quadrature over both sides."""
        m, power = mp.mpf(shift), mp.mpmathify(z)

        def integrand(t: mp.mpf) -> mp.mpc:
            log_density = self.log_density(t)
            return mp.exp(log_density + power * (log_density - self.log_density(t + m)))

        cuts = sorted({mp.mpf(0), -m, *self.cuts(m)})
        far = [10, 40, 200, 1000]
        left, right = [cuts[0] - f for f in far[::-1]], [cuts[-1] + f for f in far]
        return mp.log(mp.quad(integrand, [*left, *cuts, *right]))

    def expectation(self, function: Density) -> mp.mpf:
        """E function(T) for an even function, by quadrature."""
        return 2 * self.integral(
            lambda t: function(t) * mp.exp(self.log_density(t)), mp.mpf(0), self.cuts(mp.mpf(0))
        )


@dataclass(frozen=True)
class Lattice:
    """A symmetric law on the integers with non-decreasing loss, given up to its normalisation."""

    log_weight: Density
    reach: int  # nothing that counts lies beyond

    @functools.cached_property
    def masses(self) -> dict[int, mp.mpf]:
        weights = {
            k: mp.exp(self.log_weight(mp.mpf(k))) for k in range(-self.reach, self.reach + 1)
        }
        total = mp.fsum(weights.values())
        return {k: weight / total for k, weight in weights.items()}

    def log_density(self, x: float) -> mp.mpf:
        return mp.log(self.masses[round(x)]) if x == round(x) else -mp.inf

    def survival(self, x: float) -> mp.mpf:
        return mp.fsum(p for k, p in self.masses.items() if k > x)

    def hockey_stick(self, shift: float, epsilon: float) -> mp.mpf:
        e = mp.exp(mp.mpf(epsilon))
        gaps = (
            p - e * self.masses.get(k + round(shift), mp.mpf(0)) for k, p in self.masses.items()
        )
        return mp.fsum(gap for gap in gaps if gap > 0)

    def cumulant(self, shift: float, z: complex) -> mp.mpc:
        power, m = mp.mpmathify(z), round(shift)
        inside = (k for k in self.masses if k + m in self.masses)
        loss = {k: self.log_weight(mp.mpf(k)) - self.log_weight(mp.mpf(k + m)) for k in inside}
        return mp.log(mp.fsum(self.masses[k] * mp.exp(power * loss[k]) for k in loss))

    def expectation(self, function: Density) -> mp.mpf:
        return mp.fsum(p * function(mp.mpf(k)) for k, p in self.masses.items())


def gaussian(scale: float) -> Law:
    s = mp.mpf(scale)
    return Law(lambda t: -t * t / (2 * s * s) - mp.log(s * mp.sqrt(2 * mp.pi)))


def laplace(scale: float) -> Law:
    s = mp.mpf(scale)
    return Law(lambda t: -abs(t) / s - mp.log(2 * s), kinks=(0.0,))


def truncated_laplace(scale: float, bound: float) -> Law:
    s, a = mp.mpf(scale), mp.mpf(bound)
    log_peak = -mp.log(2 * s) - mp.log(-mp.expm1(-a / s))
    return Law(lambda t: -abs(t) / s + log_peak, kinks=(0.0,), bound=a)


def flipped_huber(alpha: float, gamma: float) -> Law:
    """A Laplace centre out to alpha, then normal tails."""
    width, scale = mp.mpf(alpha), mp.mpf(gamma)
    a = width / scale
    tail = mp.sqrt(2 * mp.pi) * mp.exp(-a * a / 2) * mp.erfc(a / mp.sqrt(2))
    log_kappa = mp.log((-2 * mp.expm1(-a * a) / a if a else 0) + tail)

    def log_density(x: mp.mpf) -> mp.mpf:
        t = abs(x) / scale
        return -(a * t if t <= a else (t * t + a * a) / 2) - log_kappa - mp.log(scale)

    return Law(log_density, kinks=(-alpha, 0.0, alpha))


def offset_gaussian(offset: float, scale: float) -> Law:
    h, s = mp.mpf(offset) / mp.mpf(scale), mp.mpf(scale)
    log_mass = mp.log(s * mp.sqrt(2 * mp.pi) * mp.erfc(h / mp.sqrt(2)))
    return Law(lambda t: -((abs(t) / s + h) ** 2) / 2 - log_mass, kinks=(0.0,))


def subbotin(scale: float, power: float) -> Law:
    """`power` a multiple of 1/2."""
    s, p = mp.mpf(scale), mp.mpf(power)
    log_mass = mp.log(2 * s * mp.gamma(1 / p)) + (1 / p - 1) * mp.log(p)
    whole = power == int(power)

    def log_density(x: mp.mpf) -> mp.mpf:
        t = abs(x) / s
        return -(t ** int(power)) * (1 if whole else mp.sqrt(t)) / p - log_mass

    method = "gauss-legendre" if whole else "tanh-sinh"
    return Law(log_density, kinks=(0.0,), method=method)


def logistic(scale: float) -> Law:
    s = mp.mpf(scale)
    return Law(lambda t: -abs(t) / s - 2 * mp.log1p(mp.exp(-abs(t) / s)) - mp.log(s))


def discrete_laplace(scale: float) -> Lattice:
    s = mp.mpf(scale)
    return Lattice(lambda k: -abs(k) / s, reach=80 + int(130 * scale))


def discrete_gaussian(scale: float) -> Lattice:
    s = mp.mpf(scale)
    return Lattice(lambda k: -(k * k) / (2 * s * s), reach=60 + int(20 * scale))


@functools.cache
def gaussian_log_delta(mu: float, epsilon: float) -> mp.mpf:
    """The closed form with digits enough for any cancellation."""
    m, e = mp.mpf(mu), mp.mpf(epsilon)
    a = e / m - m / 2
    digits = 80 + int(abs(mp.log10(m))) * 3 + int(mp.log10(1 + abs(a))) * 4
    with mp.workdps(digits):
        a = e / m - m / 2
        upper, lower = _tail(a), _tail(a + m)
        complement = _tail(-a) + mp.exp(e) * lower
        if complement < 0.5:
            return mp.log1p(-complement)
        return mp.log(upper - mp.exp(e) * lower)


def _tail(x: mp.mpf) -> mp.mpf:
    return mp.erfc(x / mp.sqrt(2)) / 2


def laplace_log_delta(scale: float, shift: float, epsilon: float) -> mp.mpf:
    """-inf where delta is 0."""
    r, e = mp.mpf(shift) / mp.mpf(scale), mp.mpf(epsilon)
    exponent = min(e, (e - r) / 2)
    if exponent >= 0:
        return -mp.inf
    return mp.log(-mp.expm1(exponent)) if exponent > -1 else mp.log1p(-mp.exp(exponent))


def mu_of_pure(epsilon: float) -> mp.mpf:
    """2 x with P[N > x] = 1 / (1 + e^epsilon), 50 digits."""
    with mp.workdps(50):
        e = mp.mpf(epsilon)
        if e < 1:
            return 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(e / 2))
        level = e + mp.log1p(mp.exp(-e))
        guess = mp.sqrt(2 * level)
        x = mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2) + level, guess)
        return 2 * x


def relative_error(value: float, truth: mp.mpf) -> float:
    """(value - truth) / |truth|: positive where `value` is above."""
    if truth == -mp.inf:
        return 0.0 if value == -float("inf") else float("inf")
    return float((mp.mpf(float(value)) - truth) / abs(truth)) if truth else float(value)


def check_upper_bound(value: float, truth: mp.mpf, at: object, limit: float = 1e-12) -> None:
    """log delta is not below the truth, and close; where delta is 1 to every double it is 1."""
    if truth > -1e-290:
        assert truth <= value <= 0, at
    else:
        error = relative_error(value, truth)
        assert -1e-30 <= error < limit, (at, error)


def ulps_around(x: float) -> list[float]:
    """A double between its neighbours."""
    return [math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf)]
