"""The proximal coordinate descent of the DRO paper: per update as published, and composed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_descent import draw

import jaxdp as dp
from benchmarks.reproductions import cylinder_bands, proximal_descent
from jaxdp import datasets
from jaxdp.solvers import coordinate_descent

EACH = dp.Budget(1.0, 0.1)


def plan(**kwargs):
    arguments = {"coordinates": 63, "records": 432, "key": jax.random.key(0)}
    return proximal_descent.plan(kwargs.pop("per_update", EACH), **(arguments | kwargs))


def test_each_update_keeps_its_budget_and_the_training_does_not():
    made = plan()
    assert made.sequence.shape == (100, 16)
    assert all(len(set(row)) == 16 for row in np.asarray(made.sequence).tolist())
    one = dp.Mechanism(made.noise, made.ratios[0])
    assert 0.1 * (1 - 1e-9) < float(one.delta(1.0)) <= 0.1
    # The published setting: standard deviation 2.17 on the sum over records.
    assert float(made.scales[0] * made.noise.scale) * 432 == pytest.approx(2.17, abs=5e-3)
    assert float(made.guarantee.delta(1.0)) > 1 - 1e-9
    assert float(made.guarantee.epsilon(0.1)) > 500


def test_the_published_noises():
    assert float(plan(noise="gaussian").noise.scale) == pytest.approx(
        2 * np.sqrt(2 * np.log(12.5)), rel=1e-15
    )
    truncated = plan(noise="truncated_laplace").noise
    assert float(truncated.delta(2.0, 1.0)) == pytest.approx(0.1, rel=1e-9)
    assert np.all(np.asarray(plan(noise="none").scales) == 0)
    optimised = dp.optimal.noise(EACH, loss="l1", sensitivity=2.0, resolution=8)
    made = plan(noise=optimised)
    np.testing.assert_allclose(made.ratios, 2.0, rtol=1e-12)


@pytest.mark.float64
def test_it_is_the_published_loop():
    """Against a plain loop: steps of 1, sums of gradients, means of iterates, a random start."""
    rng = np.random.default_rng(0)
    features, labels = rng.uniform(-1, 1, size=(50, 6)), rng.integers(0, 2, 50)
    labels[:2] = 0, 1
    problem = dp.solvers.glm(features, labels, loss="logistic", penalty=dp.solvers.L1(1e-3))
    made = plan(coordinates=6, records=50, passes=9)
    start = proximal_descent.start(6, jax.random.key(1))
    assert float(jnp.abs(start).max()) <= 1
    key = jax.random.key(2)
    noise = np.asarray(draw(made, key).noise)
    h, y = np.array(start), np.where(labels > 0, 1.0, -1.0)
    for coordinates, draws in zip(np.asarray(made.sequence), noise, strict=True):
        iterates = []
        for j, noised in zip(coordinates, draws, strict=True):
            query = np.sum(-y * features[:, j] / (1 + np.exp(y * (features @ h))))
            point = h[j] - (query + noised * 50) / 50
            h[j] = np.sign(point) * max(abs(point) - 1e-3, 0.0)
            iterates.append(h.copy())
        h = np.mean(iterates, axis=0)
    theta = coordinate_descent.run(problem, made, key, start=start)
    np.testing.assert_allclose(theta, h, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": "cauchy"}, "noise"),
        ({"noise": dp.Histogram(1.0, [1, 2, 1])}, "certificate"),
        ({"per_update": dp.Budget(0.0, 0.1)}, "per_update"),
        ({"per_update": dp.Budget(1.0, 0.0)}, "per_update"),
        ({"per_update": dp.Budget(2.0, 0.1), "noise": "gaussian"}, "epsilon <= 1"),
        ({"coordinates": 0}, "coordinates"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan(**arguments)


@pytest.mark.float64
@pytest.mark.skipif(
    datasets.local("cylinder_bands") is None, reason="needs cylinder-bands, see jaxdp.datasets"
)
def test_most_queries_on_cylinder_bands_are_small():
    """d = 63 with the intercept; more than 80 % of the sums lie within 10 (published)."""
    data = cylinder_bands.load()
    features, labels = data.features[1:] - data.features[1:].mean(axis=0), data.targets[1:]
    features = np.column_stack([features / np.abs(features).max(axis=0), np.ones(539)])
    assert features.shape == (539, 63)
    design = (features * np.where(labels > 0, 1.0, -1.0)[:, None]).T
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        seen = design[:, rng.permutation(539)[:432]]
        made = plan(noise="none", key=jax.random.key(seed))
        theta = np.array(proximal_descent.start(63, jax.random.key(seed)))
        for coordinates in np.asarray(made.sequence):
            iterates = []
            for j in coordinates:
                query = seen[j] @ (-1 / (1 + np.exp(theta @ seen)))
                shares.append(abs(query) < 10)
                theta[j] -= query / 432
                iterates.append(theta.copy())
            theta = np.mean(iterates, axis=0)
    assert 0.79 <= np.mean(shares) <= 0.83
