"""Kinds of stored records: their keys, the range of every field, and relations by name."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

# Least and largest normal double. derived
LEAST, LARGEST = sys.float_info.min, sys.float_info.max


class Numbers(NamedTuple):
    """The range [low, high] of a field's numbers.

    whole: whole numbers, or infinity. gap: 0, or a normal number. static: one number, not an array.
    many: a list.
    """

    low: float
    high: float = math.inf
    whole: bool = False
    gap: bool = False
    static: bool = False
    many: bool = False

    def holds(self, x: float) -> bool:
        """True if the range has this number; False for NaN."""
        inside = self.low <= x <= self.high and not (self.gap and 0 < x < LEAST)
        return inside and (not self.whole or math.isinf(x) or x.is_integer())

    def __str__(self) -> str:
        return f"{'whole and ' if self.whole else ''}in [{self.low:g}, {self.high:g}]"


class Records(NamedTuple):
    """A field that holds a record of one of these kinds.

    many: a list of records. own: also of a class of the user's.
    """

    kinds: tuple[str, ...]
    many: bool = False
    own: bool = False


Fields = dict[str, Numbers | Records]

COUNT, _FLAG = Numbers(0.0, whole=True), Numbers(0.0, 1.0, whole=True)
_SCALE, _SHIFT, REAL = Numbers(LEAST), Numbers(0.0), Numbers(-math.inf)
# Masses add up to 1, and 1e-9 at most above.
_PROBABILITY, _MASS = Numbers(0.0, 1.0), Numbers(0.0, 1.0 + 1e-9, static=True)
_PART = Numbers(0.0, LARGEST, gap=True)
_SHIFTS = Numbers(0.0, many=True)
# Shares that were rounded up exceed 1.
_LOG_SHARES = Numbers(-math.inf, 1e-9, many=True)

NOISES: dict[str, Fields] = {
    "Gaussian": {"scale": _SCALE},
    "Laplace": {"scale": _SCALE},
    "TruncatedLaplace": {"scale": _SCALE, "bound": _SCALE},
    "FlippedHuber": {"alpha": _PART, "gamma": _SCALE},
    "OffsetGaussian": {"offset": _PART, "scale": _SCALE},
    "Subbotin": {"scale": _SCALE, "power": Numbers(1.0, 1e4)},
    "Staircase": {
        "epsilon": Numbers(LEAST, LARGEST),
        "sensitivity": _SCALE,
        "split": Numbers(LEAST, 1.0),
    },
    "DiscreteGaussian": {"scale": _SCALE},
    "DiscreteLaplace": {"scale": _SCALE},
}
# Noises whose shift is whole, and log-concave densities, which a replaced record needs.
ON_INTEGERS = ("DiscreteGaussian", "DiscreteLaplace")
_LOG_CONCAVE = tuple(kind for kind in NOISES if kind not in (*ON_INTEGERS, "Staircase"))

_ANY_NOISE, _CONCAVE = (Records(kinds, own=True) for kinds in (tuple(NOISES), _LOG_CONCAVE))
_BASES = ("Additive", "Finite", "Response", "RandomisedResponse")
_COINS = (
    *(*_BASES, "BoundedRange", "Poisson", "Replaced"),
    *("FixedBatch", "SampledGroup", "GaussianMixture", "Allocation"),
)
PAIRS: dict[str, Fields] = {
    "Additive": {"noise": _ANY_NOISE, "shift": _SHIFT},
    "Poisson": {"base": Records(_BASES), "sampling_prob": _PROBABILITY, "added": _FLAG},
    "Replaced": {"noise": _CONCAVE, "shift": _SHIFT, "sampling_prob": _PROBABILITY},
    "FixedBatch": {"noise": _CONCAVE, "shift": _SHIFT, "rate": _PROBABILITY},
    "SampledGroup": {
        "noise": Records(("Gaussian",)),
        "shift": _SHIFT,
        "log_probabilities": _LOG_SHARES,
        "added": _FLAG,
    },
    "GaussianMixture": {
        "sensitivities": _SHIFTS,
        "log_probabilities": _LOG_SHARES,
        "other_sensitivities": _SHIFTS,
        "other_log_probabilities": _LOG_SHARES,
        "scale": _SCALE,
    },
    "PublicCoin": {"pairs": Records(_COINS, many=True), "log_shares": _LOG_SHARES},
    "Response": {"bound": _SHIFT, "failure": _PROBABILITY},
    "RandomisedResponse": {"bound": _SHIFT, "categories": Numbers(2.0, whole=True)},
    "BoundedRange": {"bound": _SHIFT},
    "Finite": {
        "losses": Numbers(-LARGEST, LARGEST, static=True, many=True),
        "masses": _MASS._replace(many=True),
        "infinite": _MASS,
        "hidden": _MASS,
        "backward": _FLAG,
    },
    "Allocation": {
        "ratio": _SHIFT,
        "steps": Numbers(1.0, 2.0**53, whole=True, static=True),
        "added": _FLAG,
    },
}
KINDS: dict[str, Fields] = {**NOISES, **PAIRS}
ANY_PAIR, ANY_KIND = (Records(tuple(kinds), own=True) for kinds in (PAIRS, KINDS))
RELATIONS = ("add_remove", "add", "remove", "replace_one", "zero_out")
# Kinds whose exchanged pair is the same.
SYMMETRIC = (
    *("Additive", "Replaced", "FixedBatch"),
    *("Response", "RandomisedResponse", "BoundedRange"),
)
