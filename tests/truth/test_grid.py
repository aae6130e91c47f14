"""The bracket from masses on a grid: the truth lies inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp.accountant.convolution import _Product

pytestmark = pytest.mark.float64

# Few points: as certain, not as narrow.
POINTS = 2**12


def loss_of(noise, shift=1.0):
    return dp.privacy_loss(dp.Mechanism(noise, shift))


def check_inside(total, epsilon, truth, width, points=2**16):
    """truth: log delta, good to 1e-10 of delta."""
    lower, upper = (np.asarray(x) for x in total.bounds(epsilon, points=points))
    value = np.exp(np.asarray(truth))
    assert np.all(lower <= value * (1 + 2e-10))
    assert np.all(upper >= value * (1 - 2e-10))
    assert np.all(upper <= 1)
    assert np.all(upper - lower <= width * value), (upper - lower) / value


@pytest.mark.parametrize(
    ("count", "scale", "epsilon", "width"),
    [
        (1.0, 1.0, [-2.0, 0.0, 1.0, 6.0], 1e-5),
        pytest.param(1.0, 1.0, [30.0], 6e-5, marks=pytest.mark.long),  # 5e-193
        pytest.param(1000.0, 100.0, [0.0, 1.0], 2e-5, marks=pytest.mark.long),
        (1000.0, 100.0, [3.6, 7.0], 0.5),  # 1e-30, 3e-109
        pytest.param(1e5, 1000.0, [1.0], 2e-4, marks=pytest.mark.long),
        # 1 - delta is 1e-54: no lower bound.
        (1000.0, 1.0, [2.0], 1.0),
    ],
)
def test_gaussians(count, scale, epsilon, width):
    total = count * loss_of(dp.Gaussian(scale))
    truth = dp.GDP(np.sqrt(count) / scale).log_delta(jnp.asarray(epsilon))
    check_inside(total, jnp.asarray(epsilon), truth, width)


@pytest.mark.parametrize(
    ("count", "scale", "epsilon", "width"),
    [
        pytest.param(1, 2.0, 0.3, 1e-9, marks=pytest.mark.long),
        (2, 2.0, 0.3, 1e-6),
        (100, 20.0, 1.0, 1e-3),
        (100, 20.0, 4.5, 0.02),
    ],
)
def test_laplaces(count, scale, epsilon, width):
    total = count * loss_of(dp.Laplace(scale))
    check_inside(total, epsilon, total.log_delta(epsilon), width)


@pytest.mark.long
@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 300),
    st.floats(0.3, 30.0),
    st.integers(0, 2000),
    st.floats(0.5, 100.0),
    st.floats(-2.0, 8.0),
)
def test_the_contour_lies_inside(laplaces, beta, gaussians, sigma, epsilon):
    total = float(laplaces) * loss_of(dp.Laplace(beta)) + float(gaussians) * loss_of(
        dp.Gaussian(sigma)
    )
    lower, upper = (float(x) for x in total.bounds(epsilon, points=POINTS))
    value = float(total.delta(epsilon))
    assert 0 <= lower <= value * (1 + 1e-9)
    assert upper <= 1
    # Without Gaussians the contour may be the wider bound of the two: then it is not compared.
    if gaussians > 0 or laplaces < 512:
        assert upper >= value * (1 - 1e-9)


def test_batches_and_jit():
    total = 20 * loss_of(dp.Gaussian(jnp.array([[4.0], [8.0]])))
    epsilon = jnp.array([-1.0, 0.5, 2.0])
    lower, upper = jax.jit(lambda e: total.bounds(e, points=POINTS))(epsilon)
    assert lower.shape == upper.shape == (2, 3)
    value = np.asarray(total.delta(epsilon))
    assert np.all((lower <= value) & (value <= upper * (1 + 1e-10)))
    assert np.all(np.diff(lower, axis=1) < 0)
    assert np.all(np.diff(upper, axis=1) < 0)


def test_ends():
    nothing = 0 * loss_of(dp.Gaussian(1.0))
    assert nothing.bounds(0.5, points=POINTS) == (0.0, 0.0)
    ten = 10 * loss_of(dp.Laplace(2.0))
    assert ten.bounds(5.1, points=POINTS) == (0.0, 0.0)


def test_bad_input():
    ten = 10 * loss_of(dp.Laplace(2.0))
    with pytest.raises(ValueError, match="epsilon must lie in"):
        ten.bounds(np.nan)
    with pytest.raises(ValueError, match="points must be"):
        ten.bounds(1.0, points=100)


@pytest.mark.long
def test_nothing_known_and_traced_bad_input():
    ten = 10 * loss_of(dp.Laplace(2.0))
    # No finite loss at all.
    infinite = 3 * loss_of(dp.TruncatedLaplace(1.0, 0.3))
    lower, upper = infinite.bounds(1.0, points=POINTS)
    assert 1 - 1e-12 < lower <= upper <= 1
    assert np.all(np.isnan(jax.jit(lambda e: ten.bounds(e, points=POINTS))(np.nan)))
    bad = jax.jit(lambda s: (3 * loss_of(dp.Laplace(s))).bounds(1.0, points=POINTS))(-1.0)
    assert np.all(np.isnan(bad))


def test_infinite_losses():
    """n releases that fail with probability p, and else answer at random."""
    loss = 10 * dp.privacy_loss(dp.ApproxDP(0.1, 1e-3))
    kept = 10 * dp.privacy_loss(dp.PureDP(0.1))
    none = (1 - 1e-3) ** 10
    for epsilon in (0.0, 0.3, 2.0):
        truth = 1 - none + none * float(kept.delta(epsilon))
        lower, upper = loss.bounds(epsilon)
        assert lower <= truth * (1 + 1e-12)
        assert upper >= truth * (1 - 1e-12)
        assert upper - lower < 1e-3 * upper


@pytest.mark.long
def test_where_few_are_hit():
    """Most losses lie far nearer to 0 than the grid's points."""
    release = dp.Mechanism(dp.Gaussian(1.0), 1.0, 1e-3, relation="remove")
    loss = 1000 * dp.privacy_loss(release)
    lower, upper = loss.bounds(1.0)
    assert 0 < lower <= loss.delta(1.0) <= upper
    assert upper < 1.05 * loss.delta(1.0)


