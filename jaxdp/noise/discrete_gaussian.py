"""The discrete Gaussian: the Gaussian's zero-concentrated privacy on the integers.

With m the least k whose loss is above epsilon, delta is the sum over k >= m of
p(k) (1 - exp(epsilon - loss(k))): positive terms alone.
"""

from __future__ import annotations

import functools
from typing import final

import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxdp._core import checks
from jaxdp._core.namespace import custom_jvp, lax, special, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Index, Key, Reals, Shape
from jaxdp._numeric.double_double import Double, product, scaled, total
from jaxdp._numeric.elementary import LOG_2, ULP, lifted, log1m, log1p, round_up
from jaxdp._numeric.lattice_gaussian import (
    FLAT,
    TERMS,
    WIDE,
    correction,
    difference,
    is_short,
    log_normaliser,
    log_tail,
    middle,
    plus,
)
from jaxdp._numeric.mills import mills
from jaxdp._numeric.quadrature import Rule, accumulate
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.gaussian import Gaussian, infinite_unless_zero
from jaxdp.noise.kernels.negative_epsilon import (
    Sides,
    slope_in_epsilon,
    upper_log_delta,
    with_limits,
)
from jaxdp.noise.nodes import LEFT_OUT, integers
from jaxdp.noise.structure import Lattice, LossAtoms

# The first 200 whole numbers, for sums over them. derived: ten scales where they are used
_WHOLE = Rule(np.arange(1.0, 201.0), np.ones(200))


