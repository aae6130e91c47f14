"""The staircase: the least error at pure differential privacy."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Key, Reals, Shape
from jaxdp._numeric.bracket import least_value
from jaxdp._numeric.double_double import total
from jaxdp._numeric.elementary import LOG_2, lifted, log1m, log1p, round_up
from jaxdp.noise.base import Noise, guarded
from jaxdp.noise.kernels.staircase_divergence import divergence
from jaxdp.noise.kernels.staircase_loss import log_delta, normaliser, place
from jaxdp.noise.kernels.staircase_moments import absolute_moment, mean_absolute, variance

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

    def _parameters(self) -> tuple[Reals, Reals, Reals]:
        epsilon, split = guarded(self.epsilon), guarded(self.split)
        epsilon = jnp.where(epsilon < jnp.inf, epsilon, jnp.nan)
        return epsilon, guarded(self.sensitivity), jnp.where(split <= 1, split, jnp.nan)

    def log_density(self, x: ArrayLike) -> Reals:
        """log a - n(x) epsilon."""
        return _log_density(*self._parameters(), checks.real("x", x))

    def log_survival(self, x: ArrayLike) -> Reals:
        """log P[T > x], in both tails. Relative error: 1e-13."""
        return _log_survival(*self._parameters(), checks.real("x", x))

    def quantile(self, u: ArrayLike) -> Reals:
        """The inverse of the distribution function.

        Relative error: 2e-13 for u >= 1e-300; 1e-15 sensitivity / |quantile| where that is more.
        """
        return _quantile(*self._parameters(), checks.probability("u", u))

    def sample(self, key: Key, shape: Shape = ()) -> Reals:
        """A sign, a geometric step, one of its two parts, a uniform place there; see `Noise`."""
        epsilon, sensitivity, split = self._parameters()
        shapes = (jnp.shape(v) for v in (epsilon, sensitivity, split))
        shape = jnp.broadcast_shapes(shape, *shapes)
        epsilon, sensitivity, split = (
            jnp.broadcast_to(v, shape) for v in (epsilon, sensitivity, split)
        )
        keys = jax.random.split(checked_key(key), 4)
        step = jnp.floor(jax.random.exponential(keys[0], shape, dtype=jnp.float64) / epsilon)
        sign = jax.random.rademacher(keys[1], shape, dtype=jnp.float64)
        u, v = (jax.random.uniform(k, shape, dtype=jnp.float64) for k in keys[2:])
        inner = v * normaliser(epsilon, split) < 2.0 * split
        place_in_step = jnp.where(inner, split * u, split + (1.0 - split) * u)
        return sign * sensitivity * (step + place_in_step)

    def absolute_moment(self, power: ArrayLike) -> Reals:
        """E|T|^p = c sensitivity^p sum over k >= 0 of b^k (k + split)^(p + 1), p > -1.

        c = (1 - b)^2 / ((p + 1) (split + b (1 - split))). In closed form for a `power` that is
        the number 1 or 2, relative error 1e-14; else 128 terms and the tail by Euler-Maclaurin,
        relative error 1e-13 for p in (-1, 16].
        """
        if isinstance(power, int | float) and power in (1, 2):
            closed = mean_absolute if power == 1 else variance
            return closed(*self._parameters())
        power = checks.real("power", power, -1.0, open_lower=True)
        return absolute_moment(*self._parameters(), power)

    def fisher_information(self) -> Reals:
        """Infinite: the density jumps."""
        return jnp.where(self._sum() >= 0, jnp.inf, jnp.nan)

    def log_delta(self, shift: ArrayLike, epsilon: ArrayLike) -> Reals:
        """log of delta = sum over j of p_j (1 - exp(epsilon - j self.epsilon))_+.

        The loss takes the values j self.epsilon, |j| <= ceil(shift / sensitivity); p_j, and the
        sum, are closed forms (`noise/kernels/staircase_loss.py`). For shift <= sensitivity only
        p_1 = a (shift b / (1 - b) + min(shift, 2 split sensitivity)) counts. It is the supremum
        over |m| <= shift because delta increases with m, as for every symmetric density that
        falls from its centre: for epsilon >= 0 its derivative in m is -e^epsilon times the
        integral of g'(t + m) where g(t) > e^epsilon g(t + m), hence t > -m / 2 and g' <= 0.

        An upper bound, above the truth by at most 4e-15 (1 + |log delta|) where delta <= 1/2
        and 4e-15 |log delta| (1 + log(1 / (1 - delta))) above. Derivatives at a kink
        (shift / sensitivity or epsilon / self.epsilon whole, ...) are one-sided or between.
        """
        shift = checks.nonnegative("shift", shift)
        epsilon = checks.real("epsilon", epsilon)
        return log_delta(*self._parameters(), shift, epsilon)

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """log(sum_j p_j exp(s j epsilon)) / s, in closed form at every shift.

        Relative error: 2e-14.
        """
        return divergence(*self._parameters(), shift, excess)

    def zcdp(self, shift: ArrayLike) -> tuple[Reals, Reals]:
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
        shift = checks.nonnegative("shift", shift)
        rho = lifted(_zcdp_rho(*self._parameters(), shift), self.pure_epsilon(shift) > 0)
        return jnp.zeros_like(rho), rho

    def pure_epsilon(self, shift: ArrayLike) -> Reals:
        """epsilon ceil(shift / sensitivity), rounded up."""
        return _pure_epsilon(*self._parameters(), checks.nonnegative("shift", shift))

    def sub_gaussian_proxy(self) -> Reals:
        """Infinite: the tails are exponential."""
        return jnp.where(self._sum() >= 0, jnp.inf, jnp.nan)

    def loss_atom(self, shift: ArrayLike) -> tuple[Reals, Reals]:
        """(pure epsilon, NaN): three atoms or more, but at no shift, where the loss is 0."""
        r = self.pure_epsilon(shift)
        return r, jnp.where(r == 0, -LOG_2, jnp.nan)

    def lattice(self, shift: Reals) -> tuple[Reals, Reals]:
        """(epsilon, 0)."""
        unit = self.epsilon + 0.0 * (self._sum() + shift)
        return unit, 0.0 * unit

    def _sum(self) -> Reals:
        epsilon, sensitivity, split = self._parameters()
        return epsilon + sensitivity + split


@in_float64
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
    >>> print(f"{dp.staircase_split(1.0):.4f}")
    0.4167
    """
    objective = checks.one_of("objective", objective, ("mean_absolute", "variance"))
    epsilon = checks.positive("epsilon", epsilon)
    return (_split_mean_absolute if objective == "mean_absolute" else _split_variance)(epsilon)


