"""Losses with finitely many values, and the worst shift of a piecewise-constant noise.

A test between two laws P and Q has a false-positive rate Q(A) and a power P(A). The best tests are
the concave hull of these points (Neyman & Pearson), whose edges are atoms of the loss: an edge of
width b and height a has the loss log(a / b) with probability a under P. If a hull covers the hulls
of several pairs, its pair dominates each of them. Its compositions then bound every adaptive
composition of these pairs, with any choice at every step (Zhu, Dong & Wang, AISTATS 2022). Masses
are whole numbers, and so is every step of the hull: there is no rounding error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import final

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, round_up
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair, Law, atoms, with_its_error
from jaxdp.noise.discrete_histogram import DiscreteHistogram
from jaxdp.noise.histogram import Histogram, Weighted
from jaxdp.noise.structure import Kinks, Singularities

# Resolution of a shift, as a part of a cell. chosen: below an ulp of any double
_PART = 2**60
# Tolerance for a contradiction of a user's losses and masses. chosen: rounding of inputs
_LOSS_ERROR = 1e-9
# Least mass whose logarithm is taken. derived: the least normal number
LEAST = 1e-307


@final
@pytree
class Finite(DominatingPair):
    """The loss takes the values losses[j], rising, with probability masses[j] under P.

    It is +infinite with probability `infinite` under P, and -infinite with probability `hidden`
    under Q, where P has no mass. All fields are static: part of the program. Where `backward` is 1
    the pair is exchanged. Made by `worst_of_shifts`, `PrivacyLoss.from_pmf` and
    `PrivacyLoss.from_log_pmf`.
    """

    losses: tuple[float, ...] = static()
    masses: tuple[float, ...] = static()
    infinite: float = static()
    hidden: float = static()
    # Of NumPy also in a trace, whose arrays `_worst` must not keep.
    backward: Reals = dataclasses.field(default_factory=lambda: checks.probability("backward", 0.0))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of sum_j masses[j] (1 - e^(epsilon - losses[j]))_+ + infinite, rounded up."""
        epsilon = checks.real("epsilon", epsilon)
        epsilon, backward = xp.broadcast_arrays(epsilon, self.backward)
        values = [_log_delta(*(xp.asarray(x) for x in side), epsilon) for side in _sides(self)]
        return xp.where(backward > 0, values[1], values[0])

    def law(self) -> Law:
        """The atoms of the loss."""
        backward = (self.backward > 0)[..., None]
        losses = np.array(self.losses)
        log_masses = np.log(np.maximum(self.masses, LEAST))
        log_masses_q = log_masses - losses
        log_infinite, log_hidden = (
            math.log(x) if x > 0 else -math.inf for x in (self.infinite, self.hidden)
        )
        law = atoms(
            xp.where(backward, -losses[::-1], losses),
            xp.where(backward, log_masses_q[::-1], log_masses),
            xp.where(self.backward > 0, log_hidden, log_infinite),
            round_up(xp.where(self.backward > 0, -losses[0], losses[-1]), 2),
        )
        # A user's masses can differ from a total of 1 by rounding.
        return with_its_error(law)

    def singularities(self) -> Singularities:
        """Atoms anywhere."""
        return Kinks((xp.full_like(self.backward, xp.nan),))

    def reversed(self) -> Finite:
        """`backward` exchanged."""
        return Finite(self.losses, self.masses, self.infinite, self.hidden, 1.0 - self.backward)


