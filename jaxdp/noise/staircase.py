"""The staircase: the least error at pure differential privacy."""

from __future__ import annotations

from functools import partial
from typing import final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import lax, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Key, Reals, Shape
from jaxdp._numeric.double_double import total
from jaxdp._numeric.elementary import lifted, log1m, log1p, log_probability, round_up
from jaxdp._numeric.quadrature import power_sum
from jaxdp._numeric.search import zoom
from jaxdp.noise.base import Noise
from jaxdp.noise.kernels.staircase_loss import divergence, log_delta, log_masses, normaliser, place
from jaxdp.noise.nodes import along_last
from jaxdp.noise.structure import Lattice, LossAtoms

# Positive losses of a traced shift, and at most of a concrete one. chosen: 129 and 1,601 nodes
_MULTIPLES, _MOST_MULTIPLES = 64, 800
# The largest epsilon: the largest double.
_LARGEST = float(np.finfo(np.float64).max)


@final
@pytree
class Staircase(Noise):
    """The density a exp(-epsilon n(x)), n(x) = floor(|x| / sensitivity - split) + 1.

    One step is `sensitivity` wide, the top one 2 split sensitivity; a = (1 - b) / (2 sensitivity
    (split + b (1 - split))), b = exp(-epsilon). It is epsilon-DP at `sensitivity` and has the
    least mean absolute error or variance of all such noises at the split of `staircase_split`.

    Sensitivity: l1, of one query. `epsilon` is finite; `split` lies in (0, 1]; an infinite
    `sensitivity` is legal and private. Units, bad input: `Noise`.

    The loss takes the values j epsilon, |j| <= ceil(shift / sensitivity). `log_delta` is above the
    truth by at most 4e-15 (1 + |log delta|) where delta <= 1/2 and
    4e-15 |log delta| (1 + log(1 / (1 - delta))) above; derivatives at a kink (shift / sensitivity
    or epsilon / self.epsilon whole, ...) are one-sided or between. zcdp has the least rho at
    xi = 0 where shift <= sensitivity. Relative errors of others: 1e-13 of log survival, in both
    tails; 2e-13 of a quantile for u >= 1e-300, 1e-15 sensitivity / |quantile| where that is more;
    1e-13 of moments of a power in (-1, 16]; 2e-14 of Renyi divergences.
    Source: Geng & Viswanath, IEEE Trans. Inf. Theory 62, 2016.
    """

    epsilon: Reals
    sensitivity: Reals
    split: Reals

    def __init__(self, epsilon: ArrayLike, sensitivity: ArrayLike, split: ArrayLike):
        assign(
            self,
            epsilon=checks.real("epsilon", epsilon, checks.LEAST_NORMAL, _LARGEST),
            sensitivity=checks.positive("sensitivity", sensitivity),
            split=checks.real("split", split, checks.LEAST_NORMAL, 1.0),
        )

    @classmethod
    def _member(cls, shape: Reals, deviation: Reals) -> Staircase:
        return Staircase(shape, deviation, staircase_split(shape))

    def _in_range(self) -> Bools:
        positive = (self.epsilon > 0) & (self.sensitivity > 0) & (self.split > 0)
        return positive & (self.epsilon < xp.inf) & (self.split <= 1)

    def _parameters(self) -> tuple[Reals, Reals, Reals]:
        return self.epsilon, self.sensitivity, self.split

    def _log_density(self, x: Reals) -> Reals:
        """log a - n(x) epsilon."""
        level, _ = _level(self.sensitivity, self.split, xp.abs(x))
        top = -xp.expm1(-self.epsilon) / normaliser(self.epsilon, self.split)
        return xp.log(top) - xp.log(self.sensitivity) - level * self.epsilon

    def _log_density_slope(self, x: Reals) -> Reals:
        """0: the density is flat between its steps."""
        return xp.zeros_like(x)

    def _log_survival(self, x: Reals) -> Reals:
        level, left = _level(self.sensitivity, self.split, xp.abs(x))
        share = xp.exp(-self.epsilon) - xp.expm1(-self.epsilon) * left
        upper = xp.log(share / normaliser(self.epsilon, self.split)) - level * self.epsilon
        return xp.where(x > 0, upper, log1m(xp.exp(upper)))

    def _quantile(self, u: Reals) -> Reals:
        epsilon, split, tail = self.epsilon, self.split, xp.minimum(u, 1.0 - u)
        b, drop, half = xp.exp(-epsilon), -xp.expm1(-epsilon), 0.5 * normaliser(epsilon, split)
        # On the top step, continued; and b^level (b + (1 - b) left) = 2 half tail, left in (0, 1].
        inner = half * (1.0 - 2.0 * tail) / drop
        next_step = (inner - split) / b
        lack = drop * (1.0 - split + inner)  # 1 - 2 half tail
        near = lack < 0.5
        log_tail = log1m(xp.where(near, lack, 0.0))
        distant = xp.where(near | (tail == 0), 0.5, tail)
        log_tail = xp.where(near, log_tail, xp.log(2.0 * half) + xp.log(distant))
        level = lax.stop_gradient(xp.maximum(xp.floor(-log_tail / epsilon), 1.0))
        done = -xp.expm1(xp.minimum(log_tail + level * epsilon, 0.0)) / drop
        outer = level - 1.0 + split + xp.minimum(done, 1.0)
        gentle = b > 0.5
        outer = xp.where(gentle & (next_step <= 1.0), split + next_step, outer)
        at_top = xp.where(gentle, inner <= split, log_tail > -epsilon)
        size = self.sensitivity * xp.where(at_top, inner, outer)
        return xp.where(u < 0.5, -1.0, 1.0) * xp.where(tail == 0, xp.inf, size)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """A sign, a geometric step, one of its two parts, a uniform place there."""
        keys, split = jax.random.split(key, 4), self.split
        step = xp.floor(jax.random.exponential(keys[0], shape, dtype=xp.float64) / self.epsilon)
        sign = jax.random.rademacher(keys[1], shape, dtype=xp.float64)
        u, v = (jax.random.uniform(k, shape, dtype=xp.float64) for k in keys[2:])
        inner = v * normaliser(self.epsilon, split) < 2.0 * split
        place_in_step = xp.where(inner, split * u, split + (1.0 - split) * u)
        return sign * self.sensitivity * (step + place_in_step)

    def _absolute_moment(self, power: Reals) -> Reals:
        """c sensitivity^p times the sum over k >= 0 of b^k (k + split)^(p + 1).

        c = (1 - b)^2 / ((p + 1) (split + b (1 - split))).
        """
        q, log_factor = power + 1.0, 2.0 * xp.log(-xp.expm1(-self.epsilon))
        shells = power_sum(self.epsilon, self.split, q, log_factor)
        norm = q * normaliser(self.epsilon, self.split)
        return self.sensitivity**power * shells * 2.0 / norm

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """The sum over j of p_j (1 - exp(epsilon - j self.epsilon))_+ (`kernels.staircase_loss`).

        The supremum over |m| <= shift is at m = shift, as for every symmetric density g that
        decreases from its centre. The derivative in m is -e^epsilon times the integral of g'(t + m)
        over g(t) > e^epsilon g(t + m), hence t > -m / 2 and g' <= 0.
        """
        return log_delta(*self._parameters(), shift, epsilon)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log(sum_j p_j exp(s j epsilon)) / s, in closed form at every shift."""
        return divergence(*self._parameters(), shift, excess)

    def _pure_epsilon(self, shift: Reals) -> Reals:
        """epsilon ceil(shift / sensitivity), rounded up."""
        at = place(shift, self.sensitivity)
        steps = at.whole + xp.where(at.fraction.high > 0, 1.0, 0.0)
        value = xp.where(at.infinite, xp.inf, round_up(self.epsilon * steps, 1))
        return xp.where(self.epsilon > 0, value, xp.nan)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, rho): the least rho where shift <= sensitivity, else the better of two bounds.

        With s = order - 1 and w = s epsilon, rho is the supremum of K / (s (s + 1)), the
        Kullback-Leibler divergence at w = 0. For three atoms it has one maximum: as a function of
        x = (w + epsilon / 2)^2, K = log(c_0 + c_1 cosh(sqrt x)) is convex and then concave,
        because (sinh y cosh y - y) / (y cosh y - sinh y) increases with y = sqrt x (a quotient of
        power series whose coefficients have increasing quotients), so the slope of its chords
        from the zero at w = 0 rises and then falls.

        Beyond: e tanh(e / 2) with e = `pure_epsilon` (the two-point law, which dominates), and
        n^2 rho(shift / n), n = ceil(shift / sensitivity) (Bun & Steinke, TCC 2016, prop. 27).
        """
        epsilon, split = self.epsilon, self.split
        at = place(shift, self.sensitivity)
        steps = xp.maximum(at.whole + xp.where(at.fraction.high > 0, 1.0, 0.0), 1.0)
        part = (at.whole + at.fraction.high) / steps
        b, drop = xp.exp(-epsilon), -xp.expm1(-epsilon)
        mass = (b * part + drop * xp.minimum(part, 2.0 * split)) / normaliser(epsilon, split)
        safe_mass = xp.where(mass > 0, mass, 0.5)

        def negative_ratio(log_w: Reals) -> Reals:
            w, share, unit = xp.exp(log_w), safe_mass[None], epsilon[None]
            large = w > 1.0
            low, high = xp.where(large, 1.0, w), xp.where(large, w, 1.0)
            kept = -xp.expm1(-(w + unit))
            near = log1p(share * xp.expm1(low) * kept)
            far = high + xp.log(share * -xp.expm1(-high) * kept + xp.exp(-high))
            return -(xp.where(large, far, near) / w) * (unit / (w + unit)) * unit

        # Beyond the top K < w + log(mass), whose ratio peaks before.
        top = 4.0 * (2.0 + 1.5 * epsilon - xp.log(safe_mass))
        least = zoom(negative_ratio, xp.log(1e-9 * top), xp.log(top))[1]
        rho = xp.maximum(-least, safe_mass * drop * epsilon)
        rho = xp.where(mass > 0, rho, 0.0 * mass)
        pure = epsilon * steps
        group = xp.minimum(pure * xp.tanh(0.5 * pure), steps * steps * rho)
        rho = round_up(xp.where(steps > 1, group, rho), 64)
        rho = xp.where(at.infinite & (rho >= 0), xp.inf, rho)
        return xp.zeros_like(rho), lifted(rho, self._pure_epsilon(shift) > 0)

    def _loss_atoms(self, shift: Reals) -> LossAtoms:
        """The losses j epsilon, |j| <= ceil(shift / sensitivity), 64 of each sign where traced."""
        j = along_last(np.arange(1.0, _multiples_of(shift, self.sensitivity) + 1.0), xp.ndim(shift))
        unit = self.epsilon[..., None]
        log_up = log_masses(self.epsilon, self.sensitivity, self.split, shift, j)
        log_down = log_up - j * unit
        others = xp.sum(xp.exp(log_up) + xp.exp(log_down), axis=-1)
        log_rest = log_probability(xp.clip(1.0 - others, 0.0, 1.0))
        # With multiples beyond the last one, all other mass is left out.
        is_whole = xp.ceil(shift / self.sensitivity) <= j[..., -1]
        log_level = xp.where(is_whole, log_rest, -xp.inf)[..., None]
        loss = xp.concatenate([-j[..., ::-1] * unit, 0.0 * unit, j * unit], axis=-1)
        log_mass = xp.concatenate([log_down[..., ::-1], log_level, log_up], axis=-1)
        rule = loss, log_mass
        return LossAtoms(*rule, rule, xp.where(is_whole, -xp.inf, log_rest))

    def _singularities(self, shift: Reals) -> Lattice:
        """A lattice of unit epsilon."""
        unit = self.epsilon + 0.0 * shift
        return Lattice(unit, 0.0 * unit)


