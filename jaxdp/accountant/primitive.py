"""A composed question of lanes, or a search over such questions, as one primitive of JAX.

Its rules are all that tells concrete lanes from traced ones:

* evaluated, as in eager `vmap` and `grad`: the host's engines, in NumPy (`runner`);
* in a program for a CPU or a TPU: the same, by a callback, so that the answers are equal;
* in a program for a GPU: an engine on the device, and the host for lanes that stay wide (`gpu`);
* a mapped axis is more lanes;
* a derivative is a product with slopes. The same primitive returns the slopes of the upper bounds
  in the leaves that move, next to the bounds (`derivatives`). A search has none: its result gets
  those of the implicit function theorem (`search.with_slopes_of_root`).

Lanes that hold a NaN, or that an engine refuses, are NaN: a callback must not raise for values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxdp._core import checks
from jaxdp._core.namespace import kernel, xp
from jaxdp._core.precision import default_platform, opened, outside_traces
from jaxdp._core.types import Lanes, Reals, Shape
from jaxdp.accountant import derivatives, gpu
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.runner import StopWhen, fill, in_turn
from jaxdp.accountant.steps import LogBounds, Query, directed, worse

# Concrete lanes from which on the default device, if it is a GPU, evaluates them. chosen: a batch
# that its host takes seconds for, as the program takes to compile
_MANY = 2**12
_NOT_EXPORTED = (
    "jax.export cannot store this program: its privacy bounds are computed by Python on the host. "
    "Compute them outside of the function and pass the numbers in; sampled Gaussians, as in "
    'DP-SGD, can be exported for platforms=["cuda"]'
)


class Search(NamedTuple):
    """A function of concrete numbers, as a query of the primitive.

    It maps a tree of arrays (lanes, ...) to `results` arrays (lanes,).
    """

    function: Callable[[Any], tuple[Any, ...]]
    results: int


def searched(
    function: Callable[[Any], tuple[Any, ...]], results: int, numbers: Any, shape: Shape
) -> tuple[Any, ...]:
    """function(numbers) of traced numbers, by one call of the host, of the shape of a batch.

    Leaves of `numbers` begin with the axes of `shape`. NaN where a lane holds NaN, or the function
    raises `ValueError`. Without derivatives.
    """
    leaves, structure = jax.tree.flatten(numbers)
    size, axes = math.prod(shape), len(shape)
    leaves = [x.reshape(size, *x.shape[axes:]) for x in leaves]
    still = (False,) * len(leaves)
    query = Search(function, results)
    found = _answer.bind(*leaves, query=query, structure=structure, moving=still)
    return tuple(x.reshape(shape) for x in found)


def answered(
    query: Query, terms: Terms, values: Reals, stop_when: StopWhen | None = None
) -> LogBounds:
    """Bounds at every value, in the shape of the batch. `stop_when` ends concrete lanes."""
    shape = xp.broadcast_shapes(values.shape, *(term.shape for term in terms))
    is_known = checks.all_concrete(terms, values)
    if is_known:
        lanes = _laid_out(shape, *jax.tree.map(np.asarray, (terms, values)))
        if default_platform() == "gpu" and math.prod(shape) >= _MANY and query.on_gpu:
            found = _by_device(query, lanes)
        else:
            found = _of_host(query, (), lanes, _on_lanes(stop_when, shape))
    else:
        leaves, structure = jax.tree.flatten(_laid_out_in_traces(shape, terms, values))
        still = (False,) * len(leaves)
        found = _answer.bind(*leaves, query=query, structure=structure, moving=still)
    return (_shaped if is_known else _shaped_in_traces)(shape, found[0], found[1])


def _laid_out(shape: tuple[int, ...], terms: Terms, values: Lanes) -> tuple[Terms, Lanes]:
    """The lanes of a batch along one axis."""
    size = math.prod(shape)

    def flat(x: Lanes) -> Lanes:
        return xp.broadcast_to(x, (*shape, x.shape[-1])).reshape(size, x.shape[-1])

    return jax.tree.map(flat, terms), xp.broadcast_to(values, shape).reshape(size)


def _shaped(shape: tuple[int, ...], lower: Any, upper: Any) -> LogBounds:
    """The bounds of lanes in the shape of a batch."""
    return LogBounds(lower.reshape(shape), upper.reshape(shape))


# Eager derivatives and maps compile each as one program.
_shaped_in_traces = jax.jit(_shaped, static_argnums=0)
_laid_out_in_traces = jax.jit(_laid_out, static_argnums=0)


def _on_lanes(stop_when: StopWhen | None, shape: tuple[int, ...]) -> StopWhen | None:
    """`stop_when` of bounds of lanes."""
    if stop_when is None:
        return None

    def of_lanes(bounds: LogBounds) -> Any:
        found = stop_when(LogBounds(*(x.reshape(shape) for x in bounds)))
        return np.broadcast_to(np.asarray(found), shape).ravel()

    return of_lanes


def _of_host(
    query: Query | Search,
    moving: tuple[bool, ...],
    lanes: Any,
    stop_when: StopWhen | None = None,
) -> list[Any]:
    """Bounds of concrete lanes, and slopes in the leaves that move, from the host's engines."""
    if isinstance(query, Search):
        return list(query.function(lanes))
    terms, values = lanes
    size = query.directions * values.shape[0]
    with kernel():
        steps = query.on_host(terms)
        steps = tuple(s for s in steps if s.row.more_than < size)
        if any(moving):
            found, slopes = derivatives.answered(query, steps, moving, lanes)
        else:
            batch = Batch(*directed(terms, values, query.both))
            bounds = in_turn(steps, query.width, query.directions, batch, stop_when)
            found, slopes = worse(bounds, query.directions), []
        lower, upper = found if query.narrowed is None else query.narrowed(lanes, found)
        return [xp.minimum(lower, upper), upper, *slopes]


