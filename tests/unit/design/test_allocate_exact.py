"""Scales by gradient, under exact accounting."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

BUDGET = dp.Budget(1.0, 1e-6)


@pytest.mark.long
def test_the_closed_form_of_the_gaussian_is_the_optimum():
    sensitivities = jnp.array([1.0, 3.0, 0.0, 4.0])
    scales = dp.allocate_exact(dp.Gaussian(1.0), sensitivities, BUDGET, steps=25)
    closed = dp.allocate("gaussian", sensitivities, BUDGET)
    np.testing.assert_allclose(scales, closed, rtol=1e-6)
    assert np.sum(scales**2) <= np.sum(closed**2) * (1 + 1e-9)


@pytest.mark.long
def test_mixed_families_meet_the_budget():
    noises = (dp.Gaussian(1.0), dp.Laplace(1.0), dp.Gaussian(1.0))
    sensitivities, weights = jnp.array([1.0, 0.3, 2.0]), jnp.array([1.0, 5.0, 1.0])
    scales = dp.allocate_exact(noises, sensitivities, BUDGET, weights, steps=40)
    gaussians = dp.Mechanism(dp.Gaussian(scales[jnp.array([0, 2])]), jnp.array([1.0, 2.0]))
    laplace = dp.Mechanism(dp.Laplace(scales[1]), 0.3)
    total = dp.privacy_loss(gaussians).sum() + dp.privacy_loss(laplace)
    assert total.delta(1.0) <= 1e-6 * (1 + 1e-6)
    assert total.delta(1.0) > 0.99e-6
    start = dp.allocate_exact(noises, sensitivities, BUDGET, weights, steps=1)
    moments = jnp.array([1.0, 2.0, 1.0])
    cost = [float(jnp.sum(weights * moments * s**2)) for s in (scales, start)]
    assert cost[0] < cost[1]


def test_bad_input():
    with pytest.raises(ValueError, match="shape"):
        dp.allocate_exact(dp.Gaussian(1.0), 1.0, BUDGET)
    with pytest.raises(ValueError, match="noises must be one or 2"):
        dp.allocate_exact((dp.Gaussian(1.0),), [1.0, 2.0], BUDGET)
    with pytest.raises(ValueError, match="scalars"):
        dp.allocate_exact(dp.Gaussian(1.0), [1.0], dp.Budget([1.0, 2.0], 1e-6))


def test_a_bad_traced_sensitivity_gets_no_scale_of_zero(monkeypatch):
    """NaN, which makes noise of no scale, in all coordinates that share its unit."""
    module = importlib.import_module("jaxdp.design.allocate_exact")
    monkeypatch.setattr(module, "_shape", lambda *_: jnp.zeros(2))
    monkeypatch.setattr(module, "calibrate", lambda *_, **__: jnp.ones(()))
    scales = jax.jit(lambda s: dp.allocate_exact(dp.Gaussian(1.0), s, BUDGET))
    assert np.isnan(scales(jnp.array([-1.0, 2.0]))).all()
    assert not np.isnan(scales(jnp.array([0.0, 2.0]))).any()
    assert dp.allocate_exact(dp.Gaussian(1.0), [], BUDGET).shape == (0,)
