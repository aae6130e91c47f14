"""One privacy loss as masses on a uniform grid: above its profile, or below it.

With x = e^epsilon, D(x) = delta(log x) is convex and falling. Masses p_i >= 0 at losses l_i have
the profile sum p_i (1 - x / x_i)_+, x_i = e^(l_i), whose slope changes by p_i / x_i at x_i. delta
of a composition is an expectation of the profile of one factor over the loss of the others, so it
grows with every factor's profile, point by point: that is all that is used here, and the masses
need not add up to 1.

Above: chords through the values at the grid points ("connect the dots"). Below: the chords less
s >= their distance from D; that distance is bounded by the extensions of neighbouring chords
on a grid twice as fine, which a convex function exceeds. Where s leaves no convex
function, the chords are shifted by one step to the left instead.
Values: D = (1 - x)_+ + T(x), and only T, known to full relative accuracy on both sides of x = 1,
is differenced. A negative mass is a debt that its neighbours pay: to the left for an upper bound,
to the right for a lower one; both only move the profile to the safe side.
Source of the chords: Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, PETS 2022, algorithm 1.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.elementary import ULP
from jaxdp._types import Bools, Reals
from jaxdp.loss.infinite import finite_log_delta
from jaxdp.noise.base import Loss

# What the contract of a noise allows log delta to be above the truth, relatively.
_PROFILE = 1e-12
# Points whose debts are followed side by side.
_BLOCK = 256


class Grid(NamedTuple):
    """The losses l = step (first + i), i < N; masses there are times e^(tilt l - log_norm)."""

    step: Reals
    first: Reals  # a whole number
    tilt: Reals
    log_norm: Reals


class Masses(NamedTuple):
    """Tilted masses of total 1 on a `Grid`, and what is known about them."""

    value: Reals  # (N,)
    log_norm: Reals
    log_infinite: Reals  # log of a finite mass that is taken for infinite
    blur: Reals  # rounding: the tilted masses are right to this sum of absolute errors


def profile(noise: Loss, shift: Reals, loss: Reals) -> tuple[Reals, Reals]:
    """log T, and how many times its relative error is that of delta.

    log delta for loss >= 0, loss + log of the exchanged pair's delta(-loss) below. Of a loss that
    may be infinite, given that it is finite, and less its `drift`.
    """
    if noise.symmetric:
        value, more = finite_log_delta(noise, shift, jnp.abs(loss))
        return value - noise.log_finite(shift) + jnp.minimum(loss, 0.0), more
    drift = noise.drift(shift)
    # Either argument is rounded down.
    moved, off = loss + drift, 4.0 * ULP * jnp.abs(drift)
    value, more = finite_log_delta(noise, shift, moved - off)
    exchanged = noise.reversed(jnp.ones_like(shift, dtype=bool))
    value = jnp.where(
        loss < 0, exchanged.log_delta(shift, -moved - off) + loss, value - noise.log_finite(shift)
    )
    return value, jnp.where(loss < 0, 1.0, more)


def _time_values(noise: Loss, shift: Reals, grid: Grid, points: int) -> tuple[Reals, Reals, Reals]:
    """Losses on the fine grid of half steps, T there (tilted, rounded up), and log T's size."""
    half = 0.5 * grid.step
    loss = half * (2.0 * grid.first + jnp.arange(2.0 * points - 1.0))
    # Nearer to 0, where T is larger, by more than the rounding of the product.
    log_value, more = profile(noise, shift, loss * (1.0 - 4.0 * ULP))
    exponent = log_value + grid.tilt * loss - grid.log_norm
    sizes = jnp.abs(grid.tilt * loss) + jnp.abs(grid.log_norm)
    alive = log_value > -jnp.inf
    size = jnp.where(alive, jnp.abs(log_value - jnp.minimum(loss, 0.0)), 0.0)
    # Below zero T is a product: its exponent is rounded as well.
    up = ULP * (8.0 * more + 2.0 * size + 2.0 * jnp.abs(loss) + 2.0 * sizes)
    value = jnp.where(alive, jnp.exp(jnp.where(alive, exponent + up, 0.0)), 0.0)
    return loss, value, jnp.where(alive, _PROFILE * more * (1.0 + size) + 2.0 * up, 0.0)


