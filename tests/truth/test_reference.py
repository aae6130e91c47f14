"""Reference values of the Gaussian, the Laplace and of allocations; printed claims that fail."""

import mpmath as mp
import numpy as np
import oracle
import pytest
from references import expected, ratio_of, records

import jaxdp as dp


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_log_delta(mechanism):
    family = dp.Gaussian if mechanism == "gaussian" else dp.Laplace
    for row in records(mechanism, "ln_delta"):
        params, inputs = row["params"], row["inputs"]
        scale = params.get("sigma", params.get("beta"))
        shift = inputs.get("Delta", 1.0)
        if "mu" in params:
            scale, shift = 1.0, params["mu"]
        value = float(family(float(scale)).log_delta(float(shift), float(inputs["eps"])))
        truth = -mp.inf if row["expected"] == "-inf" else expected(row)
        if -1e-300 < truth < 0:  # below every double: delta is 1
            assert value == 0
            continue
        assert -1e-19 <= oracle.relative_error(value, truth) < 1e-12, row["id"]


def test_gaussian_one_minus_delta():
    for row in records("gaussian", "ln_one_minus_delta"):
        value = dp.Gaussian(1.0).log_delta(ratio_of(row), row["inputs"]["eps"])
        truth = mp.log1p(-mp.exp(expected(row)))
        assert 0 <= oracle.relative_error(float(value), truth) < 1e-12


def test_gaussian_least_scale():
    for row in records("gaussian", "sigma_min_over_Delta"):
        budget = dp.Budget(row["inputs"]["eps"], float(row["inputs"]["delta"]))
        scale = dp.fit_noise("gaussian", budget, 1.0).scale
        assert -1e-18 <= oracle.relative_error(float(scale), expected(row)) < 1e-12, row["id"]


def test_gaussian_epsilon():
    for row in records("gaussian", "eps_min"):
        delta = float(row["inputs"]["delta"])
        value = float(dp.Mechanism(dp.Gaussian(1.0), ratio_of(row)).epsilon(delta))
        if delta == 0:  # 1e-1000 is no double
            assert value == np.inf
            continue
        assert -1e-18 <= oracle.relative_error(value, expected(row)) < 1e-12, row["id"]


def test_gaussian_tradeoff():
    for row in records("gaussian", "ln_tradeoff"):
        fnr = float(dp.GDP(ratio_of(row)).tradeoff(float(row["inputs"]["alpha"])))
        # The decimal rates are not doubles: at 0.999999 that moves the result by 5e-11.
        assert abs(oracle.relative_error(fnr, mp.exp(expected(row)))) < 1e-10, row["id"]


def test_gaussian_composition():
    for row in records("gaussian", "ln_delta_kfold"):
        total = row["inputs"]["K"] * dp.GDP(ratio_of(row))
        value = float(total.log_delta(row["inputs"]["eps"]))
        assert 0 <= oracle.relative_error(value, expected(row)) < 1e-12, row["id"]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_renyi(mechanism):
    family = dp.Gaussian if mechanism == "gaussian" else dp.Laplace
    for row in records(mechanism, "rdp"):
        value = family(1.0).renyi(ratio_of(row), row["inputs"]["alpha"])
        assert abs(oracle.relative_error(float(value), expected(row))) < 1e-13, row["id"]


def test_zcdp_conversion():
    for row in records("conversion", "ln_delta_zcdp_cks"):
        params = row["params"]
        guarantee = dp.ZCDP(params.get("xi", 0.0), params.get("eta", params.get("rho")))
        value = float(guarantee.log_delta(row["inputs"]["eps"]))
        assert 0 <= oracle.relative_error(value, expected(row)) < 1e-11, row["id"]


def test_gaussian_is_below_its_zcdp():
    for row in records("conversion", "ln_delta_gdp_of_zcdp_gaussian"):
        mu = np.sqrt(2 * row["params"]["rho"])
        value = float(dp.GDP(mu).log_delta(row["inputs"]["eps"]))
        assert abs(oracle.relative_error(value, expected(row))) < 1e-12


