"""State of the current call: inside a trace, or outside of any.

`isolated` is a traced call in float64 inside of a caller's float32: one primitive a call. JAX
applies most rules of a transformation when the call is over: it differentiates, batches and lowers
what it has traced with the setting of that moment, and without float64 these rules round to
float32. Here a call is traced to a primitive, whose rules open float64 themselves.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import Primitive, find_top_trace, set_current_trace
from jax.interpreters import ad, batching, mlir

from jaxdp._core.precision import opened

# The trace of eager evaluation. A new thread is outside of any transformation, also where a
# traced function has imported this module.
with ThreadPoolExecutor(1) as _new_thread:
    _EAGER = _new_thread.submit(find_top_trace, ()).result()

# Whose functions run once, in Python, for all calls and entries: as error messages name them.
TRANSFORMATIONS = "jit, vmap, grad, scan and other transformations of JAX"

_lifted = threading.local()


def is_tracing() -> bool:
    """True if the current computation may be traced."""
    return find_top_trace(()) is not _EAGER


def is_inside_trace() -> bool:
    """True inside of any transformation, also where `outside_traces` has lifted it."""
    return getattr(_lifted, "depth", 0) > 0 or is_tracing()


@contextlib.contextmanager
def outside_traces() -> Iterator[None]:
    """Context that computes concrete values instead of tracing them into the outer trace."""
    if not is_tracing():
        yield
        return
    _lifted.depth = getattr(_lifted, "depth", 0) + 1
    try:
        with set_current_trace(_EAGER):
            yield
    finally:
        _lifted.depth -= 1


_apart = threading.local()


def numbers_are_apart() -> bool:
    """True where one number of a record is moved alone, so that shares do not add up to 1."""
    return getattr(_apart, "running", False)


@contextlib.contextmanager
def moving_apart() -> Iterator[None]:
    """Context of a difference in one number of a record, for its slope."""
    before, _apart.running = numbers_are_apart(), True
    try:
        yield
    finally:
        _apart.running = before


# Traces of `isolated`, which run once, as the call that they stand for does.
_own = threading.local()


def is_isolated(trace: Any) -> bool:
    """True for the trace of an `isolated` call that is going on."""
    return any(trace is x for x in getattr(_own, "traces", []))


def isolated(function: Callable[..., Any], *operands: Any) -> Any:
    """function(*operands) of traced arrays as one primitive; what else it returns is known.

    It may close over traced values.
    """
    kept: list[Any] = []
    own = getattr(_own, "traces", [])
    with opened():

        def flat(*operands: Any) -> list[Any]:
            _own.traces = [*own, *(getattr(x, "_trace", None) for x in operands[:1])]
            leaves, structure = jax.tree.flatten(function(*operands))
            kept[:] = structure, [None if isinstance(x, Tracer) else x for x in leaves]
            return [x for x in leaves if isinstance(x, Tracer)]

        try:
            found = iter(_bound(flat, operands))
        finally:
            _own.traces = own
    structure, known = kept
    leaves = [next(found) if x is None else x for x in known]
    return jax.tree.unflatten(structure, leaves)


def _bound(function: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
    """The results of the function's primitive; traced values that it closes over are operands."""
    closed = jax.make_jaxpr(function)(*operands)
    traced = [isinstance(x, Tracer) for x in closed.consts]
    hoisted = [x for x, is_traced in zip(closed.consts, traced, strict=True) if is_traced]
    consts = [None if t else x for x, t in zip(closed.consts, traced, strict=True)]
    program = _Program(closed.jaxpr, consts, [x.aval for x in closed.jaxpr.outvars])
    return _call.bind(*hoisted, *operands, program=program)


class _Program:
    """A jaxpr, which takes the constants that are None before its operands."""

    def __init__(self, jaxpr: Any, consts: list[Any], out_types: list[Any]):
        self._jaxpr, self._consts, self.out_types = jaxpr, consts, out_types

    def __call__(self, *operands: Any) -> list[Any]:
        rest = iter(operands)
        consts = [next(rest) if x is None else x for x in self._consts]
        return eval_jaxpr(self._jaxpr, consts, *rest)


