"""Functions that draw, or compute with records, in float64: JAX's, whether anything is traced.

They keep arrays on the device that has them. Known results are arrays of NumPy, which no setting of
JAX rounds; traced ones are in the caller's widest type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

from jaxdp._core.float64 import (
    as_numpy,
    is_traced,
    opening,
    require_float64_of,
    traced_in_float64,
)
from jaxdp._core.precision import is_inside, opened
from jaxdp._core.shared_key import unshared

F = TypeVar("F", bound=Callable[..., Any])
# Names of arguments that are keys.
_KEYS = ("key", "keys")


def draws_in_float64(
    function: F | None = None, *, may_share: bool = False, keeps_types: bool = False
) -> F:
    """The function, computed in float64.

    `may_share`: the key may be a constant where other arguments are traced. `keeps_types`: results
    are returned as they are.
    """
    if function is None:
        options = {"may_share": may_share, "keeps_types": keeps_types}
        return cast(F, functools.partial(draws_in_float64, **options))
    signature = inspect.signature(function)
    name = next((x for x in _KEYS if x in signature.parameters and not may_share), None)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_inside():
            return function(*args, **kwargs)
        if not is_traced((args, kwargs)):
            with opened():
                result = function(*args, **kwargs)
            return result if keeps_types else as_numpy(result)
        if name is not None:
            # Before the arguments become those of a primitive, which does not say what traces them.
            given = signature.bind(*args, **kwargs).arguments
            key = given.pop(name, None)
            if isinstance(key, jax.Array):
                unshared(key, given)
        require_float64_of((args, kwargs))
        side = None if keeps_types else 0.0
        return traced_in_float64(function, (args, kwargs), side, is_refused=False)

    return cast(F, opening(call))
