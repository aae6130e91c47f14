"""One source, two array libraries: NumPy for known numbers, `jax.numpy` for everything else.

Each function of `xp` looks at its arguments: if one is a JAX array or is traced, it calls the
function of `jax.numpy`, else the one of NumPy, so that a concrete query compiles nothing. Inside of
`kernel` everything is known, nothing looks, and `xp` has NumPy's own functions. `lax` has the
loops: they run in Python if their state is NumPy's and no trace is open.

Both libraries round to within 4 ulps (`tests/unit/_core/test_namespace.py`), which stated errors
cover.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdp._core.precision import is_tracing, outside_traces

# Names that mean the same to both libraries, of which JAX's know more types.
_OF_JAX = ("bfloat16", "dtype", "finfo", "issubdtype", "ndarray")
# Functions that make arrays: inside of a trace JAX's, which traced numbers may index.
_NEW = ("arange", "array", "asarray", "eye", "full", "linspace", "ones", "zeros")

# Types of arguments that are surely not JAX's: most calls end with a look at this set.
_KNOWN = {np.ndarray, np.float64, np.int64, np.bool_, float, int, bool, str, type(None)}


@functools.cache
def _is_of_jax(kind: type) -> bool:
    return issubclass(kind, Tracer) or issubclass(kind, jax.Array)


def any_of_jax(arguments: Any) -> bool:
    """True if an argument, or an entry of a list or tuple, is JAX's."""
    for x in arguments:
        kind = type(x)
        if kind in _KNOWN:
            continue
        if kind is tuple or kind is list:
            if not _KNOWN.issuperset(map(type, x)) and any_of_jax(x):
                return True
        elif _is_of_jax(kind):
            return True
    return False


def on_host(*trees: Any) -> bool:
    """True if no array in the trees is JAX's and no trace is open."""
    return in_kernel() or (not any_of_jax(jax.tree.leaves(trees)) and not is_tracing())


class _Numpy(threading.local):
    """The functions of `jax.numpy`, computed by NumPy where no argument is JAX's.

    is_known: of this thread, whether they are NumPy's own: no argument is JAX's then.
    """

    def __init__(self, host: ModuleType, device: ModuleType):
        self._host, self._device = host, device
        self._names: dict[bool, dict[str, Any]] = {False: {}, True: {}}
        self.is_known = False

    def __getattr__(self, name: str) -> Any:
        host, device = getattr(self._host, name, None), getattr(self._device, name)
        known = found = device if name in _OF_JAX or host is None else host
        if isinstance(device, ModuleType):
            found = _Numpy(host or device, device)
        elif callable(found) and not isinstance(found, type) and name not in _OF_JAX:
            found = either(host, device, name in _NEW)
        self._names[False][name], self._names[True][name] = found, known
        setattr(self, name, self._names[self.is_known][name])
        return getattr(self, name)

    @contextlib.contextmanager
    def switched(self, is_known: bool) -> Iterator[None]:
        """Context with the functions of NumPy, or with those that look at their arguments."""
        before = self.is_known
        if before is is_known:
            yield
            return
        vars(self).update(self._names[is_known], is_known=is_known)
        try:
            yield
        finally:
            vars(self).update(self._names[before], is_known=before)


def either(
    host: Callable[..., Any] | None, device: Callable[..., Any], is_new: bool = False
) -> Callable[..., Any]:
    """The function of NumPy (`host`) or of JAX (`device`), chosen by the arguments."""
    if host is None:
        return device

    @functools.wraps(device)
    def function(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values()) if kwargs else args
        is_known = _KNOWN.issuperset(map(type, values)) or not any_of_jax(values)
        if not is_known or (is_new and is_tracing()):
            return device(*args, **kwargs)
        return host(*args, **kwargs)

    return function


_xp = _Numpy(np, jnp)
if TYPE_CHECKING:  # Both libraries have the same functions.
    import jax.numpy as xp
    from jax import lax
else:
    xp = _xp


def in_kernel() -> bool:
    """True in a kernel that NumPy computes: as in a compiled one, bad values become NaN."""
    return _xp.is_known


@contextlib.contextmanager
def kernel() -> Iterator[None]:
    """Context where NumPy computes concrete values of any size, and bad ones become NaN."""
    with _xp.switched(True), outside_traces(), np.errstate(all="ignore"):
        yield


def for_traces() -> contextlib.AbstractContextManager[None]:
    """Context inside of a kernel for a function that JAX traces there."""
    return _xp.switched(False)


def shape_of(function: Callable[..., Any], *args: Any) -> Any:
    """`jax.eval_shape`."""
    with for_traces():
        return jax.eval_shape(function, *args)


def updated(x: Any, index: Any, value: Any) -> Any:
    """A copy of x with `value` at an index."""
    if any_of_jax((x, value)) or any_of_jax(index if isinstance(index, tuple) else (index,)):
        return jnp.asarray(x).at[index].set(value)
    copy = np.array(x)
    copy[index] = value
    return copy


def picked(x: Any, index: Any) -> Any:
    """x[index]; NaN where a traced index lies outside."""
    parts = index if isinstance(index, tuple) else (index,)
    if any_of_jax((x, *parts)):
        return jnp.asarray(x).at[index].get(mode="fill", fill_value=jnp.nan)
    return np.asarray(x)[index]


