"""Charges with times and digests, equal parts that fit, and the largest rho within a budget."""

import datetime
import hashlib
import json

import pytest

import jaxdp as dp
from jaxdp.adaptive import ledger_file

BUDGETS = {
    "pure": dp.PureDP(0.3),
    "gdp": dp.GDP(0.3),
    "zcdp": dp.ZCDP(0.1, 0.3),
    "rdp": dp.RDP([2.0, 8.0], [0.1, 0.7]),
}


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 10, 49, 1000])
def test_equal_parts_fit_together_and_no_more(kind, parts):
    """To the last bit; a third part of .3 is below .1."""
    budget = BUDGETS[kind]
    running = dp.Filter(budget)
    for _ in range(min(parts, 12)):
        assert running.would_fit(budget / parts)
    running.spend(budget / parts, parts)
    assert not running.would_fit((budget / parts) / 1000)


def test_parts_are_whole_and_positive():
    for parts in (0, -1, 2.5, float("nan")):
        with pytest.raises(ValueError, match="parts must"):
            dp.GDP(1.0) / parts
    with pytest.raises(TypeError, match="ApproxDP has no equal parts"):
        dp.ApproxDP(1.0, 1e-6) / 3


def test_the_message_of_a_full_ledger_shows_different_numbers(tmp_path):
    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(0.3))
    for _ in range(2):
        ledger.charge(dp.PureDP(0.1))
    said = r"what remains, epsilon 0\.1, got 3 x .*costs 3 x \(epsilon 0\.05\): 2 x would fit"
    with pytest.raises(dp.BudgetExceededError, match=said):
        ledger.charge(dp.PureDP(0.05), 3)
    ledger.charge(dp.PureDP(0.1))


@pytest.mark.parametrize(
    "budget", [(1.0, 1e-6), (0.1, 1e-9), (8.0, 1e-5), (0.0, 0.5), (50.0, 1e-12)]
)
def test_the_largest_rho_meets_the_budget_and_hardly_more_does_not(budget):
    rho = float(dp.largest_zcdp(budget).rho)
    assert dp.ZCDP(0.0, rho).delta(budget[0]) <= budget[1]
    assert dp.ZCDP(0.0, rho * (1 + 1e-6)).delta(budget[0]) > budget[1]


def test_no_rho_meets_a_budget_without_a_delta():
    assert dp.largest_zcdp((1.0, 0.0)).rho == 0


def test_a_charge_has_a_time_a_plan_and_outputs(tmp_path):
    path, output = tmp_path / "budget", tmp_path / "table.csv"
    plan = dp.tables.plan(
        {"rho": 0.1, "name": "households", "ledger": str(path), "release": [{"statistic": "count"}]}
    )
    ledger = dp.Ledger(path, dp.ZCDP(0.0, 1.0))
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    table = dp.tables.release({"a": [1, 2]}, plan)
    other = ledger.charge(dp.ZCDP(0.0, 0.1), name="other")
    output.write_text("a table")
    sha256 = ledger.record_output(table.receipt, output)
    first, second = dp.Ledger(path).charges
    assert (first.name, first.plan_sha256, first.outputs) == ("households", plan.sha256, (sha256,))
    assert (
        before <= datetime.datetime.fromisoformat(first.time) <= datetime.datetime.now(datetime.UTC)
    )
    assert sha256 == hashlib.sha256(b"a table").hexdigest()
    assert (second.receipt, second.plan_sha256, second.outputs) == (other, None, ())
    assert first == ledger.charges[0]
    assert len(ledger.steps) == 2
    with pytest.raises(ValueError, match="receipt must be of a charge"):
        ledger.record_output("0" * 64, output)
    with pytest.raises(ValueError, match="plan_sha256 must be 64 hexadecimal digits"):
        ledger.charge(dp.ZCDP(0.0, 0.1), plan_sha256="x")
    changed = path.read_text().replace(sha256, "0" * 64)
    path.write_text(changed)
    with pytest.raises(ValueError, match="was changed"):
        dp.Ledger(path)


def test_equal_plans_have_one_digest_and_others_another():
    def digest(**keys):
        plan = {"rho": 0.1, "release": [{"statistic": "count"}], **keys}
        return dp.tables.plan(dict(sorted(plan.items(), reverse=bool(keys)))).sha256

    assert digest() == digest(rho=0.1) != digest(rho=0.2)


def test_a_file_without_times_is_read(tmp_path):
    """As it was written before charges had them."""
    path = tmp_path / "budget"
    ledger = dp.Ledger(path, dp.PureDP(1.0))
    with path.open("r+b") as file:
        row = {"step": ["old", [(0.5).hex()], 1]}
        ledger_file._append(file, ledger.digest, row)
    (charge,) = dp.Ledger(path).charges
    assert (charge.name, charge.cost, charge.time, charge.outputs) == ("old", (0.5,), None, ())
    assert "time" not in json.loads(path.read_text().splitlines()[1])
