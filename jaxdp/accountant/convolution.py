"""The total loss of a composition as tilted masses: one FFT, and sums over them with their error.

Identity: with a_i the tilted masses of the total at losses l_i = epsilon + y_i, and U = K(theta) -
theta epsilon the logarithm of their unit,

    delta_U = e^U sum_i a_i w(y_i),   w(y) = e^(-theta y) (1 - e^-y)_+ <= w_max.

Errors, in units of e^U: a tilted mass m that is misplaced in one factor changes delta by w_max m at
most, since all other factors have mass 1. An error m of the tilted profile everywhere changes delta
by m.

* Windows: N points hold the total, which wraps around. Chernoff's bound, from the cumulant of the
  tilted masses themselves, bounds the mass outside.
* The transform: its relative l2 error is below 8 u log2 N, u = 2^-53 (Higham, Accuracy and
  Stability, theorem 24.2). A power n of a factor <= 1 multiplies the factor's error by n and adds a
  rounding of 4 pi n u + 12 u. An l2 error E of a vector misplaces a mass of sqrt(N) E at most. It
  changes a sum with weights w by |w|_2 E at most.
* The coupling, which the lower bound subtracts. The chord law of the total is U = P + N, where N =
  sum N_i over the n releases whose losses are not on the grid, and E[e^-N | P] = 1. Given P, each
  N_i takes two values h apart. For s outside of (0, 1) then

    log E e^(-s N_i) <= s (s - 1) h^2 / 8,

  since it is 0 at both ends and its second derivative is at most h^2 / 4. At P = epsilon + y,

    y > 0: N adds E (e^(-N - y) - 1)_+,   (e^t - 1)_+ <= C e^((1 + lam) t),
    y < 0: N adds E (1 - e^(-y - N))_+,   (1 - e^-t)_+ <= C e^(lam t),

  both with C = lam^lam / (1 + lam)^(1 + lam). As |P - epsilon| >= |U - epsilon| - |N|, Jensen's
  inequality gives for every lam > 0

    0 <= delta_U - delta_P <= C exp(n lam (1 + lam) h^2 / 8 + lam m) E_U e^(-lam |U - epsilon|),

  with E|N| <= m = sqrt(n h^2 / 4 + (n h^2 / 8)^2). The best lam is near 2 / (sqrt(n) h).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxdp._core.namespace import lax, on_host, xp
from jaxdp._core.types import Bools, Complexes, Reals
from jaxdp._numeric.elementary import ULP, conversion_entropy
from jaxdp.accountant.masses import Grid, Masses, Values, masses_of
from jaxdp.accountant.tables import Table
from jaxdp.accountant.window import Plan

RATES = (0.6, 1.0, 1.6)  # lam over 2 / (sqrt(n) h). chosen: 1 is best without a tilt
LEAST_SIZE = 1e-140  # of a spectrum; below, its powers are 0. chosen: derivatives stay finite


# Arrays (n, ...) with a row for each release, and the function values(row, facts, grid).
Profile: TypeAlias = tuple[Any, Callable[..., Values]]
# Maps a total, an epsilon and an offset to sum a_i w(y_i + offset), rounding, and the norm of w.
Weighted: TypeAlias = Callable[..., tuple[Reals, Reals, Reals]]
# Maps a total, an epsilon and a misplaced mass to the bound of the coupling.
Coupling: TypeAlias = Callable[..., Reals]


class _Sums(NamedTuple):
    """Sums over the releases, each times its count, for the error of the total."""

    log_norm: Reals
    base: Reals
    error: Reals  # l2 error of the masses
    high: Reals  # cumulant at the upper order; `low` at the lower order
    low: Reals
    blur: Reals
    below: Reals
    rounding: Reals
    excess: Reals
    shared: Reals
    misplacement: Reals
    coupled: Reals  # number of releases off the grid
    size: Reals  # sum of the sizes of the terms of log_norm and of base


class Total(NamedTuple):
    """Tilted masses of the total loss, without the drifts; their sum is 1 up to errors."""

    value: Reals  # (N,)
    loss: Reals  # (N,)
    plan: Plan
    sums: _Sums
    error: Reals  # l2 error
    outside: Reals
    log_infinite: Reals  # log of the finite mass that is counted as infinite
    log_beyond: Reals  # the same, plus the mass at the last points of the releases' grids


def _transform_error(points: int) -> float:
    return 4.0 * ULP * (points.bit_length() - 1)


def _power(spectrum: Complexes, count: Reals) -> Complexes:
    has_mass = xp.abs(spectrum) > LEAST_SIZE
    safe = xp.where(has_mass, spectrum, 1.0)
    power = xp.exp(count * xp.log(xp.abs(safe)) + 1j * count * xp.angle(safe))
    return xp.where(count == 0, 1.0, xp.where(has_mass, power, 0.0))


def _cumulant(value: Reals, loss: Reals, order: Reals) -> Reals:
    """log sum value e^(order loss), rounded up, without overflow at orders of 1e20."""
    largest = xp.max(xp.where(value > 0, loss, -xp.inf))
    weights = xp.exp(order * xp.minimum(loss - largest, 0.0))
    log_scale = order * largest
    return log_scale + xp.log(xp.sum(value * weights)) + 1e-11 + 4.0 * ULP * xp.abs(log_scale)


def _summand(masses: Masses, grid: Grid, plan: Plan, count: Reals, exact: Bools) -> _Sums:
    """Contribution of `count` equal releases to the sums."""
    points = masses.value.size
    value, step = lax.stop_gradient((masses.value, grid.step))
    loss = lax.stop_gradient(grid.base) + step * xp.arange(1.0 * points)
    norm = xp.sqrt(xp.sum(value**2))
    on_grid = xp.where(exact, 1.0, 0.0)
    single = _Sums(
        masses.log_norm,
        grid.base,
        _transform_error(points) * norm + 8.0 * xp.pi * ULP / xp.sqrt(1.0 * points),
        _cumulant(value, loss, plan.order_high),
        _cumulant(value, -loss, plan.order_low),
        masses.blur,
        masses.below,
        masses.rounding,
        masses.excess,
        on_grid * masses.shared,
        on_grid * masses.misplacement,
        1.0 - on_grid,
        lax.stop_gradient(1.0 + xp.abs(masses.log_norm) + plan.tilt * xp.abs(grid.base)),
    )
    return _Sums(*(xp.where(count == 0, 0.0, count * x) for x in single))


def total_of(profiles: tuple[Profile, ...], table: Table, plan: Plan, points: int) -> Total:
    """The total of all releases of a table (F,); each release takes one transform."""

    def body(state: Any, element: Any, values: Callable[..., Values]) -> tuple[Any, None]:
        row, facts, log_norm, base, exact = element

        def with_release(state: Any) -> Any:
            spectrum, sums, log_infinite, log_beyond = state
            grid = Grid(base, plan.step, plan.tilt, log_norm)
            masses = masses_of(values(row, facts, grid), facts, grid, points)
            spectrum = spectrum * _power(xp.fft.rfft(masses.value), facts.number)
            now = _summand(masses, grid, plan, facts.number, exact)
            log_count = lax.stop_gradient(xp.log(xp.maximum(facts.number, 1e-300)))
            log_infinite = xp.logaddexp(log_infinite, log_count + masses.log_infinite)
            log_beyond = xp.logaddexp(log_beyond, log_count + masses.log_beyond)
            return spectrum, jax.tree.map(xp.add, sums, now), log_infinite, log_beyond

        return lax.cond(facts.number == 0, lambda x: x, with_release, state), None

    zero = xp.zeros(())
    log_zero = xp.full((), -xp.inf)
    state = (xp.ones(points // 2 + 1, complex), _Sums(*([zero] * 13)), log_zero, log_zero)
    start = 0
    for rows, values in profiles:
        size = jax.tree.leaves(rows)[0].shape[0]
        place = slice(start, start + size)
        own = jax.tree.map(lambda x, place=place: x[place], table)
        rows_of_kind = rows, own, plan.log_norm[place], plan.base[place], plan.exact[place]
        state = lax.scan(partial(body, values=values), state, rows_of_kind)[0]
        start = start + size
    spectrum, sums, log_infinite, log_beyond = state
    return _in_window(spectrum, sums, plan, points)._replace(
        log_infinite=lax.stop_gradient(log_infinite),
        log_beyond=lax.stop_gradient(xp.logaddexp(log_infinite, log_beyond)),
    )


def _in_window(spectrum: Complexes, sums: _Sums, plan: Plan, points: int) -> Total:
    """Masses in the window; masses outside of it, or below the error, are dropped and counted."""
    step = lax.stop_gradient(plan.step)
    first = xp.floor((plan.low - lax.stop_gradient(sums.base)) / step)
    index = first + xp.arange(1.0 * points)
    value = xp.fft.irfft(spectrum, points)
    value = xp.roll(value, -xp.mod(first, 1.0 * points).astype(int))
    loss = sums.base + plan.step * index
    values, losses = lax.stop_gradient((value, loss))
    transform_error = (_transform_error(points) + 12.0 * ULP) * xp.sqrt(xp.sum(values**2))
    sums = sums._replace(error=lax.stop_gradient(sums.error))
    error = sums.error * xp.exp(sums.error * xp.sqrt(1.0 * points)) + transform_error
    high = xp.minimum(plan.high, losses[-1])
    low = xp.maximum(plan.low, losses[0])
    outside = xp.exp(sums.high - plan.order_high * high)
    outside = outside + xp.exp(sums.low + plan.order_low * low)
    is_kept = (values > error) & (losses >= low) & (losses <= high)
    outside = outside + xp.sum(xp.where(is_kept, 0.0, xp.maximum(values, 0.0)))
    never = xp.full((), -xp.inf)
    return Total(xp.where(is_kept, value, 0.0), loss, plan, sums, error, outside, never, never)


def _weight(total: Total, epsilon: Reals, offset: Reals) -> Reals:
    """w(y + offset), with a slope that counts the masses next to epsilon by their distance.

    The derivative is then the derivative of a smooth law, with error O(h^2), not the slope of the
    chord at epsilon. If all losses are on the grid, the profile consists of these chords, and the
    slope is exact.
    """
    tilt, step = total.plan.tilt, lax.stop_gradient(total.plan.step)
    y = total.loss - epsilon
    fixed_y = lax.stop_gradient(y)
    # e^(-theta l) is the other half of a tilted mass, and moves with its loss alone.
    moving = total.loss - lax.stop_gradient(epsilon)
    shrunk = xp.exp(-tilt * xp.maximum(moving, 0.0))
    value = shrunk * -xp.expm1(-xp.maximum(fixed_y + offset, 0.0))
    if on_host(y):
        return value
    share = xp.clip(0.5 * (1.0 + fixed_y / step), 0.0, 1.0)
    share = xp.where(total.sums.coupled > 0, share, xp.where(fixed_y + offset > 0, 1.0, 0.0))
    slope = share * xp.exp(-(tilt + 1.0) * xp.where(share > 0, fixed_y, 0.0))
    return value + lax.stop_gradient(slope) * (y - fixed_y)


def _coupling(total: Total, epsilon: Reals, misplaced: Reals) -> Reals:
    """Upper bound on delta_U - delta_P, in units of e^U."""
    tilt, step, n = total.plan.tilt, total.plan.step, total.sums.coupled
    y = total.loss - epsilon
    drift = 0.125 * n * step**2
    mean = xp.sqrt(0.25 * n * step**2 + drift**2)
    root = xp.sqrt(xp.maximum(n, 1.0))
    log_far_mass = total.log_beyond - total.sums.log_norm + tilt * epsilon

    def at_rate(rate: float) -> Reals:
        lam = xp.maximum(rate * 2.0 / (root * step), tilt)
        weight = xp.exp(-tilt * y - lam * xp.abs(y))
        near = xp.sum(total.value * weight) + misplaced
        near = near + (xp.sqrt(xp.sum(weight**2)) * total.error + xp.exp(log_far_mass))
        log_c = -conversion_entropy(lam)
        return near * xp.exp(log_c + drift * lam * (1.0 + lam) + lam * mean + 1e-9)

    return xp.where(n > 0, xp.min(xp.stack([at_rate(rate) for rate in RATES])), 0.0)


def _slack(total: Total, mass: Reals, profile: Reals) -> tuple[Reals, Reals]:
    """Misplaced tilted mass, and the error of delta by it and `profile`, in units of e^U."""
    # Errors of several factors multiply: prod (1 + m) - 1.
    misplaced = 1.01 * (xp.expm1(mass) + total.outside)
    return misplaced, total.plan.largest_weight * misplaced + 1.01 * xp.expm1(profile)


def _unit_of(total: Total, epsilon: Reals) -> tuple[Reals, Reals, Reals]:
    """U, and the rounding errors of log delta and of y."""
    tilt, size = total.plan.tilt, total.sums.size
    span = xp.max(xp.abs(total.loss)) + xp.abs(epsilon)
    offset = 8.0 * ULP * (span + size / tilt)
    relative = ULP * (2.0 * total.value.size + 16.0 + 8.0 * (size + tilt * span))
    unit = total.sums.log_norm - tilt * lax.stop_gradient(epsilon)
    return unit, *lax.stop_gradient((relative, offset))


def _weighted(total: Total, epsilon: Reals, offset: Reals) -> tuple[Reals, Reals, Reals]:
    """sum a_i w(y_i + offset), its rounding beyond that of a sum, and the l2 norm of w."""
    weight = _weight(total, epsilon, offset)
    return xp.sum(total.value * weight), xp.zeros(()), xp.sqrt(xp.sum(weight**2))


def finite_upper(total: Total, epsilon: Reals, weighted: Weighted = _weighted) -> Reals:
    """Upper bound on log delta of the finite losses, at an epsilon without the drifts."""
    unit, relative, offset = _unit_of(total, epsilon)
    value, rounding, norm = weighted(total, epsilon, offset)
    error = _slack(total, total.sums.blur, total.sums.rounding)[1] + norm * total.error
    finite_delta = value + rounding + lax.stop_gradient(error)
    return xp.logaddexp(unit + xp.log(finite_delta) + relative, total.log_infinite) + 8.0 * ULP


def finite_lower(
    total: Total,
    epsilon: Reals,
    weighted: Weighted = _weighted,
    coupling: Coupling = _coupling,
    unknown: float = -np.inf,
) -> Reals:
    """Lower bound on log delta of the finite losses, at an epsilon without the drifts.

    -inf where it is not positive, and `unknown` where the sums are not finite.
    """
    unit, relative, offset = _unit_of(total, epsilon)
    sums = total.sums
    value, rounding, norm = weighted(total, epsilon, -offset - lax.stop_gradient(sums.misplacement))
    misplaced, error = _slack(total, sums.blur + sums.below + sums.shared, sums.excess)
    error = error + (norm * total.error + coupling(total, epsilon, misplaced))
    finite_delta = value - rounding - lax.stop_gradient(error)
    is_positive = finite_delta > 0
    lower = unit + xp.log(xp.where(is_positive, finite_delta, 1.0)) - relative
    lower = xp.where(is_positive, lower, -xp.inf)
    return xp.where(xp.isfinite(finite_delta), lower, unknown)