def _running(name: str, host: np.ufunc, x: Any, axis: int = 0, reverse: bool = False) -> Any:
    if any_of_jax((x,)):
        return getattr(jax.lax, name)(x, axis=axis, reverse=reverse)
    x = np.flip(x, axis) if reverse else x
    result = host.accumulate(x, axis=axis)
    return np.flip(result, axis) if reverse else result


class _Lax:
    """Loops and hints of `jax.lax`: Python's loops where all is known, the rest is JAX's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax.lax, name)

    @staticmethod
    def fori_loop(lower: Any, upper: Any, body: Callable[..., Any], state: Any) -> Any:
        if not on_host(lower, upper, state):
            return jax.lax.fori_loop(lower, upper, body, state)
        for i in range(int(lower), int(upper)):
            state = body(i, state)
        return state

    @staticmethod
    def while_loop(goes_on: Callable[..., Any], body: Callable[..., Any], state: Any) -> Any:
        if not on_host(state):
            return jax.lax.while_loop(goes_on, body, state)
        while goes_on(state):
            state = body(state)
        return state

    @staticmethod
    def scan(
        body: Callable[..., Any], state: Any, xs: Any = None, length: Any = None, unroll: int = 1
    ) -> tuple[Any, Any]:
        if not on_host(state, xs):
            return jax.lax.scan(body, state, xs, length, unroll=unroll)
        results = []
        for x in [None] * int(length or 0) if xs is None else _rows(xs):
            state, result = body(state, x)
            results.append(result)
        return state, _stacked(results)

    @staticmethod
    def map(function: Callable[..., Any], xs: Any) -> Any:
        if not on_host(xs):
            return jax.lax.map(function, xs)
        return _stacked([function(x) for x in _rows(xs)])

    @staticmethod
    def custom_root(residual: Any, start: Any, solve: Any, slope_solve: Any) -> Any:
        if not on_host(start):
            return jax.lax.custom_root(residual, start, solve, slope_solve)
        return solve(residual, start)

    @staticmethod
    def stop_gradient(x: Any) -> Any:
        return jax.lax.stop_gradient(x) if any_of_jax(jax.tree.leaves(x)) else x

    @staticmethod
    def optimization_barrier(x: Any) -> Any:
        return x if on_host(x) else jax.lax.optimization_barrier(x)

    @staticmethod
    def reduce_precision(x: Any, exponent_bits: int, mantissa_bits: int) -> Any:
        if any_of_jax((x,)):
            return jax.lax.reduce_precision(x, exponent_bits, mantissa_bits)
        # Dekker's split; only the number of bits of doubles is ever reduced.
        scaled = x * (2.0 ** (52 - mantissa_bits) + 1.0)
        return scaled - (scaled - x)

    cummax = staticmethod(functools.partial(_running, "cummax", np.maximum))
    cummin = staticmethod(functools.partial(_running, "cummin", np.minimum))
    cumsum = staticmethod(functools.partial(_running, "cumsum", np.add))


if not TYPE_CHECKING:
    lax = _Lax()


def vmap(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap` along first axes; one call after the other where all is known."""
    mapped = jax.vmap(function, in_axes)

    def call(*args: Any) -> Any:
        if not on_host(args):
            return mapped(*args)
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        moving = [x for x, axis in zip(args, axes, strict=True) if axis is not None]
        results = []
        for row in _rows(tuple(moving)):
            parts = iter(row)
            pairs = zip(args, axes, strict=True)
            results.append(function(*(x if axis is None else next(parts) for x, axis in pairs)))
        return _stacked(results)

    return call


class custom_jvp:  # noqa: N801
    """`jax.custom_jvp`, which calls the function itself where all is known."""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()):
        functools.update_wrapper(self, function)
        self._function = function
        self._with_slopes = jax.custom_jvp(function, nondiff_argnums=nondiff_argnums)
        self.defjvp = self._with_slopes.defjvp

    def __call__(self, *args: Any) -> Any:
        return (self._function if on_host(args) else self._with_slopes)(*args)


def _rows(xs: Any) -> Iterator[Any]:
    """Entries of the trees' arrays along their first axis."""
    leaves, tree = jax.tree.flatten(xs)
    return (tree.unflatten([x[i] for x in leaves]) for i in range(len(leaves[0])))


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *trees) if trees else None


class _Special:
    """Functions of `jax.scipy.special`, computed by SciPy where no argument is JAX's."""

    def __getattr__(self, name: str) -> Any:
        import jax.scipy.special
        import scipy.special

        function = either(getattr(scipy.special, name), getattr(jax.scipy.special, name))
        setattr(self, name, function)
        return function


special: Any = _Special()


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log sum e^x along axes; -inf of nothing but -inf."""
    if any_of_jax((x,)):
        return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)
    largest = np.max(x, axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    total = np.log(np.sum(np.exp(x - largest), axis=axis, keepdims=True)) + largest
    return total if keepdims else np.squeeze(total, axis=axis)


def softmax(x: Any, axis: int = -1) -> Any:
    """e^x over their sum along an axis."""
    if any_of_jax((x,)):
        return jax.nn.softmax(x, axis=axis)
    largest = np.max(x, axis=axis, keepdims=True)
    parts = np.exp(x - largest)
    return parts / np.sum(parts, axis=axis, keepdims=True)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return jax.nn.sigmoid(x) if any_of_jax((x,)) else 1.0 / (1.0 + np.exp(-np.asarray(x)))