def _multiples_of(shift: Reals, sensitivity: Reals) -> int:
    """Number of positive losses: all that a concrete shift has, up to the most."""
    if not checks.all_concrete((shift, sensitivity)):
        return _MULTIPLES
    with np.errstate(all="ignore"):
        steps = np.ceil(np.asarray(shift) / np.asarray(sensitivity))
    largest = np.max(steps, where=np.isfinite(steps), initial=1.0)
    return int(min(largest + 1.0, _MOST_MULTIPLES))


def _level(sensitivity: Reals, split: Reals, x: Reals) -> tuple[Reals, Reals]:
    """n(x) and the distance to the end of its step, in sensitivities, for x >= 0."""
    at = place(x, sensitivity)
    left = total(split, -at.fraction.high, -at.fraction.low)
    outer = left <= 0
    after = total(split, xp.ones_like(split), -at.fraction.high, -at.fraction.low)
    level = at.whole + xp.where(outer, 1.0, 0.0)
    return xp.where(at.infinite, xp.inf, level), xp.where(outer, after, left)


@in_float64(side=0.0)
def staircase_split(epsilon: ArrayLike, objective: str = "variance") -> Reals:
    """The `split` of `Staircase` noise with the least error at its epsilon.

    Args:
        epsilon: nats, above 0.
        objective: "mean_absolute" or "variance".

    Returns:
        The split, in (0, 1/2), to (4 + epsilon / 3) ulp relatively.

    1 / (1 + e^(epsilon/2)), which gives E|T| = sensitivity e^(epsilon/2) / (e^epsilon - 1), and b
    (1 + 2b) / (2 (c^2 + c b + b^2)), c^3 = b (1 + b) / 2, b = e^-epsilon: the published root (c -
    b) / (1 - b), without its cancellation as epsilon -> 0. Both tend to 1/2 there.
    Source: Geng & Viswanath, IEEE Trans. Inf. Theory 62, 2016.

    >>> import jaxdp as dp
    >>> print(f"{dp.optimal.staircase_split(1.0):.4f}")
    0.4167
    """
    objective = checks.one_of("objective", objective, ("mean_absolute", "variance"))
    epsilon = checks.positive("epsilon", epsilon)
    return _split(epsilon, objective == "variance")


@partial(jitted, static_argnums=1)
def _split(epsilon: Reals, of_variance: bool) -> Reals:
    root = xp.exp(-0.5 * epsilon)
    if not of_variance:
        return root / (1.0 + root)
    b, third = xp.exp(-epsilon), xp.exp(-epsilon / 3.0)
    # c = third k, and third^2 is cancelled.
    k = xp.cbrt(0.5 * (1.0 + b))
    square = third * third
    return third * (1.0 + 2.0 * b) / (2.0 * (k * k + square * (k + square)))
