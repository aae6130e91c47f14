"""Numbers of a statement are exact, of every type."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import jaxdp as dp

TENTH = dp.privacy_loss(dp.PureDP(0.1)).to_json()


@pytest.mark.parametrize(
    "exact", [Decimal("0.1"), Fraction(1, 10), "0.1", np.longdouble("0.1"), np.array([0.1])]
)
def test_numbers_are_not_rounded(exact):
    """The least float that is at least .1 exceeds it; a pure loss of .1 has a delta below."""
    pure = 0.1
    proof = dp.verify(TENTH, exact, 0)
    value = (
        Fraction(*exact.item().as_integer_ratio()) if hasattr(exact, "item") else Fraction(exact)
    )
    assert proof.proved is (value >= Fraction(pure))


@pytest.mark.parametrize(
    "bad", [None, True, [0.1], np.ones(2), 1j, Decimal("NaN"), "1e999999999", "1/0"]
)
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        dp.verify(TENTH, bad, 0.1)
