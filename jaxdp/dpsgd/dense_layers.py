"""Gradients of every example; those of the matrices of dense layers as outer products.

A parameter qualifies if its only use in the loss is one product of a matrix with one vector. The
loss is traced, and a 0 is added to each such product. The derivative with respect to the 0 is the
cotangent of the product, and its outer product with the vector is the gradient of the matrix.
All other parameters are differentiated as they are. Products inside of loops, conditions,
`checkpoint` and rules of one's own are not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxdp.dpsgd.clipping import Gradient, Outer

# Names of the primitive of an inner `jit`. derived: since and before JAX 0.7
_INNER = ("jit", "pjit")


class _Product(NamedTuple):
    """A use of a parameter: its equation, its place in it, and its contracted axis.

    path: the calls of inner `jit` around it, which may share one program, and the equation.
    """

    equation: Any
    place: int
    axis: int
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
        pair = vectors[i], cotangents[i]
        gradients[i] = Outer(*(pair if product.axis == 0 else pair[::-1]))
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
    """The equation, if it multiplies the matrix at this place and a vector."""
    if equation.primitive.name != "dot_general":
        return None
    matrix, vector = equation.invars[place].aval, equation.invars[1 - place].aval
    contracted, batched = equation.params["dimension_numbers"]
    if (matrix.ndim, vector.ndim) != (2, 1) or len(contracted[0]) != 1 or batched[0]:
        return None
    return _Product(equation, place, contracted[place][0], path)


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
