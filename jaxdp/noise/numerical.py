"""A noise that is known by its density, its survival function and its kinks alone."""

from __future__ import annotations

import abc
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, cast, final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import for_traces, lax, on_host, xp
from jaxdp._core.types import Bools, Key, Reals, Shape
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp._numeric.search import bisect
from jaxdp.noise.base import Noise, expanded, mirrored_log_delta
from jaxdp.noise.kernels.divergence import ANY_TOPS, bound_of_differences, divergence
from jaxdp.noise.nodes import DEPTH, between_kinks, reach_of, tails_of
from jaxdp.noise.structure import Kinks

# Numbers of a chunk. chosen: a law has about as many nodes
_CHUNK = 2048
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
# ulp of log g that a formula may be off by. chosen: four functions, each of one
_ROUNDED = 4.0
# A fault of parameters out of range.
_NO_NUMBER = "log_density must be a number everywhere"


class NumericalNoise(Noise):
    """A symmetric log-concave noise from two formulas and `kinks`.

    A subclass is a `jaxdp.own.pytree` of its parameters and writes `_log_density(x)`, log g(x), and
    `_log_survival(x)`, log P[T > x]: functions of arrays that broadcast with the parameters, which
    JAX traces. Bisection and quadrature compute everything else to about 1e-12. A density that is
    not even, not log-concave at the nodes of a quadrature, not of mass 1, or whose tails differ
    from `_log_survival`, raises `ValueError` in every privacy query if it is concrete; if it is
    traced the result is NaN.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("_log_density", "_log_survival"):
            if name in vars(cls):
                setattr(cls, name, _by_chunks(vars(cls)[name]))

    @final
    def _log_density_slope(self, x: Reals) -> Reals:
        return _slope_of(type(self))(self, x)

    @abc.abstractmethod
    def kinks(self) -> tuple[Reals, ...]:
        """Points where log g is not smooth, in the query's unit; empty for a smooth one."""

    log_concave = True

    @final
    def _in_range(self) -> bool:
        return True

    @final
    def _quantile(self, u: Reals) -> Reals:
        """Quantile by bisection of the survival function."""
        tail = xp.log(xp.minimum(u, 1.0 - u))
        ends = xp.zeros_like(u), reach_of(self)
        high = bisect(lambda x: self._log_survival(x) > tail, *ends)[1]
        edge = xp.where(u == 0.5, 0.0, xp.inf)
        return xp.sign(u - 0.5) * xp.where((u == 0) | (u == 0.5) | (u == 1), edge, high)

    @final
    def _sample(self, key: Key, shape: Shape) -> Reals:
        """The quantile function of uniform draws."""
        u = jax.random.uniform(key, shape, minval=2.0**-53, maxval=1.0, dtype=xp.float64)
        return self.quantile(u)

    @final
    def _absolute_moment(self, power: Reals) -> Reals:
        """E|T|^p by quadrature."""
        x, mass, _ = self._nodes()
        return xp.sum(xp.abs(x) ** power[..., None] * mass, axis=-1)

    @final
    def _fisher_information(self) -> Reals:
        """E[(d log g / dx)^2] by quadrature."""
        x, mass, noise = self._nodes()
        slope = noise.log_density_slope(x)
        return xp.sum(slope**2 * mass, axis=-1)

    @final
    def _sub_gaussian_proxy(self) -> Reals:
        """Infinite: no bound is known."""
        return xp.full_like(reach_of(self), xp.inf)

    @final
    def _log_delta(self, shift: Reals, epsilon: Reals) -> Reals:
        """log of P[T < t] - e^epsilon P[T < t - shift], with the loss at t equal to epsilon."""
        size, reach = xp.abs(epsilon), reach_of(_once(self))

        def excess(t: Reals) -> tuple[Reals, Reals]:
            """The loss over `size`, and its rounding."""
            here, there = self._log_density(t), self._log_density(t - shift)
            return here - there - size, _ROUNDED * ULP * (xp.abs(here) + xp.abs(there) + size)

        # delta is stationary in t. Losses that rounding may have put above cost as much at most.
        t = bisect(lambda t: xp.add(*excess(t)) > 0, -reach, reach + shift)[0]
        t = lax.stop_gradient(t)
        gap, rounding = excess(t)
        slope = self._log_density_slope(t) - self._log_density_slope(t - shift)
        # Second derivatives move t, except where the loss is flat.
        step = (gap - lax.stop_gradient(gap)) / lax.stop_gradient(xp.where(slope < 0, slope, 1.0))
        t = t - xp.where(slope < 0, step, 0.0)
        below, other = self._log_survival(-t), self._log_survival(shift - t)
        share = xp.exp(size + other - below)
        left = 1.0 - share + ULP * (64.0 + 8.0 * (xp.abs(below) + size)) * (1.0 + share)
        left = left + 2.0 * lax.stop_gradient(rounding)
        value = xp.minimum(round_up(below + xp.log(xp.maximum(left, ULP)), 8), 0.0)
        # A larger loss is beyond the reach, with probability e^-300: `left` is then rounding alone.
        is_beyond = xp.add(*excess(-reach)) < 0
        value = xp.where(is_beyond, -DEPTH, xp.maximum(value, -DEPTH))
        largest = self._pure_epsilon(shift)
        value = xp.where(size >= largest, -xp.inf, value)
        value = xp.where(epsilon < 0, mirrored_log_delta(value, size, 1.0), value)
        value = xp.where(shift == xp.inf, 0.0, value)
        return xp.where(xp.isnan(largest), xp.nan, value)

    @final
    def _divergence(self, shift: Reals, excess: Reals) -> Reals:
        """Divergence by quadrature. Slopes of log g bound the loss where differences cancel."""

        def law(noise: Noise, shift: Reals, t: Reals) -> tuple[Reals, Reals]:
            here = noise.log_density(t)
            loss = here - noise.log_density(t + shift)
            least, most = (-shift * noise.log_density_slope(x) for x in (t, t + shift))
            loss = xp.where(loss < least, least, loss)  # a slope of NaN bounds nothing
            return here, xp.where(loss > most, most, loss)

        kinks = *self.kinks(), *(kink - shift for kink in self.kinks())
        value = divergence(law, cast(Noise, self), shift, excess, kinks, ANY_TOPS)
        return xp.where(self.is_consistent(), bound_of_differences(value, excess, _ROUNDED), xp.nan)

    @final
    def _pure_epsilon(self, shift: Reals) -> Reals:
        """shift times the slope of log g, if it is equal at the reach and at twice the reach."""
        once = _once(self)
        reach = reach_of(once)
        near, far = (once._log_density_slope(x) for x in (reach, 2.0 * reach))
        limit = xp.where(xp.abs(far - near) <= _SAME * xp.abs(far), -far, xp.inf)
        value = round_up(shift * xp.where(shift > 0, limit, 1.0) * (1.0 + _SAME), 8)
        return xp.where(xp.isnan(far) | ~once.is_consistent(), xp.nan, value)

    @final
    def _zcdp(self, shift: Reals) -> tuple[Reals, Reals]:
        """(0, inf): no bound is known; `PrivacyLoss.renyi` has every order."""
        return xp.zeros_like(shift), xp.full_like(shift, xp.inf)

    @final
    def _singularities(self, shift: Reals) -> Kinks:
        """Kinks, without known atoms."""
        return Kinks((xp.full_like(shift, xp.nan),))

    def _nodes(self) -> tuple[Reals, Reals, Noise]:
        """Places and masses along a new last axis, and the noise for them."""
        nodes = between_kinks(self, (xp.zeros_like(reach_of(self)),))
        noise = cast(Noise, expanded(self))
        x = nodes.x[..., : nodes.first]
        return x, xp.exp(noise.log_density(x)) * nodes.weight[..., : nodes.first], noise

    @final
    def is_consistent(self) -> Bools:
        """True where g is even, log-concave, of mass 1 and has the tails of the survival function.

        A `ValueError` where it is known that it is not.
        """
        wrong = _faults(_once(self))
        for fault, where in wrong.items():
            if checks.is_concrete(where) and bool(xp.any(where)):
                suspects = _suspects(self, fault)
                raise ValueError(f"{fault}: not so in {type(self).__name__}{suspects}")
        return ~xp.any(xp.stack(list(wrong.values())), axis=0)


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


