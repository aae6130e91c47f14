"""Errors of a contour over the quadrature nodes of any law, and where it ends.

* quadrature: the difference to a second rule with other nodes, at some heights up to the end. It
  bounds the error where both rules do not fail alike. Where the phases of neighbouring nodes differ
  by more than a panel resolves, the mass of these nodes is the error;
* truncation: `truncation`;
* smoothing: where psi falls too slowly, as for many different atoms, one more release, a Gaussian,
  makes it fall (`errors` bounds what this adds to delta).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1p
from jaxdp.accountant.contour import atoms
from jaxdp.accountant.contour.nodes import (
    LARGEST_LOG,
    FrozenContour,
    LineNodes,
    Pair,
    Stage,
    log_psi,
)
from jaxdp.accountant.contour.rows import Parts
from jaxdp.accountant.contour.truncation import HEIGHTS, log_fall

# Heights at which both rules are compared, in units of the end. chosen
_CHECKED = np.unique(np.append(2.0 ** np.arange(-10.0, 0.0), np.arange(5.0, 17.0) / 16.0))
# Radians between neighbouring nodes at which a panel's integral has no digit left. derived: the
# error of 16 nodes for e^(i x) grows like the 32nd power of the turn.
_TURN = 3.6
# Error over delta that no other end needs to reduce. chosen: 1e-12
_NEGLIGIBLE = 1e-12
# Truncation error over delta of an end from which a smoothed contour gains nothing. chosen: 5e-12
_FALLEN = np.exp(-26.0)


class ByHeight(NamedTuple):
    """Errors of phi up to each of the heights `_CHECKED`, and per unit of height."""

    quadrature: Reals  # (heights, phases, lanes)
    slope: Reals  # (phases, lanes)


def parts(laws: Any, stage: Stage, frozen: FrozenContour, line: LineNodes, logs: Pair) -> Parts:
    """End and errors of a contour but for its scale's; `logs` are log psi and log_scale."""
    weight, offset = line.weight[0], line.loss[0]
    is_spread = xp.isfinite(laws.log_density)
    gap = xp.where(is_spread, xp.abs(xp.diff(laws.loss, axis=0, append=laws.loss[-1:])), 0.0)
    log_density = laws.log_density + (frozen.tilt * (offset + line.mean) - logs[0])
    log_density = log_density + frozen.place.log_kept
    tails = _Tails(stage, frozen, weight, offset, log_density, laws.atoms_on(line))
    end, smoothed, truncation = _ended(laws, tails, logs[1], gap)
    check = laws.check_on(frozen.place)
    psi = log_psi(check, laws.power(frozen.tilt))
    other = xp.exp(check.log_weight + frozen.tilt * check.loss - psi)

    both = [(weight, offset, other, check.loss - line.mean)]
    if laws.atoms is not None:
        both = _apart(laws, *both[0])

    def at_height(share: Reals) -> Pair:
        t, total = share * end, xp.zeros_like(laws.number)
        for weight_, offset_, other_, other_offset in both:
            first, second = _sum(weight_, offset_, t), _sum(other_, other_offset, t)
            total = total + xp.hypot(first[0] - second[0], first[1] - second[1])
        return total, _unresolved(weight, gap, t)

    gaps, unresolved = lax.map(at_height, xp.asarray(_CHECKED))
    by_height = ByHeight(lax.cummax(gaps) + unresolved, xp.sum(weight * laws.rounding, 0))
    of_phi = laws.mass_gap + 4.0 * ULP
    return Parts(of_phi, by_height, truncation, end=end, smoothed=smoothed)


def _apart(
    laws: Any, weight: Reals, offset: Reals, other: Reals, other_offset: Reals
) -> list[tuple[Reals, ...]]:
    """Weights and offsets of both rules, of the atoms and of the rest."""
    in_first, in_second = (xp.any(x, 0) for x in (atoms.of_nodes(laws), atoms.of_check(laws)))

    def part(of_atoms: bool) -> tuple[Reals, ...]:
        first = xp.where(in_first == of_atoms, weight, 0.0)
        return first, offset, xp.where(in_second == of_atoms, other, 0.0), other_offset

    return [part(True), part(False)]


def _unresolved(weight: Reals, gap: Reals, t: Reals) -> Reals:
    """Error of a sum over nodes whose neighbours' phases differ by t gap (phases, lanes)."""
    turn = xp.minimum(gap * (t / _TURN), 1.0)
    for _ in range(5):
        turn = turn * turn
    return 2.0 * xp.sum(weight * turn, 0)


class _Falls(NamedTuple):
    """log of bounds from each end on, over their values at the tilt."""

    terms: Reals  # what the contour sums (ends, lanes)
    phi: Reals  # (ends, phases, lanes)
    parts: Reals  # the sum of |A| and |S| where low orders are exact, else of phi
    low: Reals  # low orders (ends, lanes)

    def lost(self, laws: Any, of_phi: Reals, body: Reals) -> Reals:
        """Error of what the contour sums for one of phi (ends, lanes): `errors.noise_of`."""

        def of_power(log_phi: Reals) -> Reals:
            grown = xp.sum(laws.number * log1p(of_phi * xp.exp(-log_phi)), 1)
            power = xp.exp(xp.sum(laws.number * log_phi, 1))
            return power * xp.expm1(xp.minimum(grown, LARGEST_LOG))

        of_low = xp.exp(self.low) * xp.sum(laws.number * of_phi / xp.maximum(body, 1e-300), 1)
        return xp.minimum(of_power(self.phi) + of_low, of_power(self.parts))


