"""The loss of truncated Laplace noise, for compositions: infinite, or that of a Laplace."""

from typing import cast, final

import jax
import jax.numpy as jnp

from jaxdp import _check
from jaxdp._numeric.elementary import LOG_2, ULP, expm1, log1m, log1mexp, log1p, round_up
from jaxdp._numeric.loss_edges import LossEdges
from jaxdp._numeric.truncated_exponential import Support, cgf
from jaxdp._pytree import pytree
from jaxdp._types import RealLike, Reals, RealsOrComplexes
from jaxdp.loss.infinite import LEAST_FINITE
from jaxdp.noise.base import Loss, guarded, ratio_of
from jaxdp.noise.laplace import Laplace
from jaxdp.noise.truncated_laplace import TruncatedLaplace

# Of the bound: a shift below it is not left to a difference.
_THIN = 1e-3
# Below such |z| r the cumulant is log1p of a small number; not where the bound is as short.
_SMALL, _SHORT = 1.0, 0.1


@final
@pytree
class TruncatedLoss(Loss):
    """Infinite where the other input cannot answer, else as a Laplace's, |L| <= shift / scale.

    With r = shift / scale and x = bound / scale: infinite with probability P[T > bound - shift];
    two atoms at +-r, of masses (1 - e^(r - x)) / (2 (1 - e^-x)), times e^-r below; the Laplace's
    density between, over 1 - e^-x. Where shift > bound there are no atoms, and
    |L| <= 2 x - r; from shift = 2 bound on every loss is infinite. Bad input: as `noise`.
    """

    noise: TruncatedLaplace

    def log_delta(self, shift: RealLike, epsilon: RealLike) -> Reals:
        """`TruncatedLaplace.log_delta`."""
        return self.noise.log_delta(shift, epsilon)

    def cgf(self, shift: RealLike, z: RealLike) -> RealsOrComplexes:
        """K(z) = log E[exp(z L); L < inf], every z. Absolute error: 2e-14 (1 + |z| r).

        Where |z| r < 1 < 10 x it is log1p of (1 - e^-x)^-1 times

            M_Laplace(z) - 1 - e^-x (e^((z + 1) r) - 1 + e^(-z r) - 1) / 2.
        """
        shift = _check.nonnegative("shift", shift)
        return _cgf(self.noise.scale, self.noise.bound, shift, _check.argument("z", z))

    def pure_epsilon(self, shift: RealLike) -> Reals:
        """Infinite, unless the shift is 0 or the bound infinite."""
        return self.noise.pure_epsilon(shift)

    def largest_finite(self, shift: RealLike) -> Reals:
        """min(shift, 2 bound - shift) / scale, rounded up; at least 0."""
        return round_up(self._largest(_check.nonnegative("shift", shift)), 4)

    def log_finite(self, shift: Reals) -> Reals:
        """log(1 - P[T > bound - shift])."""
        scale, bound = guarded(self.noise.scale), guarded(self.noise.bound)
        beyond = self.noise.log_survival(_room(bound, shift))
        beyond = jnp.where(shift < _THIN * bound, _log_thin(scale, bound, shift), beyond)
        return jnp.maximum(log1m(jnp.exp(beyond)), LEAST_FINITE)

    def loss_atom(self, shift: RealLike) -> tuple[Reals, Reals]:
        """(r, log of the upper mass)."""
        shift = _check.nonnegative("shift", shift)
        return _atom(self.noise.scale, self.noise.bound, shift)

    def edges(self, shift: Reals) -> LossEdges:
        """a = e^((height - r) / 2) / (4 (1 - e^-x))."""
        r, log_atom = self.loss_atom(shift)
        whole = -jnp.expm1(-ratio_of(guarded(self.noise.bound), guarded(self.noise.scale)))
        height = self._largest(shift)
        return LossEdges(height, log_atom, 0.5 * (height - r) - 2.0 * LOG_2 - jnp.log(whole))

    def _largest(self, shift: Reals) -> Reals:
        scale, bound = guarded(self.noise.scale), guarded(self.noise.bound)
        shorter = jnp.clip(2.0 * bound - shift, 0.0, shift)
        return ratio_of(jnp.where(jnp.isinf(bound), shift, shorter), scale)


