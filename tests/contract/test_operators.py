"""What `+`, `*`, `sum`, `len` and `[]` do to losses and guarantees, on either side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

MANY = dp.privacy_loss(dp.Mechanism(dp.Gaussian(np.array([[1.0, 2.0, 3.0]])), 1.0))
ONE = dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0))
GUARANTEES = {
    "gdp": dp.GDP(0.3),
    "pure": dp.PureDP(0.3),
    "approximate": dp.ApproxDP(0.3, 1e-3),
    "exponential": dp.ExponentialMechanism(0.3),
}


def assert_same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_a_count_may_stand_on_either_side():
    assert_same(ONE * 3, 3 * ONE)
    counts = np.array([1, 2])
    assert_same(ONE * counts, counts * ONE)
    np.testing.assert_allclose((counts * dp.GDP(1.0)).mu, [1.0, np.sqrt(2.0)], rtol=1e-15)
    for kind in (dp.GDP(0.5), dp.PureDP(0.5), dp.ZCDP(0.1, 0.2), dp.RDP([2.0, 3.0], [0.1, 0.2])):
        for count in (counts, counts.astype(float), np.float64(2.0), 2, jnp.array([1, 2])):
            assert_same(count * kind, kind * count)
            assert type(count * kind) is type(kind)


def test_sum_composes():
    assert_same(sum([ONE, ONE * 2]), ONE + ONE * 2)
    np.testing.assert_allclose(sum([dp.GDP(3.0), dp.GDP(4.0)]).mu, 5.0, rtol=1e-15)
    assert_same(sum([dp.PureDP(0.5)] * 2), dp.PureDP(0.5) + dp.PureDP(0.5))
    assert_same(sum(MANY[0]), MANY[0].sum())


@pytest.mark.parametrize("kind", GUARANTEES)
def test_a_guarantee_may_stand_on_either_side(kind):
    item = GUARANTEES[kind]
    assert_same(ONE + item, ONE + dp.privacy_loss(item))
    assert_same(item + ONE, ONE + item)


@pytest.mark.parametrize("other", [1, 0.0, "x", None, dp.ZCDP(0.0, 0.1), dp.Gaussian(1.0)])
def test_nothing_else_composes(other):
    for wrong in (lambda: ONE + other, lambda: other + ONE, lambda: dp.GDP(1.0) + other):
        with pytest.raises(TypeError):
            wrong()


def test_a_part_of_the_batch():
    assert (len(MANY), len(MANY[0]), bool(ONE)) == (1, 3, True)
    assert [loss.shape for loss in MANY[0]] == [()] * 3
    sizes = np.arange(3.0)[None]
    for index in (0, (0, 1), (0, -1), (slice(None), slice(1)), (..., 2), None, (0, [2, 0])):
        got, wanted = MANY[index], sizes[index]
        assert got.shape == wanted.shape
        scales = got.terms[0].pair.noise.scale[..., 0]
        np.testing.assert_array_equal(scales, 1.0 + wanted)
    assert_same(MANY[np.array([True])], MANY)
    mixed = (MANY + dp.PureDP(0.1))[0, 1]
    assert_same(mixed, MANY[0, 1] + dp.PureDP(0.1))


def test_an_index_outside_the_batch():
    for index in (1, -2, (0, 3), (0, 0, 0), "a", 1.5):
        with pytest.raises(IndexError):
            MANY[index]
    for wrong in (lambda: len(ONE), lambda: list(ONE)):
        with pytest.raises(TypeError, match="shape"):
            wrong()
    pick = jax.jit(lambda i: MANY[0, i].terms[0].pair.noise.scale)
    np.testing.assert_array_equal([pick(1)[0], pick(7)[0]], [2.0, np.nan])
    with pytest.raises(IndexError):
        jax.jit(lambda i: MANY[0, 0, i])(0)
