"""Gradients of dense layers as outer products: which they are, their values, norms and sums."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdp import dpsgd
from jaxdp.dpsgd.clipping import Outer, Rows, clipped_sums
from jaxdp.dpsgd.dense_layers import gradients_of

pytestmark = pytest.mark.float64

RNG = np.random.default_rng(0)
WIDTH = 4
# Two layers of one shape: an inner `jit` is one program for both.
PARAMS = {
    name: {"w": jnp.asarray(RNG.normal(size=(WIDTH, WIDTH))), "b": jnp.ones(WIDTH)}
    for name in ("first", "second")
}
EXAMPLES = jnp.asarray(RNG.normal(size=(6, WIDTH)))


@jax.jit
def shared(layer, x):
    return jnp.einsum("i,ij->j", x, layer["w"]) + layer["b"]


def repeated(layer, x):
    return jax.lax.fori_loop(0, 2, lambda _, y: jnp.tanh(y @ layer["w"] + layer["b"]), x)


def tied(layer, x):
    return layer["w"].T @ jax.nn.relu(layer["w"] @ x) + layer["b"]


def sequence(layer, x):
    return (jnp.stack([x, 2 * x, x - 1]) @ layer["w"]).sum(0) + layer["b"]


@jax.custom_jvp
def own(x):
    return x**3


own.defjvp(lambda primals, tangents: (own(*primals), 5.0 * tangents[0]))

# A layer, and whether its matrix is found.
LAYERS = {
    "row": (lambda layer, x: x @ layer["w"] + layer["b"], True),
    "column": (lambda layer, x: layer["w"] @ x + layer["b"], True),
    "einsum": (lambda layer, x: jnp.einsum("i,ji->j", x, layer["w"]) + layer["b"], True),
    "own derivative": (lambda layer, x: own(x @ layer["w"] + layer["b"]), True),
    "shared program": (shared, True),
    "constant": (lambda layer, x: jnp.ones(WIDTH) @ layer["w"] * x + layer["b"], True),
    "checkpoint": (jax.checkpoint(lambda layer, x: x @ layer["w"] + layer["b"]), False),
    "loop": (repeated, False),
    "tied": (tied, False),
    "sequence": (sequence, False),
    "transposed": (lambda layer, x: x @ layer["w"].T + layer["b"], False),
}


def loss_of(layer):
    def loss(params, x):
        return jnp.sum(jnp.tanh(layer(params["second"], layer(params["first"], x))) ** 2)

    return loss


def plan_of(params, **known):
    known = {"clip": 0.5, "noise_multiplier": 1.0} | known
    return dpsgd.plan(None, params, sampling_prob=0.1, steps=1, dataset_size=60, **known)


def written(gradient):
    if isinstance(gradient, Outer):
        return gradient.column[:, :, None] * gradient.row[:, None, :]
    return gradient


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_every_example(name):
    layer, is_found = LAYERS[name]
    loss = loss_of(layer)
    found = jax.jit(lambda p, x: gradients_of(loss, p, x))(PARAMS, EXAMPLES)
    expected = jax.vmap(jax.grad(loss), (None, 0))(PARAMS, EXAMPLES)
    for gradient, leaf in zip(found, jax.tree.leaves(expected), strict=True):
        assert isinstance(gradient, Outer) == (is_found and leaf.ndim == 3)
        np.testing.assert_allclose(written(gradient), leaf, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("groups", "dtype"), [("leaf", np.float32), ("all", np.float64)])
def test_clipped_sums_are_those_of_written_gradients(groups, dtype):
    """Entries are truncated: one of an example differs by a multiple at most."""
    params, examples = jax.tree.map(lambda x: x.astype(dtype), (PARAMS, 3.0 * EXAMPLES))
    kinds = require_sums_of_written(loss_of(LAYERS["row"][0]), params, examples, groups, dtype)
    assert Outer in kinds


def require_sums_of_written(loss, params, examples, groups, dtype):
    """The types of the gradients, whose sums are those of gradients that are written."""
    plan, mask = plan_of(params, groups=groups), jnp.arange(len(examples)) != 2
    found = gradients_of(loss, params, examples)
    full = jax.tree.leaves(jax.vmap(jax.grad(loss), (None, 0))(params, examples))
    sums = clipped_sums(plan, found, mask), clipped_sums(plan, full, mask)
    tolerance = 1e-5 if dtype == np.float32 else len(examples) * 2.0**-30
    assert any(map(np.any, sums[0]))
    for one, other in zip(*sums, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * 0.5)
    return [type(x) for x in found]


def plain_sums(plan, gradients):
    """The definition, in NumPy: a gradient an example, clipped, truncated and added up."""
    clip, unit = float(plan.clips[0]), 2.0 ** (np.frexp(float(plan.clips[0]))[1] - 31)
    size, sums = plan.sizes[0], [np.zeros(leaf.shape[1:]) for leaf in gradients]
    for rows in zip(*map(np.asarray, gradients), strict=True):
        norm = np.sqrt(sum(np.sum((row.astype(np.float64) / clip) ** 2) for row in rows))
        factor = min(1.0, (1.0 - (size + 16.0) * 2.0**-52) / norm)
        for total, row in zip(sums, rows, strict=True):
            total += np.trunc(row.astype(np.float64) * factor / unit) * unit
    return sums


@pytest.mark.parametrize("count", [0, 7, 8])
def test_sums_are_the_definition(count):
    params = {"w": np.zeros((5, 3)), "b": np.zeros(3)}
    plan = plan_of(params, groups="all", clip=0.7)
    rng = np.random.default_rng(count)
    gradients = [
        jnp.asarray(rng.normal(size=(count, *np.shape(leaf)))) for leaf in jax.tree.leaves(params)
    ]
    for one, other in zip(clipped_sums(plan, gradients), plain_sums(plan, gradients), strict=True):
        # An entry next to a multiple may fall to either side of it.
        np.testing.assert_allclose(one, other, rtol=0, atol=1.01 * count * 2.0**-31)
        assert np.sum(np.asarray(one) != other) <= 1


def square_norm(total):
    return sum(Fraction(float(x)) ** 2 for x in np.ravel(total))


def test_outer_products_are_within_their_threshold():
    plan = plan_of(np.zeros((3, 5)), clip=1.0)
    rng = np.random.default_rng(3)
    for factor in (1.0, 1.0 + 1e-15, 7.0, 1e30, 1e-30):
        for _ in range(10):
            column, row = rng.standard_cauchy((1, 3)), rng.standard_cauchy((1, 5))
            row *= factor / (np.linalg.norm(column) * np.linalg.norm(row))
            total = clipped_sums(plan, [Outer(jnp.asarray(column), jnp.asarray(row))])[0]
            assert square_norm(total) <= 1


@pytest.mark.parametrize(
    ("column", "row", "norm"),
    [
        (1.4e-154, 1.3e154, 1.0),
        (1e-300, 1e299, 0.1),
        (1e300, 1e-300, 1.0),
        (1e-200, 1e-200, 0.0),
        (1e300, 1e300, 0.0),
        (np.inf, 0.0, 0.0),
        (np.nan, 1.0, 0.0),
        (0.0, np.inf, 0.0),
    ],
)
def test_extreme_factors(column, row, norm):
    """Squares of the factors under- and overflow where those of the product do not."""
    plan = plan_of(np.zeros((2, 2)), clip=1.0)
    gradient = Outer(jnp.full((1, 2), column), jnp.array([[row, 0.0]]))
    total = clipped_sums(plan, [gradient])[0]
    assert square_norm(total) <= 1
    size = float(np.linalg.norm(total))
    np.testing.assert_allclose(size, min(1.0, norm * 2**0.5), rtol=1e-8)
    # The others count as they are.
    both = Outer(*(jnp.concatenate([x, jnp.full((1, 2), 0.3)]) for x in gradient))
    np.testing.assert_allclose(clipped_sums(plan, [both])[0] - total, 0.09, rtol=1e-8)


def test_a_parameter_that_the_loss_ignores():
    params = {"used": jnp.ones((2, 2)), "other": jnp.ones((2, 2)), "empty": jnp.ones((0, 2))}

    def loss(params, x):
        return jnp.sum(x @ params["used"]) + jnp.sum(jnp.zeros(0) @ params["empty"])

    empty, other, used = gradients_of(loss, params, jnp.ones((3, 2)))
    assert isinstance(used, Outer)
    assert not np.any(other)
    plan = plan_of(params, groups="all")
    sums = clipped_sums(plan, [empty, other, used])
    assert [x.shape for x in sums] == [(0, 2), (2, 2), (2, 2)]
    np.testing.assert_allclose(sums[2], 3 * 0.25, rtol=1e-8)


EMBEDDING = {"table": np.zeros((40, 4)), "last": np.zeros((4, 3))}
# Equal places, negative ones, and those outside: dropped, or the last row.
PLACES = np.array([[4, 4, 9], [4, 7, 4], [-3, 41, 39], [0, 39, -40]])


def loss_of_words(params, places, mode=None):
    looked_up = params["table"].at[places].get(mode=mode)
    return jnp.sum(jnp.sin(jnp.nan_to_num(looked_up, nan=0.3).sum(0) @ params["last"]) ** 2)


@pytest.mark.parametrize(
    ("mode", "dtype"), [(None, np.float64), ("fill", np.float32), ("clip", np.float32)]
)
def test_sums_of_an_embedding_are_those_of_written_gradients(mode, dtype):
    rng = np.random.default_rng(5)
    params = {k: jnp.asarray(rng.normal(size=v.shape).astype(dtype)) for k, v in EMBEDDING.items()}
    loss = functools.partial(loss_of_words, mode=mode)
    kinds = require_sums_of_written(loss, params, jnp.asarray(PLACES), "all", dtype)
    assert kinds == [Outer, Rows]


def many_words(params, places):
    return jnp.sum(params["table"][jnp.tile(places, 7)] @ params["last"])


def columns(params, places):
    return jnp.sum(params["table"][:, places % 4])


def twice(params, places):
    return jnp.sum(params["table"][places] @ params["table"].T)


@pytest.mark.parametrize("loss", [many_words, columns, twice])
def test_other_uses_of_an_embedding_are_written(loss):
    """Look-ups of more than half as many rows, of columns, and of a table with another use."""
    params = jax.tree.map(jnp.asarray, EMBEDDING)
    assert not any(isinstance(x, Rows) for x in gradients_of(loss, params, jnp.asarray(PLACES)))


@pytest.mark.parametrize(
    ("clip", "dtype"), [(0.7, np.float64), (7.7e-9, np.float32), (3e20, np.float64)]
)
def test_rows_are_within_their_threshold(dtype, clip):
    """Also where rows of equal places cancel, or add up to several thresholds."""
    rng = np.random.default_rng(6)
    plan = plan_of({"rows": np.zeros((8, 3)), "w": np.zeros(2)}, groups="all", clip=clip)
    for turn in range(30):
        rows = rng.standard_cauchy((1, 4, 3)) * clip * 10.0 ** rng.choice([-1.0, 0.0, 8.0])
        if turn % 3 == 0:
            rows[:, 1::2] = -rows[:, ::2] * (1.0 + 1e-7)
        places = jnp.asarray(rng.integers(0, 3, size=(1, 4)))
        rows = Rows(places, jnp.asarray(rows.astype(dtype)))
        sums = clipped_sums(plan, [rows, jnp.asarray(rng.normal(size=(1, 2)) * clip)])
        assert 0 < sum(map(square_norm, sums)) <= Fraction(clip) ** 2


def loss_of_a_picture(params, x):
    """A convolution, attention between its places, and two dense layers."""
    x = jax.lax.conv(x[None, None], params["filters"], (1, 1), "SAME")[0].reshape(3, -1)
    scores = x.T @ params["heads"] @ x / 3.0
    x = jax.nn.softmax(scores) @ x.T
    x = jax.nn.gelu((x - x.mean()) / jnp.sqrt(x.var() + 1e-5)).ravel() @ params["hidden"]
    return -jax.nn.log_softmax(jnp.tanh(x) @ params["last"])[0]


def test_a_gradient_has_the_same_bits_at_every_place_of_its_batch():
    """Else one record more would move the gradients of all that come after it."""
    rng = np.random.default_rng(7)
    shapes = {"filters": (3, 1, 3, 3), "heads": (3, 3), "hidden": (48, 9), "last": (9, 5)}
    params = {k: jnp.asarray(rng.normal(size=v), jnp.float32) for k, v in shapes.items()}
    batch = jnp.asarray(rng.normal(size=(11, 4, 4)), jnp.float32)
    plan = plan_of(params, groups="layer")
    gradients = jax.jit(lambda p, x: gradients_of(loss_of_a_picture, p, x))
    first = found = gradients(params, batch)
    for turn in (1, 4, 10):
        found = gradients(params, jnp.roll(batch, turn, axis=0))
        turned = jax.tree.map(lambda x, n=turn: jnp.roll(x, -n, axis=0), found)
        jax.tree.map(np.testing.assert_array_equal, turned, first)
    for one, other in zip(clipped_sums(plan, found), clipped_sums(plan, first), strict=True):
        np.testing.assert_array_equal(one, other)
    # Beside other examples, too.
    others = gradients(params, jnp.concatenate([batch[:1], 1e3 * batch[1:]]))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y[0]), others, first)