def as_loss(noise: Loss) -> Loss:
    """What composes: the noise, or what takes its place."""
    return TruncatedLoss(noise) if isinstance(noise, TruncatedLaplace) else noise


def _room(bound: Reals, shift: Reals) -> Reals:
    """bound - shift, infinite at an infinite bound whatever the shift."""
    endless = jnp.isinf(bound) & ~jnp.isnan(shift)
    return jnp.where(endless, bound, bound - shift)


def _log_thin(scale: Reals, bound: Reals, shift: Reals) -> Reals:
    """log P[T > bound - shift] for a shift that bound - shift may not show."""
    infinite = jnp.isinf(bound)
    bound = jnp.where(infinite, 1.0, bound)
    # (e^t - 1) / t for shift / scale and bound / scale.
    grown = [_log_mean_exp(ratio_of(t, scale)) for t in (shift, bound)]
    share = jnp.log(shift) - jnp.log(bound) - LOG_2
    value = share + grown[0] - grown[1]
    # Upwards, by what logarithms of that size lose.
    value += 2.0 * ULP * jnp.where(value > -jnp.inf, jnp.abs(value), 0.0)
    return jnp.where(infinite, -jnp.inf, value)


def _log_mean_exp(t: Reals) -> Reals:
    """log((e^t - 1) / t), t >= 0."""
    safe = jnp.where(t > 0, t, 1.0)
    large = safe > 1.0
    near = jnp.log(jnp.expm1(jnp.where(large, 1.0, safe)) / safe)
    far = safe + log1mexp(safe) - jnp.log(safe)
    return jnp.where(t > 0, jnp.where(large, far, near), 0.0 * t)


@jax.jit
def _atom(scale: Reals, bound: Reals, shift: Reals) -> tuple[Reals, Reals]:
    scale, bound, shift = jnp.broadcast_arrays(guarded(scale), guarded(bound), shift)
    room = jnp.maximum(_room(bound, shift), 0.0)
    whole, kept = (-jnp.expm1(-ratio_of(x, scale)) for x in (bound, room))
    uniform = jnp.isinf(scale) & jnp.isfinite(bound)
    share = jnp.where(uniform, room / jnp.where(uniform, bound, 1.0), kept / whole)
    r = ratio_of(shift, scale)
    return r, jnp.log(share) - LOG_2


@jax.jit
def _cgf(scale: Reals, bound: Reals, shift: Reals, z: RealsOrComplexes) -> RealsOrComplexes:
    scale, bound, shift, z = jnp.broadcast_arrays(guarded(scale), guarded(bound), shift, z)
    z = jnp.where(jnp.real(z) < -0.5, -1.0 - z, z)
    r, x = ratio_of(shift, scale), ratio_of(bound, scale)
    near = (jnp.abs(z) * r < _SMALL) & (x > jnp.maximum(r, _SHORT))
    low_r, low_x, low_z = (jnp.where(near, v, 1.0) for v in (r, x, z))
    laplace = Laplace(jnp.ones(()))
    plain = expm1(cast(RealsOrComplexes, laplace.cgf(low_r, low_z)))
    missing = 0.5 * (expm1((low_z + 1.0) * low_r) + expm1(-low_z * low_r))
    excess = (plain - jnp.exp(-low_x) * missing) / -jnp.expm1(-low_x)
    endless = jnp.isinf(bound)
    apart = ~endless & (0.5 * shift >= bound)
    m = jnp.where(endless, jnp.where(jnp.isinf(scale), 1.0, scale), 0.5 * bound)
    m = jnp.where(near | apart | endless, m, shift)
    far = cgf(Support(scale, bound, bound < scale), m, ratio_of(m, scale), z)
    whole = cast(RealsOrComplexes, laplace.cgf(jnp.where(endless, r, 1.0), z))
    far = jnp.where(endless, whole, far)
    value = jnp.where(near, log1p(excess), jnp.where(apart, LEAST_FINITE, far))
    value = jnp.where(shift == 0, 0.0 * z, value)
    return jnp.where(jnp.isnan(scale + bound + shift + z), jnp.nan, value)
