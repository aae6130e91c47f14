"""The cumulants of a privacy loss near K = 0, without the cancellation in log M."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core.types import Reals, RealsOrComplexes
from jaxdp._numeric.elementary import expm1, log1p

# Gauss-Legendre on [-1, 1], on each panel.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
# Distances from the mode in units of its width, to exp(-40) of an exponential law.
_GRADES = np.array([0.5, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 11.0, 14.0, 18.0, 23.0, 30.0, 40.0])


def small_cgf(
    law: Callable[[Reals], tuple[Reals, Reals]],
    shift: Reals,
    width: Reals,
    kinks: tuple[Reals, ...],
    z: RealsOrComplexes,
) -> RealsOrComplexes:
    """K(z) = log(1 + int_(-shift/2)^inf g(t) (e^(z l) - 1) (1 - e^(-(z+1) l)) dt).

    l is the loss at t, odd about -shift/2: every real z > -1 has a sum of terms of one sign, so K
    has full relative accuracy as shift -> 0. `law(t)` is (log g(t), l), for t with a leading axis;
    the integrand is smooth between `kinks` and decays from t = 0 over multiples of `width`. For
    |z| l of order one where g lives; arguments of one shape. Real z is worked off in real
    arithmetic. Relative error: 2e-15 measured.
    """
    start = -0.5 * shift
    steps = jnp.stack([grade * width for grade in _GRADES])
    points = jnp.stack([jnp.zeros_like(start), start, *kinks])
    edges = jnp.sort(jnp.maximum(jnp.concatenate([points, steps, -steps]), start[None]), axis=0)

    nodes = jnp.stack([jnp.full_like(start, node) for node in _NODES])
    weights = jnp.stack([jnp.full_like(start, weight) for weight in _WEIGHTS])

    def add(total: RealsOrComplexes, low: Reals, half: Reals) -> RealsOrComplexes:
        log_density, loss = law(low[None] + half[None] * (1.0 + nodes))
        first, second = z[None] * loss, -(z + 1.0)[None] * loss
        rise, fall = expm1(first), -expm1(second)
        return total + jnp.sum((weights * half[None] * jnp.exp(log_density)) * rise * fall, axis=0)

    def panel(total: RealsOrComplexes, ends: tuple[Reals, Reals]) -> tuple[RealsOrComplexes, None]:
        low, half = ends[0], 0.5 * (ends[1] - ends[0])
        # The panels before the start are empty; a NaN is not.
        return jax.lax.cond(jnp.any(~(half <= 0)), add, lambda t, *_: t, total, low, half), None

    excess, _ = jax.lax.scan(panel, jnp.zeros_like(z), (edges[:-1], edges[1:]))
    return log1p(excess)
