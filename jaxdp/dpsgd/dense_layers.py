"""Gradients of every example; those of dense layers and embeddings as factors.

A parameter qualifies if its only use in the loss is one product of a matrix with one vector, or one
look-up of whole rows, at most half as many as the matrix has. The loss is traced, and a 0 is added
to each such result. The derivative with respect to the 0 is the cotangent of the result. The outer
product of the cotangent and the vector is the gradient of the matrix; the gradient of an embedding
is the cotangents at their places. All other parameters are differentiated as they are. Uses inside
of loops, conditions, `checkpoint` and rules of one's own are not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxdp.dpsgd.clipping import Gradient, Outer, Rows

# Names of the primitive of an inner `jit`. derived: since and before JAX 0.7
_INNER = ("jit", "pjit")


class _Product(NamedTuple):
    """A use of a parameter: its equation, its place in it, and its gradient from two factors.

    factors: from the other input and the cotangents of the output, of all examples.
    path: the calls of inner `jit` around it, which may share one program, and the equation.
    """

    equation: Any
    place: int
    factors: Callable[[jax.Array, jax.Array], Gradient]
    path: tuple[int, ...]


def gradients_of(loss: Callable[[Any, Any], Any], params: Any, examples: Any) -> list[Gradient]:
    """The gradients of the leaves of `params`, with a leading axis of examples."""
    leaves = jax.tree.leaves(params)
    example = jax.tree.map(lambda x: x[0], examples)
    closed = jax.make_jaxpr(loss)(params, example)
    products = _products(closed.jaxpr, len(leaves))
    if not products:
        return jax.tree.leaves(jax.vmap(jax.grad(loss), (None, 0))(params, examples))
    others = {i: leaf for i, leaf in enumerate(leaves) if i not in products}
    zeros = {i: _zero(product) for i, product in products.items()}

    def tapped(others: Any, zeros: Any, example: Any) -> tuple[Any, Any]:
        vectors: dict[int, Any] = {}
        names = {product.path: i for i, product in products.items()}

        def tap(path: tuple[int, ...], inputs: list[Any], outputs: list[Any]) -> list[Any]:
            if path not in names:
                return outputs
            name = names[path]
            vectors[name] = inputs[1 - products[name].place]
            return [outputs[0] + zeros[name]]

        values = [others.get(i, leaf) for i, leaf in enumerate(leaves)]
        return _evaluated(closed, [*values, *jax.tree.leaves(example)], tap)[0], vectors

    derivative = jax.vmap(jax.grad(tapped, argnums=(0, 1), has_aux=True), (None, None, 0))
    (found, cotangents), vectors = derivative(others, zeros, examples)
    gradients: dict[int, Gradient] = dict(found)
    for i, product in products.items():
        gradients[i] = product.factors(vectors[i], cotangents[i])
    return [gradients[i] for i in range(len(leaves))]


def _products(jaxpr: Jaxpr, count: int) -> dict[int, _Product]:
    """The product of each of the first `count` arguments that have no other use."""
    uses: dict[int, list[_Product | None]] = {i: [] for i in range(count)}
    _find(jaxpr, {var: i for i, var in enumerate(jaxpr.invars[:count])}, uses)
    return {i: found[0] for i, found in uses.items() if len(found) == 1 and found[0] is not None}


def _find(
    jaxpr: Jaxpr,
    names: dict[Any, int],
    uses: dict[int, list[_Product | None]],
    calls: tuple[int, ...] = (),
) -> None:
    """All uses of the named variables, within inner `jit` too."""

    def named(atoms: Any) -> list[tuple[int, int]]:
        return [
            (place, names[atom])
            for place, atom in enumerate(atoms)
            if not isinstance(atom, Literal) and atom in names
        ]

    for equation in jaxpr.eqns:
        found, path = named(equation.invars), (*calls, id(equation))
        if equation.primitive.name in _INNER:
            inner = equation.params["jaxpr"].jaxpr
            _find(inner, {inner.invars[place]: name for place, name in found}, uses, path)
            continue
        for place, name in found:
            uses[name].append(_product(equation, place, path))
    for _, name in named(jaxpr.outvars):
        uses[name].append(None)


def _product(equation: Any, place: int, path: tuple[int, ...]) -> _Product | None:
    """The equation, if the gradient of the matrix at this place has small factors."""
    find = {"dot_general": _of_product, "gather": _of_rows}.get(equation.primitive.name)
    factors = None if find is None else find(equation, place)
    return None if factors is None else _Product(equation, place, factors, path)


def _of_product(equation: Any, place: int) -> Callable[..., Gradient] | None:
    """The outer product, if the equation multiplies the matrix at this place and a vector."""
    matrix, vector = equation.invars[place].aval, equation.invars[1 - place].aval
    contracted, batched = equation.params["dimension_numbers"]
    if (matrix.ndim, vector.ndim) != (2, 1) or len(contracted[0]) != 1 or batched[0]:
        return None
    if contracted[place][0] == 0:
        return Outer
    return lambda vectors, cotangents: Outer(cotangents, vectors)


def _of_rows(equation: Any, place: int) -> Callable[..., Gradient] | None:
    """The rows, if the equation looks up whole rows of the matrix at this place."""
    matrix, places = (atom.aval for atom in equation.invars[:2])
    if place != 0 or matrix.ndim != 2 or equation.params["slice_sizes"] != (1, matrix.shape[1]):
        return None
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(places.ndim - 1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    count, mode = matrix.shape[0], equation.params["mode"]
    if equation.params["dimension_numbers"] != numbers or 2 * places.size > count:
        return None

    def rows(places: jax.Array, cotangents: jax.Array) -> Rows:
        places = places.reshape(len(places), -1)
        values = cotangents.reshape(*places.shape, matrix.shape[1])
        if mode != lax.GatherScatterMode.CLIP:
            # JAX drops them: their places are not those of other rows.
            is_inside = (places >= 0) & (places < count)
            values = jnp.where(is_inside[:, :, None], values, 0.0)
        return Rows(jnp.clip(places, 0, count - 1), values)

    return rows


def _zero(product: _Product) -> jax.Array:
    output = product.equation.outvars[0].aval
    return jnp.zeros(output.shape, output.dtype)


def _evaluated(
    closed: ClosedJaxpr, arguments: list[Any], tap: Callable[..., Any], calls: tuple[int, ...] = ()
) -> list[Any]:
    """The outputs of a program; `tap` may change those of an equation, by path and inputs."""
    program = closed.jaxpr
    places = [*program.constvars, *program.invars]
    values = dict(zip(places, [*closed.consts, *arguments], strict=True))

    def read(atoms: Any) -> list[Any]:
        return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]

    for equation in program.eqns:
        inputs, path = read(equation.invars), (*calls, id(equation))
        if equation.primitive.name in _INNER:
            outputs = _evaluated(equation.params["jaxpr"], inputs, tap, path)
        else:
            outputs = tap(path, inputs, _outputs(program, equation, inputs))
        values.update(zip(equation.outvars, outputs, strict=True))
    return read(program.outvars)


def _outputs(program: Jaxpr, equation: Any, inputs: list[Any]) -> list[Any]:
    """The outputs of one equation of a program, as a program of its own."""
    pairs = zip(equation.invars, inputs, strict=True)
    known = {atom: value for atom, value in pairs if not isinstance(atom, Literal)}
    alone = {"constvars": [], "invars": list(known), "outvars": equation.outvars}
    return eval_jaxpr(program.replace(**alone, eqns=[equation]), (), *known.values())