def _by_device(query: Query, lanes: tuple[Terms, Any]) -> list[Any]:
    """Bounds of concrete lanes from the program for the default device."""
    leaves, structure = jax.tree.flatten(lanes)
    size = leaves[0].shape[0]
    # The last lane fills the batch to a power of two, so that few sizes are compiled.
    at = np.minimum(np.arange(1 << (size - 1).bit_length()), size - 1)
    with opened(), outside_traces():
        found = _program(query, structure)(*(x[at] for x in leaves))
        return [np.asarray(x)[:size] for x in found]


@lru_cache(32)
def _program(query: Query, structure: Any) -> Any:
    still = (False,) * structure.num_leaves
    return jax.jit(partial(_answer.bind, query=query, structure=structure, moving=still))


def _known(
    *leaves: Any, query: Query | Search, structure: Any, moving: tuple[bool, ...]
) -> list[Any]:
    """The host's answer for the primitive: NaN where a lane holds NaN or is refused."""
    with opened(), outside_traces():
        leaves = tuple(np.asarray(x) for x in leaves)
        size = leaves[0].shape[0]
        bad = np.any([np.isnan(x.reshape(size, -1)).any(axis=1) for x in leaves], axis=0)
        types = _types(*leaves, query=query, structure=structure, moving=moving)
        answer = [np.full(x.shape, np.nan) for x in types]

        def of_lanes(lanes: np.ndarray) -> list[Any]:
            picked = jax.tree.unflatten(structure, [x[lanes] for x in leaves])
            return _of_host(query, moving, picked)

        if not bad.all():
            fill(answer, np.flatnonzero(~bad), of_lanes)
        return answer


def _evaluated(*leaves: Any, **params: Any) -> list[Any]:
    with opened():
        return [jnp.asarray(x) for x in _known(*leaves, **params)]


def _called_back(*leaves: Any, is_export: bool, **params: Any) -> list[Any]:
    if is_export:
        raise ValueError(_NOT_EXPORTED)
    are_wide = [x.dtype == np.float64 for x in leaves]

    def call(*given: Any) -> list[Any]:
        pairs = zip(map(np.asarray, given), are_wide, strict=True)
        numbers = (x.view(np.float64)[..., 0] if is_wide else x for x, is_wide in pairs)
        return [x[..., None].view(np.uint32) for x in _known(*numbers, **params)]

    # A callback runs in a thread with its own setting of float64, to which JAX rounds arguments.
    # Words of 32 bits are the same in every setting.
    words = [jax.ShapeDtypeStruct((*x.shape, 2), np.uint32) for x in _types(*leaves, **params)]
    pairs = zip(leaves, are_wide, strict=True)
    given = (jax.lax.bitcast_convert_type(x, np.uint32) if wide else x for x, wide in pairs)
    found = jax.pure_callback(call, words, *given)
    return [jax.lax.bitcast_convert_type(x, np.float64) for x in found]


