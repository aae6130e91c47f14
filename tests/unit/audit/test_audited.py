"""Every sampler, release, solver, estimator and scheme meets its claim: a slice by default."""

import zlib

import jax
import pytest

pytest.importorskip("sklearn")
from benchmarks._tools.audited import audited
from benchmarks._tools.audited_estimators import ESTIMATORS
from benchmarks._tools.audited_noises import RELEASES, SAMPLERS, in_floating_point
from benchmarks._tools.audited_solvers import SOLVERS
from benchmarks._tools.audited_trainings import SCHEMES, TRAININGS, one_run

TABLES = {
    "samplers": SAMPLERS,
    "releases": RELEASES,
    "solvers": SOLVERS,
    "schemes": SCHEMES,
    "estimators": ESTIMATORS,
}
# Trials of those that run by default. chosen: tenths of a second each
SLICE = {
    ("samplers", "laplace"): 20_000,
    ("samplers", "discrete_histogram"): 20_000,
    ("releases", "gaussian"): 20_000,
    ("releases", "laplace"): 20_000,
    ("releases", "discrete_laplace"): 20_000,
    ("solvers", "covariance"): 1000,
}
PAIRS = [(section, name) for section, cases in TABLES.items() for name in cases]


def key_of(section, name):
    return jax.random.key(zlib.crc32(f"{section} {name}".encode()))


@pytest.mark.parametrize(("section", "name"), SLICE)
def test_a_slice(section, name):
    found = audited(TABLES[section][name](), key_of(section, name), SLICE[section, name], 0.05)
    assert not found.is_refuted, found
    assert found.epsilon_lower > 0.1 * min(found.claimed, 3.0), found


def test_the_last_bits_of_a_sum_in_floating_point_are_read():
    found = audited(in_floating_point(), key_of("samplers", "bits"), 2000)
    assert found.is_refuted
    assert found.score == "low bits"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:at most [0-9]* coefficients can be found")  # of a few records
@pytest.mark.filterwarnings("ignore:coef_interval_ is (infinite|NaN)")
@pytest.mark.parametrize(("section", "name"), PAIRS)
def test_every_claim_stands(section, name):
    found = audited(TABLES[section][name](), key_of(section, name))
    assert not found.is_refuted, found


@pytest.mark.long
@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_in_one_run(name):
    found = one_run(key_of("one run", name), **TRAININGS[name])
    assert not found.is_refuted, found
    assert found.mu_lower > 0.1