def test_laplaces_of_different_scales():
    """Orders of 1e20, where a sum of products keeps no digit."""
    loss = 2 * loss_of(dp.Laplace(2.0)) + loss_of(dp.Laplace(3.0))
    for epsilon in (0.0, 0.3, 1.2):
        lower, upper = loss.bounds(epsilon)
        assert lower <= loss.delta(epsilon)
        assert upper - lower < 1e-3 * upper


def test_many_different_releases_share_products():
    """Lower and upper bounds of two numbers of points agree, as one by one."""
    scales = np.exp(np.linspace(-1.0, 1.0, 40)) * 20.0
    many = loss_of(dp.Laplace(scales)).sum() + 3 * loss_of(dp.DiscreteLaplace(9.0))
    one_by_one = sum((loss_of(dp.Laplace(s)) for s in scales[1:]), loss_of(dp.Laplace(scales[0])))
    one_by_one = one_by_one + 3 * loss_of(dp.DiscreteLaplace(9.0))
    for epsilon in (0.1, 0.8):
        (lower, upper), (low, high) = (x.bounds(epsilon) for x in (many, one_by_one))
        assert upper - lower < 1e-4 * upper
        assert max(lower, low) <= min(upper, high)
        few = many.bounds(epsilon, points=POINTS)
        assert few[0] <= lower * (1 + 1e-9)
        assert upper <= few[1] * (1 + 1e-9)


@pytest.mark.parametrize("counts", [[1] * 9, [1, 3, 1, 2, 1, 1]])
def test_a_product_of_transforms_is_the_convolution(counts):
    random = np.random.default_rng(0)
    value = random.dirichlet(np.ones(50), len(counts))
    product = _Product(2**10)
    product.multiply(value, np.array(counts, float))
    truth = np.array([1.0])
    for row, count in zip(value, counts, strict=True):
        for _ in range(count):
            truth = np.convolve(truth, row)
    error = np.fft.irfft(product.spectrum)[: truth.size] - truth
    assert np.linalg.norm(error) < product.error < 1e-12