def _on_gpu(*leaves: Any, is_export: bool, **params: Any) -> list[Any]:
    def host(leaves: list[Any]) -> list[Any]:
        return _called_back(*leaves, is_export=is_export, **params)

    if isinstance(params["query"], Search):
        return host(list(leaves))
    lanes = jax.tree.unflatten(params["structure"], leaves)
    return gpu.answered(params["query"], host, not is_export, params["moving"], lanes)


def _lowered(function: Any) -> Any:
    def lowered(context: Any, *operands: Any, **params: Any) -> Any:
        is_export = context.module_context.lowering_parameters.for_export
        rule = mlir.lower_fun(partial(function, is_export=is_export), multiple_results=True)
        with opened():
            return rule(context, *operands, **params)

    return lowered


def _batched(operands: Any, axes: Any, **params: Any) -> tuple[Any, Any]:
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    with opened():
        found = _answer.bind(*_merged(tuple(operands), tuple(axes), size), **params)
        return list(_parted(tuple(found), size)), [0] * len(found)


@partial(jax.jit, static_argnums=(1, 2))
def _merged(operands: Any, axes: Any, size: int) -> Any:
    """Leaves of size times as many lanes."""

    def of(x: Any, axis: Any) -> Any:
        x = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        return x.reshape(-1, *x.shape[2:])

    return tuple(of(x, a) for x, a in zip(operands, axes, strict=True))


@partial(jax.jit, static_argnums=1)
def _parted(found: Any, size: int) -> Any:
    return tuple(x.reshape(size, -1, *x.shape[1:]) for x in found)


def _with_tangents(
    primals: Any, tangents: Any, *, query: Query | Search, structure: Any, moving: tuple[bool, ...]
) -> tuple[Any, Any]:
    params = {"query": query, "structure": structure}
    if isinstance(query, Search):
        found = _answer.bind(*primals, **params, moving=moving)
        return found, [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in found]
    if any(moving):
        raise NotImplementedError("second derivatives of a composition are not supported")
    moving = tuple(
        jnp.issubdtype(x.dtype, jnp.floating) and not isinstance(t, ad.Zero)
        for x, t in zip(primals, tangents, strict=True)
    )
    with opened():
        lower, upper, *slopes = _answer.bind(*primals, **params, moving=moving)
        along = tuple(t for t, m in zip(tangents, moving, strict=True) if m)
        total = _product(tuple(slopes), along)
    return [lower, upper], [total, total]


@jax.jit
def _product(slopes: Any, tangents: Any) -> Any:
    """Sum of slope times tangent over all leaves (lanes,)."""

    # A leaf that does not move a bound has slope 0, also where its own derivative is infinite.
    def of(slope: Any, tangent: Any) -> Any:
        part = jnp.where(slope == 0, 0.0, slope * tangent)
        return jnp.sum(part.reshape(slope.shape[0], -1), 1)

    return sum(of(s, t) for s, t in zip(slopes, tangents, strict=True))


def _types(
    *leaves: Any, query: Query | Search, structure: Any, moving: tuple[bool, ...]
) -> list[Any]:
    results = query.results if isinstance(query, Search) else 2
    of_slopes = (x.shape for x, m in zip(leaves, moving, strict=True) if m)
    shapes = (*[leaves[0].shape[:1]] * results, *of_slopes)
    return [ShapedArray(shape, np.dtype(np.float64)) for shape in shapes]


_answer = Primitive("privacy_bounds")
_answer.multiple_results = True
_answer.def_impl(_evaluated)
_answer.def_abstract_eval(_types)
batching.primitive_batchers[_answer] = _batched
ad.primitive_jvps[_answer] = _with_tangents
mlir.register_lowering(_answer, _lowered(_called_back))
for _platform in ("cuda", "rocm"):
    mlir.register_lowering(_answer, _lowered(_on_gpu), platform=_platform)
