"""At minus infinity delta is 1; at infinity the probability of an infinite loss. Never NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

ENDS = np.array([-np.inf, -1e308, 1e308, np.inf])
NOISES = [
    dp.Gaussian(1.0),
    dp.Laplace(1.0),
    dp.Subbotin(1.0, 1.0),
    dp.Subbotin(1.0, 3.0),
    dp.FlippedHuber(1.0, 1.0),
    dp.OffsetGaussian(1.0, 1.0),
    dp.Staircase(1.0, 1.0, 0.3),
    dp.TruncatedLaplace(1.0, 5.0),
    dp.DiscreteGaussian(1.0),
    dp.DiscreteLaplace(1.0),
    dp.Histogram(0.5, (1, 2, 3, 2, 1)),
    dp.DiscreteHistogram((1, 2, 3, 2, 1)),
]
INFINITE = {"TruncatedLaplace": -5.145, "Histogram": np.log(1 / 3), "DiscreteHistogram": -np.log(9)}


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
def test_noises(noise):
    """An infinite shift tells all, whatever epsilon is; no shift tells nothing."""
    shift = np.array([[0.0], [1.0], [np.inf]])
    found = np.asarray(jax.vmap(noise.log_delta, (0, None))(jnp.asarray(shift), ENDS))
    known = np.array([-np.inf, INFINITE.get(type(noise).__name__, -np.inf), 0.0])
    assert np.all(found[:, :2] == 0)
    np.testing.assert_allclose(found[:, 3], known, rtol=1e-3)
    assert np.all(found[:, 2] >= found[:, 3])


GUARANTEES = [
    (dp.PureDP(1.0), 0.0),
    (dp.PureDP(np.inf), 1.0),
    (dp.ApproxDP(1.0, 1e-6), 1e-6),
    (dp.ApproxDP(1.0, 0.0), 0.0),
    (dp.ApproxDP(np.inf, 0.1), 1.0),
    (dp.ZCDP(0.0, 1.0), 0.0),
    (dp.ZCDP(0.5, 1.0), 0.0),
    (dp.ZCDP(0.0, np.inf), 1.0),
    (dp.RDP(np.array([1.0, 2.0]), np.array([0.5, 1.0])), 0.0),
    (dp.RDP(1.0, 0.5), 1.0),
    (dp.RDP(2.0, np.inf), 1.0),
    (dp.GDP(1.0), 0.0),
    (dp.GDP(np.inf), 1.0),
    (dp.ExponentialMechanism(1.0), 0.0),
]


@pytest.mark.parametrize(("known", "last"), GUARANTEES, ids=lambda x: type(x).__name__)
def test_guarantees(known, last):
    found = np.asarray(known.delta(ENDS))
    assert found[:2].tolist() == [1.0, 1.0]
    assert last <= found[3] <= found[2] <= last * (1 + 1e-12) + 3e-308
    assert found[3] > 0 or last == 0


@pytest.mark.parametrize(
    ("total", "last"),
    [
        (3 * dp.privacy_loss(dp.ApproxDP(1.0, 0.1)), 0.271),
        (3 * dp.privacy_loss(dp.GDP(1.0)), 0.0),
        (dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 1.0, 0.1, "add_remove")), 0.0),
        (dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(1.0, 5.0), 1.0)), np.exp(-5.14506)),
        pytest.param(
            30 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0, 0.1, "add_remove")),
            0.0,
            marks=pytest.mark.long,
        ),
        pytest.param(
            3 * dp.privacy_loss(dp.Mechanism(dp.DiscreteGaussian(2.0), 1.0)),
            0.0,
            marks=pytest.mark.long,
        ),
    ],
)
def test_losses(total, last):
    found = np.asarray(total.delta(ENDS[[0, 3]]))
    np.testing.assert_allclose(found, [1.0, last], rtol=1e-5)
