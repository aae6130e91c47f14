"""Types of arguments and results, checked at the first call of each function in each test.

The cases of a parametrized test are one test. A function within a function is checked once a
process.

jaxtyping's import hook decorates every function and every class. To check every call costs ten
times what a call on known numbers costs: each binds a signature, and a check of a function within
a function is compiled anew whenever that is made.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
from beartype import beartype

# Code of the functions called since the test began, and of those within functions.
CALLED: set[int] = set()
_INNER: set[int] = set()
test: Any = None  # of which
_jaxtyped = jaxtyping.jaxtyped


def install(package: str) -> None:
    """Check what is imported from the package from now on."""
    jaxtyping.jaxtyped = _first_call_checked
    jaxtyping.install_import_hook(package, "beartype.beartype")


def _first_call_checked(function: Any = None, *, typechecker: Any) -> Any:
    """What the hook calls, twice: with the type checker, then with a function or a class."""
    if function is None:
        return functools.partial(_first_call_checked, typechecker=typechecker)
    if not inspect.isclass(function):
        return _checked(function)
    # What wraps a method of this package is a function of its own, and checked already.
    if is_dataclass(function) and function.__init__.__globals__ is not globals():
        function.__init__ = _checked(function.__init__)
    return function


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    code, check = id(function.__code__), None
    called = _INNER if "<locals>" in function.__qualname__ else CALLED

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal check
        if code in called:
            return function(*args, **kwargs)
        called.add(code)
        check = check or _jaxtyped(function, typechecker=beartype)
        return check(*args, **kwargs)

    return call
