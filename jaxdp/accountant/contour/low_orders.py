"""delta of the losses of which at most one is not an atom: finite sums, exact but for rounding.

With d_f the profile of one release of phase f, d_f(y) = E (1 - e^(y - L_f))_+, N releases, L the
sums of atoms of the others, and p their probabilities,

    delta_0 + delta_1 = sum_f n_f sum_L p(L) d_f(epsilon - L) - (N - 1) delta_0,

as d_f counts an atom of f too, and so delta_0 once for each release. No density is integrated.

Error: relative errors of the profiles and of the masses, and the rounding of the sums of losses,
which moves epsilon. A delta falls in epsilon and is convex, so the chord from a lower epsilon
bounds what this changes. Chosen by `atoms` for lanes with few combinations of atoms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import ULP, log1mexp
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.contour.atoms import ROUNDING, log_choose

_PROFILE = 2e-12  # relative error of a profile, over 1 + |log delta|. derived: the pair's contract
_STEP = 1e-6  # of epsilon, of a chord. chosen: a third of the digits
_LARGEST = 600.0  # log above which a value is unknown. derived


class Sums(NamedTuple):
    """All combinations of atoms, axes reversed, and their releases' pairs."""

    pairs: tuple[tuple[Any, int], ...]  # with their numbers of phases
    log_mass: Reals  # of all releases (combinations, lanes)
    loss: Reals
    log_less: Reals  # without one of a phase, times its number (combinations, phases, lanes)
    loss_less: Reals
    infinite: Reals  # probability of an infinite loss of one release (phases, lanes)
    releases: Reals  # (lanes,)
    relative: Reals  # relative error of the masses
    moved: Reals  # error of the sums of losses


class Low(NamedTuple):
    """delta of the low orders in a unit, minus its slope, and its error (lanes,)."""

    value: Reals
    slope: Reals
    error: Reals


def sums_of(rows: Any, terms: Terms) -> Sums | None:
    """The combinations of a lane's atoms, if its rows have any; `terms` have lanes first."""
    if not rows.has_atoms:
        return None
    atoms, number = rows.atoms, rows.number
    upper, is_valid = xp.maximum(atoms.upper, 0.0), atoms.upper >= 0.0

    def of(size: Reals) -> tuple[Reals, Reals]:
        """log masses and losses of `size` releases of each phase."""
        lower = size - upper
        mass = log_choose(size, upper)
        for count, log_mass in ((lower, atoms.log_mass[0]), (upper, atoms.log_mass[1])):
            mass = mass + xp.where(count == 0, 0.0, count * xp.where(count == 0, 0.0, log_mass))
        return mass, upper * atoms.loss[1] + lower * atoms.loss[0]

    mass, loss = of(number)
    less, loss_less = of(xp.maximum(number - 1.0, 0.0))
    less = less + xp.log(number)
    phases = range(number.shape[0])
    others = [_add_up([mass[:, g] for g in phases if g != f], loss[:, f]) for f in phases]
    log_less = xp.where(is_valid, xp.stack(others, 1) + less, -xp.inf)
    total = xp.sum(loss, 1)
    pairs = tuple((term.pair.prepared(), term.count.shape[-1]) for term in terms)
    infinite = xp.concatenate(
        [xp.broadcast_to(t.pair.support().log_infinite, t.count.shape) for t in terms], -1
    ).T
    releases = xp.sum(number, 0)
    size = xp.max(xp.where(xp.isfinite(atoms.log_mass), xp.abs(atoms.log_mass), 0.0), 0)
    relative = xp.sum(number * (atoms.error + 8.0 * ULP * (size + xp.log1p(number))), 0) + ROUNDING
    largest = xp.max(xp.abs(atoms.loss), 0)
    moved = xp.sum(number * (atoms.rounding + 8.0 * ULP * largest), 0)
    return Sums(
        pairs,
        xp.where(is_valid[:, 0], xp.sum(mass, 1), -xp.inf),
        total,
        log_less,
        total[:, None] - loss + loss_less,
        xp.exp(infinite),
        releases,
        relative,
        moved,
    )


def _add_up(masses: list[Reals], like: Reals) -> Reals:
    """The sum of arrays; zeros like another one of none."""
    return sum(masses, xp.zeros_like(like))


def low_delta(sums: Sums, epsilon: Reals, log_unit: Reals) -> Low:
    """delta of the low orders at epsilons (lanes,), over e^log_unit."""
    moved = sums.moved + 8.0 * ULP * xp.abs(epsilon)
    step = _STEP * (1.0 + xp.abs(epsilon)) + 4.0 * moved
    value, error = _delta(sums, epsilon, log_unit)
    before, _ = _delta(sums, epsilon - step, log_unit)
    slope = xp.maximum(before - value, 0.0) / step
    return Low(value, slope, error * (1.0 + 2.0 * moved / step) + moved * slope)


def _delta(sums: Sums, epsilon: Reals, log_unit: Reals) -> tuple[Reals, Reals]:
    """The value and its error, but for the error of the losses."""
    log_profile, relative = _profiles(sums, epsilon - sums.loss_less)
    size = xp.exp(xp.minimum(sums.log_less + log_profile - log_unit, _LARGEST))
    size = xp.where(sums.log_less > -xp.inf, size, 0.0)
    # A profile counts infinite losses, which are no part of the contour.
    infinite = xp.where(
        (sums.log_less > -xp.inf) & (sums.infinite > 0),
        sums.infinite * xp.exp(xp.minimum(sums.log_less - log_unit, _LARGEST)),
        0.0,
    )
    first = xp.sum(xp.maximum(size - infinite, 0.0), (0, 1))
    gap = sums.loss - epsilon
    inside = gap > 0
    log_gain = xp.where(inside, log1mexp(xp.where(inside, gap, 1.0)), -xp.inf)
    zeroth = xp.exp(xp.minimum(sums.log_mass + log_gain - log_unit, _LARGEST))
    zeroth = (sums.releases - 1.0) * xp.sum(zeroth, 0)
    error = xp.sum(size * relative, (0, 1)) + sums.relative * (first + zeroth)
    return first - zeroth, error + ROUNDING * (xp.sum(size, (0, 1)) + zeroth)


def _profiles(sums: Sums, y: Reals) -> tuple[Reals, Reals]:
    """log of the profiles at y (combinations, phases, lanes), and relative errors."""
    log_profiles, errors = [], []
    starts = np.cumsum([0, *(count for _, count in sums.pairs)])
    for (pair, count), start in zip(sums.pairs, starts[:-1], strict=True):
        # A phase of a pair is an entry along its last axis.
        at = xp.swapaxes(y[:, start : start + count], 1, 2)
        found = pair.log_delta(at)
        error = xp.broadcast_to(pair.profile_error(at), found.shape)
        log_profiles.append(xp.swapaxes(found, 1, 2))
        errors.append(xp.swapaxes(error, 1, 2))
    log_profile, error = (xp.concatenate(x, 1) for x in (log_profiles, errors))
    known = xp.where(log_profile > -xp.inf, xp.abs(log_profile), 0.0)
    return log_profile, _PROFILE * (1.0 + known) + error
