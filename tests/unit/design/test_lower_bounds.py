"""Lower bounds: reference values, what attains them, and that no noise of ours beats them."""

import jax
import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, records
from scipy import optimize

import jaxdp as dp


def test_reference_values():
    for quantity, build in (
        ("hcr_var", lambda i: dp.PureDP(i["eps"])),
        ("hcr_var_zcdp", lambda i: dp.ZCDP(0.0, i["rho"])),
        ("approx_dp_unbiased_var", lambda i: dp.ApproxDP(i["eps"], float(i["delta"]))),
    ):
        for row in records("hcr_bound", quantity):
            value = float(dp.optimal.lower_bound(build(row["inputs"]), row["params"]["Delta"]))
            assert -1e-12 < oracle.relative_error(value, expected(row)) < 0, row["id"]


def least_variance(p, q, sensitivity):
    """The unbiased estimator on a finite pair of laws with the least greater variance."""
    p, q = np.asarray(p), np.asarray(q)
    means = optimize.LinearConstraint(np.array([p, q]), *[[-sensitivity / 2, sensitivity / 2]] * 2)
    worst = optimize.minimize(
        lambda t: max(p @ t**2, q @ t**2) - sensitivity**2 / 4,
        np.linspace(-1, 1, len(p)),
        constraints=[means],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return worst.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.1), (3.0, 0.01), (0.2, 0.3)])
def test_approximate_bound_is_attained_by_the_four_point_pair(epsilon, delta):
    high, low = np.exp(epsilon) / (1 + np.exp(epsilon)), 1 / (1 + np.exp(epsilon))
    p = [0.0, (1 - delta) * low, (1 - delta) * high, delta]
    bound = float(dp.optimal.lower_bound(dp.ApproxDP(epsilon, delta), 2.0))
    attained = least_variance(p, p[::-1], 2.0)
    np.testing.assert_allclose(attained, bound, rtol=1e-5)
    # The estimator is in closed form: proportional to (p - q) / (p + q).
    t = np.array([-1.0, -np.tanh(epsilon / 2), np.tanh(epsilon / 2), 1.0])
    t /= np.array(p) @ t
    np.testing.assert_allclose(np.array(p) @ t**2 - 1, bound, rtol=1e-12)


@pytest.mark.parametrize("mu", [1e-6, 0.1, 1.0, 1.999, 2.0, 5.0, 30.0])
def test_gaussian_bound_is_its_integral(mu):
    def mass(x):
        p, q = mp.npdf(x), mp.npdf(x, mu)
        return (p - q) ** 2 / (2 * (p + q)), 2 * p * q / (p + q)

    grid = [mu / 2 + k for k in (-40, -20, -8, -3, -1, -0.2, 0, 0.2, 1, 3, 8, 20, 40)]
    size = mp.exp(mp.mpf(mu) ** 2 / 8)  # mpmath stops on an absolute error
    c = mp.quad(lambda x: mass(x)[0] / min(mu, 1) ** 2, grid) * min(mu, 1) ** 2
    rest = mp.quad(lambda x: mass(x)[1] * size, grid) / size
    value = float(dp.optimal.lower_bound(dp.GDP(mu), 1.0))
    assert -2e-13 < oracle.relative_error(value, rest / c / 4) < 0


def test_no_noise_beats_its_bound():
    for epsilon in (0.1, 1.0, 5.0):
        budget = dp.Budget(epsilon, 1e-5)
        for family in ("gaussian", "laplace"):
            noise = dp.fit_noise(family, budget, 1.0)
            assert noise.variance() > dp.optimal.lower_bound(dp.ApproxDP(epsilon, 1e-5), 1.0)
    for mu in (0.01, 1.0, 4.0):
        assert dp.Gaussian(1 / mu).variance() >= dp.optimal.lower_bound(dp.GDP(mu), 1.0)
    # Small steps: the Gaussian is optimal among unbiased mechanisms, the Laplace off by 2.
    assert dp.Gaussian(1e4).variance() / dp.optimal.lower_bound(dp.GDP(1e-4), 1.0) < 1 + 1e-7
    ratio = dp.Laplace(1e4).variance() / dp.optimal.lower_bound(dp.PureDP(1e-4), 1.0)
    assert ratio == pytest.approx(2.0, rel=1e-7)


def test_bad_input():
    with pytest.raises(ValueError, match="sensitivity"):
        dp.optimal.lower_bound(dp.PureDP(1.0), -1.0)
    assert np.isnan(jax.jit(lambda e: dp.optimal.lower_bound(dp.PureDP(e), 1.0))(-1.0))
    assert dp.optimal.lower_bound(dp.PureDP(0.0), 1.0) == np.inf
    assert dp.optimal.lower_bound(dp.PureDP(np.inf), 1.0) == 0
    assert dp.optimal.lower_bound(dp.ApproxDP(1.0, 1.0), 1.0) == 0