class _Tails(NamedTuple):
    """A contour and the tilted law on its nodes."""

    stage: Stage
    frozen: FrozenContour
    weight: Reals
    offset: Reals
    log_density: Reals
    atoms: atoms.OnLine | None

    def ends(self) -> tuple[Reals, Reals]:
        """The end of all points (lanes,), and the ends that are tried (ends, lanes)."""
        longest = self.frozen.step * (self.stage.points * self.frozen.blocks - 0.5)
        return longest, longest * xp.asarray(HEIGHTS)[:, None]

    def falls(self, laws: Any, ends: Reals) -> _Falls:
        """Bounds for all t from each end on."""
        each = log_fall(self.weight, self.offset, self.log_density, ends)
        fall = xp.sum(xp.where(laws.number == 0, 0.0, laws.number * each), 1)
        parts, low = each, xp.full_like(fall, -xp.inf)
        if self.atoms is not None:
            body, log_rest, is_served = self.body(), self.log_rest(laws, ends), self.atoms.is_served
            rest, low = atoms.log_fall(laws.number, body, log_rest, fall)
            fall = xp.where(is_served, rest, fall)
            parts = xp.where(is_served, xp.log(body + xp.exp(log_rest)), each)
        fall = lax.cummax(fall - 0.5 * laws.variance * ends**2, reverse=True)
        return _Falls(fall, each, parts, low)

    def body(self) -> Reals:
        """The mass of the atoms (phases, lanes), 1 without any."""
        return xp.ones_like(self.weight[0]) if self.atoms is None else xp.sum(self.atoms.weight, 0)

    def log_rest(self, laws: Any, ends: Reals) -> Reals:
        """log of bounds on what is no atom (ends, phases, lanes)."""
        rest = xp.where(xp.any(atoms.of_nodes(laws), 0), 0.0, self.weight)
        log_rest = log_fall(rest, self.offset, self.log_density, ends)
        return xp.minimum(log_rest, xp.log(xp.sum(rest, 0)))


def phi_error(by_height: ByHeight, frozen: FrozenContour, t: Reals) -> Reals:
    """Error of phi at heights (points, 1, lanes)."""
    ends = xp.asarray(_CHECKED)[:, None] * frozen.end
    index = xp.sum(ends[:, None] < t[:, 0][None], 0)  # (points, lanes)
    index = xp.minimum(index, len(_CHECKED) - 1)[:, None]
    shape = index.shape[0], by_height.slope.shape[0], index.shape[2]
    found = xp.take_along_axis(by_height.quadrature, xp.broadcast_to(index, shape), 0)
    return found + by_height.slope * t


def _sum(weight: Reals, loss: Reals, t: Reals) -> Pair:
    """sum w (e^(i t l) - 1)."""
    half = xp.sin(0.5 * t * loss)
    return -2.0 * xp.sum(weight * half * half, 0), xp.sum(weight * xp.sin(t * loss), 0)


def _ended(laws: Any, tails: _Tails, log_scale: Reals, gap: Reals) -> tuple[Reals, Reals, Reals]:
    """The end of the contour, the variance of the smoothing, and the truncation error.

    The end is where truncation, or smoothing, and what the nodes do not resolve add up to least. A
    truncation error is less than the smoothing error of a variance 2 x / T^2, with x = log(T /
    theta) + 2 less what has fallen; the latter is about that variance times theta (1 + theta).
    """
    longest, ends = tails.ends()
    tilt, step = tails.frozen.tilt, tails.frozen.step
    falls, inverse = tails.falls(laws, ends), 1.0 / ends
    log_tails, share = falls.terms, (inverse - _next(inverse)) / xp.pi
    truncation = lax.cumsum(xp.exp(log_tails) * share, 0, reverse=True)
    of_phi = lax.map(lambda t: _unresolved(tails.weight, gap, t), ends)
    smooth = xp.exp(-0.5 * laws.variance * ends**2)
    unresolved = lax.cumsum(smooth * falls.lost(laws, of_phi, tails.body()) * share, 0)
    missing = xp.maximum(xp.log1p(ends / tilt) + 2.0 + log_tails, 0.0)
    variance = 2.0 * missing * inverse**2
    truncated, smooth = xp.exp(log_scale) * truncation, variance * tilt * (1.0 + tilt)
    # Of rare losses, smoothing moves more than this, and it is not needed.
    has_fallen = xp.any((truncated <= _FALLEN) & (ends <= longest), 0)
    is_smooth = (missing > 0) & (smooth < truncated) & ~has_fallen
    error = xp.where(is_smooth, smooth, truncated)
    error = error + xp.exp(log_scale) * unresolved
    error = xp.where(ends <= longest, xp.maximum(error, _NEGLIGIBLE), xp.inf)
    k = xp.argmin(xp.where(xp.isnan(error), xp.inf, error), 0)[None]
    end = xp.take_along_axis(ends, k, 0)[0]
    smoothed = xp.take_along_axis(xp.where(is_smooth, variance, 0.0), k, 0)[0]
    # Halfway between two points, so that a point beyond is less than an integral around it.
    first = step * (xp.floor(end / step) + 0.5)
    starts = xp.where(ends > end, xp.maximum(ends + 0.5 * step, first), first)
    cut_off = xp.where(ends >= end, log_tails - 0.5 * smoothed * ends**2, -xp.inf)
    parts = xp.exp(cut_off) * (1.0 / starts - _next(1.0 / starts))
    return first, smoothed, xp.sum(parts, 0) / xp.pi


def _next(inverse: Reals) -> Reals:
    """The inverses of the next heights, 0 of the last one."""
    return xp.concatenate([inverse[1:], xp.zeros_like(inverse[:1])])