def finite_pair(losses: ArrayLike, masses_p: ArrayLike, masses_q: ArrayLike) -> Finite:
    """The pair whose loss is losses[j] with mass masses_p[j] under P and masses_q[j] under Q.

    Host-side. Mass missing from a total of 1 becomes an infinite loss. Raises `ValueError` unless
    both are laws with these losses.
    """
    given, p, q = _vectors(np.inf, losses=losses, masses_p=masses_p, masses_q=masses_q)
    for name, values, lower in (("losses", given, -np.inf), ("masses_p", p, 0), ("masses_q", q, 0)):
        good = (values > lower) & (values < np.inf)
        if not good.all():
            i = int(np.argmin(good))
            raise ValueError(
                f"losses must be finite and masses positive, got {name}[{i}] = {values[i]}: leave "
                "out what has no mass, or use from_log_pmf, which has masses as small as any"
            )
    found = _log_ratios(p, q)
    wrong = ~(np.abs(given - found) <= _LOSS_ERROR * (1.0 + np.abs(found))) & _is_normal(p, q)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"losses[{i}] must be log(masses_p[{i}] / masses_q[{i}]), {found[i]}, got {given[i]}"
        )
    return _pair_of_masses(p, q)


def pair_of_log_masses(log_masses_p: ArrayLike, log_masses_q: ArrayLike) -> Finite:
    """The pair of outcomes with probability e^log_masses_p[j] under P, e^log_masses_q[j] under Q.

    Host-side. Raises `ValueError` unless both are laws.
    """
    logs = _vectors(_LOSS_ERROR, log_masses_p=log_masses_p, log_masses_q=log_masses_q)
    return _pair_of_masses(*map(_masses_of_logs, logs))


def _vectors(upper: float, **arguments: ArrayLike) -> tuple[np.ndarray, ...]:
    """The arguments as vectors of one length above 0, of numbers up to `upper`."""
    names = " and ".join(arguments)
    if not all(map(checks.is_concrete, arguments.values())):
        raise ValueError(f"{names} must be known before tracing: they shape the program")
    found = tuple(np.asarray(checks.real(name, x, upper=upper)) for name, x in arguments.items())
    if len({x.shape for x in found}) > 1 or found[0].ndim != 1 or found[0].size == 0:
        shapes = [x.shape for x in found]
        raise ValueError(f"{names} must be vectors of one length, got shapes {shapes}")
    return found


def _masses_of_logs(logs: np.ndarray) -> np.ndarray:
    """The probabilities: of sum 1 if rounding of the logarithms explains the distance from it.

    Else each is rounded down, and what is missing has an infinite loss.
    """
    masses = np.exp(logs)
    errors = ULP * (2.0 + np.where(masses > 0, np.abs(logs), 0.0))
    total = math.fsum(masses)
    if abs(total - 1.0) <= math.fsum(masses * errors):
        return masses / total * (1.0 + 4.0 * ULP)
    return masses * (1.0 - errors)