def _evaluated(*operands: Any, program: _Program) -> list[Any]:
    with opened():
        return program(*operands)


def _lowered(context: Any, *operands: Any, program: _Program) -> Any:
    with opened():
        return mlir.lower_fun(program, multiple_results=True)(context, *operands)


def _batched(operands: Any, axes: Any, *, program: _Program) -> tuple[Any, Any]:
    with opened():
        found = _bound(jax.vmap(program, tuple(axes)), operands)
    return found, [0] * len(found)


def _with_tangents(primals: Any, tangents: Any, *, program: _Program) -> tuple[Any, Any]:
    """Results with what the tangents need of them, and the tangents, linear in the given ones.

    So the program of the results runs, and is compiled, once.
    """
    moves = [not isinstance(x, ad.Zero) for x in tangents]
    real = [jnp.issubdtype(x.dtype, jnp.inexact) for x in program.out_types]
    kept: list[Any] = []

    def linearized(*operands: Any) -> list[Any]:
        varied = [x for x, is_moving in zip(operands, moves, strict=True) if is_moving]

        def of_varied(*varied: Any) -> tuple[list[Any], list[Any]]:
            values = program(*_merged(operands, moves, varied))
            return [x for x, is_real in zip(values, real, strict=True) if is_real], values

        _, along, values = jax.linearize(of_varied, *varied, has_aux=True)
        factors, structure = jax.tree.flatten(along)
        kept[:] = [structure]
        return [*values, *factors]

    def tangents_of(*operands: Any) -> list[Any]:
        factors, moving = operands[: len(factors_found)], operands[len(factors_found) :]
        return jax.tree.unflatten(kept[0], factors)(*moving)

    with opened():
        found = _bound(linearized, primals)
        results, factors_found = found[: len(real)], found[len(real) :]
        moving = [x for x, is_moving in zip(tangents, moves, strict=True) if is_moving]
        moved = iter(_bound(tangents_of, [*factors_found, *moving]))
        zeros = [ad.Zero(x.to_tangent_aval()) for x in program.out_types]
    return results, [next(moved) if r else z for r, z in zip(real, zeros, strict=True)]


def _transposed(cotangents: Any, *operands: Any, program: _Program) -> list[Any]:
    linear = [ad.is_undefined_primal(x) for x in operands]
    known = [x for x, is_linear in zip(operands, linear, strict=True) if not is_linear]
    types = [x.aval for x, is_linear in zip(operands, linear, strict=True) if is_linear]

    def back(*values: Any) -> Any:
        given, cotangents = values[: len(known)], values[len(known) :]

        def of_linear(*tangents: Any) -> list[Any]:
            rest = iter(given)
            filled = [next(rest) if not is_linear else None for is_linear in linear]
            return program(*_merged(filled, linear, tangents))

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in types]
        return jax.linear_transpose(of_linear, *shapes)(list(cotangents))

    with opened():
        filled = [ad.instantiate_zeros(x) for x in cotangents]
        found = iter(_bound(back, [*known, *filled]))
    return [next(found) if is_linear else None for is_linear in linear]


def _merged(values: Sequence[Any], replaced: Sequence[bool], by: Sequence[Any]) -> list[Any]:
    """The values, with others in the marked places."""
    others = iter(by)
    return [next(others) if r else x for x, r in zip(values, replaced, strict=True)]


_call = Primitive("float64_call")
_call.multiple_results = True
_call.def_impl(_evaluated)
_call.def_abstract_eval(lambda *_, program: program.out_types)
mlir.register_lowering(_call, _lowered)
batching.primitive_batchers[_call] = _batched
ad.primitive_jvps[_call] = _with_tangents
ad.primitive_transposes[_call] = _transposed