@jax.jit
def _split_mean_absolute(epsilon: Reals) -> Reals:
    root = jnp.exp(-0.5 * epsilon)
    return root / (1.0 + root)


@jax.jit
def _split_variance(epsilon: Reals) -> Reals:
    b, third = jnp.exp(-epsilon), jnp.exp(-epsilon / 3.0)
    # c = third k, and third^2 is cancelled.
    k = jnp.cbrt(0.5 * (1.0 + b))
    square = third * third
    return third * (1.0 + 2.0 * b) / (2.0 * (k * k + square * (k + square)))


@jax.jit
def _log_density(epsilon: Reals, sensitivity: Reals, split: Reals, x: Reals) -> Reals:
    epsilon, sensitivity, split, x = jnp.broadcast_arrays(epsilon, sensitivity, split, x)
    level, _ = _level(sensitivity, split, jnp.abs(x))
    log_top = jnp.log(-jnp.expm1(-epsilon) / normaliser(epsilon, split)) - jnp.log(sensitivity)
    return log_top - level * epsilon


def _level(sensitivity: Reals, split: Reals, x: Reals) -> tuple[Reals, Reals]:
    """n(x) and the distance to the end of its step, in sensitivities, for x >= 0."""
    at = place(x, sensitivity)
    left = total(split, -at.fraction.high, -at.fraction.low)
    outer = left <= 0
    after = total(split, jnp.ones_like(split), -at.fraction.high, -at.fraction.low)
    level = at.whole + jnp.where(outer, 1.0, 0.0)
    return jnp.where(at.infinite, jnp.inf, level), jnp.where(outer, after, left)


@jax.jit
def _log_survival(epsilon: Reals, sensitivity: Reals, split: Reals, x: Reals) -> Reals:
    epsilon, sensitivity, split, x = jnp.broadcast_arrays(epsilon, sensitivity, split, x)
    level, left = _level(sensitivity, split, jnp.abs(x))
    share = jnp.exp(-epsilon) - jnp.expm1(-epsilon) * left
    upper = jnp.log(share / normaliser(epsilon, split)) - level * epsilon
    return jnp.where(x > 0, upper, log1m(jnp.exp(upper)))