def _is_normal(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """True where both masses are far enough above 0 to have a loss."""
    return (p >= LEAST) & (q >= LEAST)


def _pair_of_masses(p: np.ndarray, q: np.ndarray) -> Finite:
    """The pair of these masses, whose order is the same.

    An outcome that has a mass below `LEAST` on one side is split: P's mass has an infinite loss,
    and Q's a loss of minus infinity. This can only raise delta, in both directions.
    """
    normal = _is_normal(p, q)
    infinite, hidden = (_sum_up([_missing(x), *x[~normal]]) for x in (p, q))
    if not normal.any():
        return Finite((0.0,), (0.0,), infinite, hidden)
    # The masses' own losses, for which both directions are theirs.
    p, losses = p[normal], _log_ratios(p[normal], q[normal])
    order = np.argsort(losses, kind="stable")
    return Finite(tuple(losses[order].tolist()), tuple(p[order].tolist()), infinite, hidden)


def _sum_up(masses: list[float]) -> float:
    """The sum rounded up, at most 1."""
    total = math.fsum(masses)
    return min(math.nextafter(total, 2.0), 1.0) if total > 0 else 0.0


def _log_ratios(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """log(p / q) to a few ulp, also where the quotient leaves the range of doubles."""
    near = np.abs(p - q) <= 0.5 * q
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        ratio = p / q
        far = np.where((ratio > LEAST) & np.isfinite(ratio), np.log(ratio), np.log(p) - np.log(q))
    return np.where(near, np.log1p(np.where(near, p - q, 0.0) / q), far)


def _missing(masses: np.ndarray) -> float:
    """Mass missing from a total of 1; 0 where half an ulp of each mass explains it."""
    lacks = 1 - sum(map(Fraction, masses.tolist()))
    if lacks < -_LOSS_ERROR:
        raise ValueError(f"masses must add up to at most 1, got {float(1 - lacks)}")
    rounding = sum(map(Fraction, np.spacing(masses).tolist())) / 2
    return 0.0 if lacks <= rounding else float(lacks)


def with_worst_shifts(pair: DominatingPair) -> DominatingPair:
    """The pair, with the worst of all shifts for each histogram of one concrete shift."""
    return jax.tree.map(
        lambda node: _of_histogram(node) if adds_histogram(node) else node,
        pair,
        is_leaf=adds_histogram,
    )


def adds_histogram(node: object) -> bool:
    """True for a histogram, on the reals or the integers, as a pair of its own."""
    return isinstance(node, Additive) and isinstance(node.noise, Weighted)


def _of_histogram(pair: Additive) -> DominatingPair:
    parameters = jax.tree.leaves(pair)
    if not all(checks.is_concrete(x) and xp.size(x) == 1 for x in parameters):
        return pair
    noise, shift = jax.tree.map(lambda x: x.reshape(()), (pair.noise, pair.shift))
    return worst_of_shifts(noise, float(shift)) if 0 <= shift < math.inf else pair


def worst_of_shifts(noise: Histogram | DiscreteHistogram, shift: float) -> Finite:
    """The least loss that dominates `noise` at every shift of size `shift` or less.

    It covers both signs and all sizes, and its delta equals `noise.log_delta`. It also composes:
    every release can have another shift, chosen from the earlier releases. Host-side. The bound
    loses nothing on `optimal.noise`: at (1, .2), (1, .01), (3, .3) and (.2, .05), the deltas of 1
    to 32 releases equal the deltas of the largest shift alone, to 1e-5.
    """
    width = 1 if isinstance(noise, DiscreteHistogram) else Fraction(float(noise.width))
    return _worst(noise.weights, noise.atom_weight, Fraction(shift) / width)


@functools.lru_cache(maxsize=128)
def _worst(weights: tuple[int, ...], atom_weight: int, ratio: Fraction) -> Finite:
    """The worst of all shifts of at most `ratio` cells."""
    if ratio == 0:
        return Finite((0.0,), (1.0,), 0.0, 0.0)
    total = (sum(weights) + atom_weight) * _PART
    cell = min(math.floor(ratio), len(weights))
    part = math.ceil((ratio - cell) * _PART) if cell < len(weights) else 0
    points = {(0, 0), (total, total)}
    shifts = *((k, 0) for k in range(1, cell + 1)), *([(cell, part)] if part else [])
    for (k, share), row in itertools.product(shifts, {weights, weights[::-1]}):
        points.update(_roc(row, atom_weight, k, share))
    return _pair_of_hull(_concave(sorted(points)), total)


def _roc(row: tuple[int, ...], atom: int, k: int, share: int) -> Iterable[tuple[int, int]]:
    """(Q, P) of the best tests at a shift of k + share / 2^60 cells."""
    n, weights = len(row), np.array(row, dtype=object)
    zeros = np.zeros(n + k + 1, dtype=object)

    def moved(by: int) -> np.ndarray:
        row = zeros.copy()
        row[by : by + n] = weights
        return row

    pieces = [(moved(0), moved(k), _PART - share), (moved(0), moved(k + 1), share)]
    p = np.concatenate([a * s for a, _, s in pieces if s] + [[atom * _PART, 0]])
    q = np.concatenate([b * s for _, b, s in pieces if s] + [[0, atom * _PART]])
    # Near ties can have any order: the hull corrects them.
    order = np.argsort(-(p / np.maximum(p + q, 1)).astype(float), kind="stable")
    return zip(np.cumsum(q[order]).tolist(), np.cumsum(p[order]).tolist(), strict=True)


def _concave(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The upper hull of points sorted by their first coordinate."""
    hull: list[tuple[int, int]] = []
    for point in points:
        while len(hull) >= 2:
            (x0, y0), (x1, y1) = hull[-2:]
            if (x1 - x0) * (point[1] - y0) < (y1 - y0) * (point[0] - x0):
                break
            hull.pop()
        hull.append(point)
    return hull


def _pair_of_hull(hull: list[tuple[int, int]], total: int) -> Finite:
    edges = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(hull)]
    least = total * Fraction(LEAST)
    finite = [edge for edge in edges if min(edge) > least]
    # A mass that is no double counts as an infinite loss, in both directions.
    hidden, infinite = (sum(edge[i] for edge in edges if min(edge) <= least) for i in range(2))
    if not finite:
        return Finite((0.0,), (0.0,), 1.0, 1.0)
    losses = tuple(_log_ratio(high, width) for width, high in reversed(finite))
    masses = tuple(high / total for _, high in reversed(finite))
    return Finite(losses, masses, _share_up(infinite, total), _share_up(hidden, total))


def _share_up(part: int, total: int) -> float:
    """part / total, rounded up, to `LEAST` at least; 0 of nothing."""
    return max(math.nextafter(part / total, 1.0), LEAST) if part else 0.0


def _log_ratio(a: int, b: int) -> float:
    """log(a / b) to an ulp or two, for integers of any size."""
    ratio = Fraction(a, b)
    near = abs(ratio - 1) < Fraction(1, 2)
    return math.log1p(float(ratio - 1)) if near else math.log(ratio.numerator / ratio.denominator)


def _sides(pair: Finite) -> tuple[tuple[np.ndarray | float, ...], ...]:
    """Arguments of `_log_delta` for the pair, and for the exchanged pair."""
    masses_q = tuple(m * math.exp(-x) for x, m in zip(pair.losses, pair.masses, strict=True))
    negated = tuple(-x for x in reversed(pair.losses))
    return (
        _profile(pair.losses, pair.masses, pair.infinite),
        _profile(negated, tuple(reversed(masses_q)), pair.hidden),
    )


@functools.lru_cache(maxsize=128)
def _profile(
    losses: tuple[float, ...], masses: tuple[float, ...], infinite: float
) -> tuple[np.ndarray | float, ...]:
    """The losses, delta there (of the finite part), the mass above times e^-loss, e^loss."""
    places = np.array([-math.inf, *losses])
    # From the largest loss down, Q of the losses above and delta are sums of positive terms.
    above, slopes = np.zeros(places.size), np.zeros(places.size)
    delta, mass = 0.0, 0.0
    for j in range(len(masses) - 1, -1, -1):
        # `mass`: P of the losses from j + 1 on, each times e^(losses[j] - its own).
        if j + 1 < len(masses):
            step = losses[j] - losses[j + 1]
            delta = delta + mass * -math.expm1(step)
            mass = mass * math.exp(step)
        mass = mass + masses[j]
        above[j + 1], slopes[j + 1] = delta, mass
    return places, above, slopes, infinite


@jitted
def _log_delta(
    losses: Reals, above: Reals, slopes: Reals, infinite: Reals, epsilon: Reals
) -> Reals:
    index = xp.searchsorted(losses, epsilon, side="left")
    past_end = index >= losses.size
    index = xp.clip(index, 1, losses.size - 1)
    # Each loss has an error of up to 4 ulp.
    place = losses[index]
    gap = xp.maximum(xp.where(past_end, 0.0, place + 4.0 * ULP * xp.abs(place) - epsilon), 0.0)
    finite = xp.where(past_end, 0.0, above[index] + slopes[index] * -xp.expm1(-gap))
    delta = xp.minimum((finite + infinite) * (1.0 + 1e-14), 1.0)
    value = xp.minimum(round_up(xp.log(delta), 2), 0.0)
    return xp.where(xp.isnan(epsilon), xp.nan, value)
