"""The contract of `contract.py`, on every noise."""

import contract
import oracle
import pytest

import jaxdp as dp

CASES = (
    contract.Case("gaussian", dp.Gaussian, oracle.gaussian, lambda r: [r * r / 2]),
    contract.Case("laplace", dp.Laplace, oracle.laplace, lambda r: [r]),
)
CHECKS = tuple(value for name, value in vars(contract).items() if name.startswith("check_"))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_contract(case, check):
    check(case)


def test_the_contract_has_all_its_checks():
    assert len(CHECKS) == 13
