"""A noise that is known by its density, its survival function and its kinks alone."""

from __future__ import annotations

import abc
from typing import cast, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core import checks
from jaxdp._core.types import Bools, Index, Key, Reals, Shape
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.noise.base import Noise, mirrored_log_delta
from jaxdp.noise.kernels.divergence import ANY_TOPS, divergence
from jaxdp.noise.nodes import DEPTH, between_kinks, expanded, reach_of, tails_of
from jaxdp.noise.structure import Kinks

# Bisections. derived: to an ulp
_BISECTIONS = 64
# By how much a slope of log g may rise from node to node, relatively. chosen: rounding
_BENT = 1e-9
# By how much the mass may miss 1, and log P[T > x] the density's own. chosen: far above the error
# of quadrature
_MASS = 1e-8
# Gaps between two rules that a tail may miss the survival function by. chosen: where the nodes of
# a tail are too few both rules say so
_GAPS = 10.0
# By how much two slopes of a tail may differ that has a limit, relatively. chosen
_SAME = 1e-9
# A fault of parameters out of range.
_NO_NUMBER = "log_density must be a number everywhere"


class NumericalNoise(Noise):
    """A symmetric log-concave noise from two formulas and `kinks`.

    A subclass is a `jaxdp.pytree` of its parameters and writes `_log_density(x)`, log g(x), and
    `_log_survival(x)`, log P[T > x]: functions of arrays that broadcast with the parameters, which
    JAX traces. Everything else by bisection and quadrature, to about 1e-12: enough to compose,
    calibrate, sample and compare it. A density that is not even, log-concave at the nodes of a
    quadrature and of mass 1, or whose tails are not those of `_log_survival`, is a `ValueError` in
    every question about privacy, of one release or of a composition, where it is concrete; where
    it is traced the answer is NaN.
    """

    @abc.abstractmethod
    def kinks(self) -> tuple[Reals, ...]:
        """Points where log g is not smooth, in the query's unit; empty for a smooth one."""

    @final
    @property
    def log_concave(self) -> bool:
        """True."""
        return True

    @final
    def _in_range(self) -> bool:
        return True

    @final
    def _quantile(self, u: Reals) -> Reals:
        """Quantile by bisection of the survival function."""
        tail = jnp.log(jnp.minimum(u, 1.0 - u))

        def halve(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
            middle = 0.5 * (ends[0] + ends[1])
            inside = self._log_survival(middle) > tail
            return jnp.where(inside, middle, ends[0]), jnp.where(inside, ends[1], middle)

        high = lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(u), reach_of(self)))[1]
        edge = jnp.where(u == 0.5, 0.0, jnp.inf)
        return jnp.sign(u - 0.5) * jnp.where((u == 0) | (u == 0.5) | (u == 1), edge, high)

    @final
    def _sample(self, key: Key, shape: Shape) -> Reals:
        """The quantile function of uniform draws."""
        u = jax.random.uniform(key, shape, minval=2.0**-53, maxval=1.0, dtype=jnp.float64)
        return self.quantile(u)

    @final
    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p by quadrature."""
        x, mass, _ = self._nodes()
        return jnp.sum(jnp.abs(x) ** power[..., None] * mass, axis=-1)

    @final
    def _fisher_information(self) -> Reals:
        """E[(d log g / dx)^2] by quadrature."""
        x, mass, noise = self._nodes()
        slope = jax.jvp(noise.log_density, (x,), (jnp.ones_like(x),))[1]
        return jnp.sum(slope**2 * mass, axis=-1)

    @final
    def _sub_gaussian_proxy(self) -> Reals:
        """Infinite: no bound is known."""
        return jnp.full_like(reach_of(self), jnp.inf)

    @final
    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """log of P[T < t] - e^epsilon P[T < t - shift] where the loss at t is epsilon; rounded up.

        The loss log g(t) / g(t - shift) falls, as g is log-concave: the best test is a half-line.
        """
        size, reach = jnp.abs(epsilon), reach_of(self)

        def halve(_: Index | int, ends: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
            middle = 0.5 * (ends[0] + ends[1])
            above = self._log_density(middle) - self._log_density(middle - shift) > size
            return jnp.where(above, middle, ends[0]), jnp.where(above, ends[1], middle)

        # delta is stationary in t, whose error is of no importance.
        t = lax.stop_gradient(lax.fori_loop(0, _BISECTIONS, halve, (-reach, reach + shift))[0])
        below, other = self._log_survival(-t), self._log_survival(shift - t)
        share = jnp.exp(size + other - below)
        left = 1.0 - share + ULP * (64.0 + 8.0 * (jnp.abs(below) + size)) * (1.0 + share)
        value = jnp.minimum(round_up(below + jnp.log(jnp.maximum(left, ULP)), 8), 0.0)
        # Beyond the reach nothing is looked at.
        value = jnp.maximum(value, -DEPTH)
        largest = self._pure_epsilon(shift)
        value = jnp.where(size >= largest, -jnp.inf, value)
        value = jnp.where(epsilon < 0, mirrored_log_delta(value, size, 1.0), value)
        return jnp.where(jnp.isnan(largest), jnp.nan, value)

    @final
    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Quadrature: see `kernels.divergence`."""

        def law(noise: Noise, shift: Reals, t: Reals) -> tuple[Reals, Reals]:
            here = noise.log_density(t)
            return here, here - noise.log_density(t + shift)

        kinks = *self.kinks(), *(kink - shift for kink in self.kinks())
        value = divergence(law, cast(Noise, self), shift, excess, kinks, ANY_TOPS)
        return jnp.where(self.is_consistent(), value, jnp.nan)

    @final
    def _pure_epsilon(self, shift: Reals) -> Reals:
        """shift times the slope of log g in the tail, where that has a limit; else infinite.

        A limit: the slope is the same at the reach and at twice that, where P[T > x] < e^-300.
        """
        reach = reach_of(self)
        near, far = (
            jax.jvp(self._log_density, (x,), (jnp.ones_like(x),))[1] for x in (reach, 2.0 * reach)
        )
        limit = jnp.where(jnp.abs(far - near) <= _SAME * jnp.abs(far), -far, jnp.inf)
        value = round_up(shift * jnp.where(shift > 0, limit, 1.0) * (1.0 + _SAME), 8)
        return jnp.where(jnp.isnan(far) | ~self.is_consistent(), jnp.nan, value)

    @final
    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, inf): no bound is known; `PrivacyLoss.renyi` has every order."""
        return jnp.zeros_like(shift), jnp.full_like(shift, jnp.inf)

    @final
    def _singularities(self, shift: Reals) -> Kinks:
        """Kinks of which no atom is known."""
        return Kinks((jnp.full_like(shift, jnp.nan),))

    def _nodes(self) -> tuple[Reals, Reals, Noise]:
        """Places and masses along a new last axis, and the noise for them."""
        nodes = between_kinks(self, (jnp.zeros_like(reach_of(self)),))
        noise = cast(Noise, expanded(self))
        x = nodes.x[..., : nodes.first]
        return x, jnp.exp(noise.log_density(x)) * nodes.weight[..., : nodes.first], noise

    @final
    def is_consistent(self) -> Bools:
        """True where g is even, log-concave, of mass 1 and has the tails of the survival function.

        A `ValueError` where it is known that it is not.
        """
        wrong = _contradictions(self)
        for fault, where in wrong.items():
            if checks.is_concrete(where) and bool(jnp.any(where)):
                raise ValueError(
                    f"{fault}: that of {type(self).__name__} is not{_suspects(self, fault)}"
                )
        return ~jnp.any(jnp.stack(list(wrong.values())), axis=0)


def _suspects(noise: NumericalNoise, fault: str) -> str:
    """The known parameters that are negative or NaN, or 0 where that makes NaN, for a message."""
    is_fine = np.greater if fault == _NO_NUMBER else np.greater_equal
    fields = jax.tree_util.tree_leaves_with_path(noise)
    known = ((path, np.atleast_1d(leaf)) for path, leaf in fields if checks.is_concrete(leaf))
    found = [
        f"{jax.tree_util.keystr(path).strip('.')} = {value[~is_fine(value, 0)][0]}"
        for path, value in known
        if not is_fine(value, 0).all()
    ]
    return f", with {', '.join(found)}: a scale must be above 0" if found else ""


@jax.jit
def _contradictions(noise: NumericalNoise) -> dict[str, Bools]:
    """Requirements, each with True where it does not hold or something is NaN."""
    x, _, wide = noise._nodes()
    height, slope = jax.jvp(wide.log_density, (x,), (jnp.ones_like(x),))
    steepest = jnp.max(jnp.abs(slope), axis=-1, keepdims=True)
    falls = jnp.diff(slope, axis=-1) <= _BENT * steepest
    even = jnp.abs(wide.log_density(-x) - height) <= _BENT * (1.0 + jnp.abs(height))
    x, beyond, check = tails_of(noise)
    gaps = _GAPS * jnp.abs(beyond - check)
    whole = jnp.abs(beyond[..., 0]) <= _MASS + gaps[..., 0]
    close = _MASS * (1.0 + jnp.abs(beyond)) + gaps
    same = jnp.abs(wide.log_survival(x) - beyond) <= close
    return {
        _NO_NUMBER: jnp.any(jnp.isnan(height), axis=-1),
        "log_density must be even and concave": ~jnp.all(falls & even[..., 1:], axis=-1),
        "log_density must be that of a mass of 1": ~whole,
        "log_survival must be that of log_density's own tail": ~jnp.all(same, axis=-1),
    }
