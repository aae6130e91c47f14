"""The flipped Huber: a Laplace centre with Gaussian tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaincc, gammaln, ndtri

from jaxdp._core import checks
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.decay import decay_mean, decay_means
from jaxdp._numeric.elementary import LOG_2, log1m, log1m_near, round_up
from jaxdp._numeric.mills import mills, mills_slope
from jaxdp.noise.base import Noise, drawn_by_inversion, epsilon_at, guarded, ratio_of
from jaxdp.noise.kernels import flipped_huber_profile
from jaxdp.noise.kernels.divergence import divergence
from jaxdp.noise.kernels.flipped_huber_regimes import Point
from jaxdp.noise.kernels.zcdp_offset import least_offset

# The largest alpha: the largest double.
_LARGEST = float(np.finfo(np.float64).max)
_SQRT_2PI = math.sqrt(2.0 * math.pi)
# Terms of the series of the centre's moments. derived: the next one is below an ulp
_SERIES_TERMS = 20
# Outside, `zcdp` gives the published bound; its search would over- or underflow.
_RATIOS = (1e-6, 1e6)
_SHIFTS = (1e-12, 1e6)


@final
@pytree
class FlippedHuber(Noise):
    """The density exp(-rho(x / gamma)) / (kappa gamma), a = alpha / gamma.

    rho(t) = a |t| for |t| <= a and (t^2 + a^2) / 2 beyond: a Laplace centre of scale
    gamma^2 / alpha out to |x| = alpha, then Gaussian tails of scale gamma.
    kappa = 2 (1 - exp(-a^2)) / a + 2 exp(-a^2) R(a), R the Mills ratio. `alpha` = 0 is the
    Gaussian; alpha, gamma -> inf at a fixed gamma^2 / alpha is the Laplace. `alpha` is finite;
    an infinite `gamma` is legal and private. Units, bad input: `Noise`.
    Source: Muthukrishnan & Kalyani, arXiv:2212.09657.
    """

    alpha: Reals
    gamma: Reals

    def __init__(self, alpha: ArrayLike, gamma: ArrayLike):
        alpha = checks.zero_or_positive("alpha", alpha, _LARGEST)
        assign(self, alpha=alpha, gamma=checks.positive("gamma", gamma))

    @property
    def log_concave(self) -> bool:
        """True."""
        return True

    def log_density(self, x: ArrayLike) -> Reals:
        """-rho(x / gamma) - log(kappa gamma)."""
        return _log_density(self.alpha, self.gamma, checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x]. Relative error: 1e-14 + (4 + rho) ulp, in both tails."""
        return _log_survival(self.alpha, self.gamma, checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """Closed forms in log and the normal quantile. Relative error: 1e-13, u >= 1e-300."""
        return _quantile(self.alpha, self.gamma, checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """Draws by inversion of 53 uniform bits and a sign; see `Noise.sample`."""
        return drawn_by_inversion(
            _upper_quantile, (self.alpha, self.gamma), checked_key(key), shape
        )

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^p by two incomplete gamma functions. Relative error: 2e-13 for p <= 100."""
        power = checks.real("power", power, -1.0, open_lower=True)
        return _absolute_moment(self.alpha, self.gamma, power)

    def fisher_information(self) -> Reals:
        """(1 + 2 (exp(-a^2) - 1 + a^2) / (a kappa)) / gamma^2."""
        return _fisher_information(self.alpha, self.gamma)

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log delta in the five regimes of the loss: where epsilon meets it, left of -a to past a.

        Every real epsilon. An upper bound, above the truth by at most 5e-15 of |log delta|; where
        delta > 1/2 by 5e-15 + 1e-15 |log(1 - delta)| of it. Parameters count exactly as given:
        ratios and differences are carried to 32 digits, so the plateau of the loss at
        alpha shift / gamma^2 = epsilon, where designs lie, is met exactly. (A design should keep
        alpha shift / gamma^2 <= epsilon: an ulp above, delta grows by an ulp of the plateau's
        mass, which may be 1e-7 of delta.) NaN for alpha / gamma > 1e150.
        Source: Muthukrishnan & Kalyani have the regimes; their printed forms overflow for
        alpha > 38 gamma or lose all digits. Those in `kernels.flipped_huber_profile` are ours.
        """
        shift = checks.nonnegative("shift", shift)
        return _log_delta(self.alpha, self.gamma, shift, checks.real("epsilon", epsilon))

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature: see `kernels.divergence`."""
        alpha, gamma, shift, excess = _broadcast(self.alpha, self.gamma, shift, excess)
        return _unit_divergence(ratio_of(alpha, gamma), ratio_of(shift, gamma), excess)

    def kinks(self) -> tuple[Reals, ...]:
        """0 and +-alpha."""
        return -self.alpha, jnp.zeros(()), self.alpha

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(xi, rho): rho = shift^2 / (2 gamma^2), the least possible, and its least xi.

        xi = sup over orders a of (D_a - a rho), to 1e-3 of itself and never below it: chords of
        the convex K on a grid that closes in on the supremum. Past the grid D_a < a rho: the
        tails hold less than a normal law, and the centre counts for nothing at high orders. Never
        above the published (alpha^2 - (alpha - shift)_+^2) / (2 gamma^2), returned as it is for
        alpha / gamma outside [1e-6, 1e6] or shift / gamma outside [1e-12, 1e6].
        """
        return _zcdp(self.alpha, self.gamma, checks.nonnegative("shift", shift))

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """Infinite, unless the shift is 0 or `gamma` infinite."""
        return _pure_epsilon(self.alpha, self.gamma, checks.nonnegative("shift", shift))

    def sub_gaussian_proxy(self) -> Reals:
        """gamma^2: |T| is below a normal of that variance in the likelihood-ratio order."""
        return jnp.where(checks.guard(self.alpha, _LARGEST) >= 0, guarded(self.gamma) ** 2, jnp.nan)

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(alpha shift / gamma^2, log P[0 <= T <= alpha - shift]) where shift < alpha."""
        return _loss_atom(self.alpha, self.gamma, checks.nonnegative("shift", shift))


class _Unit(NamedTuple):
    """The law in units of gamma."""

    a: Reals
    ratio: Reals  # R(a)
    slope: Reals  # S(a)
    decay: Reals  # exp(-a^2)
    kappa: Reals


def _unit(alpha: Reals, gamma: Reals) -> _Unit:
    a = ratio_of(checks.guard(alpha, _LARGEST), gamma)
    ratio, slope = mills_slope(a)
    square = a * a
    decay = jnp.exp(-square)
    kappa = 2.0 * (a * decay_mean(square) + decay * ratio)
    return _Unit(a, ratio, slope, decay, kappa)


def _broadcast(alpha: Reals, gamma: Reals, *others: Reals) -> Sequence[jax.Array]:
    return jnp.broadcast_arrays(checks.guard(alpha, _LARGEST), guarded(gamma), *others)


@jax.jit
def _log_density(alpha: Reals, gamma: Reals, x: Reals) -> Reals:
    alpha, gamma, x = _broadcast(alpha, gamma, x)
    unit, t = _unit(alpha, gamma), jnp.abs(x) / gamma
    rho = jnp.where(jnp.abs(x) <= alpha, unit.a * t, 0.5 * (t * t + unit.a * unit.a))
    return -rho - jnp.log(unit.kappa) - jnp.log(gamma)


@jax.jit
def _log_survival(alpha: Reals, gamma: Reals, x: Reals) -> Reals:
    alpha, gamma, x = _broadcast(alpha, gamma, x)
    unit, t = _unit(alpha, gamma), jnp.abs(x) / gamma
    gap = jnp.maximum(alpha - jnp.abs(x), 0.0) / gamma
    inside = unit.ratio + unit.slope * gap * decay_mean(unit.a * gap)
    tail = jnp.abs(x) >= alpha
    exponent = jnp.where(tail, 0.5 * (t * t + unit.a * unit.a), unit.a * t)
    upper = jnp.log(jnp.where(tail, mills(t), inside) / unit.kappa) - exponent
    return jnp.where(x > 0, upper, log1m(jnp.minimum(jnp.exp(upper), 0.5)))


@jax.jit
def _quantile(alpha: Reals, gamma: Reals, u: Reals) -> Reals:
    alpha, gamma, u = _broadcast(alpha, gamma, u)
    size = _upper_quantile(alpha, gamma, jnp.minimum(u, 1.0 - u), jnp.abs(0.5 - u))
    return jnp.where(u < 0.5, -size, size)


@jax.jit
def _upper_quantile(alpha: Reals, gamma: Reals, p: Reals, q: Reals) -> Reals:
    """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""
    alpha, gamma, p, q = _broadcast(alpha, gamma, p, q)
    unit = _unit(alpha, gamma)
    centre = p > unit.decay * unit.ratio / unit.kappa
    a = jnp.where(centre, unit.a, 1.0)
    y = jnp.where(centre, a * unit.kappa * q, 0.0)
    lower = a * unit.kappa * p + unit.decay * unit.slope
    near = -log1m_near(jnp.minimum(y, 0.5))
    inside = jnp.where(y < 0.5, near, -jnp.log(jnp.where(centre, lower, 1.0))) / a
    # exp(-a^2) underflows for a > 27.3, and then only p = 0 comes here.
    growth = jnp.exp(0.5 * jnp.where(centre, 0.0, jnp.minimum(unit.a, 30.0)) ** 2)
    normal = jnp.where(centre, 0.5, jnp.minimum(p * unit.kappa * growth / _SQRT_2PI, 0.5))
    return gamma * jnp.where(centre, inside, -ndtri(normal))


@jax.jit
def _absolute_moment(alpha: Reals, gamma: Reals, power: Reals) -> Reals:
    alpha, gamma, power = _broadcast(alpha, gamma, power)
    unit, n = _unit(alpha, gamma), power + 1.0
    square = unit.a * unit.a
    # The centre: a^n int_0^1 t^p exp(-a^2 t) dt.
    low = jnp.minimum(square, 1.0)
    series = jnp.ones_like(n)
    for k in range(_SERIES_TERMS, 0, -1):
        series = 1.0 + series * low / (n + k)
    wide = jnp.where(square > 1.0, square, 2.0)
    large = jnp.exp(gammaln(n) - 0.5 * n * jnp.log(wide)) * gammainc(n, wide)
    centre = jnp.where(square > 1.0, large, unit.a**n * jnp.exp(-low) * series / n)
    log_tail = 0.5 * (power - 1.0) * jnp.log(2.0) + gammaln(0.5 * n) - 0.5 * square
    tail = jnp.exp(log_tail) * gammaincc(0.5 * n, 0.5 * square)
    return gamma**power * (2.0 / unit.kappa) * (centre + tail)


@jax.jit
def _fisher_information(alpha: Reals, gamma: Reals) -> Reals:
    alpha, gamma = _broadcast(alpha, gamma)
    unit = _unit(alpha, gamma)
    mean = decay_means(unit.a * unit.a)[1]
    return (1.0 + 2.0 * unit.a * (unit.a * (unit.a * mean)) / unit.kappa) / gamma**2


@jax.jit
def _log_delta(alpha: Reals, gamma: Reals, shift: Reals, epsilon: Reals) -> Reals:
    epsilon = epsilon_at(shift, epsilon)
    alpha, gamma, shift, epsilon = _broadcast(alpha, gamma, shift, epsilon)
    a, d = ratio_of(alpha, gamma), ratio_of(shift, gamma)
    return flipped_huber_profile.log_delta(Point(alpha, gamma, shift, a, d, epsilon))


def _law(a: Reals, d: Reals, t: Reals) -> tuple[Reals, Reals]:
    """log g and the loss in units of gamma, a = alpha / gamma and d = shift / gamma."""
    near, far, span = jnp.abs(t), t + d, jnp.minimum(2.0 * t + d, d)
    outside = jnp.where(near >= a, span, jnp.maximum(far - a, 0.0))
    loss = a * (span - outside)
    loss += 0.5 * outside * (jnp.maximum(near, a) + jnp.maximum(far, a))
    rho = jnp.where(near < a, a * near, 0.5 * (near * near + a * a))
    return -rho - jnp.log(_unit(a, jnp.ones_like(a)).kappa), loss


def _unit_divergence(a: Reals, d: Reals, excess: Reals) -> Reals:
    """Divergence in units of gamma, of arrays of one shape."""
    return divergence(_law, a, d, excess, (a, a - d, -a))


@jax.jit
def _zcdp(alpha: Reals, gamma: Reals, shift: Reals) -> tuple[Reals, Reals]:
    alpha, gamma, shift = _broadcast(alpha, gamma, shift)
    a, d = ratio_of(alpha, gamma), ratio_of(shift, gamma)
    published = round_up(jnp.where(d < a, d * (a - 0.5 * d), 0.5 * a * a), 4)
    usual = (a >= _RATIOS[0]) & (a <= _RATIOS[1]) & (d >= _SHIFTS[0]) & (d <= _SHIFTS[1])
    a_safe, d_safe = jnp.where(usual, a, 1.0), jnp.where(usual, d, 1.0)
    # Where exp of the excess over the normal law, at its largest over the centre, times the
    # centre's length 2 a is below the mass that the tails lack: exp(-a^2 / 2) a^3 / 3.
    log_lack = jnp.maximum(jnp.log(6.0 / a_safe**2), 0.0)
    edge = (a_safe + jnp.sqrt(a_safe**2 + 2.0 * log_lack)) / d_safe
    root = jnp.sqrt(a_safe**4 + 8.0 * d_safe**2 * (a_safe**2 + log_lack))
    last = jnp.maximum(edge, 0.5 * (a_safe**2 + root) / d_safe**2)
    first = 1e-4 / (1.0 + d_safe * (a_safe + d_safe))

    def cumulant(s: Reals) -> Reals:
        a_wide, d_wide = (jnp.broadcast_to(v[None], s.shape) for v in (a_safe, d_safe))
        return s * _unit_divergence(a_wide, d_wide, s)

    bound = round_up(last, 16), jnp.zeros_like(a)
    offset = least_offset(cumulant, 0.5 * d_safe * d_safe, first, *bound)
    xi = jnp.where(usual, jnp.minimum(offset, published), published)
    xi = jnp.where((d == 0) | (d == jnp.inf), 0.0, xi)
    least = jnp.where(d > 0, jnp.finfo(jnp.float64).tiny, 0.0)
    rho = jnp.maximum(round_up(0.5 * d * d, 4), least)
    return jnp.where(jnp.isnan(a + d), jnp.nan, xi), jnp.where(jnp.isnan(a), jnp.nan, rho)


@jax.jit
def _pure_epsilon(alpha: Reals, gamma: Reals, shift: Reals) -> Reals:
    alpha, gamma, shift = _broadcast(alpha, gamma, shift)
    d = ratio_of(shift, gamma)
    value = jnp.where(d == 0, 0.0, jnp.where(d > 0, jnp.inf, jnp.nan))
    return jnp.where(alpha >= 0, value, jnp.nan)


@jax.jit
def _loss_atom(alpha: Reals, gamma: Reals, shift: Reals) -> tuple[Reals, Reals]:
    alpha, gamma, shift = _broadcast(alpha, gamma, shift)
    unit, d = _unit(alpha, gamma), ratio_of(shift, gamma)
    flat = shift < alpha
    length = jnp.where(flat, (alpha - shift) / gamma, 1.0)
    log_mass = jnp.log(length * decay_mean(unit.a * length) / unit.kappa)
    # At no shift the loss is 0: two halves at r = 0.
    log_mass = jnp.where(d == 0, -LOG_2, jnp.where(flat, log_mass, -jnp.inf))
    loss = jnp.where(flat, unit.a * d, 0.0)
    bad = jnp.isnan(unit.a + d)
    return jnp.where(bad, jnp.nan, loss), jnp.where(bad, jnp.nan, log_mass)