@final
@pytree
class DiscreteGaussian(Noise):
    """P[T = k] = exp(-k^2 / (2 scale^2)) / Z on the integers; Z is close to scale sqrt(2 pi).

    Sensitivity: l2 and whole; a shift that is not whole raises, or is NaN where traced. Units,
    bad input: `Noise`. An infinite `scale` is legal and private.

    delta = P[T >= m] - e^epsilon P[T >= m + shift], m the least k of loss > epsilon: the loss at k
    is (2 k + shift) shift / (2 scale^2), and delta falls with kinks there, where m is found
    exactly. `log_delta` is above the truth by at most 5e-15 |log delta|, and where delta > 1/2 by
    5e-15 |log delta| (1 - log(1 - delta)). Relative errors of others: 1e-14 of log survival, in
    both tails, and of Renyi divergences; 1e-13 of moments of a power up to 10. A quantile is the
    least integer for a u that is known to 1e-14; zcdp is (0, shift^2 / (2 scale^2)).

    Draws are exact to 2^-76 in total variation for scales up to 2^45 (`noise.kernels.whole_draws`),
    and NaN above.
    Source: Canonne, Kamath & Steinke, NeurIPS 2020.
    """

    scale: Reals

    def __init__(self, scale: ArrayLike):
        assign(self, scale=checks.positive("scale", scale))

    on_integers = True
    whole_kind = "normal"
    on_reals = Gaussian

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> DiscreteGaussian:
        return DiscreteGaussian(deviation)

    def _in_range(self) -> Bools:
        return self.scale > 0

    def _log_density(self, x: Reals) -> Reals:
        """-x^2 / (2 scale^2) - log Z; -inf where x is not whole."""
        value = -0.5 * (x / self.scale) ** 2 - log_normaliser(1.0 / self.scale)
        return xp.where((x == xp.round(x)) | xp.isnan(x), value, -xp.inf)

    def _log_survival(self, x: Reals) -> Reals:
        least = xp.floor(x) + 1.0
        upper = least > 0
        tail = log_tail(xp.where(upper, least, 1.0 - least), 1.0 / self.scale)
        return xp.where(upper, tail, log1m(xp.exp(xp.where(upper, -LOG_2, tail))))

    def _quantile(self, u: Reals) -> Reals:
        low = u <= 0.5
        chance = xp.where(low, u, 1.0 - u)
        log_chance = xp.log(chance)
        # The largest n >= 0 with P[T >= n] >= chance: -k below, k above.
        log_chance = log_chance + 32.0 * ULP * xp.where(low, -1.0, 1.0) * xp.abs(log_chance)
        guess = xp.floor(-self.scale * special.ndtri(chance) + 0.5) - 2.0
        n = xp.maximum(xp.where(chance > 0, guess, 0.0), 0.0)

        def advance(_: Index, n: Reals) -> Reals:
            tail = log_tail(n + 1.0, 1.0 / self.scale)
            return n + xp.where(xp.where(low, tail >= log_chance, tail > log_chance), 1.0, 0.0)

        n = lax.fori_loop(0, 4, advance, n)
        n = xp.where(chance > 0, n, xp.where(xp.isnan(chance), xp.nan, xp.inf))
        return xp.where(low, -n, n)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        return self._draw_whole(key, shape, xp.ones(()))

    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p for p > 0; 1 at p = 0, infinite below.

        A sum for scale <= 10; above, the Gaussian's moment and the terms of the singularity of
        |t|^p at 0: -(4 / Z) sin(pi p / 2) sum_j c^j (2 pi)^-a Gamma(a) special.zeta(a) / j!,
        a = 1 + p + 2 j, c = 1 / (2 scale^2) (by Mellin's transform).
        """
        positive, narrow = power > 0, self.scale <= 10.0
        p, s = xp.where(positive, power, 1.0), xp.where(narrow, self.scale, 1.0)
        log_mass = log_normaliser(1.0 / s)

        def term(node: Reals, weight: Reals) -> Reals:
            return weight * xp.exp(p * xp.log(node) - 0.5 * (node / s) ** 2 - log_mass)

        direct = 2.0 * accumulate(_WHOLE, term, xp.zeros_like(p))
        wide = xp.where(narrow, 20.0, self.scale)
        log_unit = 0.5 * p * LOG_2 + special.gammaln(0.5 * (p + 1.0)) - 0.5 * xp.log(xp.pi)
        smooth = wide**p * xp.exp(log_unit)
        low, kink = 0.5 / (wide * wide), xp.zeros_like(p)
        for j in range(8):
            a = 1.0 + p + 2.0 * j
            log_term = special.gammaln(a) - a * xp.log(2.0 * xp.pi) - special.gammaln(j + 1.0)
            kink = kink + low**j * xp.exp(log_term) * special.zeta(a, 1.0)
        kink = kink * (4.0 * xp.sin(0.5 * xp.pi * p) * xp.exp(-log_normaliser(1.0 / wide)))
        value = xp.where(narrow, direct, smooth - kink)
        value = xp.where(power == 0, 1.0, xp.where(power < 0, xp.inf, value))
        return xp.where(xp.isnan(self.scale + power), xp.nan, value)

    def _sub_gaussian_proxy(self) -> Reals:
        """scale^2: E exp(t T) = exp(scale^2 t^2 / 2) theta(scale^2 t) / theta(0)."""
        return round_up(self.scale**2, 1)

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        flat = self.scale == xp.inf
        usual = (shift > 0) & (shift < xp.inf) & ~flat
        scale, safe_shift = xp.where(flat, 1.0, self.scale), xp.where(usual, shift, 1.0)
        value = _log_delta(scale, safe_shift, epsilon)
        return with_limits(value, self.scale, shift, epsilon)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """(s + 1) r^2 / 2 + log(theta(s shift) / theta(0)) / s, r = shift / scale.

        theta(c) = sum_k exp(-(k - c)^2 / (2 scale^2)) has period 1.
        """
        return _divergence(self.scale, shift, excess)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return infinite_unless_zero(ratio_of(shift, self.scale))

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, shift^2 / (2 scale^2)), attained at every whole order: theorem 4 of the source."""
        r = ratio_of(shift, self.scale)
        return xp.zeros_like(r), lifted(round_up(0.5 * r * r, 4), r > 0)

    def _loss_atoms(self, shift: Reals) -> LossAtoms:
        """The atoms shift (shift / 2 - k) / scale^2 at k, but for a probability of e^-300.

        Above scale 30 a node stands for several k. By Poisson's formula their sums are exact up to
        e^(-2 (pi scale / width)^2), width k a node, and 30 nodes lie in a scale. The second rule
        takes others.
        """
        places, width = integers(self, (xp.zeros_like(shift), shift))
        shift, noise = shift[..., None], DiscreteGaussian(self.scale[..., None])

        def rule(k: Reals) -> tuple[Reals, Reals]:
            loss = ratio_of(shift, noise.scale) * ((0.5 * shift - k) / noise.scale)
            return loss, noise.log_density(k) + xp.log(width)

        first, check = rule(places), rule(places + xp.floor(0.5 * width))
        return LossAtoms(*first, check, xp.full_like(shift[..., 0], -LEFT_OUT))

    def _singularities(self, shift: Reals) -> Lattice:
        """A lattice of unit shift / scale^2, odd where `shift` is."""
        unit = ratio_of(shift, self.scale) / self.scale
        return Lattice(unit, shift % 2.0 + 0.0 * unit)


# Measured: 10 ulp, next to the two of the exponents.
_VALUE_ULPS = 20.0
_INPUT_ULPS = 2.0
# Arguments are cut here. derived: their squares are finite, and the masses 0
_LARGEST = 1e150
# Exponents above this belong to sums that are not used.
_TOP = 500.0


def _gap(scale: Reals, shift: Reals, size: Reals, m: Reals) -> Reals:
    """2 scale^2 (loss(m) - epsilon), without cancellation."""

    def single(x: Reals) -> Double:
        return Double(x, xp.zeros_like(x))

    cost = product(product(single(scale), single(scale)), single(size))
    return total(product(single(2.0 * m + shift), single(shift)), scaled(cost, -2.0))


def _threshold(scale: Reals, shift: Reals, size: Reals) -> tuple[Reals, Reals]:
    """The least integer m with loss(m) > epsilon, exact up to 2^53, and loss(m) - epsilon."""
    usual = (scale > 1e-50) & (scale < 1e50) & (shift < 1e50) & (size < 1e50)
    s, d, e = (xp.where(usual, v, 1.0) for v in (scale, shift, size))
    m = lax.stop_gradient(xp.floor(e * s * (s / d) - 0.5 * d) + 1.0)
    m = m + xp.where(_gap(s, d, e, m) <= 0, 1.0, 0.0)
    m = m - xp.where(_gap(s, d, e, m - 1.0) > 0, 1.0, 0.0)
    gain = xp.maximum(_gap(s, d, e, m), 0.0) * (0.5 / s) / s
    # The remaining digits of m do not matter.
    far = xp.floor(xp.clip(size * scale * (scale / shift) - 0.5 * shift, -1e300, 1e300)) + 1.0
    step = xp.clip(1.0 / scale, 1e-250, 1e100)
    return xp.where(usual, m, far), xp.where(usual, gain, 0.5 * shift * step * step)


def _sides(scale: Reals, shift: Reals, epsilon: Reals) -> Sides:
    step = xp.clip(1.0 / scale, 1e-250, 1e100)
    size = xp.minimum(xp.abs(epsilon), 1e300)
    decay = step * step
    m, gain = _threshold(scale, shift, size)
    below, n = m <= 0, xp.abs(m)
    end = xp.minimum(m + shift, 1e300)
    x = xp.minimum(n * step, _LARGEST)
    short = is_short(n, step)
    both_flat = ~short & (end * decay <= FLAT)

    def term(node: Reals, weight: Reals) -> tuple[Reals, Reals, Reals]:
        def mass(k: Reals) -> Reals:
            exponent = -0.5 * decay * node * (2.0 * k + node)
            return weight * xp.exp(xp.minimum(exponent, _TOP))

        rise = -xp.expm1(-(gain + node * (shift * decay)))
        return mass(m) * rise, mass(n + 1.0), mass(end)

    zero = xp.zeros_like(x)
    direct, beyond, far_short = accumulate(TERMS, term, (zero, zero, zero))
    flat = xp.where(short, 0.01, step)
    x_flat = xp.where(short, 1.0, x)
    width = xp.where(both_flat, (end - n) * step, 1.0)
    smooth, far_flat = difference(x_flat, width, flat, xp.where(both_flat, gain, 1.0))
    far = xp.exp(-gain) * xp.where(both_flat, far_flat, far_short)
    near_flat = mills(x_flat) / flat + 0.5 + correction(x_flat, flat)
    smooth = xp.where(both_flat, smooth, near_flat - far)
    smooth = smooth + xp.where(below, middle(x_flat, flat), 0.0)
    beyond = beyond * xp.exp(-0.5 * decay * (2.0 * n + 1.0))
    near = xp.where(short, beyond, near_flat - 1.0)  # P[T > n] / p(n)
    excess = xp.maximum(xp.where(short, direct, smooth), xp.finfo(xp.float64).tiny)
    unit = xp.exp(-log_normaliser(step))
    top = xp.minimum(0.5 * x * x, 1e305)
    both = near + far
    tail = xp.where(below, near, excess + far)
    # 1 - delta has the rounding of the exponents of its terms.
    small = below & (xp.exp(-top) * unit * both < 0.5)
    amplification = xp.where(small, 0.5 * decay * (n + 1.0) ** 2 * both, 0.0)
    return Sides(below, top, *(unit * v for v in (excess, both, tail, far, amplification)))


def _value(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    return upper_log_delta(_sides(scale, shift, epsilon), epsilon, _VALUE_ULPS, _INPUT_ULPS)


@custom_jvp
def _log_delta(scale: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """`DiscreteGaussian.log_delta` for a finite whole shift >= 1 and a finite scale."""
    upper = _value(scale, shift, epsilon)
    none = (epsilon == xp.inf) & ~xp.isnan(scale + shift)
    return xp.where(none, -xp.inf, upper)


@functools.partial(_log_delta.defjvp, symbolic_zeros=True)
def _log_delta_jvp(primals, tangents):
    """Derivatives: -e^epsilon P[T >= m + shift] / delta in epsilon, others through the sums."""
    scale, shift, epsilon = primals
    out = _log_delta(scale, shift, epsilon)
    change = xp.zeros_like(out)
    one = xp.ones_like(out)
    if not isinstance(tangents[0], SymbolicZero):
        slope = jax.jvp(lambda s: _value(s, shift, epsilon), (scale,), (one,))[1]
        change = change + slope * tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        slope = jax.jvp(lambda d: _value(scale, d, epsilon), (shift,), (one,))[1]
        change = change + slope * tangents[1]
    if not isinstance(tangents[2], SymbolicZero):
        sides = _sides(scale, shift, epsilon)
        change = change + slope_in_epsilon(sides, epsilon, out) * tangents[2]
    return out, change


def _divergence(scale: Reals, shift: Reals, s: Reals) -> Reals:
    """Renyi divergence of the order 1 + s, for whole shifts >= 1."""
    step = 1.0 / scale
    mu, wide = step * shift, step < WIDE
    safe = xp.where(s > 0, s, 1.0)
    turns = safe * shift
    whole = xp.round(turns)
    part = turns - whole
    # s^2 mu^2 - part^2 step^2 without cancellation.
    square = xp.where(wide, 0.5, step * step)
    sums = plus(
        xp.exp(-k * (0.5 * k - xp.abs(part)) * square) * xp.expm1(-k * xp.abs(part) * square) ** 2
        for k in range(7, 0, -1)
    )
    mass = 1.0 + 2.0 * plus(xp.exp(-0.5 * k * k * square) for k in range(7, 0, -1))
    narrow = (0.5 * square * whole * (2.0 * turns - whole) + log1p(sums / mass)) / safe
    narrow = narrow + 0.5 * mu * mu
    turn = 2.0 * xp.pi * xp.pi / xp.where(wide, step * step, 1.0)
    dual = plus(xp.exp(-j * j * turn) * xp.sin(xp.pi * j * part) ** 2 for j in (2, 1))
    total = 1.0 + 2.0 * plus(xp.exp(-j * j * turn) for j in (2, 1))
    smooth = 0.5 * (safe + 1.0) * mu * mu + log1p(-4.0 * dual / total) / safe
    return xp.where(s > 0, xp.where(wide, smooth, narrow), 0.5 * (s + 1.0) * mu * mu)