def _once(noise: NumericalNoise) -> NumericalNoise:
    """The noise without the repetitions of known parameters that were broadcast."""
    leaves, structure = jax.tree.flatten(noise)
    if not on_host(leaves) or not leaves:
        return noise
    strides = zip(*(np.asarray(leaf).strides for leaf in leaves), strict=False)
    kept = tuple(slice(None) if any(stride) else slice(1) for stride in strides)
    return structure.unflatten([np.asarray(leaf)[kept] for leaf in leaves])


def _by_chunks(formula: Callable[[Any, Reals], Reals]) -> Callable[[Any, Reals], Reals]:
    """A user's formula, which is JAX's: of known numbers one program, a chunk of them a call."""
    program = jax.jit(formula)

    @functools.wraps(formula)
    def call(noise: NumericalNoise, x: Reals) -> Reals:
        if not on_host(noise, x):
            return formula(noise, x)
        leaves, structure = jax.tree.flatten((noise, x))
        shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in leaves))
        size = math.prod(shape)
        rows = np.zeros((len(leaves), -(-size // _CHUNK) * _CHUNK))
        for row, leaf in zip(rows, leaves, strict=True):
            row[:size] = np.broadcast_to(leaf, shape).ravel()
            row[size:] = row[size - 1] if size else 0.0
        starts = range(0, rows.shape[1], _CHUNK)
        parts = [structure.unflatten(list(rows[:, i : i + _CHUNK])) for i in starts]
        with for_traces():
            values = [np.asarray(program(*part)) for part in parts] or [np.zeros(0)]
        return cast(Any, np.concatenate(values)[:size].reshape(shape))

    return call


@functools.cache
def _slope_of(cls: type[NumericalNoise]) -> Callable[[Any, Reals], Reals]:
    """Slope of a class's log density."""
    formula = inspect.unwrap(cls._log_density)

    def slope(noise: NumericalNoise, x: Reals) -> Reals:
        return jax.jvp(lambda at: formula(noise, at), (x,), (xp.ones_like(x),))[1]

    return _by_chunks(slope)


def _faults(noise: NumericalNoise) -> dict[str, Bools]:
    """`_contradictions`, which every part of a question asks for: known ones are kept."""
    leaves, structure = jax.tree.flatten(noise)
    if not on_host(leaves):
        return _contradictions(noise)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return _known_faults(structure, tuple((x.shape, x.dtype.str, x.tobytes()) for x in arrays))


@functools.lru_cache(64)
def _known_faults(structure: Any, numbers: tuple[tuple[Shape, str, bytes], ...]) -> Any:
    leaves = [np.frombuffer(data, kind).reshape(shape) for shape, kind, data in numbers]
    return _contradictions(structure.unflatten(leaves))


@jitted
def _contradictions(noise: NumericalNoise) -> dict[str, Bools]:
    """Requirements, each with True where it does not hold or something is NaN."""
    x, _, wide = noise._nodes()
    height, slope = wide.log_density(x), wide.log_density_slope(x)
    steepest = xp.max(xp.abs(slope), axis=-1, keepdims=True)
    falls = xp.diff(slope, axis=-1) <= _BENT * steepest
    even = xp.abs(wide.log_density(-x) - height) <= _BENT * (1.0 + xp.abs(height))
    x, beyond, check = tails_of(noise)
    gaps = _GAPS * xp.abs(beyond - check)
    whole = xp.abs(beyond[..., 0]) <= _MASS + gaps[..., 0]
    close = _MASS * (1.0 + xp.abs(beyond)) + gaps
    same = xp.abs(wide.log_survival(x) - beyond) <= close
    return {
        _NO_NUMBER: xp.any(xp.isnan(height), axis=-1),
        "log_density must be even and concave": ~xp.all(falls & even[..., 1:], axis=-1),
        "log_density must have a mass of 1": ~whole,
        "log_survival must be the tail of log_density": ~xp.all(same, axis=-1),
    }
