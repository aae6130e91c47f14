"""Which difference is the worst: the box corner, the one-hot shift, and what bounds the rest."""

import jax.numpy as jnp
import numpy as np
import pytest
from references import expected, records

import jaxdp as dp
from benchmarks.reproductions.flipped_huber_conditions import (
    fit_by_condition,
    sufficient_log_delta,
    sufficient_zcdp,
)


def total(noise, shifts):
    return dp.privacy_loss(dp.Mechanism(noise, jnp.asarray(shifts))).sum()


def test_norms_are_tightened():
    box = dp.JointSensitivity(4, linf=0.5).tightened()
    assert (box.l1, box.l2, box.linf) == (2.0, 1.0, 0.5)
    ball = dp.JointSensitivity(9, l2=1.0).tightened()
    assert (ball.l1, ball.linf) == (3.0, 1.0)
    one = dp.JointSensitivity(20, l1=1.0).tightened()
    assert (one.l1, one.l2, one.linf) == (1.0, 1.0, 1.0)


def test_a_number_of_coordinates_bounds_the_other_norms():
    joint = dp.JointSensitivity(100, l0=10, linf=2.0)
    tight = joint.tightened()
    assert (tight.dimension, tight.l0, tight.l1, tight.linf) == (100, 10, 20.0, 2.0)
    assert tight.l2 == pytest.approx(2.0 * np.sqrt(10), rel=1e-14)
    shifts, counts = joint.dominating()
    assert (shifts.tolist(), counts.tolist()) == ([20.0, 2.0], [1.0, 10.0])
    assert dp.JointSensitivity(3, l0=10, linf=1.0).l0 == 3
    budget = dp.Budget(1.0, 1e-6)
    fitted = dp.fit_noise("gaussian", budget, dp.JointSensitivity(100, l0=4, linf=1.0))
    assert fitted.scale == pytest.approx(float(dp.fit_noise("gaussian", budget, 2.0).scale))
    for l0 in (0, 2.5):
        with pytest.raises(ValueError, match="l0 must"):
            dp.JointSensitivity(3, l0=l0, linf=1.0)


def test_dominating_directions():
    shifts, counts = dp.JointSensitivity(20, l1=1.0).dominating()
    assert shifts.tolist() == [1.0, 1.0]
    assert counts.tolist() == [1.0, 1.0]
    shifts, counts = dp.JointSensitivity(20, linf=1.0).dominating()
    assert shifts.tolist() == [20.0, 1.0]
    assert counts.tolist() == [1.0, 20.0]
    shifts, counts = dp.JointSensitivity(20, l1=3.0, linf=1.0).dominating()
    assert counts.tolist() == [1.0, 5.0]


@pytest.mark.parametrize("noise", [dp.Laplace(1.0), dp.OffsetGaussian(1.0, 1.0)])
@pytest.mark.long
def test_one_shift_by_the_sum_dominates(noise):
    """The chain lemma at random splits of l1 = 1.2, and monotonicity towards the corner."""
    rng = np.random.default_rng(0)
    epsilon = jnp.array([0.05, 0.4, 1.0])
    alone = noise.log_delta(1.2, epsilon)
    corner = total(noise, [0.8, 0.8]).log_delta(epsilon)
    for _ in range(6):
        part = rng.uniform(0.41, 0.79)
        split = total(noise, [part, 1.2 - part]).log_delta(epsilon)
        # The composition of two different losses with atoms is itself a bound, 3e-4 wide.
        assert np.all(split <= alone + 1e-3)
        assert np.all(split <= corner + 1e-3)


@pytest.mark.long
def test_no_direction_is_the_worst_under_l2():
    """At |d|_2 = 1/2 the one-hot shift is worse at epsilon 0, the diagonal at epsilon 1."""
    noise = dp.OffsetGaussian(1.0, 1.0)
    one_hot = noise.delta(0.5, jnp.array([0.0, 1.0]))
    diagonal = total(noise, [0.5 / np.sqrt(2)] * 2).delta(jnp.array([0.0, 1.0]))
    assert one_hot[0] > diagonal[0]
    assert one_hot[1] < diagonal[1]


@pytest.mark.long
def test_a_fit_uses_what_dominates():
    """One coordinate changes: the exact noise of one dimension serves in twenty."""
    budget = dp.Budget(5.0, 1e-6)
    one = dp.JointSensitivity(20, l1=1.0)
    alone = dp.fit_noise("flipped_huber", budget, 1.0)
    condition = fit_by_condition(budget, one)
    # 0.9605 by the published condition against the exact 0.0800.
    assert 11.9 < float(condition.variance() / alone.variance()) < 12.1
    joint = dp.fit_noise("laplace", budget, one)
    same = dp.fit_noise("laplace", budget, 1.0)
    np.testing.assert_allclose(joint.variance(), same.variance(), rtol=2e-8)
    gaussian = dp.fit_noise("gaussian", budget, dp.JointSensitivity(20, linf=1.0))
    same = dp.fit_noise("gaussian", budget, 1.0, 20)
    np.testing.assert_allclose(gaussian.scale, same.scale, rtol=1e-14)
    with pytest.raises(ValueError, match="log-concave"):
        dp.fit_noise("staircase", budget, one)


def test_published_condition():
    for row in records("flipped_huber", "ln_delta_suff_K"):
        noise, size = dp.FlippedHuber(**row["params"]), row["inputs"]
        joint = dp.JointSensitivity(
            size["K"], l1=size["Delta_1"], l2=size["Delta_2"], linf=size["Delta_inf"]
        )
        value = float(sufficient_log_delta(noise, joint, size["eps"]))
        assert 0 <= (value - float(expected(row))) < 1e-12 * abs(value), row["id"]


@pytest.mark.long
def test_published_condition_is_sufficient_and_loose():
    noise, box = dp.FlippedHuber(1.4, 4.4), dp.JointSensitivity(20, linf=1.0)
    exact = 20 * dp.privacy_loss(dp.Mechanism(noise, 1.0))
    assert exact.log_delta(5.0) < sufficient_log_delta(noise, box, 5.0) - 5.0
    # Nothing is claimed where its precondition fails.
    assert sufficient_log_delta(noise, box, 0.01) == 0
    published = sufficient_zcdp(noise, box)
    xi, rho = noise.zcdp(1.0)
    assert 20 * xi <= published.xi
    np.testing.assert_allclose(20 * rho, published.rho, rtol=1e-13)
    assert published.delta(5.0) >= exact.delta(5.0)
