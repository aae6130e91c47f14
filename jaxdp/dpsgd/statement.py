"""Privacy statement of a DP-SGD training in plain sentences."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Any, NamedTuple, Unpack

import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import Relation
from jaxdp._core.types import ArrayLike
from jaxdp.accountant.steps import LogBounds
from jaxdp.composition.gaussian_fit import nearest_gaussian
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.dpsgd.arguments import target_delta, with_names
from jaxdp.dpsgd.phase import Phase, Schedule, Training, training_of
from jaxdp.guarantee.base import Guarantee
from jaxdp.guarantee.drawn import Drawn, as_drawn
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.risk import advantage, tpr_at_fpr

# False-positive rate of the stated power. chosen: as in Carlini et al., 2022
_FPR = 1e-3
# Epsilons of the nearest Gaussian, and the error of log delta there. chosen: mu to .5 %
_POINTS, _WIDTH = 33, 1e-2

# Neighbours under each relation, in words.
_NEIGHBOURS = {
    "add_remove": "two data sets are neighbours if one holds one record more than the other "
    '("add_remove", the worse of the two directions)',
    "zero_out": "two data sets of the same size are neighbours if one record of the first is blank "
    'in the second ("zero_out", the worse of the two directions)',
    "replace_one": "two data sets of the same size are neighbours if they differ in one record, "
    'which is replaced by another ("replace_one")',
}


class Statement(NamedTuple):
    """Guarantee of a training and its conditions; `str` is the text, a sentence a line.

    epsilon, delta: the guarantee, epsilon infinite where there is none. mu: of the nearest Gaussian
    guarantee, None where none is stated. advantage: of a membership test. All are upper bounds; the
    sentences round them up.
    """

    epsilon: float
    delta: float
    mu: float | None
    advantage: float
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


@with_names
@in_float64
def statement(
    noise_multiplier: ArrayLike | None = None,
    delta: ArrayLike = 1e-6,
    *,
    proof: bool = False,
    **schedule: Unpack[Schedule],
) -> Statement:
    """Guarantee of a DP-SGD training and its conditions, in numbers and in plain English.

    Args:
        noise_multiplier, delta, schedule: as in `epsilon`, one concrete number each; relation:
            "add_remove", "replace_one" or "zero_out".
        proof: True to add a line with the verdict of `jaxdp.verify` (extra `verify`).

    Returns:
        A `Statement`. Its sentences: neighbours, sampling, protected data, epsilon and delta, mu,
        the advantage and the power of a membership test (rounded up), and the conditions.

    `ValueError` for traced or batched arguments.

    >>> import jaxdp as dp
    >>> found = dp.dpsgd.statement(1.0, 1e-6, sampling_prob=0.01, steps=1000)
    >>> print(f"{found.epsilon:.4f} {found.delta:g} {found.advantage:.3f}")
    2.1245 1e-06 0.161
    """
    target = target_delta(delta)
    training = training_of(noise_multiplier, schedule, target)
    found = statement_of(training, training.privacy_loss, target)
    if not proof:
        return found
    line = _proof_of(training.privacy_loss, found)
    return found._replace(sentences=(*found.sentences, line))


def _proof_of(loss: PrivacyLoss, found: Statement) -> str:
    """The verdict of the second program on the numbers that the statement prints."""
    from jaxdp.proof.decision import verify

    epsilon, target = rounded_up(found.epsilon, 4), rounded_up(found.delta, 6)
    verdict = {True: "Proved", False: "Refuted", None: "Neither proved nor refuted"}
    proved = verify(loss, epsilon, target).proved
    return f"{verdict[proved]} in ball arithmetic: delta({epsilon}) <= {target}."


def statement_of(
    training: Training,
    loss: PrivacyLoss | Guarantee | Drawn,
    delta: ArrayLike,
    noise: str = "noise",
) -> Statement:
    """The statement of a training with this privacy loss, and the name of its noise."""
    phases, relation, group_size = training
    checks.one_of("relation", relation, tuple(_NEIGHBOURS))
    if not checks.all_concrete(phases, delta):
        raise ValueError("a statement requires concrete numbers, got traced ones")
    if any(np.size(x) != 1 for x in (delta, *(phase.steps for phase in phases))) or any(
        math.prod(phase.shape) != 1 for phase in phases
    ):
        raise ValueError("a statement is of one training: give one number for each argument")
    epsilon = float(np.asarray(loss.epsilon(delta)).item())
    target = float(np.asarray(delta).item())
    delta_text = rounded_up(target, 6)
    pair = f"({rounded_up(epsilon, 4)}, {delta_text})"
    records = "any one record" if group_size == 1 else f"all {group_size} records of any one user"
    lines = [
        f"Neighbours: {_NEIGHBOURS[relation]}.",
        "Sampling: " + "; then ".join(_described(phase, noise) for phase in phases) + ".",
        f"Protected: the presence and the content of {records}, against anyone who "
        "sees the model, every step's noisy gradient and all other records.",
        f"Guarantee: the training is {pair}-differentially private."
        if math.isfinite(epsilon)
        else f"Guarantee: none at delta {delta_text}, no epsilon is finite.",
    ]
    mu, strength = _strength(loss, epsilon, target)
    gain = float(np.asarray(advantage(loss)).item())
    attacks = (
        "Attacks: no test of whether a record was used has a true-positive rate more than "
        f"{rounded_up(gain, 3)} above its false-positive rate (membership advantage). "
        f"At a false-positive rate of {_FPR:g} its true-positive rate is at most "
        f"{rounded_up(_power(loss), 3)}."
    )
    conditions = _conditions(phases, relation, group_size)
    return Statement(epsilon, target, mu, gain, (*lines, *strength, attacks, *conditions))


def _described(phase: Phase, noise: str) -> str:
    count, scale = (float(np.asarray(x).item()) for x in (phase.steps, phase.noise_multiplier))
    how = phase.sampling.statement().sampling
    return f"{count:,.0f} steps with {noise} multiplier {scale:g}, where {how}"


def _strength(
    loss: PrivacyLoss | Guarantee | Drawn, epsilon: float, target: float
) -> tuple[float | None, list[str]]:
    """mu of the nearest Gaussian guarantee, in words too.

    None without a finite epsilon at a delta in (0, 1), and where the sampling error may be seen
    there.
    """
    if not (0 < target < 1 and math.isfinite(epsilon)):
        return None, []
    drawn = as_drawn(loss)
    error = float(np.asarray(drawn.sampling_error).item())
    # The sampling error moves both rates of a test, and half of delta covers that.
    rest = 0.5 * target if error else target
    exact = drawn.exact if isinstance(drawn.exact, PrivacyLoss) else privacy_loss(drawn.exact)
    largest = exact.epsilon(rest) if error else epsilon
    rest, largest = xp.asarray(rest), xp.asarray(largest)
    found = nearest_gaussian(exact, rest, largest, _POINTS, _is_narrow)
    mu, regret = (float(np.asarray(x).item()) for x in found)
    if error and error + float(tpr_at_fpr(GDP(mu), error)) > rest:
        return None, []
    return mu, [
        f"Strength: at every false-positive rate, a test of whether a record was used has at most "
        f"the power of a test of N(0, 1) against N({rounded_up(mu, 3)}, 1) with one draw, plus "
        f"{rounded_up(target, 6)} (Gaussian differential privacy with mu = {rounded_up(mu, 3)}; "
        f"regret {rounded_up(regret, 2)})."
    ]


def _is_narrow(bounds: LogBounds) -> Any:
    return bounds.upper - bounds.lower < _WIDTH


def _power(loss: PrivacyLoss | Guarantee | Drawn) -> float:
    """The largest true-positive rate; the sampling error moves both rates of a test."""
    drawn = as_drawn(loss)
    error = float(np.asarray(drawn.sampling_error).item())
    power = float(tpr_at_fpr(drawn.exact, min(_FPR + error, 1.0))) + error
    return min(power * (1.0 + 1e-14), 1.0)


def _conditions(phases: tuple[Phase, ...], relation: Relation, group_size: int) -> list[str]:
    sampling = [text for phase in phases for text in phase.sampling.statement().conditions]
    users = "one record is one user; for a user with k records the guarantee is weaker"
    if group_size > 1:
        users = f"no user has more than {group_size} records"
    change = "replacing" if relation == "replace_one" else "adding or removing"
    items = [
        *dict.fromkeys(sampling),
        users,
        "the gradient of each record is clipped separately, to the norm that the noise multiplier "
        "refers to, and no other part of the model depends on the records (no batch "
        f"normalisation); {change} a record changes only its own gradient",
        "the sum is divided by the expected batch size, not by the sampled one, and the size of "
        "the data set is public",
        "the noise comes from a secure source of randomness, is never used twice, and is not "
        "undone by rounding",
        "hyper-parameters, the clipping norm and the number of steps were not tuned on the same "
        "data, or the tuning was accounted for as well",
        "no other quantity computed from the records is published, such as losses or batch sizes",
    ]
    return ["This holds if:", *(f"- {item};" for item in items[:-1]), f"- {items[-1]}."]


def rounded_up(value: float, digits: int) -> str:
    """Text of `value` rounded up to `digits` significant digits."""
    nearest = f"{value:.{digits}g}"
    if float(nearest) >= value:
        return nearest
    upwards = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value)
    return f"{float(upwards):.{digits}g}"