def second(value: Reals, ratio: Reals, growth: Reals) -> Reals:
    """(v_(i+1) - v_i) / (ratio - 1) - (v_i - v_(i-1)) / (1 - 1 / ratio), without the ends.

    `value` is tilted by `growth` a step: the masses of the chords through v.
    """
    right = (value[2:] / growth - value[1:-1]) / (ratio - 1.0)
    left = (value[1:-1] - value[:-2] * growth) / (1.0 - 1.0 / ratio)
    return right - left


def _slopes(value: Reals, grid: Grid) -> tuple[Reals, Reals]:
    """x_i times minus the slopes of T right and left of x_i; from (0, 0) on the left, 0 beyond."""
    growth, change = jnp.exp(grid.tilt * grid.step), jnp.expm1(grid.step)
    right = jnp.concatenate([(value[:-1] - value[1:] / growth) / change, jnp.zeros(1)])
    left = right[:-1] * growth * jnp.exp(grid.step)
    return right, jnp.concatenate([-value[:1], left])


def _chord_masses(value: Reals, grid: Grid, loss: Reals) -> tuple[Reals, Reals]:
    """Masses of the chords of (1 - x)_+ + T, and the rounding of each."""
    right, left = _slopes(value, grid)
    index = jnp.arange(1.0 * value.size)
    one = jnp.exp(jnp.where(loss == 0, -grid.log_norm, -jnp.inf))
    kink = jnp.where(index == -grid.first, one, 0.0)
    wide = 8.0 + 4.0 * jnp.abs(grid.log_norm)
    error = ULP * (8.0 * (jnp.abs(right) + jnp.abs(left)) + wide * kink)
    # Where the grid begins above 0, what lies below it is left out: see `masses_of`.
    inside = (grid.first <= 0) | (index > 0)
    return jnp.where(inside, left - right + kink, 0.0), jnp.where(inside, error, 0.0)


def settle(masses: Reals, growth: Reals, to_right: bool) -> tuple[Reals, Bools]:
    """Masses >= 0 whose neighbours have paid the negative ones; and whether all was paid.

    A debt travels until it is paid: each point turns a debt d into max(rate d - mass, 0), and such
    maps, d to max(rate d + shift, least), are closed under composition: those of all points of a
    block first, then the blocks one after the other.
    """
    rate = growth if to_right else 1.0 / growth
    rows = (masses if to_right else masses[::-1]).reshape(-1, _BLOCK)

    def then(first: tuple[Reals, ...], mass: Reals) -> tuple[tuple[Reals, ...], tuple[Reals, ...]]:
        over, shift, least = first
        least = jnp.maximum(_times(rate, least) - mass, 0.0)
        now = over * rate, _times(rate, shift) - mass, least
        return now, now

    def through(debt: Reals, of: tuple[Reals, ...]) -> tuple[Reals, Reals]:
        return _after(of, debt), debt

    none = jnp.zeros(rows.shape[0])
    whole, within = lax.scan(then, (none + 1.0, none, none), rows.T)
    last, owed = lax.scan(through, jnp.zeros(()), whole)
    debt = jnp.ravel(_after(within, owed[None]).T)
    before = jnp.concatenate([jnp.zeros(1), debt[:-1]])
    settled = jnp.maximum(jnp.ravel(rows) - _times(rate, before), 0.0)
    # What would leave the grid was not paid; what is left on the left is dropped.
    return (settled, last == 0) if to_right else (settled[::-1], last >= 0)


def _after(of: tuple[Reals, ...], debt: Reals) -> Reals:
    over, shift, least = of
    left = jnp.maximum(_times(over, debt) + shift, least)
    # A debt that grows beyond all numbers is not paid.
    return jnp.where(debt == 0, least, jnp.where(jnp.isnan(left), jnp.inf, left))


def _times(rate: Reals, debt: Reals) -> Reals:
    """No debt stays none, however far."""
    return jnp.where(debt == 0, 0.0, rate * debt)


def _normal(masses: Reals, grid: Grid, infinite: Reals, error: Reals, left_out: Reals) -> Masses:
    total = jnp.sum(masses)
    # 64 ulp: the multiplications by growth and the payments.
    blur = (jnp.sum(error) + left_out) / total + 64.0 * ULP
    return Masses(masses / total, grid.log_norm + jnp.log(total), infinite, blur)


