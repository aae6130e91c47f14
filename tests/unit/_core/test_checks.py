"""Checks of arguments in other precisions and of other types."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core import checks


@pytest.mark.parametrize("kind", [np.float16, np.float32, jnp.float32, jnp.bfloat16])
def test_bounds_are_those_of_float64_in_every_precision(kind):
    """In float16 or float32 the least scale would be 0, and the largest number infinite."""
    with pytest.raises(ValueError, match=r"scale must lie in \(0, inf\], got"):
        dp.Gaussian(kind(0.0))
    assert checks.real("order", kind(2.0), 1.0, 1e300) == 2.0
    with pytest.raises(ValueError, match="order must lie in"):
        checks.real("order", kind(np.inf), 1.0, 1e300)


def test_what_is_longer_than_a_double_keeps_its_side():
    least, most = np.longdouble("1e-400"), np.longdouble("1e400")
    if least == 0:
        pytest.skip("no longer type here")
    with pytest.raises(ValueError, match="scale must lie in"):
        dp.Gaussian(least)
    assert dp.PureDP(least).epsilon_bound == checks.LEAST_NORMAL
    assert dp.Gaussian(most).scale == np.inf


@pytest.mark.parametrize("value", ["3", None, 1j, [1], [1, 2], 0.5, 0, True, 10**400, np.nan, {}])
def test_a_size_is_one_whole_number(value):
    with pytest.raises(ValueError, match="steps must be a positive integer"):
        checks.positive_integer("steps", value)
    assert checks.positive_integer("steps", np.int8(3)) == 3


@pytest.mark.parametrize("value", ["a", [1.0, "secret"], [1j], object(), [10**400], [[1], [1, 2]]])
def test_values_of_records_are_named_and_not_told(value):
    with pytest.raises(ValueError, match="features must be an array of real numbers") as caught:
        checks.array_of_records("features", value)
    assert "secret" not in str(caught.value)