@jax.jit
def _quantile(epsilon: Reals, sensitivity: Reals, split: Reals, u: Reals) -> Reals:
    epsilon, sensitivity, split, u = jnp.broadcast_arrays(epsilon, sensitivity, split, u)
    tail = jnp.minimum(u, 1.0 - u)
    b, drop, half = jnp.exp(-epsilon), -jnp.expm1(-epsilon), 0.5 * normaliser(epsilon, split)
    # On the top step, continued; and b^level (b + (1 - b) left) = 2 half tail, left in (0, 1].
    inner = half * (1.0 - 2.0 * tail) / drop
    next_step = (inner - split) / b
    lack = drop * (1.0 - split + inner)  # 1 - 2 half tail
    near = lack < 0.5
    log_tail = log1m(jnp.where(near, lack, 0.0))
    distant = jnp.where(near | (tail == 0), 0.5, tail)
    log_tail = jnp.where(near, log_tail, jnp.log(2.0 * half) + jnp.log(distant))
    level = jax.lax.stop_gradient(jnp.maximum(jnp.floor(-log_tail / epsilon), 1.0))
    done = -jnp.expm1(jnp.minimum(log_tail + level * epsilon, 0.0)) / drop
    outer = level - 1.0 + split + jnp.minimum(done, 1.0)
    gentle = b > 0.5
    outer = jnp.where(gentle & (next_step <= 1.0), split + next_step, outer)
    at_top = jnp.where(gentle, inner <= split, log_tail > -epsilon)
    size = sensitivity * jnp.where(at_top, inner, outer)
    return jnp.where(u < 0.5, -1.0, 1.0) * jnp.where(tail == 0, jnp.inf, size)


@jax.jit
def _pure_epsilon(epsilon: Reals, sensitivity: Reals, split: Reals, shift: Reals) -> Reals:
    epsilon, sensitivity, split, shift = jnp.broadcast_arrays(epsilon, sensitivity, split, shift)
    at = place(shift, sensitivity)
    steps = at.whole + jnp.where(at.fraction.high > 0, 1.0, 0.0)
    value = jnp.where(at.infinite, jnp.inf, round_up(epsilon * steps, 1))
    return jnp.where(epsilon + split > 0, value, jnp.nan)


@jax.jit
def _zcdp_rho(epsilon: Reals, sensitivity: Reals, split: Reals, shift: Reals) -> Reals:
    epsilon, sensitivity, split, shift = jnp.broadcast_arrays(epsilon, sensitivity, split, shift)
    at = place(shift, sensitivity)
    steps = jnp.maximum(at.whole + jnp.where(at.fraction.high > 0, 1.0, 0.0), 1.0)
    part = (at.whole + at.fraction.high) / steps
    b, drop = jnp.exp(-epsilon), -jnp.expm1(-epsilon)
    mass = (b * part + drop * jnp.minimum(part, 2.0 * split)) / normaliser(epsilon, split)
    held = jnp.where(mass > 0, mass, 0.5)

    def negative_ratio(w: Reals) -> Reals:
        large = w > 1.0
        low, high = jnp.where(large, 1.0, w), jnp.where(large, w, 1.0)
        kept = -jnp.expm1(-(w + epsilon))
        near = log1p(held * jnp.expm1(low) * kept)
        far = high + jnp.log(held * -jnp.expm1(-high) * kept + jnp.exp(-high))
        return -(jnp.where(large, far, near) / w) * (epsilon / (w + epsilon)) * epsilon

    # Beyond the top K < w + log(mass), whose ratio peaks before.
    top = 4.0 * (2.0 + 1.5 * epsilon - jnp.log(held))
    rho = jnp.maximum(-least_value(negative_ratio, 1e-9 * top, top), held * drop * epsilon)
    rho = jnp.where(mass > 0, rho, 0.0 * mass)
    pure = epsilon * steps
    group = jnp.minimum(pure * jnp.tanh(0.5 * pure), steps * steps * rho)
    rho = round_up(jnp.where(steps > 1, group, rho), 64)
    return jnp.where(at.infinite & (rho >= 0), jnp.inf, rho)