def masses_of(
    noise: Loss, shift: Reals, grid: Grid, points: int, left_out: Reals
) -> tuple[Masses, Masses]:
    """Of one release, parameters of shape (): masses below its loss, and above.

    A grid that begins above 0 leaves out what lies below its second point, a tilted mass of at
    most `left_out`; one that begins at 0 or below has all mass below it moved up.
    """
    whole, log_finite = grid, noise.log_finite(shift)
    grid = grid._replace(log_norm=grid.log_norm - log_finite)
    fine, value, relative = _time_values(noise, shift, grid, points)
    loss, growth = fine[::2], jnp.exp(grid.tilt * grid.step)
    masses, error = _chord_masses(value[::2], grid, loss)
    # Of delta at the last point nothing is known to lie below: it is taken for infinite.
    most = profile(noise, shift, jnp.maximum(loss[-1], 0.0) * (1.0 - 4.0 * ULP))[0]
    top = jnp.where(most > -jnp.inf, most + log_finite, -jnp.inf)
    above = _normal(settle(masses, growth, False)[0], whole, top, error, left_out)

    right, left = _slopes(value[::2], grid)
    # The value was taken at a loss that is off by a rounding or two: the slope times that.
    off = 16.0 * ULP * (jnp.abs(loss) + jnp.abs(noise.drift(shift)))
    moved = off * jnp.maximum(jnp.abs(right), jnp.abs(left))
    near = value[::2] * (1.0 - relative[::2]) - moved
    within = _distance(fine, value, relative, grid)
    left_of = jnp.concatenate([jnp.zeros(1), within * growth])
    below, paid = _masses_below(near - spread(within, growth), near - left_of, grid, loss)
    shifted = _masses_below(near, near, grid, loss)
    shifted, shift_paid = jnp.append(shifted[0][1:], 0.0) / growth, shifted[1]
    smooth = paid & ((jnp.sum(below) >= jnp.sum(shifted)) | ~shift_paid)
    # With neither there is no mass: a lower bound of 0.
    chosen = jnp.where(smooth, below, jnp.where(shift_paid, shifted, 0.0))
    return _normal(chosen, whole, jnp.full_like(top, -jnp.inf), error, left_out), above


def _masses_below(value: Reals, end: Reals, grid: Grid, loss: Reals) -> tuple[Reals, Bools]:
    """Masses of the chords through values that come down to 0 and stay there.

    That is at the last point where D exceeds 0 by as much as the chord on its left may exceed D,
    `end` > 0: D is above 0 beyond.
    """
    falling = (loss > 0) & (end <= 0)
    ended = jnp.cumsum(jnp.append(falling[1:], True)) > 0
    value = jnp.where(ended & (loss > 0), 0.0, value)
    masses = _chord_masses(value, grid, loss)[0]
    # Left of the grid the first chord goes on: below a convex function.
    return settle(masses.at[0].set(0.0), jnp.exp(grid.tilt * grid.step), True)


def _distance(fine: Reals, value: Reals, relative: Reals, grid: Grid) -> Reals:
    """No less than the distance of the chords from D in each cell, tilted like its left end."""
    ratio, growth = jnp.exp(0.5 * grid.step), jnp.exp(0.5 * grid.tilt * grid.step)
    # Of the chords on the fine grid: (change of slope at x_i) x_i (ratio - 1).
    bend = second(value, ratio, growth) * (ratio - 1.0)
    kink = jnp.where(fine == 0, (ratio - 1.0) * jnp.exp(-grid.log_norm), 0.0)
    noise = 8.0 * relative * value
    bend = jnp.maximum(bend + kink[1:-1], 0.0) + noise[1:-1]
    # Nothing is known beyond the ends: as if it bent without limit there.
    far = jnp.full(1, 1e30)
    bend = jnp.concatenate([far, bend, far])
    start, middle, end = bend[:-2:2], bend[1::2] / growth, bend[2::2] / growth**2
    first, last = (a / (a / b + 1.0) for a, b in ((start, middle / ratio), (middle, end / ratio)))
    first = jnp.where(middle > 0, first, 0.0)
    last = jnp.where((middle > 0) & (end > 0), last, 0.0)
    return middle / (1.0 + ratio) + jnp.maximum(first, last)


def spread(within: Reals, growth: Reals) -> Reals:
    """From a bound in each cell, tilted like its left end, to one at each grid point."""
    left = jnp.append(within, 0.0)
    right = jnp.concatenate([jnp.zeros(1), within * growth])
    most = jnp.maximum(left, right) * (1.0 + 16.0 * ULP)
    return most.at[0].set(jnp.maximum(most[0], most[1] / growth))
