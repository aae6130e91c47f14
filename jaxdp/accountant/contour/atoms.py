"""Releases whose loss is an atom: the parts of a power that do not fall, taken out of a contour.

Identity: a release's transform is A + S, A of at most two atoms and S of everything else. Along a
contour A does not fall, and S falls like 1 / t. The power of all releases less the orders 0 and 1
in S,

    F = prod (A + S)^n - prod A^n - sum_f n_f S_f A_f^(n_f - 1) prod_(g != f) A_g^(n_g),

is the transform of the losses of which at least two are in S. It falls like 1 / t^2, so that its
sum needs no smoothing. The orders 0 and 1 have exact deltas (`low_orders`).

Error: F is a polynomial with coefficients >= 0, each at most the one of prod (A + S)^n. Errors a of
A and s of S therefore change F by at most prod (|A| + |S| + a + s)^n - prod (|A| + |S|)^n. Beyond a
height, with bounds a >= |A| and s >= |S|,

    |F| <= prod (a + s)^n - prod a^n - sum_f ... <= prod a^n (e^r - 1 - r),  r = sum n log(1 + s/a).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.functions import logsumexp, special
from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp._numeric.elementary import ULP, expm1_minus, log_probability
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.contour.nodes import LEAST_LOG, LineNodes, Pair
from jaxdp.accountant.contour.transform import to_products
from jaxdp.accountant.tables import Table

# Relative difference of losses within one atom. chosen: above the rounding of far nodes
_SAME = 1e-11
# log of the least mass of a node that counts. chosen: e^-700 is a normal number
_NO_MASS = -690.0
# Combinations of atoms, times phases, of a lane. chosen: .1 s
_MOST = 40_000.0
# Combinations inside a trace that does not know the numbers of releases. chosen: 511 of one kind
_MOST_TRACED = 512
# r above which e^r - 1 - r is e^r. derived: 1e-12
_LARGE = 32.0


class Atoms(NamedTuple):
    """The heaviest two atoms of each release, lanes first; the second has no mass if alone.

    `upper` are the releases at the second atom in every combination of atoms of a lane, -1 where
    there are no more combinations, or where the low orders of a lane stay in its contour.
    """

    loss: Reals  # (lanes, phases, 2)
    log_mass: Reals  # of P, finite and infinite losses
    error: Reals  # relative, of the masses (lanes, phases)
    rounding: Reals  # of the losses
    upper: Reals  # (lanes, phases, combinations)

    @property
    def is_served(self) -> Bools:
        """True for the lanes (lanes,) whose low orders are exact; axes reversed."""
        return self.upper[0, 0] >= 0.0


class OnLine(NamedTuple):
    """Atoms along a contour (2, phases, lanes), over psi at the tilt."""

    weight: Reals
    offset: Reals  # losses less the mean loss
    is_served: Bools


class LowOrders(NamedTuple):
    """Orders 0 and 1 at the points of a block, and sizes for errors."""

    term: Pair  # (points, lanes)
    body: Reals  # |A| (points, phases, lanes)
    rest: Reals  # |S|
    turned: Reals  # absolute angles of all powers of A (points, lanes)
    served: Reals  # 0 for the lanes whose low orders stay in the contour, else 1


def atoms_of(table: Table, number: Reals, rounding: Reals, most: int) -> Atoms:
    """The atoms of releases.

    Args:
        table: arrays (lanes, phases, nodes).
        number: releases (lanes, phases).
        rounding: of the losses at the nodes.
        most: combinations of atoms of a lane.
    """
    law = table.law
    is_atom = xp.isinf(law.log_density) & (law.log_mass > _NO_MASS)
    places = _places(law.loss, xp.where(is_atom, law.log_mass, -xp.inf))
    members = _members(law.loss, is_atom, places)
    log_mass = logsumexp(xp.where(members, law.log_mass[..., None, :], -xp.inf), -1)
    share = xp.where(members, xp.exp(law.log_mass[..., None, :] - log_mass[..., None]), 0.0)
    loss = xp.sum(share * law.loss[..., None, :], -1)
    check_loss, check_mass = law.check
    is_checked = xp.isinf(law.check_log_density) & (check_mass > _NO_MASS)
    checked = _members(check_loss, is_checked, places)
    check = logsumexp(xp.where(checked, check_mass[..., None, :], -xp.inf), -1)
    present = log_mass > -xp.inf
    gap = xp.where(present, xp.abs(log_mass - xp.where(present, check, 0.0)), 0.0)
    of_loss = xp.sum(share * rounding[..., None, :], -1)
    unknown = xp.any(present, -1) & xp.any(xp.isnan(law.check_log_density), -1)
    stays = (table.total(table.variance) > 0) | xp.any(unknown & (number > 0), -1)
    upper = _combinations(number, present, stays, most)
    error, of_loss = 3.0 * xp.max(gap, -1), xp.max(of_loss, -1)
    return Atoms(xp.where(present, loss, 0.0), log_mass, error, of_loss, upper)


def _places(loss: Reals, log_mass: Reals) -> Reals:
    """The losses of the heaviest node, and of the heaviest one elsewhere (..., 2); inf for none."""

    def heaviest(log_mass: Reals) -> Reals:
        at = xp.argmax(xp.where(xp.isnan(log_mass), -xp.inf, log_mass), -1)[..., None]
        place, mass = (xp.take_along_axis(x, at, -1) for x in (loss, log_mass))
        return xp.where(mass > -xp.inf, place, xp.inf)

    first = heaviest(log_mass)
    known = xp.where(xp.isfinite(first), first, 0.0)
    elsewhere = xp.abs(loss - known) > _SAME * (1.0 + xp.abs(known))
    return xp.concatenate([first, heaviest(xp.where(elsewhere, log_mass, -xp.inf))], -1)


def _members(loss: Reals, is_atom: Bools, places: Reals) -> Bools:
    """True where a node (..., nodes) is in one of both atoms (..., 2, nodes)."""
    place = xp.where(xp.isfinite(places), places, 0.0)[..., None]
    near = xp.abs(loss[..., None, :] - place) <= _SAME * (1.0 + xp.abs(place))
    near = near & is_atom[..., None, :] & xp.isfinite(places)[..., None]
    first = near[..., :1, :]
    return xp.concatenate([first, near[..., 1:, :] & ~first], -2)


def most_combinations(terms: Terms) -> int:
    """A bound on the combinations of two atoms for releases, at most the number that is served."""
    phases = sum(term.count.shape[-1] for term in terms)
    most = int(_MOST) // phases
    if not checks.all_concrete([term.count for term in terms]):
        return min(most, _MOST_TRACED)
    sizes = np.concatenate([np.asarray(term.count) for term in terms], -1) + 1.0
    combinations = np.prod(np.where(sizes >= 1.0, sizes, np.inf), -1)
    served = combinations[combinations <= most]
    return int(np.max(served, initial=0.0))


def _combinations(number: Reals, has_atoms: Bools, stays: Bools, most: int) -> Reals:
    """Releases at the second atom in every combination (lanes, phases, combinations)."""
    sizes = xp.where(has_atoms[..., 1], number + 1.0, 1.0)
    smooth = xp.sum(xp.where(has_atoms[..., 0], 0.0, number), -1)
    count = xp.prod(sizes, -1)
    is_served = (count <= most) & (smooth <= 1.0) & ~stays & (xp.sum(number, -1) > 1.0)
    is_served = is_served & xp.any(has_atoms[..., 0] & (number > 0), -1)
    is_served = is_served & xp.all(number == xp.round(number), -1)
    index = xp.asarray(np.arange(1.0 * most)[None, None])
    stride = xp.cumprod(sizes, -1) / sizes
    safe = xp.where(is_served[..., None], sizes, 1.0), xp.where(is_served[..., None], stride, 1.0)
    sizes, stride = (x[..., None] for x in safe)
    inside = (index < count[..., None, None]) & is_served[..., None, None]
    return xp.where(inside, xp.floor(index / stride) % sizes, -1.0)


def of_nodes(laws: Any) -> Bools:
    """True where a node is in one of both atoms (2, nodes, phases, lanes)."""
    return _near(laws.atoms, laws.loss) & xp.isinf(laws.log_density)


def of_check(laws: Any) -> Bools:
    """The same of the nodes of the second rule."""
    return _near(laws.atoms, laws.check_loss) & xp.isinf(laws.check_density)


def _near(atoms: Atoms, loss: Reals) -> Bools:
    place = atoms.loss[:, None]
    near = xp.abs(loss - place) <= 2.0 * _SAME * (1.0 + xp.abs(place))
    near = near & (atoms.log_mass > -xp.inf)[:, None]
    return xp.stack([near[0], near[1] & ~near[0]])


def in_one_node(laws: Any) -> Any:
    """Known laws, lanes first, with one node for each atom."""
    by_node = jax.tree.map(lambda x: x.T, laws)
    first, second = of_nodes(by_node), of_check(by_node)

    def joined(members: Any, log_mass: Any, *columns: tuple[Any, Any]) -> list[Any]:
        """The masses, and columns (values, values at atoms), with atoms in the last two nodes."""
        members = np.moveaxis(np.asarray(members).T, -1, 0)
        is_atom = np.any(members, 0)
        keep = np.any(~is_atom & ~(log_mass == -np.inf), (0, 1))
        totals = [logsumexp(np.where(x, log_mass, -np.inf), axis=-1) for x in members]
        masses = np.where(is_atom, -np.inf, log_mass), np.stack(totals, -1)
        parts: list[Any] = [np.concatenate([x[..., keep], y], -1) for x, y in (masses, *columns)]
        return [to_products(parts[0], -np.inf), *(to_products(x) for x in parts[1:])]

    place = laws.atoms.loss
    log_mass, loss, log_density, rounding = joined(
        first,
        laws.log_mass,
        (laws.loss, place),
        (laws.log_density, np.full_like(place, np.inf)),
        (laws.rounding, np.broadcast_to(laws.atoms.rounding[..., None], place.shape)),
    )
    check_mass, check_loss, check_density = joined(
        second,
        laws.check_mass,
        (laws.check_loss, place),
        (laws.check_density, np.full_like(place, np.inf)),
    )
    return laws._replace(
        loss=loss,
        log_mass=log_mass,
        log_density=log_density,
        check_loss=check_loss,
        check_mass=check_mass,
        check_density=check_density,
        rounding=rounding,
    )


def on_line(laws: Any, nodes: LineNodes) -> OnLine | None:
    """The atoms of a law on its nodes along a contour."""
    if laws.atoms is None:
        return None
    weight = xp.sum(xp.where(of_nodes(laws), nodes.weight[0], 0.0), 1)
    return OnLine(weight, laws.atoms.loss - nodes.mean, laws.atoms.is_served)


def low_orders(number: Reals, atoms: OnLine, excess: Pair, t: Reals) -> LowOrders:
    """prod A^n + sum n S A^(n - 1) ... at points t (points, lanes), from A + S - 1."""
    angle = t[:, None, None] * atoms.offset
    a_re, a_im = (xp.sum(atoms.weight * wave, 1) for wave in (xp.cos(angle), xp.sin(angle)))
    s_re, s_im = 1.0 + excess[0] - a_re, excess[1] - a_im
    size, angle = xp.hypot(a_re, a_im), xp.arctan2(a_im, a_re)
    # Where A is 0, n - 1 = 0 of these logarithms remain, or the product is 0.
    log_each = xp.log(xp.maximum(size, np.exp(LEAST_LOG)))
    total, turn = xp.sum(number * log_each, 1), xp.sum(number * angle, 1)
    others = number * xp.exp(total[:, None] - log_each)
    c, s = xp.cos(angle), xp.sin(angle)
    re = xp.exp(total) + xp.sum(others * (s_re * c + s_im * s), 1)
    im = xp.sum(others * (s_im * c - s_re * s), 1)
    c, s = xp.cos(turn), xp.sin(turn)
    served = xp.where(atoms.is_served, 1.0, 0.0)
    term = served * (re * c - im * s), served * (re * s + im * c)
    rest = xp.maximum(xp.hypot(s_re, s_im), np.exp(LEAST_LOG))
    return LowOrders(term, size, rest, xp.sum(xp.abs(number * angle), 1), served)


def low_error(number: Reals, low: LowOrders, of_phi: Reals) -> Pair:
    """A bound on the low orders' moduli, and on their error for one of both A and S.

    A monomial of powers k of x' = x + e exceeds the one of x by at most sum k e / x' of itself.
    """
    body, rest = low.body + of_phi, low.rest + of_phi
    log_body = xp.log(xp.maximum(body, np.exp(LEAST_LOG)))
    total = xp.sum(number * log_body, 1)
    others = number * xp.exp(total[:, None] - log_body)
    size = low.served * (xp.exp(total) + xp.sum(others * rest, 1))
    share = xp.sum(number * of_phi / xp.maximum(body, np.exp(LEAST_LOG)), 1)
    return size, size * share + low.served * xp.sum(others * of_phi, 1)


def log_fall(number: Reals, body: Reals, log_rest: Reals, log_whole: Reals) -> Pair:
    """log of a bound on |F|, the least of two, and on the low orders (heights, lanes).

    Args:
        number: releases (phases, lanes).
        body: the masses of A (phases, lanes).
        log_rest: log of bounds on |S| (heights, phases, lanes).
        log_whole: log of bounds on |prod (A + S)^n| (heights, lanes).
    """
    log_body = xp.log(xp.maximum(body, np.exp(LEAST_LOG)))
    rise = number * xp.logaddexp(0.0, log_rest - log_body)
    level, rise = xp.sum(number * log_body, 0), xp.sum(xp.where(number == 0, 0.0, rise), 1)
    is_large = rise > _LARGE
    near = log_probability(expm1_minus(xp.where(is_large, 1.0, rise)))
    first = level + xp.where(is_large, rise, near)
    share = xp.where(number == 0, -xp.inf, xp.log(number) + log_rest - log_body)
    low = level + xp.logaddexp(0.0, logsumexp(share, axis=1))
    return xp.minimum(first, xp.logaddexp(log_whole, low)), low


def log_choose(n: Reals, k: Reals) -> Reals:
    """log of a binomial coefficient; -inf outside 0 <= k <= n."""
    inside = (k >= 0) & (k <= n)
    k, n = xp.where(inside, k, 0.0), xp.where(inside, n, 0.0)
    value = special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)
    return xp.where(inside, value, -xp.inf)


ROUNDING = 64.0 * ULP  # of a product of a few factors. derived