def test_gdp_of_a_budget():
    for row in records("iniid", "s_star"):
        budget = dp.Budget(row["inputs"]["eps"], float(row["inputs"]["delta"]))
        mu = float(dp.largest_gdp(budget).mu)
        assert -1e-12 < oracle.relative_error(mu, expected(row)) <= 1e-18, row["id"]
    for name, sign in (("s_lower", -1), ("s_upper", 1)):
        for row in records("iniid", name):
            budget = dp.Budget(row["inputs"]["eps"], float(row["inputs"]["delta"]))
            mu = float(dp.largest_gdp(budget).mu)
            assert sign * (float(row["expected"]) - mu) > 0


@pytest.mark.parametrize(
    ("quantity", "family", "name"),
    [("gauss_sigma", "gaussian", "s_star"), ("laplace_beta", "laplace", "eps")],
)
def test_inid_scales(quantity, family, name):
    for row in records("iniid", quantity):
        inputs = row["inputs"]
        level = dp.GDP(inputs[name]) if family == "gaussian" else dp.PureDP(inputs[name])
        scales = dp.allocate(family, row["params"]["lambda"], level, power=inputs["p"])
        error = oracle.relative_error(float(scales[inputs["i"]]), expected(row))
        assert 0 <= error < 1e-14, row["id"]


def test_inid_gain():
    profiles = {
        "uniform": np.ones,
        "linear": lambda k: np.arange(1.0, k + 1),
        "quadratic": lambda k: np.arange(1.0, k + 1) ** 2,
        "exponential": lambda k: np.exp(-np.arange(1.0, k + 1)),
        "onehot": lambda k: np.eye(k)[0],
    }
    for quantity, family, level in (
        ("gauss_mse_ratio_iniid_iid", "gaussian", dp.GDP(0.3)),
        ("laplace_mse_ratio_iniid_iid", "laplace", dp.PureDP(0.3)),
    ):
        for row in records("iniid", quantity):
            profile = profiles[row["params"]["profile"]](row["inputs"]["K"])
            error = {
                method: dp.allocation_error(
                    family, dp.allocate(family, profile, level, method=method)
                )
                for method in ("inid", "iid")
            }
            ratio = float(error["inid"] / error["iid"])
            assert abs(oracle.relative_error(ratio, expected(row))) < 1e-13, row["id"]


def test_inid_paper_table_of_mean_absolute_errors():
    """Its i.n.i.d. Laplace row is the optimum for power 1, not the printed theorem 5."""
    for row in records("iniid", "laplace_l1_error_2d"):
        sensitivities = [float(v) for v in row["params"]["lambda"]]
        level = dp.PureDP(row["inputs"]["eps"])
        scales = dp.allocate("laplace", sensitivities, level, power=1)
        error = float(dp.allocation_error("laplace", scales, power=1))
        assert abs(oracle.relative_error(error, expected(row))) < 1e-13
        squared = dp.allocate("laplace", sensitivities, level, power=2)
        assert dp.allocation_error("laplace", squared, power=1) > error * 1.01


def test_corollary_6_is_not_attained():
    """epsilon - ln(1 - delta) printed; one Laplace can spend epsilon - 2 ln(1 - delta)."""
    epsilon, delta = 1.0, 0.05
    printed = dp.Laplace(1.0 / (epsilon - np.log1p(-delta)))
    ours = dp.fit_noise("laplace", dp.Budget(epsilon, delta), 1.0)
    assert printed.delta(1.0, epsilon) < 0.6 * delta
    assert 0.999999 * delta < ours.delta(1.0, epsilon) <= delta


def test_order_two_bounds_chi_squared_from_above():
    """ "A lower bound on chi^2" is printed; chi^2 = exp(D_2) - 1 is at most e^(2 rho) - 1."""
    for noise in (dp.Gaussian(2.0), dp.Laplace(1.0), dp.OffsetGaussian(1.0, 2.0)):
        xi, rho = noise.zcdp(1.0)
        chi_squared = float(np.expm1(noise.renyi(1.0, 2.0)))
        assert chi_squared <= float(np.expm1(xi + 2 * rho)) * (1 + 1e-12)
    strict = dp.Laplace(1.0)
    assert float(np.expm1(strict.renyi(1.0, 2.0))) < 0.99 * float(np.expm1(2 * strict.zcdp(1.0)[1]))
