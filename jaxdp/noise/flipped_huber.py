"""The flipped Huber: a Laplace centre with Gaussian tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import LOG_2, decay_mean, decay_means, log1m, log1m_near, round_up
from jaxdp._numeric.mills import mills, mills_slope
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian_tails import LARGEST, GaussianTails
from jaxdp.noise.kernels import flipped_huber_profile
from jaxdp.noise.kernels.divergence import divergence
from jaxdp.noise.kernels.monotone_loss import Point
from jaxdp.noise.structure import Kinks, atom_pair

_SQRT_2PI = math.sqrt(2.0 * math.pi)
# Terms of the series of the centre's moments. derived: the next one is below an ulp
_SERIES_TERMS = 20


@final
@pytree
class FlippedHuber(GaussianTails):
    """The density exp(-rho(x / gamma)) / (kappa gamma), a = alpha / gamma.

    rho(t) = a |t| for |t| <= a and (t^2 + a^2) / 2 beyond: a Laplace centre of scale
    gamma^2 / alpha out to |x| = alpha, then Gaussian tails of scale gamma.
    kappa = 2 (1 - exp(-a^2)) / a + 2 exp(-a^2) R(a), R the Mills ratio. `alpha` = 0 is the
    Gaussian; alpha, gamma -> inf at a fixed gamma^2 / alpha is the Laplace. `alpha` is finite;
    an infinite `gamma` is legal and private. Units, bad input: `Noise`.

    delta has five regimes: where epsilon meets the loss, left of -a to past a. `log_delta` is
    above the truth by at most 5e-15 of |log delta|; where delta > 1/2 by
    5e-15 + 1e-15 |log(1 - delta)| of it. Parameters count exactly as given: ratios and differences
    are carried to 32 digits, so the plateau of the loss at alpha shift / gamma^2 = epsilon, where
    designs lie, is met exactly. (A design should keep alpha shift / gamma^2 <= epsilon: an ulp
    above, delta grows by an ulp of the plateau's mass, which may be 1e-7 of delta.) NaN for
    alpha / gamma > 1e150. zcdp: rho = shift^2 / (2 gamma^2), the least possible, and its least xi
    to 1e-3. Relative errors of others: 1e-14 + (4 + rho(x / gamma)) ulp of log survival; 1e-13 of
    a quantile for u >= 1e-300; 2e-13 of moments of a power up to 100. Draws: by inversion of 53
    uniform bits and a sign.
    Muthukrishnan & Kalyani have the regimes; their printed forms overflow for alpha > 38 gamma or
    lose all digits. Those in `kernels.flipped_huber_profile` are ours.
    Source: Muthukrishnan & Kalyani, arXiv:2212.09657.
    """

    alpha: Reals
    gamma: Reals

    def __init__(self, alpha: ArrayLike, gamma: ArrayLike):
        alpha = checks.zero_or_positive("alpha", alpha, LARGEST)
        assign(self, alpha=alpha, gamma=checks.positive("gamma", gamma))

    shapes = (2e-3, 30.0)
    whole_kind = "huber"

    @staticmethod
    def _profile(at: Point) -> Reals:
        return flipped_huber_profile.log_delta(at)

    def _log_density(self, x: Reals) -> Reals:
        """-rho(x / gamma) - log(kappa gamma)."""
        unit, t = _unit(self.alpha, self.gamma), xp.abs(x) / self.gamma
        rho = xp.where(xp.abs(x) <= self.alpha, unit.a * t, 0.5 * (t * t + unit.a * unit.a))
        return -rho - xp.log(unit.kappa) - xp.log(self.gamma)

    def _log_density_slope(self, x: Reals) -> Reals:
        """-alpha sign(x) / gamma^2, and -x / gamma^2 from alpha on."""
        place = xp.where(xp.abs(x) <= self.alpha, self.alpha * xp.sign(x), x)
        return -(place / self.gamma) / self.gamma

    def _log_survival(self, x: Reals) -> Reals:
        unit, t = _unit(self.alpha, self.gamma), xp.abs(x) / self.gamma
        gap = xp.maximum(self.alpha - xp.abs(x), 0.0) / self.gamma
        inside = unit.ratio + unit.slope * gap * decay_mean(unit.a * gap)
        tail = xp.abs(x) >= self.alpha
        exponent = xp.where(tail, 0.5 * (t * t + unit.a * unit.a), unit.a * t)
        upper = xp.log(xp.where(tail, mills(t), inside) / unit.kappa) - exponent
        return xp.where(x > 0, upper, log1m(xp.minimum(xp.exp(upper), 0.5)))

    def _upper_quantile(self, p: Reals, q: Reals) -> Reals:
        """Closed forms in log and the normal quantile."""
        return _upper_quantile(self.alpha, self.gamma, p, q)

    def _absolute_moment(self, power: Reals) -> Reals:
        """Two incomplete gamma functions, of the centre and the tails."""
        unit, n = _unit(self.alpha, self.gamma), power + 1.0
        square = unit.a * unit.a
        # The centre: a^n int_0^1 t^p exp(-a^2 t) dt.
        low = xp.minimum(square, 1.0)
        series = xp.ones_like(n)
        for k in range(_SERIES_TERMS, 0, -1):
            series = 1.0 + series * low / (n + k)
        wide = xp.where(square > 1.0, square, 2.0)
        large = xp.exp(special.gammaln(n) - 0.5 * n * xp.log(wide)) * special.gammainc(n, wide)
        centre = xp.where(square > 1.0, large, unit.a**n * xp.exp(-low) * series / n)
        log_tail = 0.5 * (power - 1.0) * LOG_2 + special.gammaln(0.5 * n) - 0.5 * square
        tail = xp.exp(log_tail) * special.gammaincc(0.5 * n, 0.5 * square)
        return self.gamma**power * (2.0 / unit.kappa) * (centre + tail)

    def _fisher_information(self) -> Reals:
        """(1 + 2 (exp(-a^2) - 1 + a^2) / (a kappa)) / gamma^2."""
        unit = _unit(self.alpha, self.gamma)
        mean = decay_means(unit.a * unit.a)[1]
        return (1.0 + 2.0 * unit.a * (unit.a * (unit.a * mean)) / unit.kappa) / self.gamma**2

    def kinks(self) -> tuple[Reals, ...]:
        """0 and +-alpha."""
        return -self.alpha, xp.zeros(()), self.alpha

    def _unit_divergence(self, a: Reals, d: Reals, excess: Reals) -> Reals:
        return divergence(_law, a, d, excess, (a, a - d, -a))

    def _offsets(self, a: Reals, d: Reals) -> tuple[Reals, Callable[..., tuple[Reals, ...]]]:
        """(alpha^2 - (alpha - shift)_+^2) / (2 gamma^2). Past the grid D_a < a rho.

        There the tails hold less than a normal law, and the centre counts for nothing.
        """

        def search(a: Reals, d: Reals) -> tuple[Reals, Reals]:
            # Where exp of the excess over the normal law, at its largest over the centre, times the
            # centre's length 2 a is below the mass that the tails lack: exp(-a^2 / 2) a^3 / 3.
            log_lack = xp.maximum(xp.log(6.0 / a**2), 0.0)
            edge = (a + xp.sqrt(a**2 + 2.0 * log_lack)) / d
            root = xp.sqrt(a**4 + 8.0 * d**2 * (a**2 + log_lack))
            last = xp.maximum(edge, 0.5 * (a**2 + root) / d**2)
            return round_up(last, 16), xp.zeros_like(a)

        return xp.where(d < a, d * (a - 0.5 * d), 0.5 * a * a), search

    def _singularities(self, shift: Reals) -> Kinks:
        """Atoms at +-alpha shift / gamma^2 where shift < alpha; at no shift the loss is 0."""
        a, d = self._ratios(shift)
        return atom_pair(xp.where((shift < self.alpha) | (d == 0), a * d, xp.nan))


class _Unit(NamedTuple):
    """The law in units of gamma."""

    a: Reals
    ratio: Reals  # R(a)
    slope: Reals  # S(a)
    decay: Reals  # exp(-a^2)
    kappa: Reals


def _unit(alpha: Reals, gamma: Reals) -> _Unit:
    a = ratio_of(alpha, gamma)
    ratio, slope = mills_slope(a)
    square = a * a
    decay = xp.exp(-square)
    kappa = 2.0 * (a * decay_mean(square) + decay * ratio)
    return _Unit(a, ratio, slope, decay, kappa)


@jitted
def _upper_quantile(alpha: Reals, gamma: Reals, p: Reals, q: Reals) -> Reals:
    """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""
    alpha, gamma, p, q = xp.broadcast_arrays(alpha, gamma, p, q)
    unit = _unit(alpha, gamma)
    centre = p > unit.decay * unit.ratio / unit.kappa
    a = xp.where(centre, unit.a, 1.0)
    y = xp.where(centre, a * unit.kappa * q, 0.0)
    lower = a * unit.kappa * p + unit.decay * unit.slope
    near = -log1m_near(xp.minimum(y, 0.5))
    inside = xp.where(y < 0.5, near, -xp.log(xp.where(centre, lower, 1.0))) / a
    # exp(-a^2) underflows for a > 27.3, and then only p = 0 comes here.
    growth = xp.exp(0.5 * xp.where(centre, 0.0, xp.minimum(unit.a, 30.0)) ** 2)
    normal = xp.where(centre, 0.5, xp.minimum(p * unit.kappa * growth / _SQRT_2PI, 0.5))
    return gamma * xp.where(centre, inside, -special.ndtri(normal))


def _law(a: Reals, d: Reals, t: Reals) -> tuple[Reals, Reals]:
    """log g and the loss in units of gamma, a = alpha / gamma and d = shift / gamma."""
    near, far, span = xp.abs(t), t + d, xp.minimum(2.0 * t + d, d)
    outside = xp.where(near >= a, span, xp.maximum(far - a, 0.0))
    loss = a * (span - outside)
    loss = loss + 0.5 * outside * (xp.maximum(near, a) + xp.maximum(far, a))
    rho = xp.where(near < a, a * near, 0.5 * (near * near + a * a))
    return -rho - xp.log(_unit(a, xp.ones_like(a)).kappa), loss
