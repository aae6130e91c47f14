"""Plans of tables: one multiplier of all noises meets the budget, and bad keys are named."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.tables.query import LARGEST, mechanism_of

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
COUNT = {"statistic": "count"}
TOWNS = {"statistic": "count", "by": "town"}
COLUMNS = {"town": {"categories": ["A", "B"]}}
AGES = {"statistic": "mean", "column": "age", "lower": 0, "upper": 100}
SPENT = {"statistic": "sum", "column": "spent", "lower": -10.0, "upper": 30.0}


def plan(*releases, **keys):
    return dp.tables.plan({**BUDGET, "columns": COLUMNS, "release": list(releases), **keys})


def test_gaussians_alone_have_the_mu_of_the_budget():
    """mu^2 = sum (weight / multiplier)^2: the closed form."""
    made = plan(COUNT, TOWNS, AGES | {"weight": 2.0}, SPENT | {"weight": 0.5})
    ratios = [float(m.sensitivity / m.noise.scale) for m in made.mechanisms]
    mu = float(dp.largest_gdp((1.0, 1e-6)).mu)
    assert np.sqrt(np.sum(np.square(ratios))) == pytest.approx(mu, rel=1e-7)
    assert np.array(ratios) / ratios[0] == pytest.approx([1.0, 1.0, 2.0, 0.5], rel=1e-6)
    errors = made.expected_errors()
    assert list(errors) == ["count", "count by town", "mean of age", "sum of spent"]
    scale = float(errors["count"].standard_deviation)
    # 50 to either side of the middle, at twice the weight; 30 from 0, at half of it.
    deviations = [float(error.standard_deviation) / scale for error in errors.values()]
    assert deviations == pytest.approx([1.0, 1.0, 25.0, 60.0], rel=1e-6)


def test_one_laplace_has_its_closed_form():
    """delta = 1 - exp((epsilon - ratio) / 2)."""
    made = plan(COUNT | {"noise": "laplace"}, epsilon=0.5)
    noise, shift = made.mechanisms[0].noise, made.mechanisms[0].sensitivity
    ratio = mp.mpf(float(shift / noise.scale))
    delta = -mp.expm1((mp.mpf("0.5") - ratio) / 2)
    assert 0.9999e-6 < delta <= 1e-6


# The first takes 8 s.
@pytest.mark.parametrize(
    "kinds",
    [pytest.param(("laplace", "discrete_gaussian"), marks=pytest.mark.long), ("discrete_laplace",)],
)
def test_mixed_noises_keep_the_budget(kinds):
    counts = [COUNT | {"noise": kind, "name": kind} for kind in kinds]
    made = plan(*counts, TOWNS)
    assert made.loss.delta(1.0) < 1e-6
    assert made.loss.delta(1.0) > 0.9e-6
    composed = sum(
        (dp.privacy_loss(m) for m in made.mechanisms[1:]), dp.privacy_loss(made.mechanisms[0])
    )
    assert composed.delta(1.0) == pytest.approx(float(made.loss.delta(1.0)), rel=1e-4)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete_gaussian", "discrete_laplace"])
def test_a_plan_with_rho_spends_it(noise):
    releases = [COUNT, TOWNS, SPENT | {"weight": 2.0}]
    made = dp.tables.plan({"rho": 0.1, "noise": noise, "columns": COLUMNS, "release": releases})
    spent = sum(float(m.zcdp().rho) for m in made.mechanisms)
    assert 0.1 * (1 - 1e-9) < spent <= 0.1
    assert (float(made.guarantee.exact.rho), float(made.guarantee.exact.xi)) == (0.1, 0.0)
    assert 0 < made.guarantee.sampling_error < 1e-18
    assert made.loss.epsilon(1e-6) < made.guarantee.epsilon(1e-6)
    with pytest.raises(ValueError, match="plan: rho must lie in"):
        dp.tables.plan({"rho": -1.0, "columns": COLUMNS, "release": releases})


def test_the_units_are_fine_or_whole():
    def queries(*releases):
        return dp.tables.plan({"rho": 0.1, "release": list(releases)}).queries

    fine, _, whole = queries(AGES, COUNT, AGES | {"noise": "discrete_laplace", "name": "b"})
    assert (fine.unit, fine.middle, fine.sensitivity) == (2.0**-21, 50.0, 50 * 2**21)
    assert (whole.unit, whole.middle, whole.sensitivity) == (1, 50.0, 50)
    odd, _ = queries(AGES | {"upper": 5.3, "noise": "discrete_gaussian"}, COUNT)
    assert (odd.middle, odd.sensitivity) == (2.65, 3)
    apart, _ = queries(AGES | {"lower": 1e9, "upper": 1e9 + 1e-3}, COUNT)
    assert 2**26 <= apart.sensitivity <= 2**27


@pytest.mark.parametrize("unit", [0.01, 0.02, 0.1, 0.3, 0.07, 1e-6])
@pytest.mark.parametrize("bounds", [(0, 1), (0, 0.3), (-0.7, 2.1), (10, 11.3)])
@pytest.mark.parametrize("statistic", ["sum", "mean"])
def test_a_unit_is_a_decimal_and_bounds_keep_its_multiples(unit, bounds, statistic):
    """A bound of as many hundredths is as many units, and no clipped value is beyond."""
    lower, upper = map(float, bounds)
    keys = {"statistic": statistic, "column": "a", "lower": lower, "upper": upper, "unit": unit}
    exact = [Fraction(str(x)) for x in (lower, upper)]
    middle = sum(exact) / 2 if statistic == "mean" else Fraction(0)
    bound = max(abs(x - middle) for x in exact) / Fraction(str(unit))
    least = math.ceil(bound)
    if least > bound * 5 / 4:
        with pytest.raises(ValueError, match="plan: release 2: unit must be at most"):
            dp.tables.plan({"rho": 0.1, "release": [COUNT, keys]})
        return
    query = dp.tables.plan({"rho": 0.1, "release": [COUNT, keys]}).queries[1]
    assert query.unit == Fraction(str(unit))
    assert query.sensitivity == least
    for end, given in ((query.lower, lower), (query.upper, upper)):
        assert abs(Fraction(end) - Fraction(query.middle)) <= query.sensitivity * query.unit
        assert lower <= end <= upper
        assert end == pytest.approx(given, rel=1e-14)


def test_equal_plans_have_one_digest_and_others_another():
    def digest(**keys):
        plan = {"rho": 0.1, "release": [COUNT], **keys}
        return dp.tables.plan(dict(sorted(plan.items(), reverse=bool(keys)))).sha256

    assert digest() == digest(rho=0.1) != digest(rho=0.2)


def test_a_coarse_lattice_is_in_the_sensitivity():
    """At a tiny epsilon the lattice is coarser than the unit, and neighbours round apart."""
    made = plan(SPENT, epsilon=1e-9, delta=1e-9)
    mechanism = made.mechanisms[0]
    step = float(mechanism.noise.scale) * 2.0**-32
    assert step > 2
    assert mechanism.sensitivity >= made.queries[0].sensitivity + step
    table = dp.tables.release({"spent": [1.0, LARGEST, -5.0]}, made)
    assert len(table.rows) == 1
    # A scale that is a power of two has the coarsest lattice of all that large.
    query, noise = made.queries[0], dp.Laplace(2.0**40)
    for sensitivity in (1, 2**26 + 1):
        planned = mechanism_of("laplace", noise.scale, sensitivity)
        released = dp.release(dp.Mechanism(noise, sensitivity), 7, granularity=None)
        assert released.mechanism.sensitivity <= planned.sensitivity
    assert query.unit == 2.0**-22
