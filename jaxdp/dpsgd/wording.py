"""Privacy statement of a training by DP-SGD, in plain sentences."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Unpack

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.neighbours import Relation
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.dpsgd.base import Phase
from jaxdp.dpsgd.schedule import Schedule, training_of
from jaxdp.dpsgd.scheme_wording import conditions_of, how_drawn
from jaxdp.guarantee.attack_risk import advantage
from jaxdp.guarantee.gaussian_dp import largest_gdp

# The false-positive rate at which an attack's power is told. chosen: that of Carlini et al., 2022
_FPR = 1e-3
# Epsilons looked at for that power, by golden section. chosen: each bounds it, the last to 1e-3
_LOOKS = 18
# Share of an interval that golden section keeps. derived: (sqrt(5) - 1) / 2
_GOLDEN = 0.6180339887498949

# What each relation calls neighbours, in words.
_NEIGHBOURS = {
    "add_remove": "two data sets are neighbours if one holds one record more than the other "
    '("add_remove", the worse of the two directions)',
    "zero_out": "two data sets of the same size are neighbours if one record of the first is blank "
    'in the second ("zero_out", the worse of the two directions)',
    "replace_one": "two data sets of the same size are neighbours if they differ in one record, "
    'which is replaced by another ("replace_one")',
}


@in_float64
def statement(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    **schedule: Unpack[Schedule],
) -> str:
    """Statement, in plain English, of what a DP-SGD training promises and what it requires.

    Args:
        noise_multiplier, delta, schedule: as in `epsilon`, one known number each; relation:
            "add_remove", "replace_one" or "zero_out".

    Returns:
        Lines of text: neighbours, sampling, what is protected, epsilon and delta, mu, the advantage
        and the power of a test of membership (rounded up), the conditions.

    Of one known training; else `ValueError`.

    >>> import jaxdp as dp
    >>> text = dp.dpsgd.statement(1.0, 1e-6, sampling_prob=0.01, steps=1000)
    >>> print(text.splitlines()[3])
    Guarantee: the training is (2.125, 1e-06)-differentially private.
    """
    training = training_of(noise_multiplier, schedule)
    known, relation, group_size = training
    delta = checks.probability("delta", delta)
    checks.one_of("relation", relation, tuple(_NEIGHBOURS))
    if not checks.all_concrete(known, delta):
        raise ValueError("a statement must know its numbers, got traced ones")
    if any(np.size(x) != 1 for x in (delta, *(phase.steps for phase in known))) or any(
        math.prod(phase.shape) != 1 for phase in known
    ):
        raise ValueError("a statement is of one training: give one number for each argument")
    loss = training.privacy_loss
    spent = float(np.asarray(loss.epsilon(delta)).item())
    target = float(np.asarray(delta).item())
    told = rounded_up(target, 6)
    pair = f"({rounded_up(spent, 4)}, {told})"
    lines = [
        f"Neighbours: {_NEIGHBOURS[relation]}.",
        "Sampling: " + "; then ".join(_described(phase) for phase in known) + ".",
        f"Protected: the presence and the content of {_protected(group_size)}, against anyone who "
        "sees the model, every step's noisy gradient and all other records.",
        f"Guarantee: the training is {pair}-differentially private."
        if math.isfinite(spent)
        else f"Guarantee: none at delta {told}, no epsilon is finite.",
    ]
    conditions = _conditions(known, relation, group_size)
    return "\n".join([*lines, *_risks(loss, spent, target), *conditions])


def _described(phase: Phase) -> str:
    rate, count, scale = (
        float(np.asarray(x).item())
        for x in (phase.sampling_prob, phase.steps, phase.noise_multiplier)
    )
    how = (
        "all records take part in every step"
        if rate == 1 and phase.scheme is None
        else how_drawn(phase.scheme, rate)
    )
    return f"{count:,.0f} steps with noise multiplier {scale:g}, where {how}"


def _risks(loss: PrivacyLoss, spent: float, target: float) -> list[str]:
    """Mu, advantage, and power at a small rate of false alarms."""
    lines = []
    if 0 < target < 1 and math.isfinite(spent):
        mu = float(np.asarray(largest_gdp((spent, target)).mu).item())
        lines.append(
            "Strength: at this delta that is what Gaussian differential privacy gives with mu = "
            f"{rounded_up(mu, 3)}, where one draw is to tell N(0, 1) from N(mu, 1)."
        )
    gain = float(np.asarray(advantage(loss)).item())
    lines += [
        "Attacks: no test of whether a record was used has a true-positive rate more than "
        f"{rounded_up(gain, 3)} above its false-positive rate (membership advantage),",
        f"and at a false-positive rate of {_FPR:g} its true-positive rate is at most "
        f"{rounded_up(_power(loss), 3)}.",
    ]
    return lines


def _power(loss: PrivacyLoss) -> float:
    """The least e^epsilon fpr + delta(epsilon) that is found: every epsilon bounds the power.

    Convex in e^epsilon, so that golden section finds the least; one number at a time, which is
    compiled for the epsilon already. `risk.tpr_at_fpr` is within 1e-3 of it.
    """

    def bound(epsilon: float) -> float:
        return math.exp(epsilon) * _FPR + float(np.asarray(loss.delta(epsilon)).item())

    low, high = 0.0, -math.log(_FPR)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
    best = min(bound(0.0), at_left, at_right)
    for _ in range(_LOOKS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
        best = min(best, at_left, at_right)
    return min(best * (1.0 + 1e-15), 1.0)


def _protected(group_size: int) -> str:
    return "any one record" if group_size == 1 else f"all {group_size} records of any one user"


def _conditions(known: tuple[Phase, ...], relation: Relation, group_size: int) -> list[str]:
    drawn = []
    for phase in known:
        if phase.scheme is not None or float(np.asarray(phase.sampling_prob).item()) < 1:
            drawn += [x for x in conditions_of(phase.scheme) if x not in drawn]
    users = "one record is one user: of a user with k records the guarantee is weaker"
    if group_size > 1:
        users = f"no user has more than {group_size} records"
    moved = "replacing" if relation == "replace_one" else "adding or removing"
    items = [
        *drawn,
        users,
        "the gradient of each record is clipped on its own, to the norm that the noise is relative "
        f"to, and nothing else of the model depends on the records (no batch normalisation); "
        f"{moved} a record changes nothing but its own gradient",
        "the sum is divided by the expected batch size, not by the one drawn, and the size of the "
        "data set is taken to be public",
        "the noise comes from a secure source of randomness, is never used twice, and is not "
        "undone by rounding",
        "hyper-parameters, the clipping norm and the number of steps were not tuned on the same "
        "data, or the tuning was accounted for as well",
        "nothing else computed from the records is published, such as losses or batch sizes",
    ]
    return ["This holds if:", *(f"- {item};" for item in items[:-1]), f"- {items[-1]}."]


def rounded_up(value: float, digits: int) -> str:
    """Text of `value` rounded up to `digits` significant digits."""
    nearest = f"{value:.{digits}g}"
    if float(nearest) >= value:
        return nearest
    upwards = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value)
    return f"{float(upwards):.{digits}g}"
