"""The tests check the types of arguments and results, at the first call of each function."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from jaxdp._numeric.mills import mills


def test_the_first_call_of_a_function_is_checked():
    whole = np.arange(3)
    with pytest.raises(TypeCheckError):
        mills(whole)
    np.testing.assert_array_equal(mills(whole), mills(whole.astype(float)))
