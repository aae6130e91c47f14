"""Validation of noises and laws: raises where a definition contradicts itself."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.compilation import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.types import Bools, Reals
from jaxdp.accountant.composition import Terms
from jaxdp.dominating_pair.base import DominatingPair, is_on_lattice, is_whole
from jaxdp.noise.base import Noise


def require_consistent(answer: Any, terms: Terms) -> None:
    """Raise `ValueError` if concrete terms gave NaN or infinity and a noise or law is inconsistent.

    Engines return NaN, and some an infinite epsilon, for such a law, because compiled programs
    cannot raise. Terms that already contain NaN raise no error.
    """
    answers = jax.tree.leaves(answer)
    if not checks.all_concrete(answers) or all((np.asarray(x) < np.inf).all() for x in answers):
        return
    unknown = any(np.isnan(x).any() for x in answers)
    for term in terms:
        for noise in jax.tree.leaves(term.pair, is_leaf=lambda x: isinstance(x, Noise)):
            if isinstance(noise, Noise):
                noise.is_consistent()
        if unknown:
            _require_law(term.pair)


def _require_law(pair: DominatingPair) -> None:
    """Raise `ValueError` unless the law of the pair, and of each part of it, is consistent."""

    def is_part(x: object) -> bool:
        return isinstance(x, DominatingPair) and x is not pair

    for part in jax.tree.leaves(pair, is_leaf=is_part):
        if isinstance(part, DominatingPair):
            _require_law(part)
    total, left_out, adds_up = map(np.asarray, _total(pair))
    is_wrong = ~adds_up & ~np.isnan(total)
    if is_wrong.any():
        raise ValueError(
            f"the masses of the law of {type(pair).__name__} must add up to 1 less what it leaves "
            f"out, exp(log_left_out) = {left_out[is_wrong].flat[0]:.3g}: they add up to "
            f"{total[is_wrong].flat[0]:.12g}"
        )
    if not np.asarray(_fits_lattice(pair)).all():
        raise ValueError(
            f"singularities() of {type(pair).__name__} must be a Lattice(unit, odd) of which every "
            "loss of law() is a whole multiple of unit, plus half of it where odd is 1: some are "
            "not. Kinks((nan,)) is right for atoms anywhere"
        )


@jitted
def _fits_lattice(pair: DominatingPair) -> Bools:
    """True where the losses of a pair lie on the lattice that it declares, if any."""
    return is_on_lattice(pair.law(), pair.singularities())


@jitted
def _total(pair: DominatingPair) -> tuple[Reals, Reals, Bools]:
    """Total mass of the law, the probability that it leaves out, and whether both add up to 1."""
    law = pair.law()
    total = xp.sum(xp.exp(law.log_mass), axis=-1) + xp.exp(law.log_infinite)
    total, left_out, adds_up = xp.broadcast_arrays(total, xp.exp(law.log_left_out), is_whole(law))
    return total, left_out, adds_up
