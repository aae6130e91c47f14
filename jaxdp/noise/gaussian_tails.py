"""Noises with a kink at 0 and Gaussian tails: the flipped Huber and the offset Gaussian."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import round_up
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.gaussian import infinite_unless_zero
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.monotone_loss import Point, least_offset, offset_and_rho
from jaxdp.noise.kernels.whole_laws import WholeLaw

# The largest alpha: the largest double.
LARGEST = float(np.finfo(np.float64).max)
# Outside, `zcdp` gives the published bound; its search would over- or underflow.
_RATIOS = (1e-6, 1e6)
_SHIFTS = (1e-12, 1e6)
# Least alpha / gamma of exact draws. chosen: a hundred candidates a draw
_LEAST_SHARE = 2.0**-6


class GaussianTails(Noise):
    """A noise by two lengths, alpha and gamma, its fields in this order.

    -log g has the slope alpha / gamma^2 at 0 and tails of scale gamma. |T| is below a normal law of
    variance gamma^2 in the likelihood-ratio order.
    """

    log_concave = True

    @classmethod
    def _of_shape(cls, shape: Reals, scale: Reals) -> Noise:
        return cls(shape * scale, scale)  # pyright: ignore[reportCallIssue]

    def _lengths(self) -> tuple[Reals, Reals]:
        """(alpha, gamma)."""
        alpha, gamma = vars(self).values()
        return alpha, gamma

    def _in_range(self) -> Bools:
        alpha, gamma = self._lengths()
        return (alpha >= 0) & (alpha <= LARGEST) & (gamma > 0)

    def _ratios(self, length: Reals) -> tuple[Reals, Reals]:
        alpha, gamma = self._lengths()
        return ratio_of(alpha, gamma), ratio_of(length, gamma)

    @abc.abstractmethod
    def _upper_quantile(self, p: Reals, q: Reals) -> Reals:
        """The x >= 0 with P[T > x] = p, for p = 1/2 - q in [0, 1/2]."""

    def _quantile(self, u: Reals) -> Reals:
        """See `_upper_quantile`."""
        size = self._upper_quantile(xp.minimum(u, 1.0 - u), xp.abs(0.5 - u))
        return xp.where(u < 0.5, -size, size)

    def _sample(self, key: Key, shape: Shape) -> Reals:
        """Inversion of 53 uniform bits, and a sign."""
        sign_key, size_key = jax.random.split(key)
        uniform = jax.random.uniform(size_key, shape, dtype=xp.float64)
        size = self._upper_quantile(0.5 - 0.5 * uniform, 0.5 * uniform)
        return size * jax.random.rademacher(sign_key, shape, dtype=xp.float64)

    def _lattice_unit(self) -> Reals:
        alpha, gamma = self._lengths()
        shares = np.asarray(alpha / gamma) if checks.all_concrete(self) else 1.0
        if not np.all(shares >= _LEAST_SHARE):
            slope, tail = (field.name for field in dataclasses.fields(self))  # pyright: ignore[reportArgumentType]
            raise ValueError(
                f"{slope} must be at least {_LEAST_SHARE:g} {tail} to be sampled: below, "
                "use a Gaussian"
            )
        return xp.minimum(gamma, gamma * gamma / alpha)

    def _draw_whole(self, key: Key, shape: Shape, fine: Reals) -> Reals:
        alpha, gamma = (x / fine for x in self._lengths())
        law = WholeLaw(self.whole_kind, round_up(gamma * gamma / alpha, 4), alpha, gamma)
        return whole_draws.draw(key, law, shape)

    def _sub_gaussian_proxy(self) -> Reals:
        """gamma^2."""
        return self._lengths()[1] ** 2

    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        return self._profile(Point(*self._lengths(), shift, *self._ratios(shift), epsilon))

    @staticmethod
    @abc.abstractmethod
    def _profile(at: Point) -> Reals:
        """Log delta at a point."""

    def _pure_epsilon(self, shift: Reals) -> Reals:
        return infinite_unless_zero(self._ratios(shift)[1])

    @abc.abstractmethod
    def _offsets(self, a: Reals, d: Reals) -> tuple[Reals, Callable[..., tuple[Reals, ...]]]:
        """The published xi in units of gamma; and `last` and `beyond` of `least_offset`.

        The latter as a function of ratios that are safe to divide by.
        """

    @abc.abstractmethod
    def _unit_divergence(self, a: Reals, d: Reals, excess: Reals) -> Reals:
        """`_divergence` in units of gamma, of arrays of one shape."""

    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature: see `kernels.divergence`."""
        return self._unit_divergence(*self._ratios(shift), excess)

    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """xi = sup over orders a of (D_a - a rho), to 1e-3 of itself and never below it.

        Chords of the convex K on a grid that closes in on the supremum. Never above the published
        xi, returned as it is for alpha / gamma outside [1e-6, 1e6] or shift / gamma outside
        [1e-12, 1e6].
        """
        a, d = self._ratios(shift)
        published, search = self._offsets(a, d)
        published = round_up(published, 4)
        usual = (a >= _RATIOS[0]) & (a <= _RATIOS[1]) & (d >= _SHIFTS[0]) & (d <= _SHIFTS[1])
        a, safe = xp.where(usual, a, 1.0), xp.where(usual, d, 1.0)
        first = 1e-4 / (1.0 + safe * (a + safe))

        def cumulant(s: Reals) -> Reals:
            a_wide, d_wide = (xp.broadcast_to(x[None], s.shape) for x in (a, safe))
            return s * self._unit_divergence(a_wide, d_wide, s)

        found = least_offset(cumulant, 0.5 * safe * safe, first, *search(a, safe))
        return offset_and_rho(xp.where(usual, xp.minimum(found, published), published), d)
