"""The accountant against proved brackets of delta: reference/engine_proved.json."""

import math
from fractions import Fraction

import numpy as np
import pytest
import references
from compositions import KINDS

PROVED = references.load("engine_proved.json")["rows"]
# Kinds that are answered at once; the others are long.
QUICK = ("gaussian", "discrete_laplace", "removed_gaussian", "two_phases", "without_replacement")
# Of a log in float64. derived: some units of the last place
ROUNDING = 1e-15


def log(text):
    """log of decimal text, which a float may not hold."""
    exact = Fraction(text)
    return math.log(exact.numerator) - math.log(exact.denominator)


def check(rows):
    for row in rows:
        loss = KINDS[row["kind"]](**row["parameters"])
        low, high = map(log, row["delta"])
        found, error = (
            float(np.asarray(x(row["epsilon"]))) for x in (loss.log_delta, loss.log_delta_error)
        )
        slack = ROUNDING * max(1.0, abs(low))
        assert found >= low - slack, (row, found - low)
        assert found - error <= high + slack, (row, found - high, error)


@pytest.mark.parametrize("kind", QUICK)
def test_log_delta_lies_in_the_proved_bracket(kind):
    check([row for row in PROVED if row["kind"] == kind][:1])


@pytest.mark.long
def test_every_row():
    check(PROVED)


def test_a_value_below_the_truth_is_seen():
    row = next(row for row in PROVED if row["kind"] == "gaussian")
    lower = f"{float(row['delta'][0]) * (1 + 1e-9):.17g}"
    with pytest.raises(AssertionError):
        check([row | {"delta": [lower, lower]}])
